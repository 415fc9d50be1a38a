//! Compares recurrent networks with adaptive computation time.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use crate::ponder::Ponder;
use clap::Parser;
use heedful_data::generate::vectors::VectorTask;
use heedful_runs::settings::Assignment;

/// Compare recurrent networks that take one step for each element of a sequence with networks that take as many as they find right.
///
/// Trains a network of one layer for each model of --model and each seed on one of the tasks of Graves 2016, and prints a table of accuracies, of elements
/// and of whole sequences, and of the steps that elements took.
#[derive(Parser)]
#[command(name = "ponder", version, after_help = examples("ponder").replace("--attention dot-product,synthesizer-random,gaussian", "--model one-step,act").replace("--attention dot-product", "--model act"))]
struct Options {
    /// Task; its options are set with --set data.task.NAME=VALUE
    #[arg(long, value_name = "NAME", value_parser = VectorTask::NAMES)]
    task: Option<String>,

    /// Models to train and compare, separated by commas: those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `ponder`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { task, model, common } = parse::<Options>();
    let mut further = comparison::model_assignments(&model, &common);
    further.extend(task.map(|kind| Assignment::option("--task", "data.task.kind", kind)));
    comparison::with_options::<Ponder>(&common, further)
}
