//! Compares attention mechanisms on GLUE and SuperGLUE tasks.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::classification::Classification;
use crate::comparison;
use crate::data::glue::GlueTask;
use crate::options::{CommonOptions, examples, parse};
use crate::settings::Assignment;
use clap::Parser;

/// Compare attention mechanisms on GLUE and SuperGLUE tasks, from scratch or after a pre-training.
///
/// Trains an encoder for each task, attention and seed, and prints a table of each task's metrics on its development set with parameters, speed and
/// memory. With --mixture one model learns all tasks; with --init it starts from the weights of `mlm`. Without --data it uses built-in tasks of the same kinds.
#[derive(Parser)]
#[command(name = "glue", version, after_help = examples("glue"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,

    /// Tasks, comma separated: CoLA, SST-2, MRPC, RTE, STS-B, WNLI, QNLI, QQP, MNLI; BoolQ, CB, COPA, WiC, MultiRC, ReCoRD, WSC.
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    task: Vec<GlueTask>,

    /// Train one model on all tasks in turn
    #[arg(long)]
    mixture: bool,

    /// Output folder of `mlm`: start from its weights and vocabulary
    #[arg(long, value_name = "RUN")]
    init: Option<PathBuf>,

    /// Seed of the pre-training for all seeds [default: each seed starts from the run of the same seed]
    #[arg(long, value_name = "S", requires = "init", value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    init_seed: Option<u64>,
}

/// The program `glue`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { common, task, mixture, init, init_seed } = parse::<Options>();
    let tasks: Vec<_> = task.iter().map(|task| task.name().to_owned()).collect();
    let tasks = (!tasks.is_empty()).then(|| Assignment::option("--task", "data.tasks", tasks));
    let mixture = mixture.then(|| Assignment::option("--mixture", "data.mixture", true));
    let init = init.map(|run| Assignment::option("--init", "init", run.to_string_lossy().into_owned()));
    let init_seed = init_seed.map(|seed| Assignment::option("--init-seed", "init_seed", seed as i64));
    comparison::with_options::<Classification>(&common, tasks.into_iter().chain(mixture).chain(init).chain(init_seed).collect())
}
