//! Configuration of the experiment.

use heedful_data::generate::vectors::VectorTask;
use heedful_models::architectures::recurrent::{CellKind, RecurrentConfig};
use heedful_models::block::halting::HaltingConfig;
use serde::{Deserialize, Serialize};

use crate::session::experiment::{Config, NamedModel};
use crate::session::options::ModelRun;
use crate::train::{ScheduleConfig, TrainingConfig};

/// Complete configuration of `ponder`.
pub type PonderConfig = Config<Ponder>;

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel {
        name: "one-step",
        description: "an ordinary recurrent network: one step for each element",
        attention: "dot-product",
        settings: r#"
            [network]
            adaptive = false
        "#,
    },
    NamedModel {
        name: "act",
        description: "takes as many steps for an element as it finds right (Graves 2016)",
        attention: "dot-product",
        settings: "",
    },
];

/// The comparison of recurrent networks: its own options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ponder {
    /// Which sequences.
    pub data: PonderData,
    /// The network.
    pub network: NetworkSettings,
}

/// The sequences of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PonderData {
    /// A `kind`, `parity`, `logic`, `addition` or `sort`, and its options.
    pub task: VectorTask,
    /// Sequences of a batch.
    pub batch: usize,
    /// Training sequences; an epoch has each once.
    pub train: usize,
    /// Validation sequences.
    pub valid: usize,
    /// Test sequences.
    pub test: usize,
}

impl Default for PonderData {
    fn default() -> Self {
        Self { task: VectorTask::default(), batch: 64, train: 100_000, valid: 500, test: 1000 }
    }
}

/// A recurrent network of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSettings {
    /// `tanh` or `lstm`; by default that of the paper: `tanh` for parity, `lstm` for the others.
    pub cell: Option<CellKind>,
    /// Units of the cell.
    pub units: usize,
    /// Whether an element may take several steps.
    pub adaptive: bool,
    /// Most steps for an element, where it may take several.
    pub limit: usize,
    /// How steps halt.
    pub halting: HaltingConfig,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            cell: None,
            units: 128,
            adaptive: true,
            limit: 20,
            halting: HaltingConfig { ponder_weight: 1e-3, ..HaltingConfig::default() },
        }
    }
}

/// What the experiment changes of the defaults that all share.
pub(super) fn defaults(config: &mut PonderConfig) {
    config.run.models = MODELS.iter().map(|model| ModelRun { name: model.name.to_owned(), ..ModelRun::default() }).collect();
    config.training = TrainingConfig {
        steps: 3000,
        learning_rate: 1e-3,
        schedule: ScheduleConfig::Linear { warmup: 100, end: 1e-4 },
        evaluate_every: 500,
        checkpoint_every: 500,
        log_every: 50,
        ..TrainingConfig::default()
    };
}

impl PonderConfig {
    /// The network for the task. One class of two is told by one output.
    pub(super) fn network(&self) -> RecurrentConfig {
        let NetworkSettings { cell, units, adaptive, limit, halting } = self.own.network;
        let task = &self.own.data.task;
        let usual = if matches!(task, VectorTask::Parity(_)) { CellKind::Tanh } else { CellKind::Lstm };
        let outputs = match task.outputs() {
            [groups, 2] => groups,
            [groups, classes] => groups * classes,
        };
        RecurrentConfig {
            inputs: task.inputs(),
            units,
            outputs,
            cell: cell.unwrap_or(usual),
            limit: if adaptive { limit } else { 1 },
            halting,
        }
    }
}
