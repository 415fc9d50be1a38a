//! Pre-training on text: the experiment `mlm`.
//!
//! An encoder finds hidden tokens ([`MaskedModelling`], Devlin et al. 2019), or an encoder-decoder fills gaps ([`SpanModelling`], Raffel et al. 2020).
//! `glue --init` continues with the weights of the encoder.

mod config;
mod masked;
mod pretrained;
mod spans;
mod trivial;

use heedful_attention::description::multiplications::Multiplications;
use heedful_data::generate::{self, Sizes};
use heedful_data::text::TextCorpus;
use heedful_data::tokenise::{SPECIAL_TOKENS, Tokeniser};
use rand::RngExt;

use crate::session::comparison::{STEPS_PER_SECOND, folder_name};
use crate::session::options::RunSettings;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{Checksums, tokens_of_texts};

use self::config::SpecialTokens;
pub use config::{Masking, PreTrainingData, PreTrainingOptions, Spans};
pub use masked::{MaskedBatch, MaskedModelling, MaskedTask, PreTrainingConfig};
pub use spans::{SpanModelling, SpanTask};

/// Fields that say what the data are.
const DATA: &[&str] = &["tokeniser", "pretrained", "data.generated_words", "data.evaluated"];
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
    /// Vocabulary size of models. A pretrained model may have more tokens than its tokeniser.
    vocabulary: usize,
    tokens: SpecialTokens,
    /// The files of the pretrained weights, if training continues from them.
    pretrained: Option<Checksums>,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

fn card(data: &PreTrainingDataset) -> Card<'_> {
    let description = format!(
        "{} training, {} validation and {} test tokens, ends of lines included; {} types; splits: {}",
        data.train.len(),
        data.valid.len(),
        data.test.len(),
        data.tokeniser.vocabulary_size(),
        data.corpus.split
    );
    Card { vocabulary: data.vocabulary, ..Card::of_texts(&data.name, &data.corpus.sha256, description, &data.tokeniser) }
}

/// What both objectives say of their fields.
fn rules<E: Experiment>() -> Vec<Rule<E>> {
    vec![
        Rule::counts(&["data.batch", "data.generated_words", "data.evaluated"]),
        Rule::made(&["data.generated_words"], "with --data no words are generated; leave it out"),
    ]
}

fn check<E>(settings: &Settings<Config<E>>, data: &PreTrainingData) -> Result<(), ExperimentError> {
    let max_length = settings.value.model.max_length;
    let remedy = format!("{} tokens are not between 4 and model.max_length = {max_length}", data.context);
    Ok(settings.require("data.context", (4..=max_length).contains(&data.context), remedy)?)
}

fn open(run: &RunSettings, options: &PreTrainingOptions) -> Result<Vec<PreTrainingDataset>, ExperimentError> {
    let (name, mut corpus) = match &run.data {
        Some(dir) => (folder_name(dir), TextCorpus::read_columns(dir, &run.column_names()).map_err(ExperimentError::failure)?),
        None => {
            let sizes = Sizes { train: options.data.generated_words, ..Sizes::LANGUAGE };
            ("built-in".to_owned(), generate::language(&RandomKey::from_seed(0).named("language data"), sizes))
        }
    };
    let (tokeniser, vocabulary, tokens) = match &options.pretrained {
        Some(folder) => pretrained::tokeniser(folder)?,
        None => {
            let lines = corpus.train.iter().map(String::as_str);
            let tokeniser = Tokeniser::train(&options.tokeniser, lines).map_err(ExperimentError::usage)?;
            let vocabulary = tokeniser.vocabulary_size();
            (tokeniser, vocabulary, SpecialTokens::OWN)
        }
    };
    let pretrained = options.pretrained.as_deref().map(Checksums::of).transpose()?;
    if let Some(checksums) = &pretrained {
        corpus.sha256 = checksums.with_data(&corpus.sha256);
    }
    let [train, valid, test] = tokens_of_texts(&corpus, &tokeniser, pretrained.is_some())?;
    for (split, found) in [("training", &train), ("validation", &valid), ("test", &test)] {
        if pretrained.is_none() && found.iter().all(|&token| (token as usize) < SPECIAL_TOKENS.len()) {
            let problem = format!(
                "tokeniser: no word of the {split} text has a token of its own; give a larger vocabulary or a smaller min-frequency"
            );
            return Err(ExperimentError::usage(problem));
        }
    }
    Ok(vec![PreTrainingDataset { name, corpus, tokeniser, vocabulary, tokens, pretrained, train, valid, test }])
}

/// Refuses a text that is shorter than a sequence.
fn fits(data: &PreTrainingData, dataset: &PreTrainingDataset) -> Result<(), ExperimentError> {
    for (split, tokens) in [("training", &dataset.train), ("validation", &dataset.valid), ("test", &dataset.test)] {
        if tokens.len() < data.context {
            return Err(ExperimentError::usage(format!(
                "data.context = {}: the {split} text has only {} tokens; give --set data.context=N with a smaller N",
                data.context,
                tokens.len()
            )));
        }
    }
    Ok(())
}

/// Tokens that the largest training batch of an encoder has at least.
fn batch_tokens(data: &PreTrainingData, dataset: &PreTrainingDataset) -> usize {
    // The first window may begin later, which leaves one less.
    data.batch.min((dataset.train.len() / data.context.max(1)).saturating_sub(1)).saturating_mul(data.context)
}

/// The first positions of the sequences of an epoch, `length` tokens each, in batches. They lie end to end, from an offset that changes with the epoch.
fn batches(tokens: usize, length: usize, batch: usize, key: &RandomKey) -> Vec<Vec<usize>> {
    let offset = key.rng().random_range(0..=(tokens - length).min(length - 1));
    let batches = fixed_size_batches((tokens - offset) / length, batch, key);
    batches.into_iter().map(|items| items.into_iter().map(|item| offset + item * length).collect()).collect()
}

/// The first positions of the sequences that a text is evaluated on.
fn evaluated(data: &PreTrainingData, tokens: usize, length: usize) -> Vec<usize> {
    let count = tokens / length;
    (0..count.min(data.evaluated.unwrap_or(count))).map(|item| item * length).collect()
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
