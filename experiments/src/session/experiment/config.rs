//! The configuration of an experiment.

use heedful_attention::description::AnyMechanism;
use heedful_host::names::listed;
use heedful_runs::settings::{Configuration, MECHANISMS, Problem, Setting};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::definition::Experiment;
use crate::model::ModelSettings;
use crate::model::mechanisms::MechanismOptions;
use crate::session::options::{ModelRun, RunSettings};
use crate::session::slurm::SlurmSettings;
use crate::train::TrainingConfig;

/// The complete configuration of an experiment: the common tables, and beside them the experiment's own fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config<E> {
    /// Which runs.
    pub run: RunSettings,
    /// Sizes of the model.
    pub model: ModelSettings,
    /// Options of the mechanisms.
    pub mechanisms: MechanismOptions,
    /// How models are trained.
    pub training: TrainingConfig,
    /// What Slurm gives the runs.
    pub slurm: SlurmSettings,
    /// What only this experiment has.
    #[serde(flatten)]
    pub own: E,
}

impl<E: Experiment> Default for Config<E> {
    fn default() -> Self {
        let mut config = Self {
            run: RunSettings::default(),
            model: ModelSettings::default(),
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig::default(),
            slurm: SlurmSettings::default(),
            own: E::default(),
        };
        E::defaults(&mut config);
        if config.run.attention.is_empty() && config.run.models.is_empty() {
            config.run.attention = vec![AnyMechanism::default().name()];
        }
        config
    }
}

impl<E> Config<E> {
    /// Compares these attentions, as `--attention` lists them, and these models.
    pub fn compare(&mut self, attentions: &str, models: &str) {
        let names = |list| listed(list).into_iter().filter(|name| !name.is_empty()).map(str::to_owned);
        self.run.attention = names(attentions).collect();
        self.run.models = names(models).map(|name| ModelRun { name, ..ModelRun::default() }).collect();
    }
}

/// The tables that all experiments have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    run: RunSettings,
    model: ModelSettings,
    mechanisms: MechanismOptions,
    training: TrainingConfig,
    slurm: SlurmSettings,
}

impl<E: Experiment> Configuration for Config<E> {
    #[allow(private_interfaces, reason = "what is wrong with a field becomes a SettingsError")]
    fn from_table(table: Table) -> Result<Self, Problem> {
        const SHARED: &[&str] = &["run", "model", MECHANISMS, "training", "slurm"];
        let (shared, own): (Table, Table) = table.into_iter().partition(|(name, _)| SHARED.contains(&name.as_str()));
        let own = E::deserialize(Setting(Value::Table(own))).map_err(|problem| problem.beside(SHARED))?;
        let Shared { run, model, mechanisms, training, slurm } = Shared::deserialize(Setting(Value::Table(shared)))?;
        Ok(Self { run, model, mechanisms, training, slurm, own })
    }
}
