//! Compares attention mechanisms in pre-training.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use crate::pre_training::{MaskedModelling, SpanModelling};
use clap::{Parser, ValueEnum};

/// Compare attention mechanisms in pre-training on text.
///
/// Trains an encoder to find masked tokens, or an encoder-decoder to fill gaps, for each attention and seed, and prints a table of log-perplexities with steps
/// per second, parameters and memory. `glue --init` fine-tunes the encoder. --data takes a folder of running text, as `lm` does; without it the text is
/// generated.
#[derive(Parser)]
#[command(name = "mlm", version, after_help = examples("mlm"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,

    /// Training objective
    #[arg(long, value_enum, default_value_t = Hidden::Tokens)]
    objective: Hidden,
}

#[derive(Clone, Copy, ValueEnum)]
enum Hidden {
    /// An encoder finds masked tokens (BERT)
    Tokens,
    /// An encoder-decoder fills in spans (T5)
    Spans,
}

/// The program `mlm`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { common, objective } = parse::<Options>();
    match objective {
        Hidden::Tokens => comparison::with_options::<MaskedModelling>(&common, Vec::new()),
        Hidden::Spans => comparison::with_options::<SpanModelling>(&common, Vec::new()),
    }
}
