//! Super-resolution: images from small versions of themselves (Image Transformer, section 5.3).

use std::f64::consts::LN_2;

use burn::tensor::Tensor;
use heedful_attention::contract::Losses;
use heedful_attention::description::AnyMechanism;
use heedful_data::images::png::{self, Layout};
use heedful_data::images::{ImageSet, Images};
use heedful_models::architectures::seq2seq::{Padded, Seq2SeqTransformer};
use heedful_models::block::layout::{AttentionLayout, CrossLayout};
use heedful_models::generation::{Prompts, sample};
use heedful_models::parts::loss::CrossEntropy;
use serde::{Deserialize, Serialize};

use super::config::row;
use super::task::{BITS, Order, shifted, special};
use super::trivial::neighbours;
use super::{CATEGORICAL, Conditions, ImageDataset, ImageModelling, ImageOptions, bits_column, check, config, fits_blocks, open, places};
use super::{read_values, seen, shape, shown, written};
use crate::tasks::prelude::*;
use crate::tasks::scoring::{integers, score_batches};
use crate::tasks::token_losses::token_losses;

/// The comparison of attentions on super-resolution. A name or a list is the self-attention of the decoder, and all others are dot-product attention; a layout
/// says which attention each part has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SuperResolution(pub ImageOptions);

impl Experiment for SuperResolution {
    const NAME: &'static str = "image-super-resolution";
    const TITLE: &'static str = "Images from small versions of themselves";
    const DATA: &'static [&'static str] = ImageModelling::DATA;
    const STACKS: usize = 2;
    const BATCH: &'static str = "data.batch";
    const READS_FILES: bool = true;
    const HAS_TRIVIAL_BASELINE: bool = true;
    const HAS_PADDING: bool = false;
    type Data = ImageDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = SharpeningTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config::defaults(config);
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = super::rules::<Self>(true);
        rules.push(Rule::used(
            &["sampling"],
            |candidate| candidate.config.own.0.data.samples > 0,
            "no image is drawn; leave it out, or give data.samples",
        ));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        let options = &settings.value.own.0;
        let remedy = "the small image is the only condition of super-resolution; leave it out";
        settings.require("conditions", options.conditions == Conditions::None, remedy)?;
        check(settings, options)
    }

    fn placed(layout: AttentionLayout, other: &AnyMechanism) -> AttentionLayout {
        AttentionLayout { encoder: other.clone().into(), decoder: layout.decoder, cross: CrossLayout::All(other.clone().into()) }
    }

    fn open(config: &Config<Self>) -> Result<Vec<ImageDataset>, ExperimentError> {
        open(config, &config.own.0.data, config::SHAPE, CATEGORICAL)
    }

    fn card(data: &ImageDataset) -> Card<'_> {
        data.card()
    }

    fn fits(setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let Setup { config, data: ImageDataset { images, .. }, attention } = setup;
        let Images { height, width, .. } = images;
        let factor = config.own.0.data.factor;
        if !height.is_multiple_of(factor) || !width.is_multiple_of(factor) {
            return Err(ExperimentError::usage(format!(
                "data.factor = {factor} does not divide images of {height} by {width}; give a divisor with --set data.factor=N"
            )));
        }
        super::fits_grid(&config.model, images)?;
        fits_blocks(&attention.layout.encoder, [height / factor, row(images) / factor])?;
        fits_blocks(&attention.layout.decoder, config::dims(images))?;
        config.own.0.sharpening_model(&config.model, images, attention).validate().map_err(ExperimentError::usage)
    }

    fn batch_tokens(config: &Config<Self>, data: &ImageDataset) -> usize {
        data.batch_tokens(&config.own.0.data)
    }

    fn lengths(Setup { config, data: ImageDataset { images, .. }, attention }: Setup<'_, Self>) -> TrainingLengths {
        let factor = config.own.0.data.factor;
        let encoder = config::for_rows(&attention.layout.encoder, [images.height / factor, row(images) / factor]);
        let attention = Attention { layout: AttentionLayout { encoder, ..attention.layout.clone() }, ..attention.clone() };
        config::lengths(&config.model, images, &attention).encoder([images.size() / factor.pow(2)])
    }

    fn task(setup: Setup<'_, Self>) -> SharpeningTask<'_> {
        let (options, images) = (&setup.config.own.0, &setup.data.images);
        let small = images.shrunk(options.data.factor).expect("the factor was found to divide the images");
        let AttentionLayout { encoder, decoder, .. } = &setup.attention.layout;
        let (small_order, order) = (Order::new(&small, encoder), Order::new(images, decoder));
        SharpeningTask { options, images, small, small_order, order }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Seq2SeqTransformer, ExperimentError> {
        let Setup { config, data, attention } = setup;
        Ok(config.own.0.sharpening_model(&config.model, &data.images, attention).init(key, device))
    }

    fn score(_setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let Some(scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        Ok(task.draw(model, paths, interrupt)?.map(|()| scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![bits_column()]
    }

    fn trivial_baselines(_config: &Config<Self>, data: &ImageDataset, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(neighbours(&data.images, interrupt).map(|baseline| vec![baseline]))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::images().retain(|number| number.table == "super-resolution")
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        let test = &setup.data.images.test;
        (0..count.min(test.len())).map(|index| written(test.image(index))).collect()
    }

    /// The text is the large image. Positions of the decoder show the value that they are given.
    fn read(setup: Setup<'_, Self>, model: &Seq2SeqTransformer, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        let Setup { config, data: ImageDataset { images, .. }, attention } = setup;
        let image = read_values(text, text, images)?;
        let alone = Images { test: ImageSet { pixels: image.clone(), labels: vec![0] }, ..images.without_images() };
        let data = ImageDataset { name: String::new(), images: alone, description: String::new() };
        let task = Self::task(Setup { config, data: &data, attention });
        let batch = task.assemble([&task.small.test, &data.images.test], &[0]);
        SharpeningTask::hidden(model, &batch, None, probe);
        let encoder = places(&task.small, task.small.test.image(0), task.small_order.indices());
        let decoder = shown(images, &image, task.order.before_last());
        let pixels = task.order.indices().iter().map(|index| index / images.channels).collect();
        Ok(Reading { encoder, decoder, image: Some(seen(images, image, pixels)), ..Reading::default() })
    }
}

/// Training an encoder and decoder on pairs of a small and a large image.
#[derive(Debug)]
pub struct SharpeningTask<'a> {
    options: &'a ImageOptions,
    images: &'a Images,
    small: Images,
    /// That in which the encoder reads.
    small_order: Order,
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

impl SharpeningTask<'_> {
    /// A batch of some of the small and large images.
    fn assemble(&self, [small, large]: [&ImageSet; 2], items: &[usize]) -> SharpeningBatch {
        let sources = items.iter().flat_map(|&item| self.small_order.generated(small.image(item))).map(i32::from).collect();
        let (inputs, targets) = shifted(&self.order, self.images, items.iter().map(|&item| large.image(item)));
        SharpeningBatch { sources, inputs, targets, rows: items.len() }
    }

    /// Hidden states of the values of the large images, one image after the other, `[N, C]`, with the losses of the layers.
    fn hidden(model: &Seq2SeqTransformer, batch: &SharpeningBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<2>, Losses) {
        let device = model.source.tokens.weight.device();
        let (rows, count) = (batch.rows, batch.targets.len());
        let lengths = [batch.sources.len() / rows, count / rows].map(|length| vec![length; rows]);
        let padded = |values: &[i32], lengths| Padded { tokens: integers(values.to_vec(), [rows, values.len() / rows], &device), lengths };
        let hidden = model.hidden(padded(&batch.sources, &lengths[0]), padded(&batch.inputs, &lengths[1]), key, probe);
        let [_, _, width] = hidden.states.dims();
        (hidden.states.reshape([count, width]), hidden.losses)
    }

    fn cross_entropy(model: &Seq2SeqTransformer, states: Tensor<2>, batch: &SharpeningBatch) -> CrossEntropy {
        let targets = integers(batch.targets.clone(), [batch.targets.len()], &states.device());
        model.cross_entropy(states, targets, None, 0.0)
    }

    /// Large images that the model makes of some small test images; each is drawn with the number of its item.
    fn sharpened(&self, model: &Seq2SeqTransformer, items: &[usize], key: &RandomKey) -> Vec<Vec<u8>> {
        let device = model.source.tokens.weight.device();
        let count = items.len();
        let SharpeningBatch { sources, .. } = self.assemble([&self.small.test, &self.images.test], items);
        let lengths = vec![sources.len() / count; count];
        let state = model.start(Padded { tokens: integers(sources, [count, lengths[0]], &device), lengths: &lengths });
        let tokens = integers(vec![self.images.levels as i32; count], [count, 1], &device);
        let prompts = Prompts { tokens, limits: vec![self.images.size(); count] };
        let keys: Vec<RandomKey> = items.iter().map(|&item| key.numbered(item as u64)).collect();
        let drawn = sample(model, state, prompts, special(self.images), &self.options.sampling, &keys);
        drawn.into_iter().map(|drawn| self.order.raster(drawn.tokens.iter().map(|&token| token as u8))).collect()
    }

    /// Writes `samples.png`: what is given of test images, two images that the model made of it, and the test images. `None` if the interrupt was raised
    /// meanwhile.
    fn draw(&self, model: &Seq2SeqTransformer, paths: &RunPaths, interrupt: &Interrupt) -> Interruptible<()> {
        let (small, large) = (&self.small.test, &self.images.test);
        let count = self.options.data.samples.min(large.len());
        if count == 0 {
            return Ok(Some(()));
        }
        let items: Vec<usize> = (0..count).collect();
        let mut made = Vec::new();
        for number in 0..2 {
            let key = RandomKey::from_seed(0).named("sharpening").numbered(number);
            let mut images = Vec::new();
            for items in items.chunks(self.options.data.batch) {
                if interrupt.is_raised() {
                    return Ok(None);
                }
                images.extend(self.sharpened(model, items, &key));
            }
            made.push(images);
        }
        let mut rows = vec![items.iter().map(|&item| self.small.picture(small.image(item))).collect::<Vec<_>>()];
        rows.extend(made.iter().map(|images| images.iter().map(|image| self.images.picture(image)).collect::<Vec<_>>()));
        rows.push(items.iter().map(|&item| self.images.picture(large.image(item))).collect());
        png::write(&paths.root().join("samples.png"), &rows, Layout::default()).map_err(ExperimentError::failure)?;
        Ok(Some(()))
    }
}

impl Task for SharpeningTask<'_> {
    type Model = Seq2SeqTransformer;
    type Batch = SharpeningBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.images.train.len(), self.options.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> SharpeningBatch {
        self.assemble([&self.small.train, &self.images.train], items)
    }

    fn units(&self, batch: &SharpeningBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &Seq2SeqTransformer, batch: &SharpeningBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (states, losses) = Self::hidden(model, batch, Some(pass.key), probe);
        TrainingLoss::new(Self::cross_entropy(model, states, batch).loss, &losses, batch.targets.len())
    }

    fn evaluate(&self, model: &Seq2SeqTransformer, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (name, small, large) =
            split.of(("validation", &self.small.dev, &self.images.dev), ("test", &self.small.test, &self.images.test));
        let indices: Vec<usize> = (0..large.len()).collect();
        let batches = indices.chunks(self.options.data.batch);
        let mut total = 0.0;
        let mut table = ItemTable::new(name, &["bits", "values"]);
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let batch = self.assemble([small, large], items);
            let (states, _) = Self::hidden(model, &batch, None, &mut Probe::off());
            total += f64::from(Self::cross_entropy(model, states.clone(), &batch).negative_log_likelihood.into_scalar::<f32>());
            if split == Split::Test {
                let losses = token_losses(&states, &batch.targets, |states| model.project(states));
                for (&item, losses) in items.iter().zip(losses.chunks(self.images.size())) {
                    let bits = losses.iter().sum::<f64>() / LN_2;
                    table.push_tokens(large.image(item).iter().map(|&value| i64::from(value)), &[bits, losses.len() as f64]);
                }
            }
            1
        })?;
        let given = format!("given {}x{}", self.small.height, self.small.width);
        let signature = format!("{}, categorical, {given}, {} {name} images", shape(self.images), large.len());
        let mut scores = Scores::of(BITS, total / large.pixels.len() as f64 / LN_2, signature);
        if split == Split::Test {
            scores.push_items(BITS, ItemScore::new(name, "images", Combination::Ratio, &["bits", "values"]));
            scores.items.push(table);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::lowest(BITS)
    }
}
