//! What an experiment of one's own needs: `use heedful_experiments::prelude::*;`.

pub use heedful_attention::probe::Probe;
pub use heedful_attention::random::RandomKey;

pub use crate::batch::fixed_size_batches;
pub use crate::error::ExperimentError;
pub use crate::experiment::{self, Attention, Card, Config, Experiment, Pass, Scores, Selection, Setup, Split, TrainingLengths};
pub use crate::metrics::MetricColumn;
pub use crate::run_folder::sha256_hex;
pub use crate::settings::Settings;
pub use crate::train::{Interrupt, Task, TrainingLoss};
