//! Super-resolution: images from small versions of themselves (Image Transformer, section 5.3).

use std::f64::consts::LN_2;

use burn::tensor::{Device, Tensor};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::generation::{Prompts, sample};
use heedful_models::loss::with_auxiliary;
use heedful_models::seq2seq::{Padded, Seq2SeqTransformer};

use super::task::{BITS, Order, integers, shifted, special};
use super::{ImageConfig, ImageDataset, bits_column, check, dataset, fits_blocks, signature};
use crate::batch::fixed_size_batches;
use crate::comparison::{Attention, Comparison, Scores, first_non_finite_activation, scoring_bar};
use crate::data::images::png::{self, Layout};
use crate::data::images::{ImageSet, Images};
use crate::error::ExperimentError;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::train::{Interrupt, Objective, Selection};

/// The comparison of attentions on super-resolution: they are those of the decoder.
#[derive(Debug)]
pub struct SuperResolution;

impl Comparison for SuperResolution {
    const NAME: &'static str = "image-super-resolution";
    const TITLE: &'static str = "Images from small versions of themselves";
    const DATA: &'static [&'static str] = <super::ImageModelling as Comparison>::DATA;
    const BATCH: &'static str = "data.batch";
    type Config = ImageConfig;
    type Dataset = ImageDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = SharpeningTask<'a>;

    fn check(settings: &Settings<ImageConfig>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        check(settings)
    }

    fn datasets(config: &ImageConfig) -> Result<Vec<ImageDataset>, ExperimentError> {
        dataset(config).map(|dataset| vec![dataset])
    }

    fn fits(config: &ImageConfig, dataset: &ImageDataset, attention: &Attention) -> Result<(), ExperimentError> {
        let Images { height, width, .. } = dataset.images;
        let factor = config.data.factor;
        if !height.is_multiple_of(factor) || !width.is_multiple_of(factor) {
            return Err(ExperimentError::usage(format!(
                "data.factor = {factor} does not divide images of {height} by {width}; give a divisor with --set data.factor=N"
            )));
        }
        config.sharpening_model(&dataset.images, attention).validate().map_err(ExperimentError::usage)?;
        fits_blocks(&dataset.images, attention)
    }

    fn batch_tokens(config: &Self::Config, dataset: &Self::Dataset) -> usize {
        config.data.batch.min(dataset.images.train.len()).saturating_mul(dataset.images.size())
    }

    fn task<'a>(config: &'a ImageConfig, dataset: &'a ImageDataset, attention: &Attention) -> SharpeningTask<'a> {
        let images = &dataset.images;
        let small = images.shrunk(config.data.factor).expect("the factor was found to divide the images");
        SharpeningTask { config, images, small, order: Order::new(images, attention) }
    }

    fn model(
        config: &ImageConfig,
        dataset: &ImageDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Seq2SeqTransformer, ExperimentError> {
        Ok(config.sharpening_model(&dataset.images, attention).init(key, device))
    }

    fn score(
        _config: &ImageConfig,
        _dataset: &ImageDataset,
        task: &SharpeningTask,
        model: &Seq2SeqTransformer,
        paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let Some(bits) = task.bits_per_dimension(model, Split::Test, Some(interrupt)) else { return Ok(None) };
        let mut scores = Scores::default();
        let given = format!("given {}x{}", task.small.height, task.small.width);
        scores.push(BITS, bits, format!("{}, {given}, {} test images", signature(task.images), task.images.test.len()));
        let Some(()) = task.draw(model, paths, interrupt)? else { return Ok(None) };
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![bits_column()]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::images().retain(|number| number.table == "super-resolution")
    }
}

/// Training an encoder and decoder on pairs of a small and a large image.
#[derive(Debug)]
pub struct SharpeningTask<'a> {
    config: &'a ImageConfig,
    images: &'a Images,
    small: Images,
    order: Order,
}

/// Small images, and large ones in the order of generation.
#[derive(Debug)]
pub struct SharpeningBatch {
    sources: Vec<i32>,
    inputs: Vec<i32>,
    targets: Vec<i32>,
    rows: usize,
}

/// A part of the images.
#[derive(Clone, Copy, Debug)]
enum Split {
    Train,
    Dev,
    Test,
}

impl Split {
    fn of(self, images: &Images) -> &ImageSet {
        match self {
            Self::Train => &images.train,
            Self::Dev => &images.dev,
            Self::Test => &images.test,
        }
    }
}

impl SharpeningTask<'_> {
    fn assemble(&self, split: Split, items: &[usize]) -> SharpeningBatch {
        let (small, large) = (split.of(&self.small), split.of(self.images));
        let sources = items.iter().flat_map(|&item| small.image(item)).map(|&value| i32::from(value)).collect();
        let (inputs, targets) = shifted(&self.order, self.images, items.iter().map(|&item| large.image(item)));
        SharpeningBatch { sources, inputs, targets, rows: items.len() }
    }

    fn losses(
        &self,
        model: &Seq2SeqTransformer,
        batch: &SharpeningBatch,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Tensor<1>, Tensor<1>) {
        let device = model.source.tokens.weight.device();
        let (rows, count) = (batch.rows, batch.targets.len());
        let lengths = [batch.sources.len() / rows, count / rows].map(|length| vec![length; rows]);
        let padded = |values: &[i32], lengths| Padded { tokens: integers(values.to_vec(), [rows, values.len() / rows], &device), lengths };
        let hidden = model.hidden(padded(&batch.sources, &lengths[0]), padded(&batch.inputs, &lengths[1]), key, probe);
        let [_, _, width] = hidden.states.dims();
        let targets = integers(batch.targets.clone(), [count], &device);
        let found = model.cross_entropy(hidden.states.reshape([count, width]), targets, None, 0.0);
        (with_auxiliary(found.loss, &hidden.losses, count), found.negative_log_likelihood)
    }

    fn bits_per_dimension(&self, model: &Seq2SeqTransformer, split: Split, interrupt: Option<&Interrupt>) -> Option<f64> {
        let indices: Vec<usize> = (0..split.of(self.images).len()).collect();
        let batches = indices.chunks(self.config.data.batch);
        let bar = scoring_bar("scoring", batches.len());
        let mut total = 0.0;
        for items in batches {
            if interrupt.is_some_and(Interrupt::is_raised) {
                return None;
            }
            let batch = self.assemble(split, items);
            total += f64::from(self.losses(model, &batch, None, &mut Probe::off()).1.into_scalar::<f32>());
            bar.inc(1);
        }
        bar.finish_and_clear();
        Some(total / split.of(self.images).pixels.len() as f64 / LN_2)
    }

    /// Writes `samples.png`: what is given of test images, two images that the model made of it, and the test images. `None` if the interrupt was raised
    /// meanwhile.
    fn draw(&self, model: &Seq2SeqTransformer, paths: &RunPaths, interrupt: &Interrupt) -> Result<Option<()>, ExperimentError> {
        let (small, large) = (&self.small.test, &self.images.test);
        let count = self.config.data.samples.min(large.len());
        if count == 0 {
            return Ok(Some(()));
        }
        let device = model.source.tokens.weight.device();
        let items: Vec<usize> = (0..count).collect();
        let batch = self.assemble(Split::Test, &items);
        let lengths = vec![batch.sources.len() / count; count];
        let mut made = Vec::new();
        for number in 0..2 {
            if interrupt.is_raised() {
                return Ok(None);
            }
            let source = integers(batch.sources.clone(), [count, lengths[0]], &device);
            let state = model.start(Padded { tokens: source, lengths: &lengths });
            let tokens = integers(vec![self.images.levels as i32; count], [count, 1], &device);
            let prompts = Prompts { tokens, limits: vec![self.images.size(); count] };
            let key = RandomKey::from_seed(0).named("sharpening").numbered(number);
            let keys: Vec<RandomKey> = (0..count as u64).map(|row| key.numbered(row)).collect();
            let drawn = sample(model, state, prompts, special(self.images), &self.config.sampling, &keys);
            made.push(drawn.into_iter().map(|drawn| self.order.raster(drawn.tokens.iter().map(|&token| token as u8))).collect::<Vec<_>>());
        }
        let mut rows = vec![items.iter().map(|&item| self.small.picture(small.image(item))).collect::<Vec<_>>()];
        rows.extend(made.iter().map(|images| images.iter().map(|image| self.images.picture(image)).collect::<Vec<_>>()));
        rows.push(items.iter().map(|&item| self.images.picture(large.image(item))).collect());
        png::write(&paths.root().join("samples.png"), &rows, Layout::default()).map_err(ExperimentError::failure)?;
        Ok(Some(()))
    }
}

impl Objective for SharpeningTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = SharpeningBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.images.train.len(), self.config.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> SharpeningBatch {
        self.assemble(Split::Train, items)
    }

    fn units(&self, batch: &SharpeningBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &SharpeningBatch, key: RandomKey) -> Tensor<1> {
        self.losses(model, batch, Some(key), &mut Probe::off()).0
    }

    fn evaluate(&self, model: &Seq2SeqTransformer) -> Vec<(String, f64)> {
        let bits = self.bits_per_dimension(model, Split::Dev, None).expect("it is not interrupted");
        vec![(BITS.to_owned(), bits)]
    }

    fn selection(&self) -> Selection {
        Selection::lowest(BITS)
    }

    fn locate_non_finite(&self, model: &Seq2SeqTransformer, batch: &SharpeningBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            self.losses(model, batch, Some(key), probe);
        })
    }
}
