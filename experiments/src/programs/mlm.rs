//! Compares attention mechanisms in pre-training.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pre_training::{MaskedModelling, SpanModelling};
use crate::pretrained::assignment;
use clap::{Parser, ValueEnum};

/// Compare attention mechanisms in pre-training on text.
///
/// Trains an encoder to find masked tokens, or an encoder-decoder to fill gaps, for each attention and seed, and prints a table of log-perplexities with steps
/// per second, parameters and memory. `glue --init` fine-tunes the encoder. --data takes a folder of running text, as `lm` does; without it the text is
/// generated. With --pretrained the encoder begins with the weights of a BERT or RoBERTa, which are scored too.
#[derive(Parser)]
#[command(name = "mlm", version, after_help = examples("mlm"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,

    /// Training objective
    #[arg(long, value_enum, default_value_t = Hidden::Tokens)]
    objective: Hidden,

    /// Folder of a pretrained encoder of Hugging Face with a masked-LM head (BERT, RoBERTa) and its tokenizer.json: score it, and go on with its training
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration)]
    pretrained: Option<PathBuf>,
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
    let Options { common, objective, pretrained } = parse::<Options>();
    let own = assignment(pretrained).into_iter().collect();
    match objective {
        Hidden::Tokens => comparison::with_options::<MaskedModelling>(&common, own),
        Hidden::Spans => comparison::with_options::<SpanModelling>(&common, own),
    }
}
