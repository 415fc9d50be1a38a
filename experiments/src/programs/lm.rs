//! Compares attention mechanisms on language modelling.

use std::process::ExitCode;

use crate::comparison;
use crate::language::Language;
use crate::options::{CommonOptions, examples, parse};
use clap::Parser;

/// Compare attention mechanisms, or whole models, on language modelling.
///
/// Trains a decoder-only Transformer for each attention, or each model of --model, and each seed, and prints a table of perplexity and bits per unit with
/// parameters, speed and memory.
/// Without --data it uses a built-in text.
#[derive(Parser)]
#[command(name = "lm", version, after_help = examples("lm"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas (--list shows all)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `lm`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, common } = parse::<Options>();
    comparison::with_options::<Language>(&common, comparison::model_assignments(&model, &common))
}
