//! Models of papers, those of [`heedful_models::pretrained::presets`], by name: what `--model` takes beside the models of an experiment.
//!
//! A preset sets the sizes of its paper. The configuration file and the options of a command can change them, like everything that a model sets
//! (`--model hc-sa-iwslt --set model.d_model=64`). Its twin `-tiny` has the same architecture in a size that trains on two cores. The data determine the
//! vocabulary. `model.max_length` keeps the value of the experiment where it limits the examples that are read.

use heedful_models::pretrained::presets::{self, Preset, Size};
use toml::Table;

use crate::session::error::ExperimentError;
use crate::session::experiment::definition::Experiment;
use crate::session::experiment::paper_model::PaperModel;

/// What ends the name of a twin.
const TINY: &str = "-tiny";
/// What ends the name of a preset whose own name an experiment has given to a model of any size.
const PAPER: &str = "-paper";

/// Whether a language model is one of images, whose tokens are intensities.
pub(crate) fn is_of_images(preset: &Preset) -> bool {
    [Size::Full, Size::Tiny].map(|size| presets::image_transformer_cifar(size).into()).contains(preset)
}

/// A preset under the name that an experiment has for it.
pub(crate) struct NamedPreset {
    /// Name in options, folders and tables.
    pub(crate) name: String,
    /// Paper and place of its sizes.
    pub(crate) source: &'static str,
    /// Name of its attention.
    pub(crate) attention: String,
    own_name: String,
}

impl NamedPreset {
    fn of<E: Experiment>(own_name: &str) -> Option<Self> {
        let preset = presets::named(own_name)?;
        let PaperModel { attention, .. } = E::preset(&preset)?;
        let is_taken = E::MODELS.iter().any(|model| model.name == own_name);
        let name = if is_taken { format!("{own_name}{PAPER}") } else { own_name.to_owned() };
        Some(Self { name, source: preset.source, attention, own_name: own_name.to_owned() })
    }

    /// Those of an experiment, without their twins.
    pub(crate) fn all<E: Experiment>() -> Vec<Self> {
        presets::NAMES.iter().filter_map(|name| Self::of::<E>(name)).collect()
    }

    /// The attention and the fields that the preset of this name sets, or its twin; `None` if an experiment has none of this name.
    ///
    /// # Errors
    /// Sizes that TOML cannot express.
    pub(crate) fn settings<E: Experiment>(name: &str) -> Result<Option<(String, Table)>, ExperimentError> {
        let base = name.strip_suffix(TINY);
        let Some(found) = Self::all::<E>().into_iter().find(|preset| preset.name == base.unwrap_or(name)) else { return Ok(None) };
        let own_name = format!("{}{}", found.own_name, if base.is_some() { TINY } else { "" });
        let Some(model) = presets::named(&own_name).and_then(|preset| E::preset(&preset)) else { return Ok(None) };
        Ok(Some((model.attention.clone(), model.table(E::DATA)?)))
    }
}

#[cfg(test)]
mod tests {
    use heedful_models::parts::position::PositionConfig;
    use heedful_models::pretrained::presets::PresetModel;
    use heedful_runs::settings::{Assignment, Settings};

    use heedful_models::block::layout::AttentionLayout;
    use heedful_runs::settings;

    use super::*;
    use crate::model::attention::Attention;
    use crate::session::comparison::candidates;
    use crate::session::experiment::definition::Config;
    use crate::session::footprint::Memory;
    use crate::tasks::classification::Classification;
    use crate::tasks::image::{ImageClassification, ImageModelling};
    use crate::tasks::language::Language;
    use crate::tasks::text_classification::TextClassification;
    use crate::tasks::text_generation::TextGeneration;
    use crate::tasks::translation::Translation;

    /// The configuration and attention of the model that a command names, or why there is none.
    fn of<E: Experiment>(name: &str, options: &[&str]) -> Result<(Config<E>, Attention), String> {
        let named = format!("run.models=[{{name='{name}'}}]");
        let mut settings = Settings::<Config<E>>::set(&[&["run.attention=[]", &named], options].concat()).unwrap();
        let candidates = candidates::<E>(&mut settings, Memory::of_finished()).map_err(|error| error.to_string())?;
        let [candidate] = &candidates[..] else { panic!("{name}: {} candidates", candidates.len()) };
        assert_eq!(candidate.attention.name, name);
        Ok((candidate.config.clone(), candidate.attention.clone()))
    }

    /// The names that an experiment takes, each with the preset that it stands for.
    fn all<E: Experiment>() -> Vec<(String, Preset)> {
        let both =
            |NamedPreset { name, own_name, .. }: NamedPreset| ["", TINY].map(|end| (format!("{name}{end}"), format!("{own_name}{end}")));
        let pairs = NamedPreset::all::<E>().into_iter().flat_map(both);
        pairs.map(|(name, own_name)| (name, presets::named(&own_name).unwrap())).collect()
    }

    #[test]
    fn a_language_model_by_name_is_the_preset() {
        for (name, preset) in all::<Language>() {
            let (config, attention) = of::<Language>(&name, &[]).unwrap();
            let PresetModel::LanguageModel(expected) = &preset.model else { panic!("{name} is no language model") };
            let mut found = config.model(expected.vocabulary, &attention);
            let data = &config.own.data;
            assert_eq!((data.context, data.memory), (preset.context, preset.memory), "{name}");
            assert_eq!(found.block.max_length, expected.block.max_length.max(data.reach()), "{name}");
            found.block.max_length = expected.block.max_length;
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn an_encoder_decoder_by_name_is_the_preset() {
        fn check<E: Experiment>(build: impl Fn(&Config<E>, usize, &Attention) -> heedful_models::architectures::seq2seq::Seq2SeqConfig) {
            for (name, preset) in all::<E>() {
                let PresetModel::Seq2Seq(expected) = &preset.model else { panic!("{name} has no encoder and decoder") };
                let length = format!("model.max_length={}", expected.block.max_length);
                let (config, attention) = of::<E>(&name, &[&length]).unwrap();
                assert_eq!(build(&config, expected.target_vocabulary, &attention), *expected, "{name}");
            }
        }
        check::<Translation>(|config, vocabulary, attention| config.model(vocabulary, attention));
        check::<TextGeneration>(|config, vocabulary, attention| config.model(vocabulary, attention));
    }

    #[test]
    fn a_classifier_by_name_is_the_preset() {
        for (name, preset) in all::<Classification>() {
            let PresetModel::Classifier(expected) = &preset.model else { panic!("{name} is no classifier") };
            let length = format!("model.max_length={}", expected.block.max_length);
            let (config, attention) = of::<Classification>(&name, &[&length]).unwrap();
            assert_eq!(config.model(expected.vocabulary, expected.outputs, true, &attention), *expected, "{name}");
            let (config, attention) = of::<TextClassification>(&name, &[&length]).unwrap();
            let found = config.model(expected.vocabulary, expected.outputs, &attention);
            assert_eq!(found, expected.clone().with_segments(false), "{name}");
        }
    }

    #[test]
    fn a_model_of_images_by_name_is_the_preset_with_the_grid_of_its_images() {
        for (name, preset) in all::<ImageModelling>() {
            let PresetModel::LanguageModel(expected) = &preset.model else { panic!("{name} is no language model") };
            let (config, attention) = of::<ImageModelling>(&name, &[]).unwrap();
            assert!(matches!(config.model.positions, PositionConfig::Grid(_)), "{name}");
            let found = config.model.language_model(expected.vocabulary, &attention.layout.decoder).with_tied(config.own.0.tied);
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn a_classifier_of_images_by_name_is_the_preset() {
        for (name, preset) in all::<ImageClassification>() {
            let PresetModel::Vision(expected) = &preset.model else { panic!("{name} is no classifier of images") };
            let length = format!("model.max_length={}", expected.block.max_length);
            let (config, attention) = of::<ImageClassification>(&name, &[&length]).unwrap();
            let shape = [expected.height, expected.width, expected.channels];
            assert_eq!(config.vision_of(shape, expected.classes, &attention), *expected, "{name}");
        }
    }

    #[test]
    fn every_preset_of_a_paper_has_a_program() {
        let names = |list: Vec<NamedPreset>| list.into_iter().map(|preset| preset.own_name).collect::<Vec<_>>();
        let reached = [
            names(NamedPreset::all::<Language>()),
            names(NamedPreset::all::<Translation>()),
            names(NamedPreset::all::<Classification>()),
            names(NamedPreset::all::<ImageModelling>()),
            names(NamedPreset::all::<ImageClassification>()),
        ]
        .concat();
        let missing: Vec<_> = presets::NAMES.iter().filter(|name| !reached.iter().any(|own| own == *name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn sizes_of_a_preset_can_be_set_and_wrong_names_have_a_suggestion() {
        let (config, attention) = of::<Translation>("hc-sa-iwslt", &["model.d_model=64", "model.layers=1"]).unwrap();
        let model = config.model(10, &attention);
        assert_eq!((model.block.d_model, model.encoder_layers, model.block.heads, model.block.d_ff), (64, 1, 4, 507));
        assert_eq!(model.attention, AttentionLayout::named("hc-sa").unwrap());
        let (config, attention) =
            of::<Language>("sparse-enwik8", &["mechanisms.sparse-fixed.stride=16", "mechanisms.sparse-fixed.summary=4"]).unwrap();
        let table = Table::try_from(attention.layout.decoder.at(0)).unwrap();
        assert_eq!((table["stride"].as_integer(), config.model.layers), (Some(16), 30));
        let message = of::<Translation>("hc-sa-iwslt-14", &[]).unwrap_err();
        assert!(message.contains("hc-sa-iwslt"), "{message}");
        // It is a model of another experiment.
        assert!(of::<Translation>("gtrxl-12", &[]).is_err());
        // The experiment's own model of this name has any size.
        assert_eq!(of::<Language>("gpt2", &[]).unwrap().0.model.layers, 2);
        assert_eq!(of::<Language>("gpt2-paper", &[]).unwrap().0.model.layers, 12);
    }

    #[test]
    fn what_a_command_writes_down_of_a_preset_repeats_it() {
        let mut settings =
            Settings::<Config<Translation>>::set(&["run.attention=[]", "run.models=[{name='synthesizer-base-tiny'}]"]).unwrap();
        let first = candidates::<Translation>(&mut settings, Memory::of_finished()).unwrap();
        let written = settings::complete(&settings.value).unwrap();
        let again = written.iter().map(|(field, value)| Assignment::option("--config", field, value.clone())).collect();
        let mut settings = Settings::<Config<Translation>>::read(None, again).unwrap();
        let second = candidates::<Translation>(&mut settings, Memory::of_finished()).unwrap();
        let models = [&first[0], &second[0]].map(|candidate| candidate.config.model(9, &candidate.attention));
        assert_eq!(models[0], models[1]);
        assert_eq!((models[0].block.d_model, models[0].encoder_layers), (32, 2));
    }
}
