//! Errors of a training run, worded for the person who started it.

use std::path::PathBuf;

use thiserror::Error;

use super::checkpoint::CheckpointError;
use super::configuration_error::ConfigurationError;
use super::parallel::RankError;

/// Why a training run ended without a model.
#[derive(Debug, Error)]
pub enum TrainingError {
    /// The configuration was refused before the first step.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The log could not be written or read.
    #[error("{path}: {source}; free space there or choose another --out")]
    Log {
        /// The log file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A loss, a gradient or a weight became infinite or not a number.
    #[error(
        "step {step}: the {quantity} is not finite (first seen in {place}). {}. Lower the learning rate, lengthen the warm-up, or set \
         `max_gradient_norm`",
        describe_checkpoint(.checkpoint)
    )]
    NonFinite {
        /// The optimiser step, counted from 1.
        step: u64,
        /// `loss`, `gradient` or `weight`.
        quantity: &'static str,
        /// The layer, parameter or gradient in which it was seen first, or `the loss itself`.
        place: String,
        /// The folder of the last checkpoint, all of whose weights are finite, if one was written.
        checkpoint: Option<PathBuf>,
        /// Seconds of the run until then, evaluation included.
        wall_seconds: f64,
        /// Whether other programs used the same cores meanwhile.
        disturbed: bool,
    },
    /// The objective picks its best model by a metric that its evaluation does not report.
    #[error("the evaluation reports no metric `{wanted}` to select the best model by; it reports: {}", .present.join(", "))]
    UnknownMetric {
        /// The metric asked for.
        wanted: String,
        /// The metrics reported.
        present: Vec<String>,
    },
    /// The processes that train together cannot go on.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// An epoch holds no batch.
    #[error(
        "epoch {epoch} holds no batch: the training set is empty, or every example was filtered out; check --data and the length limits"
    )]
    EmptyEpoch {
        /// The epoch, counted from 1.
        epoch: u64,
    },
}

impl TrainingError {
    /// Whether the command is invalid (exit code 2), rather than failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Rank(error) => error.is_usage(),
            other => matches!(other, Self::Configuration(_) | Self::Checkpoint(CheckpointError::OtherConfiguration { .. })),
        }
    }
}

fn describe_checkpoint(checkpoint: &Option<PathBuf>) -> String {
    match checkpoint {
        Some(folder) => format!("The last good checkpoint is {}", folder.display()),
        None => "No checkpoint had been written yet".to_string(),
    }
}
