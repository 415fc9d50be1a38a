//! Compares attention mechanisms on machine translation.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use crate::settings::Assignment;
use crate::translation::Translation;
use clap::Parser;

/// Compare attention mechanisms, or whole models, on machine translation.
///
/// Trains an encoder-decoder Transformer for each attention, or each model of --model, and each seed, translates the test sets, and prints a table of BLEU, chrF and, of
/// translations into English, METEOR, with parameters, speed and memory. Without --data it uses a built-in corpus that needs no file.
#[derive(Parser)]
#[command(name = "mt", version, after_help = examples("mt"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

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
    comparison::with_options::<Translation>(&options.common, models.into_iter().chain(languages).collect())
}
