//! Compares memories in reinforcement learning.

use std::process::ExitCode;

use crate::comparison;
use crate::memory_rl::MemoryRl;
use crate::memory_rl::environment::EnvironmentConfig;
use crate::options::{CommonOptions, examples, parse};
use clap::Parser;
use heedful_runs::settings::Assignment;

/// Compare memories in reinforcement learning: GTrXL and its gates, Transformer-XL, an LSTM, and no memory.
///
/// Trains a policy by proximal policy optimisation for each model of --model or attention of --attention, and each seed, and prints a table of returns beside
/// those of the best policies with and without memory. With --set search.learning_rate=[1e-4,1e-2] each seed draws its own learning rate, and the
/// table counts the seeds that diverge.
#[derive(Parser)]
#[command(name = "memory-rl", version, after_help = examples("memory-rl"))]
struct Options {
    /// Environment: t-maze, memory-maze, numpad or repeat-previous; its options are set with --set data.environment.NAME=VALUE
    #[arg(long, value_name = "NAME", value_parser = EnvironmentConfig::NAMES)]
    environment: Option<String>,

    /// Models to train and compare, separated by commas: those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `memory-rl`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { environment, model, common } = parse::<Options>();
    let mut further = comparison::model_assignments(&model, &common);
    further.extend(environment.map(|kind| Assignment::option("--environment", "data.environment.kind", kind)));
    comparison::with_options::<MemoryRl>(&common, further)
}
