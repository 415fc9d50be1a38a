//! Pre-training on text: the experiment `mlm`.
//!
//! An encoder finds hidden tokens ([`MaskedModelling`], Devlin et al. 2019), or an encoder-decoder fills gaps ([`SpanModelling`], Raffel et al. 2020). `glue --init`
//! goes on with the weights of the encoder.

mod config;
mod masked;
mod spans;

use heedful_attention::arithmetic::Multiplications;
use heedful_attention::random::RandomKey;
use rand::RngExt;

use crate::batch::fixed_size_batches;
use crate::comparison::{Attention, Dataset, STEPS_PER_SECOND, folder_name};
use crate::data::generate::{self, Sizes};
use crate::data::text::TextCorpus;
use crate::error::ExperimentError;
use crate::report::MetricColumn;
use crate::settings::Settings;
use crate::tokenise::{END, Tokeniser};

pub use config::{Masking, PreTrainingConfig, PreTrainingData, Spans};
pub use masked::{MaskedBatch, MaskedModelling, MaskedTask};
pub use spans::{SpanModelling, SpanTask};

/// Fields that say what the data are.
const DATA: &[&str] = &["tokeniser", "data.generated_words", "data.evaluated"];
/// Name of the score: nats for each token that is to be found.
const LOG_PERPLEXITY: &str = "log perplexity";
/// Name of the cost of a step: billions of floating-point operations.
const FLOPS_PER_STEP: &str = "GFLOPs per step";

/// A tokenised text. Each split is one sequence, its lines one after the other.
#[derive(Debug)]
pub struct PreTrainingDataset {
    name: String,
    corpus: TextCorpus,
    tokeniser: Tokeniser,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

impl Dataset for PreTrainingDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.corpus.sha256
    }

    fn description(&self) -> String {
        format!(
            "{} training, {} validation and {} test tokens, ends of lines included; {} types; splits: {}",
            self.train.len(),
            self.valid.len(),
            self.test.len(),
            self.tokeniser.vocabulary_size(),
            self.corpus.split
        )
    }

    fn tokeniser(&self) -> Option<&Tokeniser> {
        Some(&self.tokeniser)
    }
}

fn check(settings: &Settings<PreTrainingConfig>) -> Result<(), ExperimentError> {
    let PreTrainingConfig { data, model, .. } = &settings.value;
    for (field, value) in
        [("data.batch", data.batch), ("data.generated_words", data.generated_words), ("data.evaluated", data.evaluated.unwrap_or(1))]
    {
        if value == 0 {
            return Err(settings.refuse(field, "it must be at least 1").into());
        }
    }
    if !(4..=model.max_length).contains(&data.context) {
        let problem = format!("{} tokens are not between 4 and model.max_length = {}", data.context, model.max_length);
        return Err(settings.refuse("data.context", problem).into());
    }
    Ok(())
}

fn dataset(config: &PreTrainingConfig) -> Result<PreTrainingDataset, ExperimentError> {
    let (name, corpus) = match &config.run.data {
        Some(dir) => (folder_name(dir), TextCorpus::read(dir).map_err(ExperimentError::failure)?),
        None => {
            let sizes = Sizes { train: config.data.generated_words, ..Sizes::LANGUAGE };
            ("built-in".to_owned(), generate::language(&RandomKey::from_seed(0).named("language data"), sizes))
        }
    };
    let tokeniser = Tokeniser::train(&config.tokeniser, corpus.train.iter().map(String::as_str)).map_err(ExperimentError::usage)?;
    let encode = |lines: &[String]| lines.iter().flat_map(|line| tokeniser.encode(line).into_iter().chain([END])).collect::<Vec<_>>();
    let (train, valid, test) = (encode(&corpus.train), encode(&corpus.valid), encode(&corpus.test));
    Ok(PreTrainingDataset { name, corpus, tokeniser, train, valid, test })
}

/// Refuses a text that is shorter than a sequence.
fn fits(config: &PreTrainingConfig, dataset: &PreTrainingDataset, _attention: &Attention) -> Result<(), ExperimentError> {
    for (split, tokens) in [("training", &dataset.train), ("validation", &dataset.valid), ("test", &dataset.test)] {
        if tokens.len() < config.data.context {
            return Err(ExperimentError::usage(format!(
                "data.context = {}: the {split} text has only {} tokens; give --set data.context=N with a smaller N",
                config.data.context,
                tokens.len()
            )));
        }
    }
    Ok(())
}

/// The first positions of the sequences of an epoch, `length` tokens each, in batches. They lie end to end, from an offset that changes with the epoch.
fn batches(tokens: usize, length: usize, batch: usize, key: &RandomKey) -> Vec<Vec<usize>> {
    let offset = key.rng().random_range(0..=(tokens - length).min(length - 1));
    let batches = fixed_size_batches((tokens - offset) / length, batch, key);
    batches.into_iter().map(|items| items.into_iter().map(|item| offset + item * length).collect()).collect()
}

/// The first positions of the sequences that a text is evaluated on.
fn evaluated(config: &PreTrainingConfig, tokens: usize, length: usize) -> Vec<usize> {
    let count = tokens / length;
    (0..count.min(config.data.evaluated.unwrap_or(count))).map(|item| item * length).collect()
}

fn columns() -> Vec<MetricColumn> {
    vec![
        MetricColumn::new(LOG_PERPLEXITY, "log ppl").digits(3).lower_is_better().defined_as("nats for each token that is to be found"),
        MetricColumn::new("accuracy", "accuracy").percent().higher_is_better(),
        MetricColumn::new(STEPS_PER_SECOND, "steps/s"),
        MetricColumn::new(FLOPS_PER_STEP, "GFLOPs/step")
            .defined_as("multiplications and additions of a forward and a backward pass, counted, in billions"),
    ]
}

/// Billions of floating-point operations of a training step with so many sequences.
fn flops(of_a_sequence: Multiplications, batch: usize) -> f64 {
    2.0 * batch as f64 * of_a_sequence.training() / 1e9
}
