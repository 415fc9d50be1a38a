//! What an experiment tells the trainer: its batches, its loss, its evaluation.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use heedful_attention::random::RandomKey;

use super::state::Metric;

/// The metric by which the best model is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Its name, one of those that the evaluation reports.
    pub metric: String,
    /// Whether more is better (BLEU, accuracy) or less (perplexity).
    pub higher_is_better: bool,
}

impl Selection {
    /// The greatest value of `metric` is the best.
    pub fn highest(metric: impl Into<String>) -> Self {
        Self { metric: metric.into(), higher_is_better: true }
    }

    /// The least value of `metric` is the best.
    pub fn lowest(metric: impl Into<String>) -> Self {
        Self { metric: metric.into(), higher_is_better: false }
    }

    /// Whether `value` is better than the best one so far. NaN is never better.
    pub(crate) fn improves(&self, value: f64, best: Option<f64>) -> bool {
        match best {
            _ if value.is_nan() => false,
            None => true,
            Some(best) if self.higher_is_better => value > best,
            Some(best) => value < best,
        }
    }
}

/// A task a model is trained on.
///
/// Everything is a function of its arguments: no method draws from a generator of its own. That, and nothing else, makes a resumed run equal to an
/// uninterrupted one. A task whose batches continue each other (a language model with a memory of the segment before) keeps that memory inside, behind
/// a lock, and says what it is through the three methods on carried state.
pub trait Objective {
    /// The model. While training it lives on a device with autodiff.
    type Model: Module;
    /// The examples of one forward and backward pass, as tensors.
    type Batch;

    /// The batches of an epoch in training order, each as the indices of its examples.
    ///
    /// `epoch` counts from 1; the order depends on `key`, which differs from epoch to epoch, and on nothing else.
    fn epoch(&self, epoch: u64, key: &RandomKey) -> Vec<Vec<usize>>;

    /// The tensors of one batch. `key` is the batch's own, for what is drawn anew each time (masked positions).
    fn batch(&self, items: &[usize], epoch: u64, key: &RandomKey) -> Self::Batch;

    /// The number of units (target tokens, sentences) the loss is summed over, at least 1.
    fn units(&self, batch: &Self::Batch) -> usize;

    /// The training loss SUMMED over the units, with label smoothing and auxiliary losses, as a tensor of one element. `key` is for dropout.
    fn loss(&self, model: &Self::Model, batch: &Self::Batch, key: RandomKey) -> Tensor<1>;

    /// The metrics of a model on the development set. The model is in evaluation mode, without autodiff.
    fn evaluate(&self, model: &Self::Model) -> Vec<(String, f64)>;

    /// The metric that picks the best checkpoint.
    fn selection(&self) -> Selection;

    /// After a loss that is not finite: the first layer with an activation that is not, if the model can tell. The model is in evaluation mode,
    /// without autodiff; `key` is that of the failed pass.
    fn locate_non_finite(&self, _model: &Self::Model, _batch: &Self::Batch, _key: RandomKey) -> Option<String> {
        None
    }

    /// Called after each optimiser step, for constraints on the weights (clamping). The parameters keep their identities.
    fn after_step(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// Called before the batches of each optimiser step, which count from 1, of `steps` in all: for losses with a schedule.
    fn start_step(&self, _step: u64, _steps: u64) {}

    /// Called before the first batch of each epoch, to forget what the epoch before left. Not called when a run resumes inside an epoch.
    fn start_epoch(&self, _epoch: u64) {}

    /// What one batch hands to the next, by name, to be saved in checkpoints. Tensors without autodiff.
    fn carried_state(&self) -> Vec<(String, TensorData)> {
        Vec::new()
    }

    /// Takes up a state returned by [`carried_state`](Self::carried_state). Called once when a run resumes, if there was any.
    fn restore_carried_state(&self, _state: Vec<(String, TensorData)>) {}
}

/// Why and how a run ended.
#[derive(Debug)]
pub enum Outcome<M> {
    /// All steps were done, the time was up, or the development score stopped improving.
    Finished(TrainedModel<M>),
    /// The run was asked to stop; it continues from this checkpoint when resumed.
    Interrupted {
        /// Optimiser steps done.
        step: u64,
        /// The checkpoint's folder.
        checkpoint: std::path::PathBuf,
    },
}

/// The result of a finished run.
#[derive(Debug)]
pub struct TrainedModel<M> {
    /// The best model, or the mean of the last ones, in evaluation mode, without autodiff.
    pub model: M,
    /// The step of the best model; of the last one if the weights were averaged.
    pub step: u64,
    /// Optimiser steps of the whole run.
    pub steps: u64,
    /// Number of checkpoints the weights are the mean of; 1 if they were not averaged.
    pub averaged: usize,
    /// The model's metrics on the development set.
    pub metrics: Vec<Metric>,
    /// Units (target tokens, sentences) trained on.
    pub tokens: u64,
    /// Units per second of training time, evaluation and checkpoints excluded.
    pub tokens_per_second: f64,
    /// Seconds of the whole run, evaluation and checkpoints included, pauses before a resumption excluded.
    pub wall_seconds: f64,
    /// Seconds of those spent in training steps.
    pub training_seconds: f64,
}
