//! Training and scoring, and drawing what was learnt.

use std::f64::consts::LN_2;

use burn::tensor::{Int, Tensor};
use heedful_attention::mechanisms::local_2d::BlockRaster;
use heedful_data::images::png::{self, Layout};
use heedful_data::images::{ImageSet, Images};
use heedful_models::architectures::language_model::LanguageModel;
use heedful_models::block::Hidden;
use heedful_models::block::layout::LayerAttention;
use heedful_models::generation::{Prompts, SpecialTokens, sample};

use super::config::{Conditions, ImageOptions, blocks, dims, row};
use super::shape;
use crate::tasks::prelude::*;
use crate::tasks::scoring::{integers, score_batches};
use crate::tasks::token_losses::token_losses;

/// Name of the bits per dimension.
pub(super) const BITS: &str = "bits per dimension";
/// Name of those of the values in the lower half, of which the upper half says much.
pub(super) const LOWER_HALF: &str = "bits per dimension of the lower half";

/// Training a decoder on the values of images.
#[derive(Debug)]
pub struct ImageTask<'a> {
    pub(super) options: &'a ImageOptions,
    pub(super) images: &'a Images,
    pub(super) order: Order,
}

/// The order in which the values of an image are generated, or read.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// For each position, the index of the value.
    values: Vec<usize>,
    /// How many positions the upper half has, as far as it is made of whole blocks.
    pub(super) upper: usize,
}

/// Images in the order of generation, one after the other.
#[derive(Debug)]
pub struct ImageBatch {
    inputs: Vec<i32>,
    targets: Vec<i32>,
    /// The class of each image, if the model is told it.
    classes: Option<Vec<i32>>,
    rows: usize,
}

/// What a model is given of an image that it goes on with.
pub(super) struct Beginning {
    class: usize,
    /// Values in the order of generation.
    pub(super) values: Vec<u8>,
}

impl Order {
    /// That of a stack with this attention.
    pub(super) fn new(images: &Images, attention: &LayerAttention) -> Self {
        let (values, block_rows) = match blocks(attention, dims(images)) {
            Some(raster) => (raster.generation_order(images.height), block_rows(&raster)),
            None => ((0..images.size()).collect(), 1),
        };
        let upper_rows = images.height / 2 / block_rows * block_rows;
        Self { values, upper: upper_rows * row(images) }
    }

    /// For each position, the index of the value.
    pub(super) fn indices(&self) -> &[usize] {
        &self.values
    }

    /// The same but for the last value, which nothing follows.
    pub(super) fn before_last(&self) -> &[usize] {
        &self.values[..self.values.len() - 1]
    }

    /// The values of an image in this order.
    pub(super) fn generated<'i>(&'i self, image: &'i [u8]) -> impl Iterator<Item = u8> + 'i {
        self.values.iter().map(|&index| image[index])
    }

    /// The image of values in this order.
    pub(super) fn raster(&self, generated: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let mut image = vec![0; self.values.len()];
        for (&index, value) in self.values.iter().zip(generated) {
            image[index] = value;
        }
        image
    }
}

fn block_rows(raster: &BlockRaster) -> usize {
    raster.block[0]
}

/// The token that begins an image, after those of its values, and none that ends it: all images have one length.
pub(super) fn special(images: &Images) -> SpecialTokens {
    let begin = images.levels as u32;
    SpecialTokens { padding: begin, begin, end: u32::MAX }
}

/// Values before each one, and the values: what a decoder is given and what it is to say.
pub(super) fn shifted<'i>(order: &Order, images: &Images, chosen: impl Iterator<Item = &'i [u8]>) -> (Vec<i32>, Vec<i32>) {
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for image in chosen {
        let values: Vec<i32> = order.generated(image).map(i32::from).collect();
        inputs.push(images.levels as i32);
        inputs.extend(&values[..values.len() - 1]);
        targets.extend(values);
    }
    (inputs, targets)
}

impl ImageTask<'_> {
    fn assemble(&self, set: &ImageSet, items: &[usize]) -> ImageBatch {
        let (inputs, targets) = shifted(&self.order, self.images, items.iter().map(|&item| set.image(item)));
        let classes = match self.options.conditions {
            Conditions::None => None,
            Conditions::Class => Some(items.iter().map(|&item| i32::from(set.labels[item])).collect()),
        };
        ImageBatch { inputs, targets, classes, rows: items.len() }
    }

    /// Hidden states of the values, one image after the other, and the values.
    fn hidden(&self, model: &LanguageModel, batch: &ImageBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Hidden, Tensor<2, Int>) {
        let device = model.embedding.tokens.weight.device();
        let shape = [batch.rows, batch.targets.len() / batch.rows];
        let inputs = integers(batch.inputs.clone(), shape, &device);
        let hidden = match &batch.classes {
            None => model.hidden(inputs, &[], key, probe),
            Some(classes) => model.hidden_of_classes(inputs, integers(classes.clone(), [batch.rows], &device), key, probe),
        };
        (hidden, integers(batch.targets.clone(), shape, &device))
    }

    /// Passes an image of this class through the model.
    pub(super) fn read(&self, model: &LanguageModel, image: &[u8], class: u8, probe: &mut Probe) {
        let alone = ImageSet { pixels: image.to_vec(), labels: vec![class] };
        self.hidden(model, &self.assemble(&alone, &[0]), None, probe);
    }

    /// Images that begin like this; `None` if the interrupt was raised meanwhile.
    fn continued(&self, model: &LanguageModel, beginnings: &[Beginning], key: &RandomKey, interrupt: &Interrupt) -> Option<Vec<Vec<u8>>> {
        let device = model.embedding.tokens.weight.device();
        let length = beginnings.first().map_or(0, |beginning| beginning.values.len());
        let begin = self.images.levels as i32;
        let mut images = Vec::with_capacity(beginnings.len());
        score_batches(
            ("drawing", beginnings.len()),
            (0..).zip(beginnings.chunks(self.options.data.batch)),
            interrupt,
            |(number, part)| {
                let given = part.iter().flat_map(|of| std::iter::once(begin).chain(of.values.iter().map(|&value| i32::from(value))));
                let tokens = integers(given.collect(), [part.len(), length + 1], &device);
                let prompts = Prompts { tokens, limits: vec![self.images.size() - length; part.len()] };
                let keys: Vec<RandomKey> = (0..part.len() as u64).map(|row| key.numbered(number).numbered(row)).collect();
                let (special, sampling) = (special(self.images), &self.options.sampling);
                let drawn = match self.options.conditions {
                    Conditions::None => sample(model, model.start(part.len(), &[]), prompts, special, sampling, &keys),
                    Conditions::Class => {
                        let decoder = model.of_classes();
                        let classes: Vec<usize> = part.iter().map(|beginning| beginning.class).collect();
                        sample(&decoder, decoder.start(&classes), prompts, special, sampling, &keys)
                    }
                };
                images.extend(part.iter().zip(drawn).map(|(given, drawn)| {
                    let drawn = drawn.tokens.iter().map(|&token| token as u8);
                    self.order.raster(given.values.iter().copied().chain(drawn))
                }));
                part.len()
            },
        )?;
        Some(images)
    }

    /// Writes what [`draw`] does. `None` if the interrupt was raised meanwhile.
    pub(super) fn draw(&self, model: &LanguageModel, paths: &RunPaths, interrupt: &Interrupt) -> Interruptible<()> {
        let half = |image: &[u8]| self.order.generated(image).take(self.order.upper).collect();
        let Self { options: ImageOptions { data, conditions, .. }, images, .. } = self;
        let mut go_on = |beginnings: &[Beginning], key: &RandomKey| self.continued(model, beginnings, key, interrupt);
        draw(images, data.samples, *conditions, half, &mut go_on, paths)
    }
}

/// Images that a model goes on with from their beginnings; `None` if the interrupt was raised meanwhile.
pub(super) type GoOn<'a> = dyn FnMut(&[Beginning], &RandomKey) -> Option<Vec<Vec<u8>>> + 'a;

/// Writes `samples.png`, `count` images that a model made, or as many in a row for each class that it is told, and `completions.png`: test images, what is given of
/// them, and how the model goes on, twice. `half` is what is given of an image. `None` if the interrupt was raised meanwhile.
pub(super) fn draw(
    images: &Images,
    count: usize,
    conditions: Conditions,
    half: impl Fn(&[u8]) -> Vec<u8>,
    go_on: &mut GoOn<'_>,
    paths: &RunPaths,
) -> Interruptible<()> {
    if count == 0 {
        return Ok(Some(()));
    }
    let key = RandomKey::from_seed(0).named("drawing");
    let (classes, across) = match conditions {
        Conditions::None => (vec![0; count], 8),
        Conditions::Class => ((0..images.classes).flat_map(|class| vec![class; count]).collect(), count),
    };
    let beginnings: Vec<Beginning> = classes.into_iter().map(|class| Beginning { class, values: Vec::new() }).collect();
    let Some(samples) = go_on(&beginnings, &key.named("samples")) else { return Ok(None) };
    let rows: Vec<Vec<_>> = samples.chunks(across).map(|row| row.iter().map(|image| images.picture(image)).collect()).collect();
    png::write(&paths.root().join("samples.png"), &rows, Layout::default()).map_err(ExperimentError::failure)?;

    let test = &images.test;
    let originals: Vec<&[u8]> = (0..count.min(test.len())).map(|index| test.image(index)).collect();
    let beginning = |(image, &class): (&&[u8], &u8)| Beginning { class: usize::from(class), values: half(image) };
    let halves: Vec<Beginning> = originals.iter().zip(&test.labels).map(beginning).collect();
    let given = halves.first().map_or(0, |half| half.values.len());
    let mut rows = vec![
        originals.iter().map(|image| images.picture(image)).collect::<Vec<_>>(),
        originals.iter().map(|image| images.picture(image).first(given)).collect(),
    ];
    let mut completed = Vec::new();
    for name in ["first", "second"] {
        let Some(found) = go_on(&halves, &key.named(name)) else { return Ok(None) };
        completed.push(found);
    }
    rows.extend(completed.iter().map(|found| found.iter().map(|image| images.picture(image)).collect::<Vec<_>>()));
    png::write(&paths.root().join("completions.png"), &rows, Layout::default()).map_err(ExperimentError::failure)?;
    Ok(Some(()))
}

impl Task for ImageTask<'_> {
    type Model = LanguageModel;
    type Batch = ImageBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.images.train.len(), self.options.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> ImageBatch {
        self.assemble(&self.images.train, items)
    }

    fn units(&self, batch: &ImageBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &LanguageModel, batch: &ImageBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let (hidden, targets) = self.hidden(model, batch, Some(pass.key), probe);
        let [rows, length, width] = hidden.states.dims();
        let count = rows * length;
        let found = model.cross_entropy(hidden.states.reshape([count, width]), targets.reshape([count]), None, 0.0);
        TrainingLoss::new(found.loss, &hidden.losses, count)
    }

    /// Means of `-log2 p` over the values of the images.
    fn evaluate(&self, model: &LanguageModel, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (length, upper) = (self.images.size(), self.order.upper);
        let mut tally = LikelihoodTally::new(self.images, split, upper);
        let indices: Vec<usize> = (0..tally.set.len()).collect();
        let batches = indices.chunks(self.options.data.batch);
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let batch = self.assemble(tally.set, items);
            let (hidden, targets) = self.hidden(model, &batch, None, &mut Probe::off());
            let [rows, _, width] = hidden.states.dims();
            let mut nats = [0.0; 2];
            for (nats, half) in nats.iter_mut().zip([0..upper, upper..length]).filter(|(_, half)| !half.is_empty()) {
                let count = rows * half.len();
                let states = hidden.states.clone().narrow(1, half.start, half.len()).reshape([count, width]);
                let targets = targets.clone().narrow(1, half.start, half.len()).reshape([count]);
                let found = model.cross_entropy(states, targets, None, 0.0).negative_log_likelihood;
                *nats = f64::from(found.into_scalar::<f32>());
            }
            tally.add(items, nats, || {
                let states = hidden.states.reshape([rows * length, width]);
                token_losses(&states, &batch.targets, |states| model.project(states))
            });
            1
        })?;
        let given = match self.options.conditions {
            Conditions::None => "",
            Conditions::Class => ", given the class",
        };
        Some(tally.scores(format!("{}, categorical{given}", shape(self.images))))
    }

    fn selection(&self) -> Selection {
        Selection::lowest(BITS)
    }
}

/// Nats of the images of a split, of their upper and of their lower halves, as they come.
pub(super) struct LikelihoodTally<'a> {
    name: &'static str,
    pub(super) set: &'a ImageSet,
    split: Split,
    /// Values of an image.
    length: usize,
    /// Those of them that the upper half has.
    upper: usize,
    totals: [f64; 2],
    table: ItemTable,
}

impl<'a> LikelihoodTally<'a> {
    pub(super) fn new(images: &'a Images, split: Split, upper: usize) -> Self {
        let (name, set) = split.of(("validation", &images.dev), ("test", &images.test));
        let table = ItemTable::new(name, &["bits", "values", "bits of the lower half", "values of the lower half"]);
        Self { name, set, split, length: images.size(), upper, totals: [0.0; 2], table }
    }

    /// Adds the nats of both halves of a batch. `losses` are those of each step of generation, image by image, and are asked for where images are items.
    pub(super) fn add(&mut self, items: &[usize], nats: [f64; 2], losses: impl FnOnce() -> Vec<f64>) {
        self.totals.iter_mut().zip(nats).for_each(|(total, nats)| *total += nats);
        if self.split != Split::Test {
            return;
        }
        let losses = losses();
        let steps = losses.len() / items.len();
        let [values, lower] = [self.length, self.length - self.upper].map(|count| count as f64);
        for (&item, losses) in items.iter().zip(losses.chunks(steps)) {
            let (upper_half, lower_half) = losses.split_at(steps * self.upper / self.length);
            let [upper_bits, lower_bits] = [upper_half, lower_half].map(|half| half.iter().sum::<f64>() / LN_2);
            let image = self.set.image(item).iter().map(|&value| i64::from(value));
            self.table.push_tokens(image, &[upper_bits + lower_bits, values, lower_bits, lower]);
        }
    }

    /// Bits per dimension of all values, and of those in the lower half. `what` says of which images, and under which distribution.
    pub(super) fn scores(self, what: String) -> Scores {
        let Self { name, set, split, length, upper, totals, table } = self;
        let values = set.pixels.len() as f64 * LN_2;
        let lower = values * (length - upper) as f64 / length as f64;
        let signature = format!("{what}, {} {name} images", set.len());
        let mut scores = Scores::of(BITS, (totals[0] + totals[1]) / values, signature.clone());
        scores.push(LOWER_HALF, totals[1] / lower, signature);
        if split == Split::Test {
            let of = |statistics: &[&str]| ItemScore::new(name, "images", Combination::Ratio, statistics);
            scores.push_items(BITS, of(&["bits", "values"]));
            scores.push_items(LOWER_HALF, of(&["bits of the lower half", "values of the lower half"]));
            scores.items.push(table);
        }
        scores
    }
}
