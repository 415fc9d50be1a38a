//! Finding hidden tokens.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_attention::read::read;
use heedful_models::block::Hidden;
use heedful_models::classifier::{Classifier, ClassifierConfig, Sentences};
use heedful_models::loss::with_auxiliary;

use super::{
    DATA, FLOPS_PER_STEP, LOG_PERPLEXITY, PreTrainingConfig, PreTrainingData, PreTrainingDataset, batches, check, columns, dataset,
    evaluated, fits, flops,
};
use crate::analyse::{Legible, Reading, check_length};
use crate::comparison::{Attention, Comparison, Scores, first_non_finite_activation, scoring_bar};
use crate::error::ExperimentError;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{CLASSIFY, SEPARATE};
use crate::train::{Interrupt, Objective, Selection};

/// The comparison of attentions on finding hidden tokens.
#[derive(Debug)]
pub struct MaskedModelling;

impl Comparison for MaskedModelling {
    const NAME: &'static str = "mlm";
    const TITLE: &'static str = "Masked language modelling";
    const DATA: &'static [&'static str] = DATA;
    const BATCH: &'static str = "data.batch";
    type Config = PreTrainingConfig;
    type Dataset = PreTrainingDataset;
    type Model = Classifier;
    type Task<'a> = MaskedTask<'a>;

    fn check(settings: &Settings<PreTrainingConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        check(settings)?;
        // The size of the vocabulary is not known before the text is read.
        settings.value.masking(usize::MAX).validate().map_err(ExperimentError::usage)?;
        for attention in attentions {
            settings.value.encoder(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &PreTrainingConfig) -> Result<Vec<PreTrainingDataset>, ExperimentError> {
        dataset(config).map(|dataset| vec![dataset])
    }

    fn fits(config: &PreTrainingConfig, dataset: &PreTrainingDataset, attention: &Attention) -> Result<(), ExperimentError> {
        fits(config, dataset, attention)
    }

    fn batch_tokens(config: &Self::Config, dataset: &Self::Dataset) -> usize {
        let PreTrainingData { context, batch, .. } = config.data;
        // The first window may begin later, which leaves one less.
        batch.min((dataset.train.len() / context.max(1)).saturating_sub(1)).saturating_mul(context)
    }

    fn task<'a>(config: &'a PreTrainingConfig, dataset: &'a PreTrainingDataset, attention: &Attention) -> MaskedTask<'a> {
        MaskedTask { config, dataset, model: config.encoder(dataset.tokeniser.vocabulary_size(), attention) }
    }

    fn model(
        config: &PreTrainingConfig,
        dataset: &PreTrainingDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Classifier, ExperimentError> {
        Ok(config.encoder(dataset.tokeniser.vocabulary_size(), attention).init(key, device))
    }

    fn score(
        config: &PreTrainingConfig,
        dataset: &PreTrainingDataset,
        task: &MaskedTask,
        model: &Classifier,
        _paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let Some(found) = task.evaluate(model, &dataset.test, Some(interrupt)) else { return Ok(None) };
        let mut scores = Scores::default();
        let signature = format!(
            "{} tokens of the test text, {} of it hidden, context {}",
            found.count, config.masking.probability, config.data.context
        );
        scores.push(LOG_PERPLEXITY, found.log_perplexity(), signature.clone());
        scores.push("accuracy", found.accuracy(), signature);
        let PreTrainingData { context, batch, .. } = config.data;
        let of_a_row = task.model.multiplications(model, context, config.masking.probability * task.length() as f64);
        scores.push(
            FLOPS_PER_STEP,
            flops(of_a_row, batch),
            format!("counted: {batch} sequences of {context} tokens, forward and backward"),
        );
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        columns()
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::pre_training()
    }
}

/// Training an encoder to find hidden tokens.
#[derive(Debug)]
pub struct MaskedTask<'a> {
    config: &'a PreTrainingConfig,
    dataset: &'a PreTrainingDataset,
    model: ClassifierConfig,
}

/// Sequences with hidden tokens.
#[derive(Debug, Default)]
pub struct MaskedBatch {
    tokens: Vec<i32>,
    rows: usize,
    /// Where the hidden tokens lie in the sequences, which stand one after the other.
    positions: Vec<i32>,
    targets: Vec<i32>,
}

/// What was found of hidden tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    nats: f64,
    right: usize,
    count: usize,
}

impl Found {
    fn log_perplexity(self) -> f64 {
        self.nats / self.count as f64
    }

    fn accuracy(self) -> f64 {
        self.right as f64 / self.count as f64
    }
}

impl MaskedTask<'_> {
    /// Tokens of the text in a sequence: the others are those of class and end.
    fn length(&self) -> usize {
        self.config.data.context - 2
    }

    fn assemble(&self, text: &[u32], starts: &[usize], key: impl Fn(usize) -> RandomKey) -> MaskedBatch {
        let masking = self.config.masking(self.dataset.tokeniser.vocabulary_size());
        let mut batch = MaskedBatch { rows: starts.len(), ..MaskedBatch::default() };
        for (row, &start) in starts.iter().enumerate() {
            let piece = &text[start..start + self.length()];
            let sequence: Vec<u32> = std::iter::once(CLASSIFY).chain(piece.iter().copied()).chain([SEPARATE]).collect();
            let masked = masking.mask(&sequence, &key(row));
            batch.positions.extend(masked.positions.iter().map(|&at| (row * sequence.len() + at) as i32));
            batch.targets.extend(masked.targets.iter().map(|&token| token as i32));
            batch.tokens.extend(masked.tokens.iter().map(|&token| token as i32));
        }
        batch
    }

    /// Hidden states, those of the hidden tokens `[N, C]`, and the tokens `[N]`.
    fn hidden(model: &Classifier, batch: &MaskedBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Hidden, Tensor<2>, Tensor<1, Int>) {
        let device = model.embedding.tokens.weight.device();
        let width = batch.tokens.len() / batch.rows;
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(batch.tokens.clone(), [batch.rows, width]), &device);
        let lengths = vec![width; batch.rows];
        let hidden = model.hidden(Sentences { tokens: tokens.clone(), segments: Some(tokens.zeros_like()), lengths: &lengths }, key, probe);
        let integers = |values: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(values.to_vec(), [values.len()]), &device);
        let [_, _, d_model] = hidden.states.dims();
        let states = hidden.states.clone().reshape([batch.rows * width, d_model]).select(0, integers(&batch.positions));
        (hidden, states, integers(&batch.targets))
    }

    fn loss(model: &Classifier, batch: &MaskedBatch, key: RandomKey, probe: &mut Probe) -> Tensor<1> {
        let (hidden, states, targets) = Self::hidden(model, batch, Some(key), probe);
        with_auxiliary(model.masked_cross_entropy(states, targets).loss, &hidden.losses, batch.targets.len())
    }

    /// What a model finds in a text, with the same tokens hidden each time; `None` if the interrupt was raised meanwhile.
    fn evaluate(&self, model: &Classifier, text: &[u32], interrupt: Option<&Interrupt>) -> Option<Found> {
        let starts = evaluated(self.config, text.len(), self.length());
        let key = RandomKey::from_seed(0).named("masking");
        let bar = scoring_bar("scoring", starts.len());
        let mut found = Found::default();
        for (number, starts) in starts.chunks(self.config.data.batch).enumerate() {
            if interrupt.is_some_and(Interrupt::is_raised) {
                return None;
            }
            let first = number * self.config.data.batch;
            let batch = self.assemble(text, starts, |row| key.numbered((first + row) as u64));
            let (_, states, targets) = Self::hidden(model, &batch, None, &mut Probe::off());
            let nats = model.masked_cross_entropy(states.clone(), targets.clone()).negative_log_likelihood;
            let chosen = states.matmul(model.embedding.tokens.weight.val().transpose()).argmax(1).squeeze_dim::<1>(1);
            found.nats += f64::from(nats.into_scalar::<f32>());
            found.right += read(chosen.equal(targets)).iter::<bool>().filter(|&right| right).count();
            found.count += batch.targets.len();
            bar.inc(starts.len() as u64);
        }
        bar.finish_and_clear();
        Some(found)
    }
}

impl Objective for MaskedTask<'_> {
    type Model = Classifier;
    type Batch = MaskedBatch;

    /// Items are the first positions of sequences.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        batches(self.dataset.train.len(), self.length(), self.config.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, key: &RandomKey) -> MaskedBatch {
        self.assemble(&self.dataset.train, items, |row| key.numbered(row as u64))
    }

    fn units(&self, batch: &MaskedBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &Classifier, batch: &MaskedBatch, key: RandomKey) -> Tensor<1> {
        Self::loss(model, batch, key, &mut Probe::off())
    }

    fn evaluate(&self, model: &Classifier) -> Vec<(String, f64)> {
        let found = MaskedTask::evaluate(self, model, &self.dataset.valid, None).expect("it is not interrupted");
        vec![(LOG_PERPLEXITY.to_owned(), found.log_perplexity()), ("accuracy".to_owned(), found.accuracy())]
    }

    fn selection(&self) -> Selection {
        Selection::lowest(LOG_PERPLEXITY)
    }

    fn locate_non_finite(&self, model: &Classifier, batch: &MaskedBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            Self::loss(model, batch, key, probe);
        })
    }
}

impl Legible for MaskedModelling {
    fn texts(config: &PreTrainingConfig, dataset: &PreTrainingDataset, count: usize) -> Vec<String> {
        let fits = |line: &&String| (2..config.data.context - 2).contains(&dataset.tokeniser.encode(line).len());
        dataset.corpus.test.iter().filter(fits).take(count).cloned().collect()
    }

    fn read(
        config: &PreTrainingConfig,
        dataset: &PreTrainingDataset,
        _attention: &Attention,
        model: &Classifier,
        text: &str,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let piece = dataset.tokeniser.encode(text);
        check_length(text, piece.len(), config.model.max_length - 2)?;
        let tokens: Vec<u32> = std::iter::once(CLASSIFY).chain(piece).chain([SEPARATE]).collect();
        let batch =
            MaskedBatch { tokens: tokens.iter().map(|&token| token as i32).collect(), rows: 1, positions: vec![0], targets: vec![0] };
        MaskedTask::hidden(model, &batch, None, probe);
        Ok(Reading { encoder: dataset.tokeniser.words(&tokens), ..Reading::default() })
    }
}
