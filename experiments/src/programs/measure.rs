//! Measures costs of trained models in rounds.

use clap::{Args, Subcommand};

use crate::session::error::{Completion, ExperimentError};
use crate::tools::measure::{BatchOptions, DecodingOptions, ScoringOptions};

const EXAMPLES: &str = "\
Examples:
  heedful measure scoring runs/lm --tokens 5000 --stride 1,8
  heedful measure decoding runs/mt --attention dot-product,hc-sa --at-once 1,16,128 --out speed
  heedful measure batch runs/mt --memory 1 --rounds 11 --out batches

Exit codes: 0 done, 1 a run or file cannot be used, 2 the command was refused.";

/// Measure costs of trained models in rounds: seconds of scoring (lm), sentences per second of decoding and the largest batch within a memory (mt).
///
/// In each round every model of a finished command is measured once, in turn. Results are a table and, with --out, rounds.json, which has every round and how
/// busy the machine was before.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Scoring time of the models of a command of lm, in seconds for the test text
    Scoring(ScoringOptions),
    /// Translation speed of the models of a command of mt, in sentences per second
    Decoding(DecodingOptions),
    /// Largest training batch of the models of a command of mt within a given memory
    Batch(BatchOptions),
}

pub(super) fn run(Options { what }: &Options) -> Result<Completion, ExperimentError> {
    match what {
        What::Scoring(options) => options.run()?,
        What::Decoding(options) => options.run()?,
        What::Batch(options) => options.run()?,
    }
    Ok(Completion::Finished)
}
