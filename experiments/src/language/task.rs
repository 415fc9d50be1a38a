//! Training and scoring.

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::language_model::LanguageModel;
use rand::RngExt;

use crate::batch::{EvaluationWindow, evaluation_windows};
use crate::comparison::{first_non_finite_activation, scoring_bar};
use crate::metrics::LikelihoodTotal;
use crate::train::{Interrupt, Objective, Selection};

use super::{LanguageConfig, LanguageData, LanguageDataset};

/// Training a language model on a text.
#[derive(Debug)]
pub struct LanguageTask<'a> {
    pub(super) config: &'a LanguageConfig,
    pub(super) dataset: &'a LanguageDataset,
}

/// Inputs and the tokens that follow them, row by row.
#[derive(Debug)]
pub struct LanguageBatch {
    inputs: Vec<i32>,
    targets: Vec<i32>,
    rows: usize,
}

impl LanguageTask<'_> {
    /// Negative log-likelihood of all targets, with the auxiliary losses if a key for training is given.
    fn loss(&self, model: &LanguageModel, batch: &LanguageBatch, key: Option<RandomKey>, probe: &mut Probe) -> Tensor<1> {
        let device = model.embedding.tokens.weight.device();
        let width = batch.inputs.len() / batch.rows;
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), [batch.rows, width]), &device);
        let targets = Tensor::<1, Int>::from_data(TensorData::new(batch.targets.clone(), [batch.targets.len()]), &device);
        let hidden = model.hidden(inputs, &[], key, probe);
        let [rows, length, d_model] = hidden.states.dims();
        let loss = model.cross_entropy(hidden.states.reshape([rows * length, d_model]), targets, None, 0.0).loss;
        match hidden.losses.total() {
            // An auxiliary loss is per token, as the main loss is after division by the number of tokens.
            Some(auxiliary) if key.is_some() => loss + auxiliary * batch.targets.len() as f64,
            _ => loss,
        }
    }

    /// Scores each token once; `None` if the interrupt was raised meanwhile.
    pub(super) fn likelihood(&self, model: &LanguageModel, tokens: &[u32], interrupt: Option<&Interrupt>) -> Option<LikelihoodTotal> {
        let LanguageData { context, stride, batch, .. } = self.config.data;
        let device = model.embedding.tokens.weight.device();
        let windows = evaluation_windows(tokens.len(), context, stride);
        let bar = scoring_bar("scoring", windows.len());
        let mut total = LikelihoodTotal::new(self.config.unit());
        for windows in windows.chunks(batch) {
            if interrupt.is_some_and(Interrupt::is_raised) {
                return None;
            }
            let width = windows[0].end - windows[0].start;
            let inputs: Vec<i32> = windows.iter().flat_map(|window| window.inputs(tokens)).map(|&id| id as i32).collect();
            let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [windows.len(), width]), &device);
            let hidden = model.hidden(inputs, &[], None, &mut Probe::off()).states;
            // Only what is scored is projected to the vocabulary.
            let scored = |window: &EvaluationWindow| window.unscored()..width;
            let indices: Vec<i32> = windows
                .iter()
                .enumerate()
                .flat_map(|(row, window)| scored(window).map(move |column| (row * width + column) as i32))
                .collect();
            let targets: Vec<i32> =
                windows.iter().flat_map(|window| &window.targets(tokens)[scored(window)]).map(|&id| id as i32).collect();
            let count = targets.len();
            let [_, _, d_model] = hidden.dims();
            let hidden = hidden
                .reshape([windows.len() * width, d_model])
                .select(0, Tensor::<1, Int>::from_data(TensorData::new(indices, [count]), &device));
            let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [count]), &device);
            let nll = model.cross_entropy(hidden, targets, None, 0.0).negative_log_likelihood;
            total.record(f64::from(nll.into_scalar::<f32>()), count as u64);
            bar.inc(windows.len() as u64);
        }
        bar.finish_and_clear();
        Some(total)
    }
}

impl Objective for LanguageTask<'_> {
    type Model = LanguageModel;
    type Batch = LanguageBatch;

    /// Items are the first positions of windows. They lie end to end, from an offset that changes with the epoch, so that windows do not repeat.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let LanguageData { context, batch, .. } = self.config.data;
        let targets = self.dataset.train.len() - 1;
        let offset = key.rng().random_range(0..=(targets - context).min(context - 1));
        let count = (targets - offset) / context;
        let batches = crate::batch::fixed_size_batches(count, batch, key);
        batches.into_iter().map(|items| items.into_iter().map(|item| offset + item * context).collect()).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> LanguageBatch {
        let context = self.config.data.context;
        let cut = |shift: usize| {
            let tokens = items.iter().flat_map(|&start| &self.dataset.train[start + shift..start + shift + context]);
            tokens.map(|&id| id as i32).collect()
        };
        LanguageBatch { inputs: cut(0), targets: cut(1), rows: items.len() }
    }

    fn units(&self, batch: &LanguageBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &LanguageModel, batch: &LanguageBatch, key: RandomKey) -> Tensor<1> {
        LanguageTask::loss(self, model, batch, Some(key), &mut Probe::off())
    }

    fn evaluate(&self, model: &LanguageModel) -> Vec<(String, f64)> {
        let total = self.likelihood(model, &self.dataset.valid, None).expect("it is not interrupted");
        vec![("perplexity".to_owned(), total.perplexity().unwrap_or(f64::NAN))]
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }

    fn locate_non_finite(&self, model: &LanguageModel, batch: &LanguageBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            LanguageTask::loss(self, model, batch, Some(key), probe);
        })
    }
}
