//! Compares attention mechanisms on images.

use std::process::ExitCode;

use crate::comparison;
use crate::image::{ImageMixtures, ImageModelling, SuperResolution};
use crate::options::{CommonOptions, examples, parse};
use clap::Parser;

/// Compare attention mechanisms on images, generated value by value.
///
/// Trains a decoder for each attention and seed, and prints a table of bits per dimension with parameters, speed and memory. Each run's folder has pictures:
/// samples of the model, and test images that it completed from their upper half. --set conditions=class tells models the class of each image. --data takes a
/// folder with MNIST (IDX), CIFAR (binary), downsampled ImageNet (.npz or PNG) or CelebA (PNG) files; without it images with symmetries are generated.
#[derive(Parser)]
#[command(name = "image", version, after_help = examples("image"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,

    /// Super-resolution: add an encoder that reads a smaller version of the image (smaller by data.factor)
    #[arg(long)]
    super_resolution: bool,

    /// Images in colour pixel by pixel, with a mixture of logistics for the three values of each, in place of a token for each value
    #[arg(long, conflicts_with = "super_resolution")]
    logistic_mixture: bool,
}

/// The program `image`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, common, super_resolution, logistic_mixture } = parse::<Options>();
    let models = comparison::model_assignments(&model, &common);
    match (super_resolution, logistic_mixture) {
        (true, _) => comparison::with_options::<SuperResolution>(&common, models),
        (false, true) => comparison::with_options::<ImageMixtures>(&common, models),
        (false, false) => comparison::with_options::<ImageModelling>(&common, models),
    }
}
