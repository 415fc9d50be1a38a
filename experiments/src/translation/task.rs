//! Training and scoring.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::generation::{BeamSearch, Prompts, SpecialTokens, beam_search};
use heedful_models::loss::{real_states, with_auxiliary};
use heedful_models::seq2seq::{Padded, Seq2SeqTransformer};

use crate::batch::{PaddedBatch, pad, sequential_batches, token_budget_batches};
use crate::comparison::{first_non_finite_activation, scoring_bar};
use crate::metrics::{LikelihoodTotal, TextUnit};
use crate::tokenise::{BEGIN, END, PAD};
use crate::train::{Interrupt, Objective, Selection};

use super::{Decoding, TokenPair, TranslationConfig, TranslationDataset};

const SPECIAL: SpecialTokens = SpecialTokens { padding: PAD, begin: BEGIN, end: END };

/// Training a translation model on a corpus.
#[derive(Debug)]
pub struct TranslationTask<'a> {
    pub(super) config: &'a TranslationConfig,
    pub(super) dataset: &'a TranslationDataset,
}

/// Padded source, target input (begin token first) and target output (end token last).
#[derive(Debug)]
pub struct TranslationBatch {
    source: PaddedBatch,
    input: PaddedBatch,
    output: PaddedBatch,
}

/// Row-major ids as a tensor.
fn tensor(batch: &PaddedBatch, device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(batch.ids.clone(), [batch.rows, batch.width]), device)
}

impl TranslationTask<'_> {
    fn pad<'p>(&self, pairs: impl Iterator<Item = &'p TokenPair> + Clone) -> TranslationBatch {
        let rows = |row: &dyn Fn(&TokenPair) -> Vec<u32>| pad(&pairs.clone().map(row).collect::<Vec<_>>(), PAD);
        TranslationBatch {
            source: rows(&|pair| pair.source.clone()),
            input: rows(&|pair| std::iter::once(BEGIN).chain(pair.target.iter().copied()).collect()),
            output: rows(&|pair| pair.target.iter().copied().chain([END]).collect()),
        }
    }

    fn losses(
        &self,
        model: &Seq2SeqTransformer,
        batch: &TranslationBatch,
        smoothing: f64,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Tensor<1>, Tensor<1>) {
        let device = model.source.tokens.weight.device();
        let padded = |batch| Padded { tokens: tensor(batch, &device), lengths: &batch.lengths };
        let hidden = model.hidden(padded(&batch.source), padded(&batch.input), key, probe);
        let states = real_states(hidden.states, &batch.output.lengths);
        let rows = batch.output.ids.chunks(batch.output.width).zip(&batch.output.lengths);
        let targets: Vec<i32> = rows.flat_map(|(row, &real)| &row[..real]).copied().collect();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [self.units(batch)]), &device);
        let cross_entropy = model.cross_entropy(states, targets, None, smoothing);
        (with_auxiliary(cross_entropy.loss, &hidden.losses, self.units(batch)), cross_entropy.negative_log_likelihood)
    }

    pub(super) fn perplexity(&self, model: &Seq2SeqTransformer) -> f64 {
        let lengths: Vec<_> = self.dataset.valid.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        let mut total = LikelihoodTotal::new(TextUnit::Subword);
        for items in sequential_batches(&lengths, self.config.decoding.batch_tokens) {
            let batch = self.pad(items.iter().map(|&item| &self.dataset.valid[item]));
            let (_, nll) = self.losses(model, &batch, 0.0, None, &mut Probe::off());
            total.record(f64::from(nll.into_scalar::<f32>()), self.units(&batch) as u64);
        }
        total.perplexity().unwrap_or(f64::NAN)
    }

    pub(super) fn decoding(&self) -> String {
        let Decoding { beam, length_penalty, extra_length, .. } = self.config.decoding;
        format!("beam {beam}, length penalty {length_penalty} (Wu et al. 2016), at most {extra_length} tokens longer than the source")
    }

    /// Translations in the order of the sources; `None` if the interrupt was raised meanwhile.
    pub(super) fn translate(&self, model: &Seq2SeqTransformer, sources: &[&str], interrupt: &Interrupt) -> Option<Vec<String>> {
        let tokens: Vec<_> = sources.iter().map(|source| self.dataset.tokeniser.encode(source)).collect();
        let mut translations = vec![String::new(); sources.len()];
        // A sentence without a token has an empty translation.
        let present: Vec<usize> = (0..sources.len()).filter(|&index| !tokens[index].is_empty()).collect();
        let lengths: Vec<_> = present.iter().map(|&index| (tokens[index].len(), 0)).collect();
        let Decoding { beam, length_penalty, extra_length, batch_tokens } = self.config.decoding;
        let options = BeamSearch { beam, length_penalty };
        let bar = scoring_bar("translating", present.len());
        for items in sequential_batches(&lengths, batch_tokens.div_ceil(beam)) {
            if interrupt.is_raised() {
                return None;
            }
            let rows: Vec<_> = items.iter().map(|&item| tokens[present[item]].clone()).collect();
            let source = pad(&rows, PAD);
            let device = model.source.tokens.weight.device();
            let state = model.start(Padded { tokens: tensor(&source, &device), lengths: &source.lengths });
            let prompts = Prompts::begin(SPECIAL, &source.lengths, extra_length, &device);
            for (item, hypotheses) in items.iter().zip(beam_search(model, state, prompts, SPECIAL, &options)) {
                translations[present[*item]] = self.dataset.tokeniser.decode(&hypotheses[0].tokens);
            }
            bar.inc(items.len() as u64);
        }
        bar.finish_and_clear();
        Some(translations)
    }
}

impl Objective for TranslationTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = TranslationBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.dataset.train.iter().map(|pair| (pair.source.len(), pair.target.len() + 1)).collect();
        token_budget_batches(&lengths, self.config.data.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> TranslationBatch {
        self.pad(items.iter().map(|&item| &self.dataset.train[item]))
    }

    fn units(&self, batch: &TranslationBatch) -> usize {
        batch.output.lengths.iter().sum()
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &TranslationBatch, key: RandomKey) -> Tensor<1> {
        self.losses(model, batch, self.config.label_smoothing, Some(key), &mut Probe::off()).0
    }

    fn evaluate(&self, model: &Seq2SeqTransformer) -> Vec<(String, f64)> {
        vec![("perplexity".to_owned(), self.perplexity(model))]
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }

    fn locate_non_finite(&self, model: &Seq2SeqTransformer, batch: &TranslationBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            self.losses(model, batch, self.config.label_smoothing, Some(key), probe);
        })
    }
}
