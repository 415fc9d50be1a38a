//! Configuration of the experiments.

use std::fmt::Debug;
use std::marker::PhantomData;

use heedful_models::language_model::LanguageModelConfig;
use heedful_models::position::PositionConfig;
use serde::{Deserialize, Serialize};

use crate::data::generate::sequences::{MqarConfig, ParityConfig, SequenceTask};
use crate::experiment::{Attention, Config, NamedModel};
use crate::model::ModelSettings;
use crate::options::ModelRun;
use crate::published::PublishedNumbers;
use crate::train::{OptimiserConfig, OptimiserKind, ScheduleConfig, TrainingConfig};

/// Windows of so many tokens in all layers.
macro_rules! window {
    ($name:literal, $window:literal) => {
        NamedModel {
            name: $name,
            description: concat!("sees the last ", $window, " tokens in each layer"),
            attention: "sliding-window",
            settings: concat!("[mechanisms.sliding-window]\nwindow = ", $window, "\n"),
        }
    };
}

pub(super) const MODELS: &[NamedModel] = &[
    window!("window-4", "4"),
    window!("window-8", "8"),
    window!("window-16", "16"),
    window!("window-32", "32"),
    window!("window-64", "64"),
];

/// What one of the experiments has of its own.
pub trait Family: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Name of the experiment.
    const NAME: &'static str;
    /// Title of its report.
    const TITLE: &'static str;
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
        Self { data: SequenceData { task: F::task(), ..SequenceData::default() }, tied: true, family: PhantomData }
    }
}

/// Two layers without position vectors, whose feed-forward networks begin with short convolutions: order is known to all mechanisms alike.
fn small<F: Family>(config: &mut Config<Sequences<F>>, learning_rates: &[f64]) {
    config.model = ModelSettings {
        layers: 2,
        d_model: 32,
        heads: 1,
        d_ff: 64,
        separable_feed_forward: true,
        positions: PositionConfig::None,
        dropout: 0.0,
        ..ModelSettings::default()
    };
    config.training = TrainingConfig {
        steps: 600,
        learning_rate: 1e-2,
        learning_rates: learning_rates.to_vec(),
        schedule: ScheduleConfig::Cosine { warmup: 60, end: 0.0 },
        optimiser: OptimiserConfig { kind: OptimiserKind::AdamW, weight_decay: 0.1, ..OptimiserConfig::default() },
        evaluate_every: 200,
        checkpoint_every: 200,
        log_every: 25,
        ..TrainingConfig::default()
    };
}

impl Family for RecallFamily {
    const NAME: &'static str = "recall";
    const TITLE: &'static str = "Recall";
    const TASKS: &'static [&'static str] = &SequenceTask::RECALL;

    fn task() -> SequenceTask {
        SequenceTask::Mqar(MqarConfig::default())
    }

    fn defaults(config: &mut Config<Recall>) {
        config.run.attention = ["dot-product", "dynamic-conv", "synthesizer-dense"].map(str::to_owned).to_vec();
        config.run.models = vec![ModelRun { name: "window-16".to_owned(), ..ModelRun::default() }];
        small(config, &[1e-3, 3e-3, 1e-2, 3e-2]);
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::recall()
    }
}

impl Family for TrackFamily {
    const NAME: &'static str = "track";
    const TITLE: &'static str = "Tracking of states";
    const TASKS: &'static [&'static str] = &SequenceTask::TRACK;

    fn task() -> SequenceTask {
        SequenceTask::Parity(ParityConfig::default())
    }

    fn defaults(config: &mut Config<Track>) {
        config.run.attention = ["dot-product", "alibi", "dynamic-conv"].map(str::to_owned).to_vec();
        small(config, &[5e-4, 1e-3, 3e-3, 1e-2]);
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::state_tracking()
    }
}

impl<F: Family> Config<Sequences<F>> {
    /// A model that reads the longest sequences of the task, whatever the configuration calls the longest.
    pub(super) fn language_model(&self, attention: &Attention) -> LanguageModelConfig {
        let task = &self.own.data.task;
        let settings = ModelSettings { max_length: self.model.max_length.max(task.longest()), ..self.model.clone() };
        settings.language_model(task.vocabulary(), &attention.layout.decoder, self.own.tied)
    }
}
