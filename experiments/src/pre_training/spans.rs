//! Filling gaps.

use burn::tensor::{Device, Tensor};
use heedful_attention::random::RandomKey;
use heedful_models::seq2seq::{Seq2SeqConfig, Seq2SeqTransformer};

use super::{
    DATA, FLOPS_PER_STEP, LOG_PERPLEXITY, PreTrainingConfig, PreTrainingDataset, batches, check, columns, dataset, evaluated, fits, flops,
};
use crate::comparison::{Attention, Comparison, Scores, first_non_finite_activation};
use crate::error::ExperimentError;
use crate::pairs::{PairsBatch, PairsTask, TokenPair};
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::train::{Interrupt, Objective, Selection};

/// The comparison of attentions on filling gaps.
#[derive(Debug)]
pub struct SpanModelling;

impl Comparison for SpanModelling {
    const NAME: &'static str = "mlm-spans";
    const TITLE: &'static str = "Span corruption";
    const DATA: &'static [&'static str] = DATA;
    const BATCH: &'static str = "data.batch";
    type Config = PreTrainingConfig;
    type Dataset = PreTrainingDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = SpanTask<'a>;

    fn check(settings: &Settings<PreTrainingConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        check(settings)?;
        settings.value.spans(0).validate().map_err(ExperimentError::usage)?;
        for attention in attentions {
            settings.value.encoder_decoder(1, attention).validate().map_err(ExperimentError::usage)?;
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
        // Gaps are not among the tokens of either side.
        super::masked::MaskedModelling::batch_tokens(config, dataset) / 4
    }

    fn task<'a>(config: &'a PreTrainingConfig, dataset: &'a PreTrainingDataset, attention: &Attention) -> SpanTask<'a> {
        let corrupted = |text: &[u32]| {
            let starts = evaluated(config, text.len(), config.data.context);
            let key = RandomKey::from_seed(0).named("spans");
            starts.iter().enumerate().map(|(item, &start)| pair(config, dataset, text, start, &key.numbered(item as u64))).collect()
        };
        let model = config.encoder_decoder(dataset.tokeniser.vocabulary_size(), attention);
        SpanTask { config, dataset, model, valid: corrupted(&dataset.valid), test: corrupted(&dataset.test) }
    }

    fn model(
        config: &PreTrainingConfig,
        dataset: &PreTrainingDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Seq2SeqTransformer, ExperimentError> {
        Ok(config.encoder_decoder(dataset.tokeniser.vocabulary_size(), attention).init(key, device))
    }

    fn score(
        config: &PreTrainingConfig,
        _dataset: &PreTrainingDataset,
        task: &SpanTask,
        model: &Seq2SeqTransformer,
        _paths: &RunPaths,
        _interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        let signature = format!(
            "targets of {} test sequences of {} tokens, {} of them in spans of {}, sentinels and end included",
            task.test.len(),
            config.data.context,
            config.spans.density,
            config.spans.mean_span
        );
        scores.push(LOG_PERPLEXITY, task.pairs(&task.test).perplexity(model).ln(), signature);
        let mean = |length: fn(&TokenPair) -> usize| task.test.iter().map(length).sum::<usize>().div_ceil(task.test.len());
        let (source, target, batch) = (mean(|pair| pair.source.len()), mean(|pair| pair.target.len()), config.data.batch);
        let signature = format!("counted: {batch} pairs of {source} and {target} tokens, forward and backward");
        scores.push(FLOPS_PER_STEP, flops(task.model.multiplications(model, source, target), batch), signature);
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        columns()
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::pre_training()
    }
}

/// A sequence of a text with gaps, and what fills them.
fn pair(config: &PreTrainingConfig, dataset: &PreTrainingDataset, text: &[u32], start: usize, key: &RandomKey) -> TokenPair {
    let spans = config.spans(dataset.tokeniser.vocabulary_size());
    let corrupted = spans.corrupt(&text[start..start + config.data.context], key);
    TokenPair { source: corrupted.source, target: corrupted.target }
}

/// Training an encoder-decoder to fill gaps.
#[derive(Debug)]
pub struct SpanTask<'a> {
    config: &'a PreTrainingConfig,
    dataset: &'a PreTrainingDataset,
    model: Seq2SeqConfig,
    valid: Vec<TokenPair>,
    test: Vec<TokenPair>,
}

impl SpanTask<'_> {
    /// What is done with pairs, of which these are evaluated.
    fn pairs<'t>(&'t self, evaluated: &'t [TokenPair]) -> PairsTask<'t> {
        PairsTask {
            train: &[],
            valid: evaluated,
            tokeniser: &self.dataset.tokeniser,
            batch_tokens: self.config.decoding.batch_tokens,
            label_smoothing: 0.0,
            decoding: &self.config.decoding,
        }
    }
}

impl Objective for SpanTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = PairsBatch;

    /// Items are the first positions of sequences.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        batches(self.dataset.train.len(), self.config.data.context, self.config.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, key: &RandomKey) -> PairsBatch {
        let pair = |(row, &start): (usize, &usize)| pair(self.config, self.dataset, &self.dataset.train, start, &key.numbered(row as u64));
        let pairs: Vec<TokenPair> = items.iter().enumerate().map(pair).collect();
        PairsTask::pad(pairs.iter())
    }

    fn units(&self, batch: &PairsBatch) -> usize {
        self.pairs(&self.valid).units(batch)
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &PairsBatch, key: RandomKey) -> Tensor<1> {
        self.pairs(&self.valid).loss(model, batch, key)
    }

    fn evaluate(&self, model: &Seq2SeqTransformer) -> Vec<(String, f64)> {
        vec![(LOG_PERPLEXITY.to_owned(), self.pairs(&self.valid).perplexity(model).ln())]
    }

    fn selection(&self) -> Selection {
        Selection::lowest(LOG_PERPLEXITY)
    }

    fn locate_non_finite(&self, model: &Seq2SeqTransformer, batch: &PairsBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            self.pairs(&self.valid).losses(model, batch, 0.0, Some(key), probe);
        })
    }
}
