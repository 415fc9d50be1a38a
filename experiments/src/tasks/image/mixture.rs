//! Images pixel by pixel, each with a mixture of logistics (Image Transformer, section 3.1 and 5.1).

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_data::generate::images::ImageShape;
use heedful_data::images::{ImageSet, Images};
use heedful_models::architectures::logistic_mixture::{PixelDecoder, PixelDecoderConfig};
use heedful_models::parts::embedding::EmbeddingScale;
use serde::{Deserialize, Serialize};

use super::config::{self, Conditions, ImageData};
use super::task::{BITS, Beginning, LikelihoodTally, Order, draw};
use super::trivial::neighbours;
use super::{ImageDataset, ImageModelling, check_images, fits_blocks, open, read_values, seen, shape, written};
use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;

/// Values of a pixel.
const CHANNELS: usize = 3;
/// Different values that mixtures are of.
const LEVELS: usize = 256;
/// The shape of images that are made here.
const SHAPE: ImageShape = ImageShape { height: 12, width: 12, channels: CHANNELS, levels: LEVELS };

/// The comparison of attentions on images whose pixels have mixtures of logistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageMixtures {
    /// Which images: in colour, with 256 intensities.
    pub data: ImageData,
    /// Components of the mixture of a pixel, at least 1.
    pub components: usize,
}

impl Default for ImageMixtures {
    fn default() -> Self {
        Self { data: ImageData::default(), components: PixelDecoderConfig::default().components }
    }
}

impl ImageMixtures {
    /// A decoder over the pixels of an image.
    fn decoder(&self, settings: &ModelSettings, images: &Images, attention: &Attention) -> PixelDecoderConfig {
        let grid = grid(images);
        let attention = &attention.layout.decoder;
        let settings = config::fitted(settings, &grid, attention);
        PixelDecoderConfig {
            components: self.components,
            attention: config::for_rows(attention, config::dims(&grid)),
            layers: settings.layers,
            block: settings.block(),
            positions: settings.positions,
            depth: settings.depth,
            initialisation: settings.initialisation,
            seed: None,
        }
    }
}

/// Images whose values stand for the pixels of others.
fn grid(images: &Images) -> Images {
    Images { channels: 1, ..images.without_images() }
}

impl Experiment for ImageMixtures {
    const NAME: &'static str = "image-logistic-mixture";
    const TITLE: &'static str = "Images, pixel by pixel";
    const DATA: &'static [&'static str] = ImageModelling::DATA;
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = ImageDataset;
    type Model = PixelDecoder;
    type Task<'a> = PixelTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config::defaults(config);
        config.model.embedding_scale = EmbeddingScale::default();
        config.training.learning_rate = 2e-3;
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = super::rules::<Self>(false);
        rules.push(Rule::within(&["components"], 1.0, 1000.0));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        let model = &settings.value.model;
        let ordinary = ModelSettings::default();
        settings.require(
            "model.embedding_scale",
            model.embedding_scale == ordinary.embedding_scale,
            "pixels are no tokens and have no embeddings; leave it out",
        )?;
        settings.require("model.embedding_norm", !model.embedding_norm, "pixels are no tokens and have no embeddings; leave it out")?;
        check_images(settings)
    }

    fn open(config: &Config<Self>) -> Result<Vec<ImageDataset>, ExperimentError> {
        open(config, &config.own.data, SHAPE, "mixtures of logistics")
    }

    fn card(data: &ImageDataset) -> Card<'_> {
        data.card()
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let Setup { config, data: ImageDataset { name, images, .. }, attention } = setup;
        if (images.channels, images.levels) != (CHANNELS, LEVELS) {
            return Err(ExperimentError::usage(format!(
                "mixtures are of three colours with {LEVELS} intensities, and the images of `{name}` are {}; give CIFAR, ImageNet or CelebA without \
                 data.reductions.grey and data.reductions.levels, or leave --logistic-mixture out",
                shape(images)
            )));
        }
        super::fits_grid(&config.model, images)?;
        fits_blocks(&attention.layout.decoder, [images.height, images.width])?;
        config.own.decoder(&config.model, images, attention).validate().map_err(ExperimentError::usage)
    }

    fn batch_tokens(config: &Config<Self>, data: &ImageDataset) -> usize {
        data.batch_tokens(&config.own.data) / CHANNELS
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        config::lengths(&config.model, &grid(&data.images), attention)
    }

    fn task(setup: Setup<'_, Self>) -> PixelTask<'_> {
        let images = &setup.data.images;
        PixelTask { options: &setup.config.own, images, order: Order::new(&grid(images), &setup.attention.layout.decoder) }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<PixelDecoder, ExperimentError> {
        let Setup { config, data, attention } = setup;
        Ok(config.own.decoder(&config.model, &data.images, attention).init(key, device))
    }

    fn score(_setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Some(scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        Ok(task.draw(model, paths, interrupt)?.map(|()| scores))
    }

    fn columns() -> Vec<MetricColumn> {
        ImageModelling::columns()
    }

    fn trivial_baselines(_config: &Config<Self>, data: &ImageDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(neighbours(&data.images, interrupt).map(|baseline| vec![baseline]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::images().retain(|number| number.table != "super-resolution")
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let test = &setup.data.images.test;
        (0..count.min(test.len())).map(|index| written(test.image(index))).collect()
    }

    /// A position shows the pixel that it is given, the one before the pixel that it is to foresee.
    fn read(setup: Setup<'_, Self>, model: &PixelDecoder, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let images = &setup.data.images;
        let image = read_values(text, text, images)?;
        let task = Self::task(setup);
        let alone = ImageSet { pixels: image.clone(), labels: vec![0] };
        model.forward_with(task.pixels(&task.batch_of(&alone, &[0]), &model.output.weight.device()), None, probe);
        let place = |&index: &usize| {
            let colours = written(&image[index * CHANNELS..(index + 1) * CHANNELS]).replace(' ', ",");
            format!("{}.{}:{colours}", index / images.width, index % images.width)
        };
        let before = task.order.before_last().iter().map(place);
        let decoder = std::iter::once("begin".to_owned()).chain(before).collect();
        let pixels = task.order.indices().to_vec();
        Ok(Reading { decoder, image: Some(seen(images, image, pixels)), ..Reading::default() })
    }
}

/// Training a decoder on the pixels of images.
#[derive(Debug)]
pub struct PixelTask<'a> {
    options: &'a ImageMixtures,
    images: &'a Images,
    /// Of the pixels.
    order: Order,
}

/// Values of images whose pixels are in the order of generation, one image after the other.
#[derive(Debug)]
pub struct PixelBatch {
    values: Vec<u8>,
    rows: usize,
}

impl PixelTask<'_> {
    fn batch_of(&self, set: &ImageSet, items: &[usize]) -> PixelBatch {
        let values = items.iter().flat_map(|&item| self.generated(set.image(item))).collect();
        PixelBatch { values, rows: items.len() }
    }

    /// The values of an image, pixel by pixel in the order of generation.
    fn generated(&self, image: &[u8]) -> Vec<u8> {
        self.order.indices().iter().flat_map(|&index| &image[index * CHANNELS..(index + 1) * CHANNELS]).copied().collect()
    }

    /// The image of pixels in the order of generation.
    fn raster(&self, generated: &[u8]) -> Vec<u8> {
        let mut image = vec![0; generated.len()];
        for (&index, pixel) in self.order.indices().iter().zip(generated.chunks(CHANNELS)) {
            image[index * CHANNELS..(index + 1) * CHANNELS].copy_from_slice(pixel);
        }
        image
    }

    /// The pixels of a batch, `[B, N, 3]`.
    fn pixels(&self, batch: &PixelBatch, device: &Device) -> Tensor<3, Int> {
        let values: Vec<i32> = batch.values.iter().map(|&value| i32::from(value)).collect();
        Tensor::from_data(TensorData::new(values, [batch.rows, batch.values.len() / batch.rows / CHANNELS, CHANNELS]), device)
    }

    /// Writes what [`draw`](super::task::draw) does. `None` if the interrupt was raised meanwhile.
    fn draw(&self, model: &PixelDecoder, paths: &RunPaths, interrupt: &Interrupt) -> Interruptible<()> {
        let Self { options: ImageMixtures { data, .. }, images, order } = self;
        let half = |image: &[u8]| self.generated(image)[..order.upper * CHANNELS].to_vec();
        let mut go_on = |beginnings: &[Beginning], key: &RandomKey| {
            let mut found = Vec::with_capacity(beginnings.len());
            score_batches(("drawing", beginnings.len()), (0..).zip(beginnings.chunks(data.batch)), interrupt, |(number, part)| {
                let given: Vec<Vec<u8>> = part.iter().map(|beginning| beginning.values.clone()).collect();
                let made = model.complete(&given, order.indices().len(), &key.numbered(number));
                found.extend(made.iter().map(|generated| self.raster(generated)));
                part.len()
            })?;
            Some(found)
        };
        draw(images, data.samples, Conditions::None, half, &mut go_on, paths)
    }
}

impl Task for PixelTask<'_> {
    type Model = PixelDecoder;
    type Batch = PixelBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.images.train.len(), self.options.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> PixelBatch {
        self.batch_of(&self.images.train, items)
    }

    /// Values, as for a decoder of values.
    fn units(&self, batch: &PixelBatch) -> usize {
        batch.values.len()
    }

    fn loss(&self, model: &PixelDecoder, batch: &PixelBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let pixels = self.pixels(batch, &model.output.weight.device());
        let found = model.negative_log_likelihood(pixels, Some(pass.key), probe);
        TrainingLoss::new(found.logits.sum(), &found.losses, self.units(batch))
    }

    /// Means of `-log2 p` over the values of the images.
    fn evaluate(&self, model: &PixelDecoder, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (length, upper) = (self.order.indices().len(), self.order.upper);
        let mut tally = LikelihoodTally::new(self.images, split, upper * CHANNELS);
        let indices: Vec<usize> = (0..tally.set.len()).collect();
        let batches = indices.chunks(self.options.data.batch);
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let pixels = self.pixels(&self.batch_of(tally.set, items), &model.output.weight.device());
            let nats = model.negative_log_likelihood(pixels, None, &mut Probe::off()).logits;
            let of = |first: usize, count: usize| match count {
                0 => 0.0,
                _ => f64::from(nats.clone().narrow(1, first, count).sum().into_scalar::<f32>()),
            };
            tally.add(items, [of(0, upper), of(upper, length - upper)], || read(nats.clone()).iter::<f64>().collect());
            1
        })?;
        let components = self.options.components;
        Some(tally.scores(format!("{}, mixtures of {components} logistics", shape(self.images))))
    }

    fn selection(&self) -> Selection {
        Selection::lowest(BITS)
    }
}

#[cfg(test)]
mod tests {
    use heedful_data::generate::{self, Sizes};

    use super::*;

    fn dataset() -> ImageDataset {
        let sizes = Sizes { train: 3, valid: 2, test: 5 };
        let images = generate::images(&RandomKey::from_seed(1), SHAPE, sizes).unwrap();
        ImageDataset { name: "made".into(), images, description: String::new() }
    }

    fn settings() -> Config<ImageMixtures> {
        let mut config = Config::<ImageMixtures>::default();
        config.model = ModelSettings { layers: 1, d_model: 8, heads: 2, d_ff: 8, dropout: 0.0, ..config.model };
        config.own.components = 2;
        config.own.data.batch = 2;
        config
    }

    fn attention(config: &Config<ImageMixtures>, name: &str) -> Attention {
        Attention::new(config.mechanisms.attention(name).unwrap())
    }

    #[test]
    fn pixels_in_the_order_of_generation_become_the_image_again() {
        let (config, data) = (settings(), dataset());
        let image = data.images.test.image(0);
        for (name, is_raster) in [("dot-product", true), ("local-2d", false)] {
            let attention = attention(&config, name);
            let setup = Setup { config: &config, data: &data, attention: &attention };
            ImageMixtures::fits(setup).unwrap();
            let task = ImageMixtures::task(setup);
            let generated = task.generated(image);
            assert_eq!(generated == image, is_raster, "{name}");
            assert_eq!(task.raster(&generated), image, "{name}");
            // Blocks of four by four pixels: the fifth pixel is the first one of the second row.
            let fifth = if is_raster { 4 } else { 12 };
            assert_eq!(generated[4 * 3..5 * 3], image[fifth * 3..fifth * 3 + 3], "{name}");
        }
    }

    #[test]
    fn bits_are_those_of_the_pixels_one_by_one_in_whatever_batches() {
        let (mut config, data) = (settings(), dataset());
        let attention = attention(&config, "local-2d");
        let device = Device::flex();
        let scores = |config: &Config<ImageMixtures>| {
            let setup = Setup { config, data: &data, attention: &attention };
            let model = ImageMixtures::model(setup, &RandomKey::from_seed(2), &device).unwrap();
            let task = ImageMixtures::task(setup);
            let pixels = task.pixels(&task.batch_of(&data.images.test, &[0, 1, 2, 3, 4]), &device);
            let nats = model.negative_log_likelihood(pixels, None, &mut Probe::off()).logits;
            let nats: Vec<f64> = nats.into_data().iter::<f64>().collect();
            (task.evaluate(&model, Split::Test, &Interrupt::default()).unwrap(), nats)
        };
        let (found, nats) = scores(&config);
        let mean = |nats: &mut dyn Iterator<Item = f64>| {
            let nats: Vec<f64> = nats.collect();
            nats.iter().sum::<f64>() / nats.len() as f64 / 3.0 / std::f64::consts::LN_2
        };
        // Of 12 rows the upper 6 have one row of whole blocks of 4.
        let expected = [mean(&mut nats.iter().copied()), mean(&mut nats.chunks(144).flat_map(|image| image[48..].to_vec()))];
        for ((name, value), expected) in found.metrics.iter().zip(expected) {
            assert!((value / expected - 1.0).abs() < 1e-4, "{name}: {value} and {expected}");
        }
        assert!(found.signatures[BITS].contains("mixtures of 2 logistics, 5 test images"), "{:?}", found.signatures);
        config.own.data.batch = 5;
        let (again, _) = scores(&config);
        assert!((again.metrics[0].1 / found.metrics[0].1 - 1.0).abs() < 1e-5);
    }

    #[test]
    fn grey_or_coarse_images_are_refused() {
        let (config, data) = (settings(), dataset());
        let attention = attention(&config, "dot-product");
        for images in [data.images.clone().grey(), data.images.quantised(16).unwrap()] {
            let data = ImageDataset { name: "few".into(), images, description: String::new() };
            let error = ImageMixtures::fits(Setup { config: &config, data: &data, attention: &attention }).unwrap_err().to_string();
            assert!(error.contains("`few`") && error.contains("256"), "{error}");
        }
    }
}
