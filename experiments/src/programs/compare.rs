//! Compares finished runs of several commands.

use std::process::ExitCode;

use crate::compare::{self, CompareOptions};
use crate::error::main_with;
use crate::options::CommonOptions;
use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  compare runs/mt
  compare runs/lm runs/lm-longer --metric perplexity --baseline lm/dot-product
  compare runs/mt --test bootstrap --resamples 10000 --out comparison
  compare runs/glue --format latex
  compare experiments/results/built-in-mt runs/mt --exactly

Exit codes: 0 done, 1 a folder or file cannot be used or runs differ (--exactly), 2 the command was refused.";

/// Compare finished runs: scores over seeds, significance, costs and learning curves.
///
/// Reads the output folders of mt, lm, glue and the other experiments, and prints a table for each experiment and data set with a row for each folder and
/// attention or model. Differences from a baseline are tested over seeds, or over the sentences of a test set where the folders hold translations and
/// references.
#[derive(Parser)]
#[command(name = "compare", version, after_help = EXAMPLES)]
struct Options {
    #[command(flatten)]
    compare: CompareOptions,
}

/// The program `compare`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { compare } = Options::parse();
    main_with(|| {
        CommonOptions::default().start_logging()?;
        compare::run(&compare)
    })
}
