//! Configuration of the experiment.

use heedful_data::generate::vectors::VectorTask;
use heedful_models::architectures::recurrent::{CellKind, RecurrentConfig};
use heedful_models::block::halting::HaltingConfig;
use serde::{Deserialize, Serialize};

use crate::session::experiment::{Config, NamedModel};

/// Complete configuration of `ponder`.
pub type PonderConfig = Config<Ponder>;

pub(super) const MODELS: &[NamedModel] = &[
    NamedModel::new("one-step", "an ordinary recurrent network: one step for each element", "dot-product", &["network.adaptive = false"]),
    NamedModel::new("act", "takes as many steps for an element as it finds right (Graves 2016)", "dot-product", &[]),
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
