//! Compares attention mechanisms on language modelling.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::comparison;
use crate::language::Language;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pretrained::assignment;
use clap::Parser;

/// Compare attention mechanisms, or whole models, on language modelling.
///
/// Trains a decoder-only Transformer for each attention, or each model of --model, and each seed, and prints a table of perplexity and bits per unit with
/// parameters, speed and memory.
/// Without --data it uses a built-in text. With --pretrained it begins with the weights of a pretrained model and scores them before and after training.
#[derive(Parser)]
#[command(name = "lm", version, after_help = examples("lm"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    /// Folder of a pretrained model of Hugging Face (Gemma-2, GPT-2, Llama, Mistral, Qwen-3) with its tokenizer.json: score it, and fine-tune it
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, conflicts_with = "model")]
    pretrained: Option<PathBuf>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `lm`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, pretrained, common } = parse::<Options>();
    comparison::with_options::<Language>(
        &common,
        comparison::model_assignments(&model, &common).into_iter().chain(assignment(pretrained)).collect(),
    )
}
