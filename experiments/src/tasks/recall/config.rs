//! Configuration of the experiments.

use std::fmt::Debug;
use std::marker::PhantomData;

use heedful_attention::description::AnyMechanism;
use heedful_attention::mechanisms::base_conv::BaseConvConfig;
use heedful_data::generate::sequences::{MqarConfig, ParityConfig, SequenceTask};
use heedful_models::architectures::language_model::LanguageModelConfig;
use heedful_models::block::FeedForwardIn;
use heedful_models::block::layout::LayerAttention;
use heedful_models::parts::position::PositionConfig;
use serde::{Deserialize, Serialize};

use crate::tasks::prelude::*;
use crate::train::{OptimiserConfig, OptimiserKind};

/// Windows of so many tokens in all layers.
const fn window(name: &'static str, description: &'static str, settings: &'static [&'static str]) -> NamedModel {
    NamedModel::new(name, description, "sliding-window", settings)
}

pub(super) const MODELS: &[NamedModel] = &[
    window("window-4", "sees the last 4 tokens in each layer", &["mechanisms.sliding-window.window = 4"]),
    window("window-8", "sees the last 8 tokens in each layer", &["mechanisms.sliding-window.window = 8"]),
    window("window-16", "sees the last 16 tokens in each layer", &["mechanisms.sliding-window.window = 16"]),
    window("window-32", "sees the last 32 tokens in each layer", &["mechanisms.sliding-window.window = 32"]),
    window("window-64", "sees the last 64 tokens in each layer", &["mechanisms.sliding-window.window = 64"]),
];

/// What `recall` compares by default, beside a window: softmax, sums and decays, delta rules, convolutions, and weights that are no matter of content.
const RECALLING: &str = "dot-product,linear-attention,retnet,gla,delta-net,gated-delta-net,dynamic-conv,synthesizer-random";

/// The parts in which the two experiments differ.
pub trait Family: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Name of the experiment.
    const NAME: &'static str;
    /// Title of its report.
    const TITLE: &'static str;
    /// The text of `--help`.
    const ABOUT: &'static str;
    /// Names of its tasks.
    const TASKS: &'static [&'static str];

    /// The task by default.
    fn task() -> SequenceTask;

    /// Changes the defaults that all experiments share.
    fn defaults(config: &mut Config<Sequences<Self>>);

    /// Numbers that papers report.
    fn published() -> PublishedNumbers;
}

/// Recall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallFamily;

/// Tracking of states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackFamily;

/// The experiment `recall`.
pub type Recall = Sequences<RecallFamily>;

/// The experiment `track`.
pub type Track = Sequences<TrackFamily>;

/// The comparison of models on sequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "F: Family")]
pub struct Sequences<F> {
    /// Which sequences.
    pub data: SequenceData,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// The attention of the first layer of all models; unset: their own. A short convolution there gives all mechanisms the neighbours of each token (Arora et
    /// al. 2024, Based).
    pub first_layer: Option<AnyMechanism>,
    #[serde(skip)]
    family: PhantomData<F>,
}

/// The sequences of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SequenceData {
    /// A `kind` and its options. In `recall`: `mqar`, `in-context-recall`, `noisy-recall`, `fuzzy-recall`, `memorise`, `compress`, `selective-copy`,
    /// `induction`, `needle`; in `track`: `parity`, `words`, `modular-arithmetic`.
    pub task: SequenceTask,
    /// Sequences of a batch, all of one level.
    pub batch: usize,
    /// Training sequences; an epoch has each once.
    pub train: usize,
    /// Validation sequences of each level of training.
    pub valid: usize,
    /// Test sequences of each level.
    pub test: usize,
}

impl Default for SequenceData {
    fn default() -> Self {
        Self { task: SequenceTask::Mqar(MqarConfig::default()), batch: 64, train: 100_000, valid: 64, test: 256 }
    }
}

impl<F: Family> Default for Sequences<F> {
    fn default() -> Self {
        Self { data: SequenceData { task: F::task(), ..SequenceData::default() }, tied: true, first_layer: None, family: PhantomData }
    }
}

/// Two layers without position vectors.
fn small<F: Family>(config: &mut Config<Sequences<F>>, steps: u64, learning_rates: &[f64]) {
    let positions = PositionConfig::None;
    config.model = ModelSettings { layers: 2, d_model: 32, heads: 1, d_ff: 64, positions, dropout: 0.0, ..ModelSettings::default() };
    config.training = TrainingConfig {
        steps,
        learning_rate: 1e-2,
        learning_rates: learning_rates.to_vec(),
        schedule: ScheduleConfig::Cosine { warmup: steps / 10, end: 0.0 },
        optimiser: OptimiserConfig { kind: OptimiserKind::AdamW, weight_decay: 0.1, ..OptimiserConfig::default() },
        log_every: 25,
        ..TrainingConfig::every(steps / 2)
    };
}

impl Family for RecallFamily {
    const NAME: &'static str = "recall";
    const TITLE: &'static str = "Recall";
    const ABOUT: &'static str = "\
        Compare the recall of attention mechanisms on generated sequences: MQAR, the tasks of MAD, induction heads, needles.\n\nTrains a small decoder \
        for each model of --model or attention of --attention, and each seed, with each of training.learning_rates, and prints a table of \
        accuracies at the best rate: for the queried tokens, for whole sequences and, where the task has them, for sequences longer than those of \
        training.";
    const TASKS: &'static [&'static str] = &SequenceTask::RECALL;

    fn task() -> SequenceTask {
        SequenceTask::Mqar(MqarConfig::default())
    }

    fn defaults(config: &mut Config<Recall>) {
        config.compare(RECALLING, "window-16");
        small(config, 500, &[1e-3, 3e-3, 1e-2, 3e-2]);
        config.own.first_layer = Some(BaseConvConfig::default().into());
        config.model.feed_forward_in = FeedForwardIn::None;
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::recall()
    }
}

impl Family for TrackFamily {
    const NAME: &'static str = "track";
    const TITLE: &'static str = "Tracking of states";
    const ABOUT: &'static str = "\
        Compare how attention mechanisms track states: parity, word problems of groups (S5, A5), modular arithmetic.\n\nTrains a small decoder for \
        each model of --model or attention of --attention, and each seed, with each of training.learning_rates, and prints a table of accuracies at \
        the best rate, on sequences of the training lengths and on longer ones, which show whether a model tracks the state or has memorised short \
        sequences.";
    const TASKS: &'static [&'static str] = &SequenceTask::TRACK;

    fn task() -> SequenceTask {
        SequenceTask::Parity(ParityConfig::default())
    }

    fn defaults(config: &mut Config<Track>) {
        config.compare("dot-product,alibi,dynamic-conv", "");
        small(config, 600, &[5e-4, 1e-3, 3e-3, 1e-2]);
        // Feed-forward networks begin with short convolutions: order is known to all mechanisms alike.
        config.model.separable_feed_forward = true;
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::state_tracking()
    }
}

impl<F: Family> Config<Sequences<F>> {
    /// The length of the longest sequences of the task, if the configuration calls less the longest.
    pub(super) fn max_length(&self) -> usize {
        self.model.max_length.max(self.own.data.task.longest())
    }

    /// A model that reads the longest sequences of the task.
    pub(super) fn language_model(&self, attention: &Attention) -> LanguageModelConfig {
        let task = &self.own.data.task;
        let settings = ModelSettings { max_length: self.max_length(), ..self.model.clone() };
        let own = &attention.layout.decoder;
        let layers = match &self.own.first_layer {
            Some(first) => {
                LayerAttention::Each((0..settings.layers).map(|layer| if layer == 0 { first } else { own.at(layer) }.clone()).collect())
            }
            None => own.clone(),
        };
        settings.language_model(task.vocabulary(), &layers).with_tied(self.own.tied)
    }
}
