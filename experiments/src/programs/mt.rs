//! Compares attention mechanisms on machine translation.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pretrained::assignment;
use crate::translation::Translation;
use clap::Parser;
use heedful_runs::settings::Assignment;

/// Compare attention mechanisms, or whole models, on machine translation.
///
/// Trains an encoder-decoder Transformer for each attention, or each model of --model, and each seed, translates the test sets, and prints a table of BLEU, chrF and, of
/// translations into English, METEOR, with parameters, speed and memory. Without --data it uses a built-in corpus that needs no file. With --pretrained it begins
/// with the weights of a pretrained T5 and scores them before and after training.
#[derive(Parser)]
#[command(name = "mt", version, after_help = examples("mt"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    /// Folder of a pretrained T5 of Hugging Face with its tokenizer.json: score it, and fine-tune it. --set prefix='translate English to German: ' says what
    /// stands before each source [default: that, with the names of the languages]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, conflicts_with = "model")]
    pretrained: Option<PathBuf>,

    #[command(flatten)]
    common: CommonOptions,

    /// Source language: the extension of the source files in --data (train.en, val.en, test*.en).
    #[arg(long, value_name = "LANGUAGE")]
    source: Option<String>,

    /// Target language.
    #[arg(long, value_name = "LANGUAGE")]
    target: Option<String>,
}

/// The program `mt`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let options = parse::<Options>();
    let languages = [("--source", "data.source", options.source), ("--target", "data.target", options.target)];
    let languages = languages.into_iter().filter_map(|(option, path, language)| Some(Assignment::option(option, path, language?)));
    let models = comparison::model_assignments(&options.model, &options.common);
    comparison::with_options::<Translation>(
        &options.common,
        models.into_iter().chain(assignment(options.pretrained)).chain(languages).collect(),
    )
}
