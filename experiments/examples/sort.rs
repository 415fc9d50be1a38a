//! An experiment of one's own: a model reads letters and writes them in order. It has all options, folders and reports of the built-in experiments.

use burn::tensor::Device;
use heedful_experiments::prelude::*;
use heedful_experiments::tasks::answers::{Answering, ExerciseSets, TokenExercise, accuracy_columns};
use heedful_models::architectures::language_model::{LanguageModel, LanguageModelConfig};
use rand::RngExt;
use serde::{Deserialize, Serialize};

const ALPHABET: u32 = 26;

/// Options of this experiment alone. Every field has a default, and unknown fields are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sort {
    /// Letters to be sorted.
    letters: usize,
    /// Tokens in a batch.
    batch_tokens: usize,
}

impl Default for Sort {
    fn default() -> Self {
        Self { letters: 8, batch_tokens: 500 }
    }
}

fn model(config: &Config<Sort>, attention: &Attention) -> LanguageModelConfig {
    config.model.language_model(ALPHABET as usize, &attention.layout.decoder)
}

impl Experiment for Sort {
    const NAME: &'static str = "sort";
    const TITLE: &'static str = "Sorting letters";
    const DATA: &'static [&'static str] = &["letters"];
    const BATCH: &'static str = "batch_tokens";
    type Data = (ExerciseSets, String);
    type Model = LanguageModel;
    type Task<'a> = Answering<'a>;

    fn check(settings: &Settings<Config<Sort>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let Config { own, model: sizes, .. } = &settings.value;
        settings.require("letters", (1..=sizes.max_length / 2).contains(&own.letters), "give 1 to half of model.max_length")?;
        attentions.iter().try_for_each(|attention| Ok(model(&settings.value, attention).validate()?))
    }

    fn open(config: &Config<Sort>) -> Result<Vec<Self::Data>, ExperimentError> {
        let mut rng = RandomKey::from_seed(0).named("letters").rng();
        let mut exercise = |_| {
            let letters: Vec<u32> = (0..config.own.letters).map(|_| rng.random_range(0..ALPHABET)).collect();
            let mut sorted = letters.clone();
            sorted.sort_unstable();
            TokenExercise::new(&letters, &sorted)
        };
        let [train, valid, test] = [8192, 256, 256].map(|count| (0..count).map(&mut exercise).collect());
        let sets = ExerciseSets { train, valid, test, longer: Vec::new() };
        let sha256 = sha256_hex(format!("{sets:?}").as_bytes());
        Ok(vec![(sets, sha256)])
    }

    fn card((sets, sha256): &Self::Data) -> Card<'_> {
        let description = format!("{} training and {} test exercises", sets.train.len(), sets.test.len());
        Card { vocabulary: ALPHABET as usize, ..Card::new("letters", sha256, description) }
    }

    fn task(setup: Setup<'_, Sort>) -> Answering<'_> {
        Answering { exercises: &setup.data.0, batch_tokens: setup.config.own.batch_tokens }
    }

    fn model(setup: Setup<'_, Sort>, key: &RandomKey, device: &Device) -> Result<LanguageModel, ExperimentError> {
        Ok(model(setup.config, setup.attention).init(key, device))
    }

    fn columns() -> Vec<MetricColumn> {
        accuracy_columns()
    }
}

fn main() -> std::process::ExitCode {
    experiment::main::<Sort>()
}
