//! Swaps the attention of a trained language model.

use std::path::PathBuf;
use std::process::ExitCode;

use heedful_host::names::listed;
use heedful_runs::settings::Assignment;

use crate::comparison;
use crate::error::{ExperimentError, main_with};
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::swap::contender::split_layers;
use crate::swap::{Swap, UNCHANGED};
use clap::Parser;

/// Replace the attention of chosen layers of a trained language model, and train on.
///
/// Every weight that still has a place is kept: the projections of values and output, and those of queries and keys where the new mechanism has them. The table
/// shows perplexity before, right after the swap and after the training that follows, and how much of the attention was kept; swap.json in the folder of a run
/// names each parameter. The contender `unchanged` is the model without a swap, trained for as many steps. Without --run the model is trained first, as `lm` does.
#[derive(Parser)]
#[command(name = "swap", version, after_help = examples_of("swap"))]
struct Options {
    /// Output folder of `lm` with the trained model to begin with [default: train one first]
    #[arg(long, value_name = "RUN", value_parser = PathInConfiguration)]
    run: Option<PathBuf>,

    /// Which attention or model of that folder [default: its first]
    #[arg(long, value_name = "NAME", requires = "run")]
    run_model: Option<String>,

    /// Seed of the model for all seeds [default: each seed begins with the run of the same seed]
    #[arg(long, value_name = "S", requires = "run", value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    run_seed: Option<u64>,

    /// Layers and the mechanisms that each of the contenders has there: 'layers.*.attention=alibi,uniform', layers.0,2=uniform, layers.1-3=uniform; names alone
    /// are for all layers. May be repeated; the unchanged model is compared with them
    #[arg(long, value_name = "LAYERS=NAME[,NAME...]", conflicts_with = "attention")]
    swap: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The examples of all experiments, with contenders.
fn examples_of(binary: &str) -> String {
    let swaps = format!("  {binary} --run runs/lm --swap 'layers.*.attention=sliding-window,linear-attention' --swap layers.0,1=uniform\n");
    examples(binary).replacen("Examples:\n", &format!("Examples:\n{swaps}"), 1)
}

/// The contenders of `--swap`, each with its layers before it.
fn contenders(text: &str) -> Vec<String> {
    match split_layers(text) {
        None => listed(text).into_iter().map(str::to_owned).collect(),
        Some((layers, names)) => listed(names).into_iter().map(|name| format!("{layers}={name}")).collect(),
    }
}

/// The contenders of all `--swap` and the one that replaces nothing, in their field of the configuration; nothing where there is no `--swap`.
pub(super) fn assignment(swaps: &[String]) -> Option<Assignment> {
    let all: Vec<String> = std::iter::once(UNCHANGED.to_owned()).chain(swaps.iter().flat_map(|text| contenders(text))).collect();
    (!swaps.is_empty()).then(|| Assignment::option("--swap", "run.attention", all))
}

/// The program `swap`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { run, run_model, run_seed, swap, common } = parse::<Options>();
    if common.slurm && run.is_none() && common.config.is_none() {
        let problem = "--slurm: all runs begin with a model that has to be trained already; give --run RUN of a finished `lm`";
        return main_with(|| Err(ExperimentError::usage(problem)));
    }
    let run = run.map(|run| Assignment::option("--run", "start.run", run.to_string_lossy().into_owned()));
    let run_model = run_model.map(|name| Assignment::option("--run-model", "start.model", name));
    let run_seed = run_seed.map(|seed| Assignment::option("--run-seed", "start.seed", seed as i64));
    comparison::with_options::<Swap>(&common, [run, run_model, run_seed, assignment(&swap)].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn each_mechanism_of_a_swap_is_a_contender_in_its_layers() {
        assert_eq!(contenders("layers.*.attention=alibi,uniform"), ["layers.*.attention=alibi", "layers.*.attention=uniform"]);
        assert_eq!(contenders("layers.0,2=[alibi,uniform], relative"), ["layers.0,2=[alibi,uniform]", "layers.0,2=relative"]);
        assert_eq!(contenders("alibi,uniform"), ["alibi", "uniform"]);
        assert_eq!(contenders("sliding-window{window=4},alibi"), ["sliding-window{window=4}", "alibi"]);
        assert!(examples_of(Swap::NAME).contains("--swap layers.0,1=uniform"));
    }
}
