//! Compares mechanisms on the tracking of states.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, parse};
use crate::recall::Track;
use clap::Parser;
use heedful_data::generate::sequences::SequenceTask;
use heedful_runs::settings::Assignment;

use super::recall::examples_of;

/// Compare how attention mechanisms track states: parity, word problems of groups (S5, A5), modular arithmetic.
///
/// Trains a small decoder for each model of --model or attention of --attention, and each seed, with each of training.learning_rates, and prints a table of
/// accuracies of those that learnt best, on sequences of the training lengths and on longer ones, which tell whether the state is tracked or short
/// sequences were learnt by heart.
#[derive(Parser)]
#[command(name = "track", version, after_help = examples_of("track"))]
struct Options {
    /// Task; its options are set with --set data.task.NAME=VALUE, such as data.task.group=a5
    #[arg(long, value_name = "NAME", value_parser = SequenceTask::TRACK)]
    task: Option<String>,

    /// Models to train and compare, separated by commas: those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `track`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { task, model, common } = parse::<Options>();
    let mut further = comparison::model_assignments(&model, &common);
    further.extend(task.map(|kind| Assignment::option("--task", "data.task.kind", kind)));
    comparison::with_options::<Track>(&common, further)
}
