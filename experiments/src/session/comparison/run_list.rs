//! Lists of runs without data: the runs of a configuration, checked as its command checks them, and whether a folder contains the same runs.

use heedful_metrics::MetricColumn;
use heedful_runs::run_folder::{RUN_TABLES, RunFolder};
use heedful_runs::settings::{self, Assignment, MECHANISMS, Settings, SettingsError};
use toml::{Table, Value};

use super::candidate::{candidates, check_effects, check_overridden};
use crate::model::mechanisms;
use crate::session::error::ExperimentError;
use crate::session::experiment::definition::UNCHANGED;
use crate::session::experiment::definition::{Candidate, Config, Experiment};
use crate::session::footprint::Memory;
use crate::train::without_decay;

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

/// The runs of a configuration that begin with a pretrained model, whose folder says the rest: only names are checked. Without attentions it is the model as it is.
///
/// # Errors
/// A field that there is none of, or a value that is none of its field.
pub(crate) fn run_list_of_pretrained<E: Experiment>(table: &Table) -> Result<RunList, ExperimentError> {
    let run = read::<E>(table)?.value.run;
    let is_named = table.get("run").is_some_and(|run| run.get("attention").is_some());
    let attentions = if is_named { run.attention } else { vec![UNCHANGED.to_owned()] };
    let names = attentions.into_iter().chain(run.models.into_iter().map(|model| model.name));
    let contenders = names.map(|name| (name, Table::new())).collect();
    Ok(RunList { experiment: E::NAME, metrics: E::columns(), contenders, recipe_of: |_, _| Ok(Some(Table::new())) })
}

impl RunList {
    /// The contender's complete configuration without the choice of runs, with the options of its own mechanisms alone, in which sizes that follow the maximal length
    /// are numbers; `None` if there is no such contender.
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
        let there = folder.table()?;
        let Some(mut there) = (self.recipe_of)(&there, name)? else { return Ok(Some(format!("`{name}` is not among its runs"))) };
        take_exemptions_of_later_mechanisms(&mut there, here);
        Ok(settings::first_difference(&there, here))
    }
}

/// Gives a run that had the default exemptions from weight decay of its time those that newer mechanisms have added, which none of its parameters matches.
fn take_exemptions_of_later_mechanisms(there: &mut Table, here: &Table) {
    const OF_MODELS: usize = 2;
    let default: Vec<Value> = without_decay().into_iter().map(Value::String).collect();
    let of_here = here.get("training").and_then(|training| training.get("optimiser")?.get("without_decay")?.as_array());
    let of_there = there.get_mut("training").and_then(|training| training.get_mut("optimiser")?.get_mut("without_decay")?.as_array_mut());
    if let (Some(of_here), Some(of_there)) = (of_here, of_there)
        && *of_here == default
        && of_there.starts_with(&default[..OF_MODELS])
        && of_there.iter().all(|exemption| default.contains(exemption))
    {
        of_there.clone_from(of_here);
    }
}

/// Makes two complete configurations equal in what does not distinguish their runs: options of mechanisms that neither runs are left out, sizes that follow the
/// maximal length become numbers, and exemptions from weight decay are those of today. A configuration that this version would not run stays as it is.
pub(super) fn align<E: Experiment>(there: &mut Table, here: &mut Table) {
    let used = [&*there, here].map(|table| contenders::<E>(table, false));
    let [Ok(of_there), Ok(of_here)] = used else { return };
    let used = [of_there, of_here].concat();
    for table in [&mut *there, here] {
        let Ok(mut config) = read::<E>(table).map(|settings| settings.value) else { return };
        config.mechanisms = config.mechanisms.resolved(E::max_length(&config));
        let Ok(Value::Table(mut mechanisms)) = Value::try_from(&config.mechanisms) else { return };
        mechanisms.retain(|family, _| used.iter().any(|(_, own)| own.get(MECHANISMS).is_some_and(|own| own.get(family).is_some())));
        table.insert(MECHANISMS.into(), mechanisms.into());
    }
    take_exemptions_of_later_mechanisms(there, here);
}

fn read<E: Experiment>(table: &Table) -> Result<Settings<Config<E>>, SettingsError> {
    let given = table.iter().map(|(name, value)| Assignment::option(&format!("{name} ="), name, value.clone()));
    Settings::read(None, given.collect())
}

fn recipe_of<E: Experiment>(table: &Table, name: &str) -> Result<Option<Table>, ExperimentError> {
    Ok(contenders::<E>(table, false)?.into_iter().find(|(other, _)| other == name).map(|(_, table)| table))
}

/// Refuses fields without effect. Whether the command will be given a folder of data is not known here, so that its fields may be those of either case.
fn check_use<E: Experiment>(settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<(), ExperimentError> {
    let Err(refused) = check_effects::<E>(settings, candidates) else { return Ok(()) };
    let mut reading = candidates.to_vec();
    reading.iter_mut().for_each(|candidate| candidate.config.run.data = Some("data".into()));
    if E::READS_FILES && check_effects::<E>(settings, &reading).is_ok() { Ok(()) } else { Err(refused) }
}

fn contenders<E: Experiment>(table: &Table, is_given: bool) -> Result<Vec<(String, Table)>, ExperimentError> {
    let mut settings = read::<E>(table)?;
    // A complete configuration has fields that nobody gave.
    if is_given {
        check_overridden::<E>(&settings)?;
    }
    let candidates = candidates::<E>(&mut settings, Memory::of_finished())?;
    if is_given {
        check_use(&settings, &candidates)?;
    }
    let contender = |Candidate { attention, mut config, .. }: Candidate<E>| -> Result<(String, Table), ExperimentError> {
        config.mechanisms = config.mechanisms.resolved(E::max_length(&config));
        let mut table = settings::complete(&config)?;
        RUN_TABLES.iter().for_each(|name| drop(table.remove(*name)));
        if let Some(mechanisms) = table.get_mut(MECHANISMS).and_then(Value::as_table_mut) {
            let own = E::attentions(&attention);
            mechanisms.retain(|family, _| own.iter().any(|own| mechanisms::use_of(own, family, None).is_ok()));
        }
        Ok((attention.name, table))
    };
    candidates.into_iter().map(contender).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::language::Language;

    #[test]
    fn sizes_that_follow_the_length_are_compared_as_numbers_and_those_of_other_mechanisms_are_not() {
        let recipe = |options: &str| {
            let table = toml::from_str(&format!("run = {{ attention = ['sliding-window'] }}\n{options}")).unwrap();
            recipe_of::<Language>(&table, "sliding-window").unwrap().unwrap()
        };
        let by_default = recipe("");
        assert_eq!(by_default[MECHANISMS]["sliding-window"]["window"].as_integer(), Some(16));
        let written = recipe("mechanisms = { sliding-window = { window = 16 }, local-1d = { query_block = 256 } }");
        assert_eq!(settings::first_difference(&written, &by_default), None);
        // A memory lengthens what attention looks over.
        assert_eq!(recipe("data = { memory = 64 }")[MECHANISMS]["sliding-window"]["window"].as_integer(), Some(32));
        let other = settings::first_difference(&recipe("mechanisms = { sliding-window = { window = 256 } }"), &by_default).unwrap();
        assert_eq!(other, "`mechanisms.sliding-window.window`: 256 there, 16 here");
    }

    #[test]
    fn options_of_mechanisms_that_do_not_run_keep_no_folder_of_an_earlier_version_from_use() {
        let table = |options: &str| -> Table {
            let table = format!("run = {{ attention = ['dot-product', 'adaptive-span'] }}\n{options}").parse().unwrap();
            settings::completed::<Config<Language>>(&table).unwrap()
        };
        let difference = |there: &str| {
            let (mut there, mut here) = (table(there), table(""));
            align::<Language>(&mut there, &mut here);
            settings::first_difference(&there, &here)
        };
        assert_eq!(
            difference(
                "mechanisms = { local-1d = { query_block = 256 }, sparse-strided = { stride = 128 }, adaptive-span = { ramp = 16.0 } }"
            ),
            None
        );
        let other = difference("mechanisms = { local-1d = { query_block = 256 }, adaptive-span = { ramp = 32.0 } }").unwrap();
        assert_eq!(other, "`mechanisms.adaptive-span.ramp`: 32.0 there, 16.0 here");
        assert!(difference("training = { steps = 7 }").unwrap().starts_with("`training.steps`: 7 there"));
    }

    #[test]
    fn only_the_default_exemptions_of_an_earlier_version_are_taken_for_todays() {
        let with = |exempt: &[String]| -> Table {
            let exempt = exempt.iter().cloned().map(Value::String).collect();
            let optimiser = Table::from_iter([("without_decay".to_owned(), Value::Array(exempt))]);
            Table::from_iter([("training".to_owned(), Value::Table(Table::from_iter([("optimiser".to_owned(), Value::Table(optimiser))])))])
        };
        let today = without_decay();
        let difference = |there: &[String], here: &[String]| {
            let mut there = with(there);
            take_exemptions_of_later_mechanisms(&mut there, &with(here));
            settings::first_difference(&there, &with(here))
        };
        let earlier = &today[..today.len() - 1];
        assert_eq!(difference(earlier, &today), None);
        assert!(difference(&today[1..], &today).is_some(), "without the biases of models it was no default");
        assert!(difference(&[earlier, &["other".to_owned()]].concat(), &today).is_some());
        assert!(difference(earlier, &today[..3]).is_some(), "today's is not the default");
    }
}
