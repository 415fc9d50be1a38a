//! Autoregressive models of images: the experiment `image`.
//!
//! The values of an image are tokens, row by row, or block by block where attention is local in two dimensions (Parmar et al. 2018). Each is predicted from
//! those before it and, in a class-conditional model, from the class of the image. [`ImageModelling`] has a decoder alone, [`SuperResolution`] an encoder for a
//! small version of the image as well. In [`ImageMixtures`] the elements are pixels, whose three values have a mixture of logistics. [`ImageClassification`]
//! predicts the classes of images and generates nothing.

mod classification;
mod config;
mod mixture;
mod super_resolution;
mod task;
mod trivial;

use heedful_data::generate::images::ImageShape;
use heedful_data::generate::{self, Sizes};
use heedful_data::images::{self, Images};
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::layout::LayerAttention;
use heedful_models::parts::position::{GridConfig, PositionConfig};
use heedful_models::pretrained::presets::{Preset, PresetModel};
use serde::{Deserialize, Serialize};

use crate::session::comparison::folder_name;
use crate::session::experiment::seen_image::SeenImage;
use crate::session::presets::is_of_images;
use crate::tasks::prelude::*;

pub use classification::{ClassifiedImages, ImageClassification, VisionBatch, VisionTask};
use config::row;
pub use config::{Conditions, ImageConfig, ImageData, ImageOptions};
pub use mixture::{ImageMixtures, PixelBatch, PixelTask};
pub use super_resolution::{SharpeningTask, SuperResolution};
use task::{BITS, LOWER_HALF, Order};
pub use task::{ImageBatch, ImageTask};

/// Images, and what was done to them.
#[derive(Debug)]
pub struct ImageDataset {
    name: String,
    images: Images,
    description: String,
}

impl ImageDataset {
    fn card(&self) -> Card<'_> {
        Card::new(&self.name, &self.images.sha256, self.description.clone())
    }

    /// Values in the largest training batch.
    fn batch_tokens(&self, data: &ImageData) -> usize {
        data.batch.min(self.images.train.len()).saturating_mul(self.images.size())
    }
}

/// The comparison of attentions on images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageModelling(pub ImageOptions);

impl Experiment for ImageModelling {
    const NAME: &'static str = "image";
    const TITLE: &'static str = "Images, value by value";
    const ABOUT: &'static str = "\
        Compare attention mechanisms on images, generated value by value.\n\nTrains a decoder for each attention and seed, and prints a table of bits \
        per dimension with parameters, speed and memory. Each run's folder has pictures: samples of the model, and test images that it completed from \
        their upper half. --set conditions=class tells models the class of each image. --data takes a folder with MNIST (IDX), CIFAR (binary), \
        downsampled ImageNet (.npz or PNG) or CelebA (PNG) files; without it images with symmetries are generated.";
    const DATA: &'static [&'static str] = &["data.reductions", "data.train", "data.valid", "data.test", "data.generated_images"];
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_TRIVIAL_BASELINE: bool = true;
    const HAS_PADDING: bool = false;
    type Data = ImageDataset;
    type Model = LanguageModel;
    type Task<'a> = ImageTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config::defaults(config);
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        let PresetModel::LanguageModel(config) = &preset.model else { return None };
        let model = || PaperModel::new(&config.attention, ModelSettings::of_language_model(config)).with("tied", config.tied);
        is_of_images(preset).then(model)
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = self::rules::<Self>(false);
        rules.push(Rule::used(
            &["sampling"],
            |candidate| candidate.config.own.0.data.samples > 0,
            "no image is drawn; leave it out, or give data.samples",
        ));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        check(settings, &settings.value.own.0)
    }

    fn open(config: &Config<Self>) -> Result<Vec<ImageDataset>, ExperimentError> {
        open(config, &config.own.0.data, config::SHAPE, CATEGORICAL)
    }

    fn card(data: &ImageDataset) -> Card<'_> {
        data.card()
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let Setup { config, data: ImageDataset { name, images, .. }, attention } = setup;
        if config.own.0.conditions == Conditions::Class && images.classes < 2 {
            return Err(ExperimentError::usage(format!(
                "conditions = \"class\": the images of `{name}` have no classes; give MNIST or CIFAR, or leave it out"
            )));
        }
        fits_grid(&config.model, images)?;
        fits_blocks(&attention.layout.decoder, config::dims(images))?;
        config.own.0.model(&config.model, images, attention).validate().map_err(ExperimentError::usage)
    }

    fn batch_tokens(config: &Config<Self>, data: &ImageDataset) -> usize {
        data.batch_tokens(&config.own.0.data)
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        config::lengths(&config.model, &data.images, attention)
    }

    fn task(setup: Setup<'_, Self>) -> ImageTask<'_> {
        let images = &setup.data.images;
        ImageTask { options: &setup.config.own.0, images, order: Order::new(images, &setup.attention.layout.decoder) }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<LanguageModel, ExperimentError> {
        let Setup { config, data, attention } = setup;
        Ok(config.own.0.model(&config.model, &data.images, attention).init(key, device))
    }

    fn score(_setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        if task.options.conditions == Conditions::Class && task.options.data.samples > 0 {
            scores.notes.push("each row of samples.png shows images of one class, from class 0 on".to_owned());
        }
        Ok(task.draw(model, paths, interrupt)?.map(|()| scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let lower_half = MetricColumn::new(LOWER_HALF, "lower half").digits(3).lower_is_better();
        vec![
            bits_column(),
            lower_half.defined_as("bits per dimension of the values behind the upper half, from which they follow in the images made here"),
        ]
    }

    fn trivial_baselines(_config: &Config<Self>, data: &ImageDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(trivial::neighbours(&data.images, interrupt).map(|baseline| vec![baseline]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::images()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let test = &setup.data.images.test;
        let class = |index: usize| match setup.config.own.0.conditions {
            Conditions::None => String::new(),
            Conditions::Class => format!("{}{AFTER_CLASS} ", test.labels[index]),
        };
        (0..count.min(test.len())).map(|index| format!("{}{}", class(index), written(test.image(index)))).collect()
    }

    /// A position shows the value that it is given, the one before the value that it is to foresee.
    fn read(setup: Setup<'_, Self>, model: &LanguageModel, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let images = &setup.data.images;
        let (class, values) = match setup.config.own.0.conditions {
            Conditions::None => (0, text),
            Conditions::Class => read_class(text, images)?,
        };
        let image = read_values(text, values, images)?;
        let task = Self::task(setup);
        task.read(model, &image, class, probe);
        let decoder = shown(images, &image, task.order.before_last());
        let pixels = task.order.indices().iter().map(|index| index / images.channels).collect();
        Ok(Reading { decoder, image: Some(seen(images, image, pixels)), ..Reading::default() })
    }
}

/// What stands between the class and the values of an image that is given as text.
const AFTER_CLASS: char = ':';

/// The values of an image as text.
fn written(image: &[u8]) -> String {
    image.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
}

/// The class that a text begins with, and the rest of it.
fn read_class<'t>(text: &'t str, images: &Images) -> Result<(u8, &'t str), ExperimentError> {
    let read = text.split_once(AFTER_CLASS).and_then(|(class, values)| Some((class.trim().parse::<u8>().ok()?, values)));
    read.filter(|&(class, _)| usize::from(class) < images.classes).ok_or_else(|| {
        ExperimentError::usage(format!(
            "--text {text:?}: it does not begin with a class from 0 to {}; give the class, a colon and the values",
            images.classes - 1
        ))
    })
}

/// The image of the values in a part of a text.
fn read_values(text: &str, values: &str, images: &Images) -> Result<Vec<u8>, ExperimentError> {
    let Images { levels, .. } = *images;
    let values: Option<Vec<u8>> =
        values.split_whitespace().map(|value| value.parse().ok().filter(|&value| usize::from(value) < levels)).collect();
    let size = images.size();
    values.filter(|values| values.len() == size).ok_or_else(|| {
        ExperimentError::usage(format!("--text {text:?}: it is no image of {size} values from 0 to {}; give them row by row", levels - 1))
    })
}

/// Row, column and value of the elements at these indices of an image.
fn places(images: &Images, image: &[u8], indices: &[usize]) -> Vec<String> {
    let row = row(images);
    indices.iter().map(|&index| format!("{}.{}:{}", index / row, index % row, image[index])).collect()
}

/// What a decoder is given of an image: the token that begins it, and the elements at these indices.
fn shown(images: &Images, image: &[u8], indices: &[usize]) -> Vec<String> {
    [vec!["begin".to_owned()], places(images, image, indices)].concat()
}

/// An image whose pixels are foreseen in this order.
fn seen(images: &Images, values: Vec<u8>, pixels: Vec<usize>) -> SeenImage {
    let Images { height, width, channels, levels, .. } = *images;
    SeenImage { height, width, channels, levels, values, pixels }
}

fn bits_column() -> MetricColumn {
    MetricColumn::new(BITS, "bits/dim").digits(3).lower_is_better()
}

/// What bits per dimension are of.
fn shape(images: &Images) -> String {
    let Images { height, width, channels, levels, .. } = images;
    format!("{height}x{width}x{channels}, {levels} values")
}

fn check<E>(settings: &Settings<Config<E>>, ImageOptions { sampling, .. }: &ImageOptions) -> Result<(), ExperimentError> {
    check_images(settings)?;
    sampling.validate().map_err(ExperimentError::usage)
}

fn check_images<E>(settings: &Settings<Config<E>>) -> Result<(), ExperimentError> {
    let has_block = matches!(settings.value.model.positions, PositionConfig::Grid(GridConfig { block: Some(_), .. }));
    let remedy = "a grid of positions is read in the blocks of mechanisms.local-2d; leave it out";
    Ok(settings.require("model.positions.grid.block", !has_block, remedy)?)
}

/// What the experiments on images say of their fields; only super-resolution makes images smaller.
fn rules<E: Experiment>(is_sharpened: bool) -> Vec<Rule<E>> {
    let mut rules = vec![
        Rule::counts(&[
            "data.batch",
            "data.valid",
            "data.factor",
            "data.generated_images",
            "data.reductions.shrink",
            "data.train",
            "data.test",
        ]),
        Rule::within(&["data.reductions.levels"], 2.0, 256.0),
        Rule::within(&["data.samples"], 0.0, 10_000.0),
        Rule::used(
            &["data.reductions"],
            |candidate| candidate.config.run.data.is_some(),
            "generated images are not reduced; leave it out, or give --data DIR",
        ),
        Rule::made(&["data.generated_images"], "with --data no images are generated; leave it out"),
    ];
    if !is_sharpened {
        rules.push(Rule::used(&["data.factor"], |_| false, "it applies to --super-resolution, which makes images smaller; leave it out"));
    }
    rules
}

/// How images are called whose values are tokens.
const CATEGORICAL: &str = "categorical";

/// Reads images, or makes some of this shape, which a model says the probabilities of by a `distribution`.
fn open<E>(config: &Config<E>, data: &ImageData, made: ImageShape, distribution: &str) -> Result<Vec<ImageDataset>, ExperimentError> {
    let key = RandomKey::from_seed(0).named("image data");
    let (name, images) = match &config.run.data {
        Some(dir) => {
            let images = images::read(dir).and_then(|images| images.reduced(&data.reductions)).map_err(ExperimentError::failure)?;
            (folder_name(dir), images)
        }
        None => {
            let sizes = Sizes { train: data.generated_images, ..Sizes::IMAGES };
            ("built-in".to_owned(), generate::images(&key, made, sizes).map_err(ExperimentError::usage)?)
        }
    };
    let all = [&images.train, &images.dev, &images.test].map(|set| set.len());
    let sizes = Sizes { train: data.train.unwrap_or(all[0]), valid: data.valid, test: data.test.unwrap_or(all[2]) };
    let images = images.subset(&key, sizes);
    let description = format!(
        "{}, {}; {} of {} training, {} of {} validation and {} of {} test images",
        shape(&images),
        distribution,
        images.train.len(),
        all[0],
        images.dev.len(),
        all[1],
        images.test.len(),
        all[2],
    );
    Ok(vec![ImageDataset { name, images, description }])
}

/// Refuses a grid of positions of another size than that of the images, which it has whatever is given. The sizes by default are those of images made here.
fn fits_grid(settings: &ModelSettings, images: &Images) -> Result<(), ExperimentError> {
    let PositionConfig::Grid(GridConfig { rows, columns, channels, .. }) = settings.positions else { return Ok(()) };
    let sizes = [rows, columns, channels];
    let known =
        [[images.height, images.width, images.channels], [images.height, images.width, 1], [config::SHAPE.height, config::SHAPE.width, 1]];
    if known.contains(&sizes) {
        return Ok(());
    }
    let [rows, columns, channels] = known[0];
    Err(ExperimentError::usage(format!(
        "model.positions.grid: {sizes:?} are not the rows, columns and channels of the images; give {rows}, {columns} and {channels}"
    )))
}

/// Refuses blocks that images of so many rows, each of so many values, are not made of.
fn fits_blocks(attention: &LayerAttention, shape: [usize; 2]) -> Result<(), ExperimentError> {
    let (Some(blocks), [height, row]) = (config::blocks(attention, shape), shape) else { return Ok(()) };
    let [rows, columns] = blocks.block;
    if height.is_multiple_of(rows) && row.is_multiple_of(columns) {
        return Ok(());
    }
    Err(ExperimentError::usage(format!(
        "mechanisms.local-2d.query_block = [{rows}, {columns}] does not divide images of {height} rows of {row} values; give divisors with --set \
         mechanisms.local-2d.query_block=[ROWS,COLUMNS]"
    )))
}
