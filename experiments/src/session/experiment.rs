//! The definition of an experiment: its options, its data, its models and its scores.
//!
//! An [`Experiment`] is the table of its own options. It opens data sets, makes a [`Task`](crate::train::Task) of each, and a model for each attention. The
//! library provides everything else: options, run folders, training, checkpoints, results, reports, comparisons and analyses.
//! [`main`](crate::programs::experiment::main) is the body of its program.

mod command_option;
mod config;
pub(crate) mod definition;
mod lengths;
pub(crate) mod paper_model;
pub use self::command_option::{CommandOption, OptionValue};
pub use self::config::Config;
pub use self::definition::{Candidate, Card, Experiment, NamedModel, ReadSegment, Reading, Setup, ShowSegment, Trained, check_length};
pub use self::lengths::TrainingLengths;
pub use self::paper_model::PaperModel;
pub(crate) mod rule;
pub(crate) mod seen_image;
pub use self::rule::Rule;
pub use self::seen_image::SeenImage;
pub use crate::model::attention::Attention;
pub use crate::train::{Pass, Scores, Selection, Split};
