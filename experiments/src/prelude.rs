//! What an experiment of one's own needs: `use heedful_experiments::prelude::*;`.

pub use heedful_attention::contract::probe::Probe;
pub use heedful_host::interrupt::Interrupt;
pub use heedful_random::RandomKey;

pub use crate::programs::experiment;
pub use crate::session::error::ExperimentError;
pub use crate::session::experiment::{Attention, Card, Config, Experiment, Pass, Scores, Selection, Setup, Split, TrainingLengths};
pub use crate::train::batch::fixed_size_batches;
pub use crate::train::{Task, TrainingLoss};
pub use heedful_host::checksum::sha256_hex;
pub use heedful_metrics::MetricColumn;
pub use heedful_metrics::items::{Combination, ItemScore, ItemTable};
pub use heedful_runs::settings::Settings;
