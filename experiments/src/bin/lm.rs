//! Compares attention mechanisms on language modelling.

use std::process::ExitCode;

use clap::Parser;
use heedful_experiments::comparison;
use heedful_experiments::language::Language;
use heedful_experiments::options::{CommonOptions, examples};

/// Compare attention mechanisms on language modelling.
///
/// Trains a decoder-only Transformer for each attention and seed, and prints a table of perplexity and bits per unit with parameters, speed and memory.
/// Without --data it uses a built-in text that needs no file.
#[derive(Parser)]
#[command(name = "lm", version, after_help = examples("lm"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,
}

fn main() -> ExitCode {
    comparison::main::<Language>(&Options::parse().common, Vec::new())
}
