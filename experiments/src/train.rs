//! The training engine of all experiments: one loop, on burn's optimisers.
//!
//! A [`Task`] says what is trained (batches, loss, evaluation); a [`Trainer`] does the rest: schedule, gradient accumulation and
//! clipping over all gradients together, log, evaluation, early stopping, checkpoints, averaging, and a clean stop on request. Everything random follows
//! from a key and the numbers of step, epoch and batch, so a run that was killed at any moment and resumed ends with the same weights as one that was
//! not. Several processes can compute the micro-batches of a step ([`Ranks`]), with the same weights again.
//!
//! The parts are useful on their own: [`ScheduleConfig`] and [`OptimiserConfig`] for another loop, [`ParameterCount`] for any model, [`average()`] for any
//! list of models, [`CheckpointFolder`] for anything that must be written whole or not at all.

pub mod batch;

mod average;
mod checkpoint;
mod config;
mod configuration_error;
mod disk;
mod error;
mod events;
mod gradient;
mod log;
mod loss;
mod loss_scale;
mod parallel;
mod parameter;
mod pending_scalars;
mod progress;
mod run;
mod schedule;
mod state;
mod state_dict;
mod step;
mod task;
mod trainer;
mod tuning;

#[cfg(test)]
mod tests;

pub use average::average;
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointFolder};
pub use config::TrainingConfig;
pub use configuration_error::ConfigurationError;
pub use error::TrainingError;
pub(crate) use events::EventFile;
pub use gradient::{clipping_factor, scale, squared_norms};
pub use heedful_models::training::optimiser::{OptimiserConfig, OptimiserKind, without_decay};
pub use log::{LogLine, TrainingLog};
pub use loss::TrainingLoss;
pub use loss_scale::{LossScale, LossScaling};
#[cfg(feature = "mpi")]
pub(crate) use parallel::mpi::Mpi;
pub use parallel::{Collective, RankError, Ranks, Topic};
pub use parameter::{ParameterCount, assign_parameter_ids, first_non_finite_parameter, read_scalars};
pub use progress::Watcher;
pub(crate) use progress::{StepCount, clock};
pub use schedule::ScheduleConfig;
pub use state::{BestEvaluation, Metric, TrainingState};
pub(crate) use state_dict::{MODEL, load_model};
pub use task::{Outcome, Pass, Scores, Selection, Split, Task, TrainedModel};
pub use trainer::Trainer;
pub use tuning::Tuning;
pub(crate) use tuning::is_inside;
