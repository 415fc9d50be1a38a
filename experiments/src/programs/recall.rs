//! Compares mechanisms on recall.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use crate::recall::Recall;
use clap::Parser;
use heedful_data::generate::sequences::SequenceTask;
use heedful_runs::settings::Assignment;

/// Compare what attention mechanisms recall of generated sequences: MQAR, the tasks of MAD, induction heads, needles.
///
/// Trains a small decoder for each model of --model or attention of --attention, and each seed, with each of training.learning_rates, and prints a table of
/// accuracies of those that learnt best: of the tokens that are asked for, of whole sequences, and of sequences that are longer than those of training
/// where the task has some.
#[derive(Parser)]
#[command(name = "recall", version, after_help = examples_of("recall"))]
struct Options {
    /// Task; its options are set with --set data.task.NAME=VALUE
    #[arg(long, value_name = "NAME", value_parser = SequenceTask::RECALL)]
    task: Option<String>,

    /// Models to train and compare, separated by commas: those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The examples of all experiments, with rates that are tried.
pub(super) fn examples_of(binary: &str) -> String {
    examples(binary).replace("training.learning_rate=3e-4", "training.learning_rates=[3e-4]")
}

/// The program `recall`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { task, model, common } = parse::<Options>();
    let mut further = comparison::model_assignments(&model, &common);
    further.extend(task.map(|kind| Assignment::option("--task", "data.task.kind", kind)));
    comparison::with_options::<Recall>(&common, further)
}
