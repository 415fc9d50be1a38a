//! Where in its run a training loop is: everything but the weights and the optimiser's moments.
//!
//! Random streams are not part of it: they follow from the run's key and the numbers of step and epoch.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::loss::LossNumbers;
use super::loss_scale::LossScale;

/// A named score of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name (`perplexity`).
    pub name: String,
    /// Its value, written so that reading it back gives the same bits.
    #[serde(with = "exact")]
    pub value: f64,
}

/// The best evaluation so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestEvaluation {
    /// The step after which it was made; its checkpoint is kept.
    pub step: u64,
    /// The value of the metric that selects.
    #[serde(with = "exact")]
    pub value: f64,
    /// All metrics of that evaluation.
    pub metrics: Vec<Metric>,
}

/// The position of a run, as saved in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Optimiser steps done.
    pub step: u64,
    /// The current epoch, counted from 1; 0 before the first step.
    pub epoch: u64,
    /// Batches of the current epoch that have been used.
    pub batches_in_epoch: usize,
    /// Units (target tokens, sentences) trained on.
    pub tokens: u64,
    /// Seconds since the run began, pauses between interruption and resumption not counted.
    pub wall_seconds: f64,
    /// Seconds of those spent in training steps.
    pub training_seconds: f64,
    /// Whether other programs took a share of the processors that makes these times meaningless.
    #[serde(default)]
    pub disturbed: bool,
    /// Sum of the losses of the task since the last line of the log.
    #[serde(with = "exact")]
    pub logged_loss: f64,
    /// Sums of what was added to these losses, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged_added: Vec<Metric>,
    /// Units since the last line of the log.
    pub logged_units: u64,
    /// The best evaluation so far.
    pub best: Option<BestEvaluation>,
    /// The metrics of the last evaluation.
    pub last_metrics: Vec<Metric>,
    /// Evaluations since the best one.
    pub evaluations_without_improvement: u64,
    /// Steps of the regular checkpoints that are kept, ascending.
    pub kept: Vec<u64>,
    /// The scale of the loss, once a step was made in 16-bit floats that need one.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// Whether the evaluation after the step was interrupted, and is still to be made.
    #[serde(default)]
    pub is_due: bool,
    /// Whether the run is done.
    pub finished: bool,
}

impl TrainingState {
    /// Adds the losses of the batches of a step, which have so many units together, to those that the next line of the log shows.
    pub(super) fn log_losses(&mut self, losses: &[LossNumbers], units: usize) {
        self.logged_loss += losses.iter().map(|loss| loss.task).sum::<f64>();
        for Metric { name, value } in losses.iter().flat_map(|loss| &loss.added) {
            match self.logged_added.iter_mut().find(|sum| sum.name == *name) {
                Some(sum) => sum.value += value,
                None => self.logged_added.push(Metric { name: name.clone(), value: *value }),
            }
        }
        self.logged_units += units as u64;
    }

    /// The steps whose checkpoints must stay on disk.
    pub(crate) fn needed_checkpoints(&self) -> BTreeSet<u64> {
        self.kept.iter().copied().chain(self.best.as_ref().map(|best| best.step)).chain([self.step]).collect()
    }
}

/// Floating-point numbers as the shortest decimal text that reads back to the same bits; also those that JSON has no number for.
pub(super) mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:?}"))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_with_the_same_bits() {
        for value in [0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, 1e300, f64::NAN, f64::INFINITY, -0.0] {
            let text = serde_json::to_string(&Metric { name: "m".into(), value }).unwrap();
            let read: Metric = serde_json::from_str(&text).unwrap();
            assert!(read.value.to_bits() == value.to_bits() || (read.value.is_nan() && value.is_nan()), "{value} became {}", read.value);
        }
        assert!(serde_json::from_str::<Metric>(r#"{"name":"m","value":"x"}"#).unwrap_err().to_string().contains("not a number"));
    }
}
