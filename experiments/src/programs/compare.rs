//! Compares finished runs of several commands.

use crate::session::error::{Completion, ExperimentError};
use crate::session::provenance;
use clap::Args;
use heedful_runs::compare::{self, CompareOptions};

const EXAMPLES: &str = "\
Examples:
  heedful compare runs/mt
  heedful compare runs/lm runs/lm-longer --metric perplexity --baseline lm/dot-product
  heedful compare runs/mt --test bootstrap --resamples 10000 --out comparison
  heedful compare runs/glue --format latex
  heedful compare experiments/results/built-in-mt runs/mt --exactly

Exit codes: 0 done, 1 a folder or file cannot be used or runs differ (--exactly), 2 the command was refused.";

/// Compare finished runs: scores over seeds, significance, costs and learning curves.
///
/// Reads the output folders of mt, lm, glue and the other experiments, and prints a table for each experiment and data set with a row for each folder and
/// attention or model. Differences from a baseline are tested over seeds, or over the items of a test set (sentences, examples, questions) where the folders
/// hold what each contributed.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(flatten)]
    compare: CompareOptions,
}

pub(super) fn run(options: &Options) -> Result<Completion, ExperimentError> {
    Ok(compare::run(&options.compare, &provenance::here())?)
}
