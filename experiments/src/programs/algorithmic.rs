//! Compares models on questions with one correct answer.

use std::process::ExitCode;

use crate::algorithmic::Algorithmic;
use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use clap::Parser;
use heedful_data::exercise::ExerciseTask;
use heedful_runs::settings::Assignment;

/// Compare models on questions with one correct answer: algorithmic tasks, ListOps and bAbI.
///
/// Trains a decoder-only Transformer for each task, each model of --model or attention of --attention, and each seed, and prints a table of accuracies:
/// of answer tokens and of whole answers, on questions of the training lengths and on longer ones. Models that halt also show their mean number of
/// steps. Models with LSH attention are also scored with other numbers of rounds.
#[derive(Parser)]
#[command(name = "algorithmic", version, after_help = examples("algorithmic"))]
struct Options {
    /// Tasks, comma separated: copy, reverse, addition, duplication, list-ops, babi-1 to babi-20 (the last with --data)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    task: Vec<ExerciseTask>,

    /// Models to train and compare, separated by commas: those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `algorithmic`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { task, model, common } = parse::<Options>();
    let tasks: Vec<_> = task.iter().map(ToString::to_string).collect();
    let tasks = (!tasks.is_empty()).then(|| Assignment::option("--task", "data.tasks", tasks));
    let mut further = comparison::model_assignments(&model, &common);
    further.extend(tasks);
    comparison::with_options::<Algorithmic>(&common, further)
}
