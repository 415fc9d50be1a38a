//! Lists of runs without data: what a configuration would run, checked as its command checks it, and whether a folder holds the same runs.

use toml::{Table, Value};

use super::candidate::{candidates, check_effects};
use crate::error::ExperimentError;
use crate::experiment::definition::{Candidate, Config, Experiment};
use crate::footprint::Memory;
use crate::metrics::MetricColumn;
use crate::run_folder::{RUN_TABLES, RunFolder, RunFolderError};
use crate::settings::{self, Assignment, Settings};

/// The runs of a configuration.
pub(crate) struct RunList {
    /// The experiment, as records name it.
    pub(crate) experiment: &'static str,
    /// The scores that the experiment knows of.
    pub(crate) metrics: Vec<MetricColumn>,
    /// Attentions and models, each with its complete configuration.
    pub(crate) contenders: Vec<(String, Table)>,
    recipe_of: RecipeOf,
}

/// Reads the complete configuration that a contender has in a configuration file.
type RecipeOf = fn(&Table, &str) -> Result<Option<Table>, ExperimentError>;

/// The runs of a configuration, of which every field counts as given by an option: what has no effect is refused.
///
/// # Errors
/// What the command of the experiment would refuse before it reads data.
pub(crate) fn run_list<E: Experiment>(table: &Table) -> Result<RunList, ExperimentError> {
    let contenders = contenders::<E>(table, true)?;
    Ok(RunList { experiment: E::NAME, metrics: E::columns(), contenders, recipe_of: recipe_of::<E> })
}

impl RunList {
    /// The contender's complete configuration without the choice of runs; `None` if there is no such contender.
    pub(crate) fn contender(&self, name: &str) -> Option<&Table> {
        self.contenders.iter().find(|(other, _)| other == name).map(|(_, table)| table)
    }

    /// The first field in which a folder's runs of a contender differ from those of the list; `None` if there is none. What is newer than the folder has its
    /// default there.
    ///
    /// # Errors
    /// A configuration that cannot be read, or that this version would not run.
    pub(crate) fn difference(&self, folder: &RunFolder, name: &str) -> Result<Option<String>, ExperimentError> {
        let Some(here) = self.contender(name) else { return Ok(Some(format!("`{name}` is not among the runs"))) };
        let there: Result<Table, RunFolderError> = folder.table();
        let Some(there) = (self.recipe_of)(&there?, name)? else { return Ok(Some(format!("`{name}` is not among its runs"))) };
        Ok(settings::first_difference(&there, here))
    }
}

fn recipe_of<E: Experiment>(table: &Table, name: &str) -> Result<Option<Table>, ExperimentError> {
    Ok(contenders::<E>(table, false)?.into_iter().find(|(other, _)| other == name).map(|(_, table)| table))
}

fn contenders<E: Experiment>(table: &Table, is_given: bool) -> Result<Vec<(String, Table)>, ExperimentError> {
    let mut settings = Settings::<Config<E>>::read(None, assignments(table))?;
    let candidates = candidates::<E>(&mut settings, Memory::of_finished())?;
    // A complete configuration has fields that nobody gave.
    if is_given {
        check_effects::<E>(&settings, &candidates)?;
    }
    let contender = |Candidate { attention, config, .. }: Candidate<E>| -> Result<(String, Table), ExperimentError> {
        let mut table = settings::complete(&config)?;
        RUN_TABLES.iter().for_each(|name| drop(table.remove(*name)));
        Ok((attention.name, table))
    };
    candidates.into_iter().map(contender).collect()
}

/// Every field as an option would give it; of mechanisms, every option.
fn assignments(table: &Table) -> Vec<Assignment> {
    let given = |path: &str, value: &Value| Assignment::option(&format!("{path} ="), path, value.clone());
    let mut assignments = Vec::new();
    for (name, value) in table {
        match (name.as_str(), value) {
            ("mechanisms", Value::Table(families)) => {
                for (family, options) in families {
                    let path = format!("mechanisms.{family}");
                    match options {
                        Value::Table(options) => {
                            let option = |(name, value): (&String, &Value)| given(&format!("{path}.{name}"), value);
                            assignments.extend(options.iter().map(option));
                        }
                        other => assignments.push(given(&path, other)),
                    }
                }
            }
            _ => assignments.push(given(name, value)),
        }
    }
    assignments
}
