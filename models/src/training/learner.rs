//! Models in Burn's own training loop (feature `train`).
//!
//! [`Trainee`] is a model with an [`Objective`], for [`Learner`](burn::train::Learner) and [`SupervisedTraining`](burn::train::SupervisedTraining); see
//! `examples/learner`. Dropout draws from a separate stream, with a number per step. After each step constrained parameters are clamped, and shared parameters
//! stay shared.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::{Module, ModuleDisplay};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::tensor::{FloatDType, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, ItemLazy, RegressionOutput, SequenceOutput, TrainOutput, TrainStep};
use heedful_attention::prelude::*;
use heedful_attention::registry::constraints;

use crate::architectures::classifier::{Classifier, Sentences};
use crate::architectures::language_model::LanguageModel;
use crate::architectures::seq2seq::{Padded, Seq2SeqTransformer};
use crate::parts::loss::{CrossEntropy, cross_entropy, squared_error, with_auxiliary};

/// Training objective. This module implements objectives for the models of this crate; implement the trait for custom models or losses.
pub trait Objective<M>: Clone + Debug + Send + Sync + 'static {
    /// Input of one step.
    type Batch: Send + 'static;
    /// Input of metrics.
    type Output: ItemLazy + 'static;

    /// Training loss `[1]` of a batch, and the input of metrics. Dropout is active if and only if a key is given.
    fn pass(&self, model: &M, batch: Self::Batch, random: Option<RandomKey>) -> (Tensor<1>, Self::Output);
}

/// A model for Burn's learner.
#[derive(Module, Debug)]
pub struct Trainee<M: Module, O: Clone + Debug + Send + Sync> {
    /// The model.
    pub model: M,
    #[module(skip)]
    objective: O,
    #[module(skip)]
    dropout: Stream,
}

/// Keys per step, shared by all copies of a model.
#[derive(Clone, Debug)]
struct Stream {
    key: RandomKey,
    steps: Arc<AtomicU64>,
}

impl<M: Module, O: Objective<M>> Trainee<M, O> {
    /// A model on a device with autodiff and its objective. Dropout draws from `key`.
    pub fn new(model: M, objective: O, key: &RandomKey) -> Self {
        Self { model: constraints::tie(model), objective, dropout: Stream { key: key.named("dropout"), steps: Arc::default() } }
    }

    fn settled(self) -> Self {
        Self { model: constraints::tie(constraints::apply(self.model)), ..self }
    }
}

impl<M: Module + ModuleDisplay + 'static, O: Objective<M>> TrainStep for Trainee<M, O> {
    type Input = O::Batch;
    type Output = O::Output;

    fn step(&self, batch: O::Batch) -> TrainOutput<O::Output> {
        // Burn moves models between devices parameter by parameter, which separates shared ones.
        let model = constraints::tie(self.model.clone());
        let key = self.dropout.key.numbered(self.dropout.steps.fetch_add(1, Ordering::Relaxed));
        let (loss, output) = self.objective.pass(&model, batch, Some(key));
        TrainOutput { grads: GradientsParams::from_grads(loss.backward(), &model), item: output }
    }

    fn optimize(self, optimiser: &mut ModuleOptimizer, rate: ModuleLearningRate, gradients: GradientsParams) -> Self {
        optimiser.step(rate, self, gradients).settled()
    }

    fn optimize_multi(self, optimiser: &mut ModuleOptimizer, rate: ModuleLearningRate, gradients: MultiGradientsParams) -> Self {
        optimiser.step_multi(rate, self, gradients).settled()
    }
}

impl<M: Module + ModuleDisplay + 'static, O: Objective<M>> InferenceStep for Trainee<M, O> {
    type Input = O::Batch;
    type Output = O::Output;

    fn step(&self, batch: O::Batch) -> O::Output {
        self.objective.pass(&self.model, batch, None).1
    }
}

/// Next-token objective for a [`LanguageModel`]. A batch contains sequences `[B, N + 1]`: all but the last token are read, all but the first predicted.
#[derive(Clone, Debug, Default)]
pub struct NextToken {
    /// Right-padding token, which is not predicted; `None` without padding.
    pub padding: Option<u32>,
}

impl<A: Attention> Objective<LanguageModel<A>> for NextToken {
    type Batch = Tensor<2, Int>;
    type Output = SequenceOutput;

    fn pass(&self, model: &LanguageModel<A>, batch: Tensor<2, Int>, random: Option<RandomKey>) -> (Tensor<1>, SequenceOutput) {
        let (given, targets) = shifted(batch);
        let scores = model.forward_with(given, &[], random, &mut Probe::off());
        sequence_output(scores.logits, targets, &scores.losses, self.padding, 0.0)
    }
}

/// Target-token objective for a [`Seq2SeqTransformer`].
#[derive(Clone, Debug)]
pub struct TargetTokens {
    /// Right-padding token of targets, which is not predicted.
    pub padding: u32,
    /// Label smoothing in training, in `[0, 1)`.
    pub label_smoothing: f64,
}

/// Source and target sequences.
#[derive(Clone, Debug)]
pub struct SequencePairs {
    /// `[B, Q]`.
    pub source: Tensor<2, Int>,
    /// Number of real tokens per source.
    pub source_lengths: Vec<usize>,
    /// `[B, N + 1]`: all but the last token are read, all but the first predicted.
    pub target: Tensor<2, Int>,
    /// Number of real tokens per target, including the first.
    pub target_lengths: Vec<usize>,
}

impl<A: Attention> Objective<Seq2SeqTransformer<A>> for TargetTokens {
    type Batch = SequencePairs;
    type Output = SequenceOutput;

    fn pass(&self, model: &Seq2SeqTransformer<A>, batch: SequencePairs, random: Option<RandomKey>) -> (Tensor<1>, SequenceOutput) {
        let (given, targets) = shifted(batch.target);
        // Rows whose last token is real are read without it.
        let width = given.dims()[1];
        let lengths: Vec<usize> = batch.target_lengths.iter().map(|&length| length.min(width)).collect();
        let smoothing = if random.is_some() { self.label_smoothing } else { 0.0 };
        let source = Padded { tokens: batch.source, lengths: &batch.source_lengths };
        let scores = model.forward_with(source, Padded { tokens: given, lengths: &lengths }, random, &mut Probe::off());
        sequence_output(scores.logits, targets, &scores.losses, Some(self.padding), smoothing)
    }
}

/// Classification objective for a [`Classifier`].
#[derive(Clone, Debug, Default)]
pub struct Classes;

/// Sentences or sentence pairs, with labels.
#[derive(Clone, Debug)]
pub struct LabelledSentences<L> {
    /// Token ids `[B, N]`.
    pub tokens: Tensor<2, Int>,
    /// Segment types `[B, N]`, for pairs.
    pub segments: Option<Tensor<2, Int>>,
    /// Number of real tokens per row.
    pub lengths: Vec<usize>,
    /// Classes `Tensor<1, Int>` or values `Tensor<1>`, `[B]`.
    pub labels: L,
}

impl<L> LabelledSentences<L> {
    fn sentences(&self) -> Sentences<'_> {
        Sentences { tokens: self.tokens.clone(), segments: self.segments.clone(), lengths: &self.lengths }
    }
}

impl<A: Attention> Objective<Classifier<A>> for Classes {
    type Batch = LabelledSentences<Tensor<1, Int>>;
    type Output = ClassificationOutput;

    fn pass(&self, model: &Classifier<A>, batch: Self::Batch, random: Option<RandomKey>) -> (Tensor<1>, ClassificationOutput) {
        let scores = model.forward_with(batch.sentences(), random, &mut Probe::off());
        class_output(scores.logits, batch.labels, &scores.losses)
    }
}

/// Regression objective for a [`Classifier`] with one output.
#[derive(Clone, Debug, Default)]
pub struct Values;

impl<A: Attention> Objective<Classifier<A>> for Values {
    type Batch = LabelledSentences<Tensor<1>>;
    type Output = RegressionOutput;

    fn pass(&self, model: &Classifier<A>, batch: Self::Batch, random: Option<RandomKey>) -> (Tensor<1>, RegressionOutput) {
        let scores = model.forward_with(batch.sentences(), random, &mut Probe::off());
        let rows = batch.lengths.len();
        let predictions = scores.logits.cast(FloatDType::F32);
        let loss = squared_error(predictions.clone().reshape([rows]), batch.labels.clone()) / rows as f64;
        (with_auxiliary(loss.clone(), &scores.losses, 1), RegressionOutput::new(loss, predictions, batch.labels.unsqueeze_dim(1)))
    }
}

/// Masked-token objective for a [`Classifier`]; [`MaskingConfig`](crate::architectures::masked::MaskingConfig) masks the tokens.
#[derive(Clone, Debug, Default)]
pub struct MaskedTokens;

/// Sentences with masked tokens.
#[derive(Clone, Debug)]
pub struct MaskedSentences {
    /// Model input, `[B, N]`.
    pub tokens: Tensor<2, Int>,
    /// Number of real tokens per row.
    pub lengths: Vec<usize>,
    /// Positions of the tokens to predict, as `row * N + column`, `[P]`.
    pub positions: Tensor<1, Int>,
    /// The tokens to predict, `[P]`.
    pub targets: Tensor<1, Int>,
}

impl<A: Attention> Objective<Classifier<A>> for MaskedTokens {
    type Batch = MaskedSentences;
    type Output = ClassificationOutput;

    fn pass(&self, model: &Classifier<A>, batch: MaskedSentences, random: Option<RandomKey>) -> (Tensor<1>, ClassificationOutput) {
        let sentences = Sentences { tokens: batch.tokens, segments: None, lengths: &batch.lengths };
        let hidden = model.hidden(sentences, random, &mut Probe::off());
        let [rows, length, width] = hidden.states.dims();
        let found = hidden.states.reshape([rows * length, width]).select(0, batch.positions);
        class_output(model.masked_logits(found), batch.targets, &hidden.losses)
    }
}

/// All but the last column, and all but the first.
fn shifted(sequences: Tensor<2, Int>) -> (Tensor<2, Int>, Tensor<2, Int>) {
    let length = sequences.dims()[1] - 1;
    (sequences.clone().narrow(1, 0, length), sequences.narrow(1, 1, length))
}

fn sequence_output(
    logits: Tensor<3>,
    targets: Tensor<2, Int>,
    losses: &Losses,
    padding: Option<u32>,
    label_smoothing: f64,
) -> (Tensor<1>, SequenceOutput) {
    let [rows, length, vocabulary] = logits.dims();
    let logits = logits.cast(FloatDType::F32);
    let flat = targets.clone().reshape([rows * length]);
    let CrossEntropy { loss, .. } =
        cross_entropy(logits.clone().reshape([rows * length, vocabulary]), flat.clone(), padding, label_smoothing);
    let loss = match padding {
        Some(padding) => loss / flat.not_equal_elem(padding).int().sum().float().clamp_min(1.0),
        None => loss / (rows * length) as f64,
    };
    (with_auxiliary(loss.clone(), losses, 1), SequenceOutput::new(loss, logits, None, targets))
}

fn class_output(logits: Tensor<2>, targets: Tensor<1, Int>, losses: &Losses) -> (Tensor<1>, ClassificationOutput) {
    let logits = logits.cast(FloatDType::F32);
    let rows = targets.dims()[0];
    let loss = cross_entropy(logits.clone(), targets.clone(), None, 0.0).loss / rows as f64;
    (with_auxiliary(loss.clone(), losses, 1), ClassificationOutput::new(loss, logits, targets))
}
