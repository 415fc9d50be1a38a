//! Training and scoring.

use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_data::images::{ImageSet, Images};
use heedful_models::architectures::seq2seq;
use heedful_models::architectures::vision::VisionTransformer;
use heedful_models::parts::loss::cross_entropy;

use super::pretrained::Normalisation;
use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;

/// Name of the score.
pub(super) const ACCURACY: &str = "accuracy";

/// Training a Vision Transformer to tell the classes of images.
#[derive(Debug)]
pub struct VisionTask<'a> {
    pub(super) images: &'a Images,
    pub(super) normalisation: &'a Normalisation,
    /// Numbers of a pixel that the model reads: a grey image gives each of them.
    pub(super) channels: usize,
    /// Images in a batch.
    pub(super) batch: usize,
}

/// Images and their classes.
#[derive(Debug)]
pub struct VisionBatch {
    /// `[B, channels, H, W]`, row-major.
    pixels: Vec<f32>,
    classes: Vec<i32>,
}

impl VisionTask<'_> {
    fn assemble(&self, set: &ImageSet, items: &[usize]) -> VisionBatch {
        let Images { height, width, channels: own, levels, .. } = *self.images;
        let mut pixels = Vec::with_capacity(items.len() * self.channels * height * width);
        for &item in items {
            let image = set.image(item);
            for channel in 0..self.channels {
                let values = image.iter().skip(channel % own).step_by(own);
                pixels.extend(values.map(|&value| self.normalisation.of(channel, f64::from(value) / (levels - 1) as f64)));
            }
        }
        VisionBatch { pixels, classes: items.iter().map(|&item| i32::from(set.labels[item])).collect() }
    }

    fn outputs(&self, model: &VisionTransformer, batch: &VisionBatch, key: Option<RandomKey>, probe: &mut Probe) -> seq2seq::Scores<2> {
        let shape = [batch.classes.len(), self.channels, self.images.height, self.images.width];
        let images = Tensor::<4>::from_data(TensorData::new(batch.pixels.clone(), shape), &device(model));
        let scores = model.forward_with(images, key, probe);
        seq2seq::Scores { logits: scores.logits.cast(FloatDType::F32), ..scores }
    }
}

fn device(model: &VisionTransformer) -> Device {
    model.output.weight.device()
}

impl Task for VisionTask<'_> {
    type Model = VisionTransformer;
    type Batch = VisionBatch;
    type Carried = ();

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.images.train.len(), self.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> VisionBatch {
        self.assemble(&self.images.train, items)
    }

    fn units(&self, batch: &VisionBatch) -> usize {
        batch.classes.len()
    }

    fn loss(&self, model: &VisionTransformer, batch: &VisionBatch, pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
        let scores = self.outputs(model, batch, Some(pass.key), probe);
        let rows = batch.classes.len();
        let classes = Tensor::<1, Int>::from_data(TensorData::new(batch.classes.clone(), [rows]), &device(model));
        TrainingLoss::new(cross_entropy(scores.logits, classes, None, 0.0).loss, &scores.losses, rows)
    }

    fn evaluate(&self, model: &VisionTransformer, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let (name, set) = split.of(("validation", &self.images.dev), ("test", &self.images.test));
        let indices: Vec<usize> = (0..set.len()).collect();
        let batches = indices.chunks(self.batch);
        let mut table = ItemTable::new(name, &["actual", "predicted", "right"]);
        let mut right = 0;
        score_batches(("scoring", batches.len()), batches, interrupt, |items| {
            let batch = self.assemble(set, items);
            let chosen = self.outputs(model, &batch, None, &mut Probe::off()).logits.argmax(1);
            for ((&item, &actual), predicted) in items.iter().zip(&batch.classes).zip(read(chosen).iter::<i32>()) {
                right += usize::from(predicted == actual);
                let image = set.image(item).iter().map(|&value| i64::from(value)).chain([-1, i64::from(actual)]);
                table.push_tokens(image, &[f64::from(actual), f64::from(predicted), f64::from(u8::from(predicted == actual))]);
            }
            1
        })?;
        let mut scores = Scores::of(ACCURACY, right as f64 / set.len() as f64, format!("{} {name} images", set.len()));
        if split == Split::Test {
            scores.push_items(ACCURACY, ItemScore::new(name, "images", Combination::Mean, &["right"]));
            scores.items.push(table);
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::highest(ACCURACY)
    }
}
