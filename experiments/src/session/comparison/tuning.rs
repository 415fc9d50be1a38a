//! The learning rate of each candidate, chosen before its runs by trials on the development set.
//!
//! The first started run of a candidate does its trials, once per data set; the records of all its runs repeat them. Trials have the configuration of the first
//! seed and keys of their own. The folder `tuning/ATTENTION` stores `tuning.json` and the log of each rate, but no weights.

use std::fs;
use std::path::Path;

use heedful_host::checksum::sha256_hex;
use heedful_host::whole_files::{FileError, file_name, write_atomically};
use heedful_random::RandomKey;
use heedful_runs::record::{LEARNING_RATE, RATES_TRIED, ResultRecord};
use heedful_runs::run_lock::{Holder, RunLock};
use serde::{Deserialize, Serialize};

use super::runs::Run;
use super::session::Session;
use super::sweep::{self, Sweep};
use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Candidate, Experiment, Setup};
use crate::train::{Outcome, Selection, Task, Trainer, TrainingError, Tuning, is_inside};

/// The folder of the trials in that of the runs.
const FOLDER: &str = "tuning";
/// What came of them.
const FILE: &str = "tuning.json";

/// How the trials of a candidate ended.
pub(super) enum TuningEnd {
    Tuned(Tuned),
    Interrupted,
    /// Another process works on them.
    Held(Holder),
}

/// A rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    learning_rate: f64,
    /// Its best score on the development set; none if it diverged.
    score: Option<f64>,
}

/// What the trials of a candidate came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tuned {
    /// Digest of what was trained.
    recipe: String,
    metric: String,
    higher_is_better: bool,
    seed: u64,
    steps: u64,
    trials: Vec<Trial>,
    /// The rate with the best score, if any was trained to the end.
    pub(super) best: Option<f64>,
    is_inside: bool,
}

impl Tuned {
    fn of<M>(sweep: &Sweep<M>, recipe: String, selection: Selection, (seed, steps): (u64, u64)) -> Self {
        let trials: Vec<Trial> = sweep.tried().iter().map(|&(learning_rate, score)| Trial { learning_rate, score }).collect();
        let best = sweep.best().map(|(index, _)| trials[index].learning_rate);
        let rates: Vec<f64> = trials.iter().map(|trial| trial.learning_rate).collect();
        let is_inside = best.is_some_and(|best| is_inside(&rates, best));
        let Selection { metric, higher_is_better } = selection;
        Self { recipe, metric, higher_is_better, seed, steps, trials, best, is_inside }
    }

    /// The trials that are written down in a folder, if they are of this recipe.
    fn read(folder: &Path, recipe: &str) -> Option<Self> {
        let text = fs::read(folder.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok().filter(|tuned: &Self| tuned.recipe == recipe)
    }

    /// Writes into a record which rates were tried, how they scored and which was taken.
    pub(super) fn record(&self, record: &mut ResultRecord) {
        record.score(RATES_TRIED, self.trials.len() as f64);
        match self.best {
            Some(rate) => record.score(LEARNING_RATE, rate),
            None => record.score_undefined(LEARNING_RATE, "all that were tried diverged"),
        }
        record.notes.push(self.to_string());
    }
}

impl std::fmt::Display for Tuned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut trials: Vec<_> = self.trials.iter().map(|trial| (trial.learning_rate, trial.score)).collect();
        trials.sort_by(|one, other| one.0.total_cmp(&other.0));
        let told = sweep::told(&trials);
        let (count, steps, seed, metric) = (trials.len(), self.steps, self.seed, &self.metric);
        write!(f, "{count} learning rates were tried for {steps} steps with seed {seed} ({told})")?;
        match self.best {
            Some(best) if self.is_inside => write!(f, "; {best} was the best by {metric} on the development set, between others"),
            Some(best) => write!(
                f,
                "; {best} was the best by {metric} on the development set and lies at the end of them, where training.tune.further ended the trials: a rate \
                 beyond it may be better"
            ),
            None => write!(f, "; none was trained to the end"),
        }
    }
}

impl<E: Experiment> Session<'_, E> {
    /// The learning rate of the candidate of a run, from trials that are there or are done now.
    pub(super) fn tuned(&self, run: &Run<'_, E>, tuning: &Tuning) -> Result<TuningEnd, ExperimentError> {
        let Run { dataset, candidate: Candidate { attention, config, .. }, folder, .. } = run;
        if self.ranks.size() > 1 {
            let problem = "--tune: its trials are not shared by processes; tune without --data-parallel, and give the rates that it finds";
            return Err(ExperimentError::usage(problem));
        }
        let recipe = sha256_hex(format!("{} {} {}", run.recipe, attention.name, self.runs.backend).as_bytes());
        let folder = folder.root().join(FOLDER).join(file_name(&attention.name));
        if let Some(tuned) = Tuned::read(&folder, &recipe) {
            return Ok(TuningEnd::Tuned(tuned));
        }
        let written = |source| FileError::write(folder.clone(), source);
        fs::create_dir_all(&folder).map_err(written)?;
        let _lock = match RunLock::take(&folder)? {
            Ok(lock) => lock,
            Err(holder) => return Ok(TuningEnd::Held(holder)),
        };
        // Another command may have finished them just before.
        if let Some(tuned) = Tuned::read(&folder, &recipe) {
            return Ok(TuningEnd::Tuned(tuned));
        }
        let seed = self.runs.config.run.seed;
        let config = &E::of_seed(config, seed);
        let setup = Setup { config, data: dataset, attention };
        let key = RandomKey::from_seed(seed).named("tuning");
        let task = E::task(setup);
        let mut sweep = Sweep::new(task.selection());
        let mut waiting = tuning.grid(config.training.learning_rate);
        let steps = config.training.trial(tuning, 1.0).steps;
        while !waiting.is_empty() {
            for learning_rate in std::mem::take(&mut waiting) {
                let training = config.training.trial(tuning, learning_rate);
                let place = folder.join(format!("rate-{learning_rate}"));
                fs::create_dir_all(&place).map_err(written)?;
                let model = E::model(setup, &key.named("init"), &self.device.clone().autodiff())?;
                let identity = sha256_hex(format!("{recipe} {learning_rate}").as_bytes());
                let trainer = Trainer::new(&task, &training, &place, &identity, key).resume(true).watcher(self.watcher.clone());
                match trainer.interrupt(self.interrupt.clone()).run(model) {
                    Ok(Outcome::Interrupted { .. }) => return Ok(TuningEnd::Interrupted),
                    Ok(Outcome::Finished(trained)) => sweep.finished(learning_rate, trained),
                    Err(TrainingError::NonFinite { wall_seconds, disturbed, .. }) => {
                        sweep.diverged(learning_rate, wall_seconds, disturbed);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let rates: Vec<f64> = sweep.tried().iter().map(|(rate, _)| *rate).collect();
            waiting.extend(tuning.next(&rates, sweep.best().map(|(index, _)| rates[index])));
        }
        let tuned = Tuned::of(&sweep, recipe, task.selection(), (seed, steps));
        if tuned.is_inside {
            tracing::info!("{}: {tuned}", attention.name);
        } else {
            tracing::warn!("{}: {tuned}", attention.name);
        }
        let text = serde_json::to_string_pretty(&tuned).map_err(ExperimentError::failure)?;
        write_atomically(&folder.join(FILE), text.as_bytes())?;
        for Trial { learning_rate, .. } in &tuned.trials {
            let weights = folder.join(format!("rate-{learning_rate}")).join("checkpoint");
            if weights.exists() {
                fs::remove_dir_all(&weights).map_err(|source| FileError::write(weights, source))?;
            }
        }
        Ok(TuningEnd::Tuned(tuned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(trials: &[(f64, Option<f64>)], best: Option<f64>, is_inside: bool) -> Tuned {
        let trials = trials.iter().map(|&(learning_rate, score)| Trial { learning_rate, score }).collect();
        let (recipe, metric) = ("r".to_owned(), "loss".to_owned());
        Tuned { recipe, metric, higher_is_better: false, seed: 1, steps: 34, trials, best, is_inside }
    }

    #[test]
    fn records_say_which_rates_were_tried_in_order_and_where_the_best_lies() {
        let mut record = ResultRecord::default();
        tuned(&[(1e-3, Some(2.0)), (2e-3, Some(1.5)), (4e-3, None), (5e-4, Some(2.5))], Some(2e-3), true).record(&mut record);
        assert_eq!((record.metrics[LEARNING_RATE], record.metrics[RATES_TRIED]), (Some(2e-3), Some(4.0)));
        let note = &record.notes[0];
        assert!(note.contains("34 steps with seed 1 (0.0005: 2.5000, 0.001: 2.0000, 0.002: 1.5000, 0.004: diverged)"), "{note}");
        assert!(note.contains("0.002 was the best by loss") && note.contains("between others"), "{note}");
        let at_the_end = tuned(&[(1.0, Some(1.0))], Some(1.0), false).to_string();
        assert!(at_the_end.contains("lies at the end") && at_the_end.contains("training.tune.further"), "{at_the_end}");
        let mut record = ResultRecord::default();
        tuned(&[(1.0, None)], None, false).record(&mut record);
        assert_eq!(record.metrics[LEARNING_RATE], None);
    }

    #[test]
    fn trials_of_another_recipe_are_done_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Tuned::read(folder.path(), "r"), None);
        let written = tuned(&[(1.0, Some(1.0))], Some(1.0), false);
        fs::write(folder.path().join(FILE), serde_json::to_string(&written).unwrap()).unwrap();
        assert_eq!(Tuned::read(folder.path(), "r"), Some(written));
        assert_eq!(Tuned::read(folder.path(), "other"), None);
    }
}
