//! Compares attention mechanisms on the classification of texts.

use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, examples, parse};
use crate::text_classification::TextClassification;
use clap::Parser;

/// Compare attention mechanisms on the classification of texts, each encoder trained from scratch.
///
/// Trains an encoder for each attention and seed, and prints a table of test accuracy with parameters, speed and memory. --data takes AG News (train.csv,
/// test.csv), IMDB (aclImdb, or its archive), TREC, or files with a class, a tab and a text on each line (train.tsv, and dev.tsv and test.tsv if there are any;
/// without a test set the development set is scored); without it texts are generated.
#[derive(Parser)]
#[command(name = "classify", version, after_help = examples("classify"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,
}

/// The program `classify`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, common } = parse::<Options>();
    comparison::with_options::<TextClassification>(&common, comparison::model_assignments(&model, &common))
}
