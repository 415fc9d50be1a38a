//! Compares attention mechanisms on GLUE tasks.

use std::process::ExitCode;

use clap::Parser;
use heedful_experiments::classification::Classification;
use heedful_experiments::comparison;
use heedful_experiments::data::glue::GlueTask;
use heedful_experiments::options::{CommonOptions, examples};
use heedful_experiments::settings::Assignment;

/// Compare attention mechanisms on GLUE tasks, each model trained from scratch on one task.
///
/// Trains an encoder for each task, attention and seed, and prints a table of each task's metrics on its development set with parameters, speed and
/// memory. Without --data it uses built-in tasks of the same kinds that need no file.
#[derive(Parser)]
#[command(name = "glue", version, after_help = examples("glue"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,

    /// Tasks, comma separated: CoLA, SST-2, MRPC, RTE, STS-B, WNLI, QNLI, QQP, MNLI.
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    task: Vec<GlueTask>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let tasks: Vec<_> = options.task.iter().map(|task| task.name().to_owned()).collect();
    let tasks = (!tasks.is_empty()).then(|| Assignment::option("--task", "data.tasks", tasks));
    comparison::main::<Classification>(&options.common, tasks.into_iter().collect())
}
