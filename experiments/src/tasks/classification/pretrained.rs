//! Fine-tuning a pretrained encoder or decoder of Hugging Face, with another attention in some of its layers or with its own.
//!
//! With `swap` the model is fine-tuned first, and contenders start from the result: only then does a model score anything before and right after its attention
//! is replaced. Without `swap` the attention is replaced before fine-tuning, whose outputs are new.

use std::path::Path;

use burn::module::Module;
use heedful_data::tokenise::Tokeniser;
use heedful_models::architectures::classifier::{Classifier, ClassifierConfig};
use heedful_models::pretrained::{Architecture, Pretrained};
use heedful_runs::run_folder::RunFolder;

use super::examples::Frame;
use super::{Classification, ClassificationConfig, ClassificationTask, PreTrained};
use crate::session::comparison;
use crate::session::experiment::definition::UNCHANGED;
use crate::session::experiment::paper_model::name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{
    Checksums, check_model, check_tokeniser, configuration, opened, refused, special_token, special_tokens, tokeniser, training,
};
use crate::tasks::swap::best;
use crate::tasks::swap::contender;
use crate::tasks::swap::replacement::{self, Beginning, beginning};
use crate::train::load_model;

/// The first metric of a task, of the model that all contenders begin with.
const BEFORE: &str = "score before";
/// The same right after the swap.
const SWAPPED: &str = "score after the swap";

/// The folder of a pretrained model, and the configuration of its classifier.
fn classifier(folder: &Path) -> Result<(Pretrained, ClassifierConfig), ExperimentError> {
    let mut opened = opened(folder)?;
    if opened.language_model_config().is_ok() {
        // How many classes a task has is not known yet.
        opened = opened.with_new_output(1);
    }
    let config = opened.classifier_config().cloned().map_err(|_| {
        let (config, found) = (folder.join("config.json"), opened.architecture());
        let problem = "and only models of texts are fine-tuned here; give the folder of a BERT, of a RoBERTa or of a decoder";
        refused(format!("`{}` is of the type {found}, {problem}", config.display()))
    })?;
    Ok((opened, config))
}

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path) -> Result<Table, ExperimentError> {
    beneath_of(folder, |_| UNCHANGED.to_owned())
}

/// What the folder says of it that a pre-training began with.
pub(super) fn beneath_init(folder: &Path) -> Result<Table, ExperimentError> {
    beneath_of(folder, |config| name(&config.attention))
}

fn beneath_of(folder: &Path, attention: impl Fn(&ClassifierConfig) -> String) -> Result<Table, ExperimentError> {
    let (_, config) = classifier(folder)?;
    let pooling = Value::try_from(config.pooling).map_err(refused)?;
    let further = [("pooling", pooling), ("pooler", Value::Boolean(config.pooler)), ("causal", Value::Boolean(config.causal))];
    // As Devlin et al. 2019, appendix A.3, at one of their learning rates.
    let training = training(1000, 250, 3e-5);
    configuration((attention(&config), &config.attention), &ModelSettings::of_classifier(&config), &training, further)
}

/// The attention of a contender.
pub(super) fn attention(config: &ClassificationConfig, folder: &Path, name: &str) -> Result<Attention, ExperimentError> {
    contender::attention(&config.plain(), &own(config, folder)?.layout.encoder, name)
}

/// The attention of the model in a folder, with the options of the configuration.
fn own(config: &ClassificationConfig, folder: &Path) -> Result<Attention, ExperimentError> {
    comparison::attention(&config.plain(), &name(&classifier(folder)?.1.attention))
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<ClassificationConfig>) -> Result<(), ExperimentError> {
    let Classification { pretrained, init, tokeniser, .. } = &settings.value.own;
    let begun = init.as_deref().filter(|_| pretrained.is_none()).and_then(PreTrained::began_with);
    check_tokeniser(settings, tokeniser, pretrained.is_some() || begun.is_some())?;
    if let (Some(init), None, None) = (init, pretrained, &begun) {
        PreTrained::at(init).check_tokeniser(settings)?;
    }
    let Some(folder) = pretrained.as_deref().or(begun.as_deref()) else { return Ok(()) };
    if begun.is_some() {
        return check_model(settings, folder, &ModelSettings::of_classifier(&classifier(folder)?.1));
    }
    settings.require("init", init.is_none(), "a model begins with one of a pre-training and a pretrained model; give one of the two")?;
    check_model(settings, folder, &ModelSettings::of_classifier(&classifier(folder)?.1))
}

/// What is read of the folder of a pretrained model with the data.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) tokeniser: Tokeniser,
    pub(super) frame: Frame,
    /// Vocabulary size of the model.
    pub(super) vocabulary: usize,
    /// Whether it has vectors that tell the texts of a pair from each other.
    pub(super) segments: bool,
    pub(super) checksums: Checksums,
}

impl Read {
    pub(super) fn of(folder: &Path) -> Result<Self, ExperimentError> {
        let (opened, ClassifierConfig { vocabulary, segments, causal, .. }) = classifier(folder)?;
        let tokeniser = tokeniser(folder, vocabulary)?;
        let checksums = Checksums::of(folder)?;
        if causal {
            // As Radford et al. 2018, section 3.3, frame texts for a decoder, with tokens that it knows.
            let known = |token: Option<u32>| token.filter(|&token| (token as usize) < vocabulary);
            let (Some(classify), Some(separate)) = (known(opened.first_token()), known(opened.last_token())) else {
                let path = folder.join("config.json");
                return Err(refused(format!("`{}` has no bos_token_id and no eos_token_id of the model; add one of them", path.display())));
            };
            let frame = Frame { classify, separate, doubled: false };
            return Ok(Self { tokeniser, frame, vocabulary, segments, checksums });
        }
        let [classify, separate, _] = special_tokens(&opened);
        let special = |token| special_token(folder, &tokeniser, token);
        let doubled = opened.architecture() == Architecture::Roberta;
        let frame = Frame { classify: special(classify)?, separate: special(separate)?, doubled };
        Ok(Self { tokeniser, frame, vocabulary, segments, checksums })
    }
}

/// The model that all contenders begin with, and its configuration: the model of the folder with new outputs from `key`, or after its fine-tuning.
fn start(
    Setup { config, data, .. }: Setup<'_, Classification>,
    folder: &Path,
    key: &RandomKey,
    device: &Device,
) -> Result<(Classifier, ClassifierConfig), ExperimentError> {
    let model_config = config.model(data.vocabulary, data.outputs(), data.segments, &own(config, folder)?);
    let initial = model_config.init(key, device);
    let model = match &config.own.place {
        Some(place) if config.own.swap => {
            let Card { name, .. } = Classification::card(data);
            let found = best(&RunFolder::at(place), &name, UNCHANGED, config.run.seed)?.ok_or_else(|| {
                let problem = "has no fine-tuned model that the runs begin with; do the command with --resume";
                ExperimentError::failure(format!("`{}` {problem}", place.display()))
            })?;
            load_model(initial, &found).map_err(ExperimentError::usage)?
        }
        // A plan needs sizes and times alone.
        _ => classifier(folder)?.0.with_new_output(data.outputs()).read_into(initial).map_err(refused)?,
    };
    Ok((model, model_config))
}

/// The model that a run begins with.
pub(super) fn model(
    setup: Setup<'_, Classification>,
    folder: &Path,
    key: &RandomKey,
    device: &Device,
) -> Result<Classifier, ExperimentError> {
    let (model, config) = start(setup, folder, key, device)?;
    beginning(model, &config, setup.attention, key, setup.config.own.reinitialise).map(|beginning| beginning.model)
}

/// Adds to the scores of a run what its model was before it was trained. `false` if the interrupt was raised meanwhile.
pub(super) fn score(
    setup: Setup<'_, Classification>,
    folder: &Path,
    (task, scores): (&ClassificationTask<'_>, &mut Scores),
    (device, paths): (&Device, &RunPaths),
    interrupt: &Interrupt,
) -> Result<bool, ExperimentError> {
    let config = setup.config;
    let key = RandomKey::from_seed(config.run.seed).named("init");
    let (before, model_config) = start(setup, folder, &key, device)?;
    let Beginning { model: swapped, report } = beginning(before.clone(), &model_config, setup.attention, &key, config.own.reinitialise)?;
    if config.own.swap {
        let metric = task.selection().metric;
        for (name, model) in [(BEFORE, before.valid()), (SWAPPED, swapped.valid())] {
            let Some(of_model) = task.evaluate(&model, Split::Test, interrupt) else { return Ok(false) };
            let value = of_model.metrics.iter().find(|(name, _)| *name == metric).map_or(f64::NAN, |(_, value)| *value);
            scores.push(name, value, format!("{metric}, {}", of_model.signatures.get(&metric).cloned().unwrap_or_default()));
        }
        scores.notes.push(format!("the model was fine-tuned first, with seed {}", config.run.seed));
    }
    if let Some(report) = report {
        replacement::record(&report, scores, paths)?;
    }
    Ok(true)
}

/// The columns of models that begin with a pretrained model: those before the metrics of tasks, and those after them.
pub(super) fn columns() -> ([MetricColumn; 2], [MetricColumn; 3]) {
    let column = |name: &str, label: &str, definition: &str| MetricColumn::new(name, label).percent().defined_as(definition);
    let before = column(BEFORE, "before", "the first metric of the task, of the model that all begin with");
    let swapped = column(SWAPPED, "swapped", "the same right after the swap").higher_is_better();
    ([before, swapped], replacement::columns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{Case, bert, fixture, settings};

    fn config(further: &[&str]) -> Settings<ClassificationConfig> {
        settings(Some(&fixture("bert")), further)
    }

    #[test]
    fn the_configuration_of_a_folder_is_that_of_its_decoder() {
        for name in ["gemma2", "gpt2", "llama", "mistral", "qwen3", "gpt2-classifier", "llama-classifier"] {
            let config = settings::<Classification>(Some(&fixture(name)), &[]).value;
            let expected = classifier(&fixture(name)).unwrap().1;
            let own = own(&config, &fixture(name)).unwrap();
            assert!(expected.causal && !expected.output_bias, "{name}");
            assert_eq!(config.model(expected.vocabulary, expected.outputs, false, &own), expected, "{name}");
        }
    }

    #[test]
    fn the_configuration_of_a_folder_is_that_of_its_encoder() {
        let config = config(&[]).value;
        assert_eq!(config.run.attention, [UNCHANGED]);
        let expected = classifier(&fixture("bert")).unwrap().1;
        let own = own(&config, &fixture("bert")).unwrap();
        assert_eq!(config.model(expected.vocabulary, expected.outputs, true, &own), expected);
        // As a list for its layers it is the same model.
        let unchanged = attention(&config, &fixture("bert"), UNCHANGED).unwrap();
        let listed = config.model(expected.vocabulary, expected.outputs, true, &unchanged);
        assert!((0..2).all(|layer| listed.attention.at(layer) == expected.attention.at(layer)));
    }

    #[test]
    fn contenders_replace_attentions_of_the_encoder() {
        let config = config(&["swap=true"]).value;
        let families = |name: &str| {
            let Attention { name, layout } = Classification::attention_named(&config, name).unwrap().unwrap();
            (name, [0, 1].map(|layer| layout.encoder.at(layer).family()))
        };
        assert_eq!(families(UNCHANGED), (UNCHANGED.to_owned(), ["dot-product"; 2]));
        assert_eq!(families("layers.*.attention=uniform"), ("uniform".to_owned(), ["uniform"; 2]));
        assert_eq!(families("layers.1=random"), ("layers.1=synthesizer-random".to_owned(), ["dot-product", "synthesizer-random"]));
        let plain = Classification::attention_named(&ClassificationConfig::default(), "uniform");
        assert!(plain.is_none());
        let without = ClassificationConfig { own: Classification { swap: true, ..Classification::default() }, ..Default::default() };
        let error = Classification::attention_named(&without, "uniform").unwrap().unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("--pretrained DIR"), "{error}");
    }

    #[test]
    fn texts_are_framed_by_the_tokens_of_the_encoder_whose_weights_the_model_has() {
        let folder = bert();
        let mut config = config(&["data.tasks=['MRPC']", "data.generated_examples=8"]).value;
        config.own.pretrained = Some(folder.path().to_owned());
        let case = Case::<Classification>::new(config, UNCHANGED);
        let data = &case.data;
        let card = Classification::card(data);
        assert_eq!((card.vocabulary, data.segments), (67, true));
        for example in &data.parts[0].train {
            let (tokens, [first, second]) = (example.tokens(), example.texts());
            assert_eq!((tokens[0], tokens[1 + first.len()], tokens[tokens.len() - 1]), (5, 2, 2));
            assert!(tokens.len() == first.len() + second.len() + 3 && tokens.len() <= 12, "{tokens:?}");
            assert!(first.iter().chain(second).all(|token| [0, 3, 4].contains(token)), "{tokens:?}");
        }
        let device = Device::flex();
        let model = case.model(1, &device);
        let expected = opened(folder.path()).unwrap().classifier(&device).unwrap();
        assert_eq!((model.output.weight.dims(), expected.output.weight.dims()), ([16, 2], [16, 3]));
        let weights = |model: &Classifier| {
            let pooler = model.pooler.as_ref().unwrap().weight.val().into_data();
            let value = model.encoder.layers[1].self_attention.as_softmax().unwrap().value.weight.val().into_data();
            [pooler, value, model.embedding.tokens.weight.val().into_data()]
        };
        assert_eq!(weights(&model), weights(&expected));
    }

    #[test]
    fn sizes_of_another_model_are_refused_and_dropout_is_not() {
        for (option, part) in [
            ("model.d_model=32", "for 16; leave it out"),
            ("model.layers=3", "for 2; leave it out"),
            ("model.heads=2", "for 4; leave it out"),
            ("model.max_length=24", "for 12; leave it out"),
            ("model.positions=\"sinusoidal\"", "\"learned\""),
            ("tokeniser={kind=\"word\"}", "leave it out"),
            ("init=\"runs/mlm\"", "one of the two"),
        ] {
            let error = Classification::check(&config(&[option]), &[]).unwrap_err();
            let (field, message) = (option.split('=').next().unwrap(), error.to_string());
            assert!(error.exit_code() == 2 && message.contains(field) && message.contains(part), "{option}: {message}");
        }
        assert!(Classification::check(&config(&["model.dropout=0.3"]), &[]).is_ok());
    }
}
