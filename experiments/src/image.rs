//! Autoregressive models of images: the experiment `image`.
//!
//! The values of an image are tokens, row by row, or block by block where attention is local in two dimensions (Parmar et al. 2018), and each is predicted
//! from those before it. [`ImageModelling`] has a decoder alone, [`SuperResolution`] an encoder for a small version of the image as well.

mod config;
mod super_resolution;
mod task;

use burn::tensor::Device;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::language_model::LanguageModel;

use crate::analyse::{Legible, Reading};
use crate::comparison::{Attention, Comparison, Dataset, Scores};
use crate::data::generate::{self, Sizes};
use crate::data::images::{self, Images};
use crate::error::ExperimentError;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::train::Interrupt;

pub use config::{ImageConfig, ImageData};
pub use super_resolution::{SharpeningTask, SuperResolution};
use task::{BITS, LOWER_HALF};
pub use task::{ImageBatch, ImageTask};

/// Images, and what was done to them.
#[derive(Debug)]
pub struct ImageDataset {
    name: String,
    images: Images,
    description: String,
}

impl Dataset for ImageDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.images.sha256
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}

/// The comparison of attentions on images.
#[derive(Debug)]
pub struct ImageModelling;

impl Comparison for ImageModelling {
    const NAME: &'static str = "image";
    const TITLE: &'static str = "Images, value by value";
    const DATA: &'static [&'static str] = &["data.reductions", "data.train", "data.valid", "data.test", "data.generated_images"];
    const BATCH: &'static str = "data.batch";
    type Config = ImageConfig;
    type Dataset = ImageDataset;
    type Model = LanguageModel;
    type Task<'a> = ImageTask<'a>;

    fn check(settings: &Settings<ImageConfig>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        check(settings)
    }

    fn datasets(config: &ImageConfig) -> Result<Vec<ImageDataset>, ExperimentError> {
        dataset(config).map(|dataset| vec![dataset])
    }

    fn fits(config: &ImageConfig, dataset: &ImageDataset, attention: &Attention) -> Result<(), ExperimentError> {
        config.model(&dataset.images, attention).validate().map_err(ExperimentError::usage)?;
        fits_blocks(&dataset.images, attention)
    }

    fn batch_tokens(config: &Self::Config, dataset: &Self::Dataset) -> usize {
        config.data.batch.min(dataset.images.train.len()).saturating_mul(dataset.images.size())
    }

    fn task<'a>(config: &'a ImageConfig, dataset: &'a ImageDataset, attention: &Attention) -> ImageTask<'a> {
        ImageTask::new(config, &dataset.images, attention)
    }

    fn model(
        config: &ImageConfig,
        dataset: &ImageDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<LanguageModel, ExperimentError> {
        Ok(config.model(&dataset.images, attention).init(key, device))
    }

    fn score(
        _config: &ImageConfig,
        _dataset: &ImageDataset,
        task: &ImageTask,
        model: &LanguageModel,
        paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let Some(bits) = task.bits_per_dimension(model, &task.images.test, Some(interrupt)) else { return Ok(None) };
        let mut scores = Scores::default();
        let signature = format!("{}, {} test images", signature(task.images), task.images.test.len());
        scores.push(BITS, bits.all, signature.clone());
        scores.push(LOWER_HALF, bits.lower_half, signature);
        let Some(()) = task.draw(model, paths, interrupt)? else { return Ok(None) };
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let lower_half = MetricColumn::new(LOWER_HALF, "lower half").digits(3).lower_is_better();
        vec![
            bits_column(),
            lower_half.defined_as("bits per dimension of the values behind the upper half, from which they follow in the images made here"),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::images()
    }
}

impl Legible for ImageModelling {
    fn texts(_config: &ImageConfig, dataset: &ImageDataset, count: usize) -> Vec<String> {
        let test = &dataset.images.test;
        (0..count.min(test.len())).map(|index| test.image(index).iter().map(u8::to_string).collect::<Vec<_>>().join(" ")).collect()
    }

    /// A position shows the value that it is given, the one before the value that it is to foresee.
    fn read(
        config: &ImageConfig,
        dataset: &ImageDataset,
        attention: &Attention,
        model: &LanguageModel,
        text: &str,
        probe: &mut Probe,
    ) -> Result<Reading, ExperimentError> {
        let Images { width, channels, levels, .. } = dataset.images;
        let values: Option<Vec<u8>> =
            text.split_whitespace().map(|value| value.parse().ok().filter(|&value| usize::from(value) < levels)).collect();
        let size = dataset.images.size();
        let image = values.filter(|values| values.len() == size).ok_or_else(|| {
            ExperimentError::usage(format!(
                "--text {text:?}: it is no image of {size} values from 0 to {}; give them row by row",
                levels - 1
            ))
        })?;
        let task = ImageTask::new(config, &dataset.images, attention);
        task.read(model, &image, probe);
        let place = |&index: &usize| format!("{}.{}:{}", index / (width * channels), index % (width * channels), image[index]);
        Ok(Reading {
            decoder: std::iter::once("begin".to_owned()).chain(task.before_last().iter().map(place)).collect(),
            ..Reading::default()
        })
    }
}

fn bits_column() -> MetricColumn {
    MetricColumn::new(BITS, "bits/dim").digits(3).lower_is_better()
}

/// What bits per dimension are of.
fn signature(images: &Images) -> String {
    let Images { height, width, channels, levels, .. } = images;
    format!("{height}x{width}x{channels}, {levels} values, categorical")
}

fn check(settings: &Settings<ImageConfig>) -> Result<(), ExperimentError> {
    let ImageConfig { data, sampling, .. } = &settings.value;
    let at_least_one = [
        ("data.batch", data.batch),
        ("data.valid", data.valid),
        ("data.factor", data.factor),
        ("data.generated_images", data.generated_images),
        ("data.reductions.shrink", data.reductions.shrink),
        ("data.train", data.train.unwrap_or(1)),
        ("data.test", data.test.unwrap_or(1)),
    ];
    for (field, value) in at_least_one {
        if value == 0 {
            return Err(settings.refuse(field, "it must be at least 1").into());
        }
    }
    sampling.validate().map_err(ExperimentError::usage)
}

fn dataset(config: &ImageConfig) -> Result<ImageDataset, ExperimentError> {
    let data = &config.data;
    let key = RandomKey::from_seed(0).named("image data");
    let (name, images) = match &config.run.data {
        Some(dir) => {
            let images = images::read(dir).and_then(|images| images.reduced(&data.reductions)).map_err(ExperimentError::failure)?;
            (crate::comparison::folder_name(dir), images)
        }
        None => {
            let sizes = Sizes { train: data.generated_images, ..Sizes::IMAGES };
            ("built-in".to_owned(), generate::images(&key, ImageConfig::shape(), sizes).map_err(ExperimentError::usage)?)
        }
    };
    let all = [&images.train, &images.dev, &images.test].map(|set| set.len());
    let sizes = Sizes { train: data.train.unwrap_or(all[0]), valid: data.valid, test: data.test.unwrap_or(all[2]) };
    let images = images.subset(&key, sizes);
    let description = format!(
        "{}; {} of {} training, {} of {} validation and {} of {} test images",
        signature(&images),
        images.train.len(),
        all[0],
        images.dev.len(),
        all[1],
        images.test.len(),
        all[2],
    );
    Ok(ImageDataset { name, images, description })
}

/// Refuses blocks that images are not made of.
fn fits_blocks(images: &Images, attention: &Attention) -> Result<(), ExperimentError> {
    let Some(blocks) = config::blocks(&attention.layout.decoder, images) else { return Ok(()) };
    let [rows, columns] = blocks.block;
    if images.height.is_multiple_of(rows) && blocks.width.is_multiple_of(columns) {
        return Ok(());
    }
    Err(ExperimentError::usage(format!(
        "mechanisms.local-2d.query_block = [{rows}, {columns}] does not divide images of {} rows of {} values; give divisors with --set \
         mechanisms.local-2d.query_block=[ROWS,COLUMNS]",
        images.height, blocks.width
    )))
}
