//! Controls that show what a score rests on: held-out examples, other test sets, random or frozen weights, and skipped layers.

use heedful_data::glue::GlueTask;
use heedful_models::architectures::classifier::Pooling;

use super::{Classification, ClassificationConfig};
use crate::session::experiment::definition::UNCHANGED;
use crate::tasks::prelude::*;

/// Refuses what cannot be, or changes nothing.
pub(super) fn check(settings: &Settings<ClassificationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let Classification { data, init, pretrained, swap, reinitialise, freeze, pooling, .. } = &settings.value.own;
    settings.require("data.held_out", (0.0..1.0).contains(&data.held_out), "it must be at least 0 and less than 1")?;
    let tested = |task: &&GlueTask| task.labelled_test().is_some();
    let has_tests = settings.value.run.data.is_some() && data.tasks.iter().any(|task| tested(&task));
    let names: Vec<_> = GlueTask::ALL.iter().filter(tested).map(|task| task.name()).collect();
    let problem = format!("there are only those of {} in --data; name one of these tasks, or leave it out", names.join(" and "));
    settings.require("data.labelled_tests", !data.labelled_tests || has_tests, problem)?;
    let replaces = pretrained.is_some() && (*swap || attentions.iter().any(|attention| attention.name != UNCHANGED));
    let problem = "no attention of a pretrained model is replaced; give --pretrained DIR with --attention or --swap, or leave it out";
    settings.require("reinitialise", !reinitialise || replaces, problem)?;
    let problem = "random weights would stay untrained; give --pretrained DIR or --init RUN, or leave it out";
    settings.require("freeze", freeze.is_none() || pretrained.is_some() || init.is_some(), problem)?;
    let problem = "an attention that replaces the model's would keep its random weights; compare `unchanged` alone, or leave it out";
    settings.require("freeze", freeze.is_none() || !replaces, problem)?;
    check_pooling(settings, *pooling, attentions.len() + usize::from(replaces))
}

/// Refuses to compare attentions in a model whose layers are left out.
pub(crate) fn check_pooling<E: Experiment>(
    settings: &Settings<Config<E>>,
    pooling: Pooling,
    attentions: usize,
) -> Result<(), ExperimentError> {
    let problem = "mean-embeddings skips the layers, so that attentions have no effect; compare a single one, that of the model";
    Ok(settings.require("pooling", pooling != Pooling::MeanEmbeddings || attentions <= 1, problem)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use heedful_models::architectures::classifier::Classifier;

    use super::*;
    use crate::tasks::testing::{self, Case, bert};
    use crate::train::ParameterCount;

    fn settings(folder: Option<&Path>, options: &[&str]) -> Settings<ClassificationConfig> {
        testing::settings(folder, &[&["data.tasks=['MRPC']", "data.generated_examples=16"][..], options].concat())
    }

    fn model(folder: &Path, name: &str, options: &[&str]) -> Classifier {
        Case::<Classification>::new(settings(Some(folder), options).value, name).model(1, &Device::flex().autodiff())
    }

    #[test]
    fn a_frozen_encoder_trains_pooler_and_output_alone() {
        let folder = bert();
        let frozen = ParameterCount::of(&model(folder.path(), UNCHANGED, &["freeze='encoder'"]));
        // A pooler of 16 by 16 and two outputs, with biases.
        assert_eq!(frozen.trainable, 16 * 16 + 16 + 2 * 16 + 2);
        assert!(ParameterCount::of(&model(folder.path(), UNCHANGED, &[])).trainable > 4 * frozen.trainable);
    }

    #[test]
    fn the_mean_of_embeddings_trains_no_layer() {
        let folder = bert();
        let bag = model(folder.path(), UNCHANGED, &["pooling='mean-embeddings'"]);
        let trained = ParameterCount::of(&bag).trainable;
        let layers = ParameterCount::of(&model(folder.path(), UNCHANGED, &[])).trainable - trained;
        assert_eq!(layers, ParameterCount::of(&bag.encoder.clone()).total);
    }

    #[test]
    fn reinitialised_attentions_keep_no_weight_of_the_model_and_all_else_is_kept() {
        let folder = bert();
        let weights = |name: &str, options: &[&str]| {
            let model = model(folder.path(), name, options);
            let attention = model.encoder.layers[1].self_attention.as_softmax().unwrap().value.weight.val().into_data();
            (attention, model.encoder.layers[1].feed_forward.as_ref().unwrap().input.weight.val().into_data())
        };
        let (own, kept) = (weights(UNCHANGED, &[]), weights("uniform", &[]));
        assert_eq!(own, kept, "uniform averaging has the values of the model");
        for name in ["uniform", "dot-product"] {
            let drawn = weights(name, &["reinitialise=true"]);
            assert!(drawn.0 != own.0 && drawn.1 == own.1, "{name}");
        }
    }

    #[test]
    fn held_out_examples_choose_and_the_development_set_scores() {
        let data = |options: &[&str]| Classification::open(&settings(None, options).value).unwrap().remove(0).parts.remove(0);
        let part = data(&["data.held_out=0.25"]);
        let sets: Vec<_> = part.sets.iter().map(|(name, examples)| (name.as_str(), examples.len())).collect();
        assert_eq!((part.train.len(), sets[0], part.scored_from), (12, ("held-out", 4), 1));
        assert_eq!(sets[1].0, "dev");
        let plain = data(&[]);
        assert_eq!((plain.train.len(), plain.sets.len(), plain.scored_from), (16, 1, 0));
    }

    #[test]
    fn controls_without_effect_are_refused() {
        let folder = bert();
        let refusal = |is_pretrained: bool, attentions: &[&str], option: &str| {
            let settings = settings(is_pretrained.then_some(folder.path()), &[option]);
            let attentions: Vec<_> =
                attentions.iter().map(|name| Attention { name: (*name).to_owned(), ..Attention::new(Default::default()) }).collect();
            check(&settings, &attentions).err().map(|error| error.to_string())
        };
        for (is_pretrained, attentions, option, part) in [
            (true, &[UNCHANGED][..], "reinitialise=true", "--attention or --swap"),
            (false, &["uniform"], "reinitialise=true", "--pretrained DIR"),
            (false, &["uniform"], "freeze='encoder'", "--init RUN"),
            (true, &[UNCHANGED, "uniform"], "freeze='encoder'", "`unchanged` alone"),
            (false, &["uniform", "dot-product"], "pooling='mean-embeddings'", "a single one"),
            (true, &["uniform"], "pooling='mean-embeddings'", "that of the model"),
            (false, &["uniform"], "data.labelled_tests=true", "MRPC and STS-B"),
            (false, &["uniform"], "data.held_out=1.0", "less than 1"),
        ] {
            let message = refusal(is_pretrained, attentions, option).unwrap_or_default();
            let field = option.split('=').next().unwrap();
            assert!(message.contains(field) && message.contains(part), "{option}: {message}");
        }
        for (is_pretrained, attentions, option) in [
            (true, &["dot-product"][..], "reinitialise=true"),
            (true, &[UNCHANGED], "freeze='encoder'"),
            (true, &[UNCHANGED], "pooling='mean-embeddings'"),
            (false, &["uniform"], "pooling='mean-embeddings'"),
        ] {
            assert_eq!(refusal(is_pretrained, attentions, option), None, "{option}");
        }
    }
}
