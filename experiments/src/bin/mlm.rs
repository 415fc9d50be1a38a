//! Compares attention mechanisms in pre-training.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use heedful_experiments::comparison;
use heedful_experiments::options::{CommonOptions, examples};
use heedful_experiments::pre_training::{MaskedModelling, SpanModelling};

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

pub(crate) fn main() -> ExitCode {
    let Options { common, objective } = Options::parse();
    match objective {
        Hidden::Tokens => comparison::main::<MaskedModelling>(&common, Vec::new()),
        Hidden::Spans => comparison::main::<SpanModelling>(&common, Vec::new()),
    }
}
