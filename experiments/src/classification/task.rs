//! Training and scoring.

use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::contract::Losses;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::classifier::{Classifier, Sentences};
use heedful_models::loss::{cross_entropy, squared_error, with_auxiliary};

use crate::batch::{pad, sequential_batches, token_budget_batches};
use crate::comparison::first_non_finite_activation;
use crate::data::glue::{Label, Target};
use crate::metrics::{ConfusionMatrix, pearson, spearman};
use crate::tokenise::PAD;
use crate::train::{Objective, Selection};

use super::{ClassificationConfig, ClassificationDataset, TokenExample};

/// Training a classifier on one task.
#[derive(Debug)]
pub struct ClassificationTask<'a> {
    pub(super) config: &'a ClassificationConfig,
    pub(super) dataset: &'a ClassificationDataset,
}

/// Padded sequences and their labels.
#[derive(Debug)]
pub struct ClassificationBatch {
    ids: Vec<i32>,
    segments: Vec<i32>,
    lengths: Vec<usize>,
    labels: Vec<Label>,
}

impl ClassificationTask<'_> {
    fn pad<'e>(&self, examples: impl Iterator<Item = &'e TokenExample> + Clone) -> ClassificationBatch {
        let padded = pad(&examples.clone().map(|example| example.tokens.clone()).collect::<Vec<_>>(), PAD);
        let segments = examples
            .clone()
            .flat_map(|example| (0..padded.width).map(move |index| i32::from(index >= example.first && index < example.tokens.len())))
            .collect();
        ClassificationBatch { ids: padded.ids, segments, lengths: padded.lengths, labels: examples.map(|example| example.label).collect() }
    }

    /// Logits of the classes, or the prediction, `[B, outputs]`, and the auxiliary losses.
    fn outputs(&self, model: &Classifier, batch: &ClassificationBatch, key: Option<RandomKey>, probe: &mut Probe) -> (Tensor<2>, Losses) {
        let device = model.embedding.tokens.weight.device();
        let rows = batch.lengths.len();
        let shape = [rows, batch.ids.len() / rows];
        let ids = |values: &[i32]| Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), &device);
        let is_pair = self.dataset.data.task.sentence_columns().len() == 2;
        let sentences = Sentences { tokens: ids(&batch.ids), segments: is_pair.then(|| ids(&batch.segments)), lengths: &batch.lengths };
        let scores = model.forward(sentences, key, probe);
        (scores.logits.cast(FloatDType::F32), scores.losses)
    }

    fn loss(&self, model: &Classifier, batch: &ClassificationBatch, key: Option<RandomKey>, probe: &mut Probe) -> Tensor<1> {
        let (outputs, auxiliary) = self.outputs(model, batch, key, probe);
        let device = outputs.device();
        let rows = batch.labels.len();
        let loss = match self.dataset.data.task.target() {
            Target::Classes(_) => {
                let classes: Vec<i32> = batch.labels.iter().map(|&label| class(label) as i32).collect();
                let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [rows]), &device);
                cross_entropy(outputs, classes, None, 0.0).loss
            }
            Target::Range(..) => {
                let scores: Vec<f32> = batch.labels.iter().map(|&label| score(label)).collect();
                let scores = Tensor::<1>::from_data(TensorData::new(scores, [rows]), &device);
                squared_error(outputs.reshape([rows]), scores)
            }
        };
        with_auxiliary(loss, &auxiliary, rows)
    }

    /// The task's official metrics, as fractions.
    pub(super) fn metrics(&self, model: &Classifier, examples: &[TokenExample]) -> Vec<(&'static str, f64)> {
        let lengths: Vec<_> = examples.iter().map(|example| (example.tokens.len(), 0)).collect();
        let (mut actual, mut predicted) = (Vec::new(), Vec::new());
        for items in sequential_batches(&lengths, self.config.data.batch_tokens) {
            let batch = self.pad(items.iter().map(|&item| &examples[item]));
            let (outputs, _) = self.outputs(model, &batch, None, &mut Probe::off());
            let width = outputs.dims()[1];
            let values: Vec<f32> = outputs.into_data().iter::<f32>().collect();
            predicted.extend(values.chunks(width).map(|row| if width == 1 { f64::from(row[0]) } else { highest(row) as f64 }));
            actual.extend(batch.labels.iter().map(|&label| match label {
                Label::Class(class) => class as f64,
                Label::Score(score) => f64::from(score),
            }));
        }
        let task = self.dataset.data.task;
        let Target::Classes(classes) = task.target() else {
            let undefined = |value: Option<f64>| value.unwrap_or(f64::NAN);
            return vec![("pearson", undefined(pearson(&actual, &predicted))), ("spearman", undefined(spearman(&actual, &predicted)))];
        };
        let as_classes = |values: &[f64]| values.iter().map(|&value| value as usize).collect::<Vec<_>>();
        let confusion = ConfusionMatrix::from_labels(classes, &as_classes(&actual), &as_classes(&predicted));
        let value = |metric: &&'static str| match *metric {
            "matthews" => confusion.matthews_correlation().value,
            "f1" => confusion.binary_scores(1).f1,
            _ => confusion.accuracy().unwrap_or(f64::NAN),
        };
        let mut metrics: Vec<_> = task.metrics().iter().map(|metric| (*metric, value(metric))).collect();
        if !task.metrics().contains(&"accuracy") {
            metrics.push(("accuracy", value(&"accuracy")));
        }
        metrics
    }
}

fn class(label: Label) -> usize {
    match label {
        Label::Class(class) => class,
        Label::Score(_) => unreachable!("the reader gives classes for a task that has them"),
    }
}

fn score(label: Label) -> f32 {
    match label {
        Label::Score(score) => score,
        Label::Class(_) => unreachable!("the reader gives scores for a task that has them"),
    }
}

/// Index of the highest value, the first of equal ones.
fn highest(values: &[f32]) -> usize {
    (1..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

impl Objective for ClassificationTask<'_> {
    type Model = Classifier;
    type Batch = ClassificationBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.dataset.train.iter().map(|example| (example.tokens.len(), 0)).collect();
        token_budget_batches(&lengths, self.config.data.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> ClassificationBatch {
        self.pad(items.iter().map(|&item| &self.dataset.train[item]))
    }

    fn units(&self, batch: &ClassificationBatch) -> usize {
        batch.labels.len()
    }

    fn loss(&self, model: &Classifier, batch: &ClassificationBatch, key: RandomKey) -> Tensor<1> {
        ClassificationTask::loss(self, model, batch, Some(key), &mut Probe::off())
    }

    fn evaluate(&self, model: &Classifier) -> Vec<(String, f64)> {
        let (_, examples) = &self.dataset.dev[0];
        self.metrics(model, examples).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn selection(&self) -> Selection {
        Selection::highest(self.dataset.data.task.metrics()[0])
    }

    fn locate_non_finite(&self, model: &Classifier, batch: &ClassificationBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            ClassificationTask::loss(self, model, batch, Some(key), probe);
        })
    }
}
