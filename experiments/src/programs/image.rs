//! Compares attention mechanisms on images.

use std::process::ExitCode;

use crate::comparison;
use crate::image::{ImageModelling, SuperResolution};
use crate::options::{CommonOptions, examples, parse};
use clap::Parser;

/// Compare attention mechanisms on images, generated value by value.
///
/// Trains a decoder for each attention and seed, and prints a table of bits per dimension with parameters, speed and memory. Each run's folder has pictures:
/// samples of the model, and test images that it completed from their upper half. --data takes a folder with MNIST (IDX), CIFAR (binary),
/// downsampled ImageNet (.npz or PNG) or CelebA (PNG) files; without it images with symmetries are generated.
#[derive(Parser)]
#[command(name = "image", version, after_help = examples("image"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,

    /// Super-resolution: add an encoder that reads a smaller version of the image (smaller by data.factor)
    #[arg(long)]
    super_resolution: bool,
}

/// The program `image`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { common, super_resolution } = parse::<Options>();
    if super_resolution {
        comparison::with_options::<SuperResolution>(&common, Vec::new())
    } else {
        comparison::with_options::<ImageModelling>(&common, Vec::new())
    }
}
