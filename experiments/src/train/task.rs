//! The interface between a task and the trainer: batches, loss, scores.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::TensorData;
use heedful_attention::prelude::*;
use heedful_metrics::{ItemScore, ItemTable};

use super::loss::TrainingLoss;
use super::state::Metric;
use heedful_host::interrupt::Interrupt;

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

/// Scores of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Value by name; not finite where undefined.
    pub metrics: Vec<(String, f64)>,
    /// How each score is computed, by its name.
    pub signatures: BTreeMap<String, String>,
    /// What a reader of the scores must know.
    pub notes: Vec<String>,
    /// How scores are made of the items of test sets, by the name of the score.
    pub made_of: BTreeMap<String, ItemScore>,
    /// The statistics of these items. They are left beside the record, so that differences between runs can be tested.
    pub items: Vec<ItemTable>,
}

impl Scores {
    /// A score and how it is computed.
    pub fn of(name: &str, value: f64, signature: impl Into<String>) -> Self {
        let mut scores = Self::default();
        scores.push(name, value, signature);
        scores
    }

    /// Adds a score and how it is computed.
    pub fn push(&mut self, name: &str, value: f64, signature: impl Into<String>) {
        self.metrics.push((name.to_owned(), value));
        self.signatures.insert(name.to_owned(), signature.into());
    }

    /// Says how the score `name` is made of items, which are added to [`items`](Self::items) unless they are texts.
    pub fn push_items(&mut self, name: &str, made_of: ItemScore) {
        self.made_of.insert(name.to_owned(), made_of);
    }
}

/// On which examples a model is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Those that the best checkpoint is chosen by.
    Valid,
    /// Those that the result is of.
    Test,
}

impl Split {
    /// Returns the one of the two that belongs to this split.
    pub fn of<T>(self, valid: T, test: T) -> T {
        match self {
            Self::Valid => valid,
            Self::Test => test,
        }
    }
}

/// The arguments of a forward pass in training beside its batch.
#[derive(Debug)]
pub struct Pass<'a, C> {
    /// For dropout.
    pub key: RandomKey,
    /// That of the epoch, as [`Task::epoch`] had it.
    pub epoch_key: RandomKey,
    /// The optimiser step that the pass is for, from 1.
    pub step: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// What the previous pass left, to be replaced by what this one leaves.
    pub carried: &'a mut C,
}

/// A task that a model is trained on: batches, loss and evaluation.
///
/// Everything is a function of its arguments: no method draws from a generator of its own. That, and nothing else, makes a resumed run equal to an
/// uninterrupted one.
pub trait Task {
    /// The model. While training it lives on a device with autodiff.
    type Model: Module;
    /// The examples of one forward and backward pass.
    type Batch;
    /// What one batch hands to the next, such as a memory of the segment before; `()` if batches are independent.
    type Carried: Default;

    /// The batches of an epoch in training order, each as the indices of its examples.
    ///
    /// `epoch` counts from 1; the order depends on `key`, which differs from epoch to epoch, and on nothing else.
    fn epoch(&self, epoch: u64, key: &RandomKey) -> Vec<Vec<usize>>;

    /// The examples of one batch. `key` is the batch's own, for what is drawn anew each time (masked positions).
    fn batch(&self, items: &[usize], epoch: u64, key: &RandomKey) -> Self::Batch;

    /// The number of units (target tokens, sentences) the loss is summed over, at least 1.
    fn units(&self, batch: &Self::Batch) -> usize;

    /// The training loss SUMMED over the units, with label smoothing, and the auxiliary losses of the pass: [`TrainingLoss::new`], or the tensor of one element
    /// itself, made `into` one, where nothing is added.
    fn loss(&self, model: &Self::Model, batch: &Self::Batch, pass: Pass<'_, Self::Carried>, probe: &mut Probe) -> TrainingLoss;

    /// The scores of a model; `None` if the interrupt was raised meanwhile. The model is in evaluation mode, without autodiff.
    fn evaluate(&self, model: &Self::Model, split: Split, interrupt: &Interrupt) -> Option<Scores>;

    /// The score on [`Split::Valid`] that picks the best checkpoint.
    fn selection(&self) -> Selection;

    /// The parts of a trained model that serve more than training; by default the whole model. Checkpoints keep the rest, so that a resumed run continues from
    /// them as if it had not been stopped. Counts of parameters leave the rest out.
    fn without_training_parts(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// The lengths of the training sequences in positions of a model, if the task knows them. A comparison refuses mechanisms without an effect at these
    /// lengths. By default they are unknown.
    fn lengths(&self) -> Option<Vec<usize>> {
        None
    }

    /// Whether [`loss`](Self::loss) can be computed for a model in evaluation mode, without autodiff, to find the layer with the first number that is not
    /// finite.
    fn can_locate(&self) -> bool {
        true
    }

    /// Why each batch needs what the one before left, and the remedy if there is one; `None` if batches are independent, so that several processes can compute them
    /// ([`Ranks`](super::Ranks)). By default they are where nothing is carried.
    fn carries(&self) -> Option<&'static str> {
        (size_of::<Self::Carried>() > 0).then_some("the task has no remedy")
    }

    /// Called after each optimiser step, for what only this task asks of the weights. The constraints that mechanisms state (ranges, ties) are met before it:
    /// the trainer has called [`constraints::apply`](heedful_attention::registry::constraints::apply) and
    /// [`constraints::tie`](heedful_attention::registry::constraints::tie). The parameters keep their identities. Default: nothing.
    fn after_step(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// Called before the first batch of each epoch, to forget what the epoch before left. Not called when a run resumes inside an epoch.
    fn start_epoch(&self, _carried: &mut Self::Carried) {}

    /// What is carried, by name, to be saved in checkpoints. Tensors without autodiff.
    fn save(&self, _carried: &Self::Carried) -> Vec<(String, TensorData)> {
        Vec::new()
    }

    /// What [`save`](Self::save) was given. Called once when a run resumes, if anything was saved.
    fn restore(&self, _saved: Vec<(String, TensorData)>) -> Self::Carried {
        Self::Carried::default()
    }
}

/// Path of the first block whose output has an element that is not finite.
pub(super) fn first_non_finite_activation(forward: impl FnOnce(&mut Probe)) -> Option<String> {
    let mut found = None;
    let mut listener = |path: &str, observation: Observation| {
        if let (None, Observation::Activation(x)) = (&found, observation)
            && !x.is_finite().all().into_scalar::<bool>()
        {
            found = Some(path.to_owned());
        }
    };
    forward(&mut Probe::listening(&mut listener));
    found
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
    /// Whether other programs used the same processors meanwhile, so that these times and speeds mean nothing. Known on Linux alone.
    pub disturbed: bool,
}
