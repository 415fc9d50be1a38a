//! Compares attention mechanisms on the classification of texts or images.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::comparison;
use crate::image::ImageClassification;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pretrained::assignment;
use crate::text_classification::TextClassification;
use clap::Parser;

/// Compare attention mechanisms on the classification of texts, or of images with --images, each encoder trained from scratch.
///
/// Trains an encoder for each attention and seed, and prints a table of test accuracy with parameters, speed and memory. --data takes AG News (train.csv,
/// test.csv), IMDB (aclImdb, or its archive), TREC, or files with a class, a tab and a text on each line (train.tsv, and dev.tsv and test.tsv if there are any;
/// without a test set the development set is scored); without it texts are generated. With --images the encoder is a Vision Transformer, --data takes a folder
/// with MNIST (IDX) or CIFAR (binary) files, and --pretrained begins with the weights of a pretrained one.
#[derive(Parser)]
#[command(name = "classify", version, after_help = examples("classify"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,

    /// Classify images by patches of --set patch=N by N pixels
    #[arg(long)]
    images: bool,

    /// Folder of a pretrained Vision Transformer of Hugging Face with its preprocessor_config.json, for images of its size: fine-tune it, with a new output where
    /// the data have other classes, and score it before where they have as many
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, requires = "images", conflicts_with = "model")]
    pretrained: Option<PathBuf>,
}

/// The program `classify`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, common, images, pretrained } = parse::<Options>();
    let models = comparison::model_assignments(&model, &common);
    match images {
        false => comparison::with_options::<TextClassification>(&common, models),
        true => comparison::with_options::<ImageClassification>(&common, models.into_iter().chain(assignment(pretrained)).collect()),
    }
}
