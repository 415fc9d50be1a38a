//! Items that most experiments import together: `use crate::tasks::prelude::*;`.

pub(crate) use burn::tensor::Device;
pub(crate) use heedful_attention::contract::probe::Probe;
pub(crate) use heedful_host::interrupt::Interrupt;
pub(crate) use heedful_metrics::{Combination, ItemScore, ItemTable, MetricColumn};
pub(crate) use heedful_random::RandomKey;
pub(crate) use heedful_runs::published::PublishedNumbers;
pub(crate) use heedful_runs::run_folder::RunPaths;
pub(crate) use heedful_runs::settings::Settings;
pub(crate) use heedful_runs::trivial::TrivialBaseline;
pub(crate) use toml::{Table, Value};

pub(crate) use crate::model::ModelSettings;
pub(crate) use crate::session::error::{Completion, ExperimentError, Interruptible};
pub(crate) use crate::session::experiment::{
    Attention, Candidate, Card, CommandOption, Config, Experiment, NamedModel, OptionValue, PaperModel, Reading, Rule, Setup, ShowSegment,
    Trained, TrainingLengths, check_length,
};
pub(crate) use crate::train::batch::fixed_size_batches;
pub(crate) use crate::train::{Pass, ScheduleConfig, Scores, Selection, Split, Task, TrainingConfig, TrainingLoss};
