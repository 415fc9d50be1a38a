//! The plan of a command, with estimates of memory and time.

use std::path::Path;

use burn::tensor::Device;
use heedful_backends::Backend;
use heedful_backends::device_failure::guarded;
use heedful_host::display::{duration, grouped};
use heedful_random::RandomKey;
use heedful_runs::record::RunKey;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;

use super::sweep;
use crate::session::error::{ExperimentError, print_line};
use crate::session::experiment::definition::{Candidate, Experiment, Setup};
use crate::session::footprint;
use crate::session::jobs::Shard;
use crate::train::{ParameterCount, Task, Trainer, Watcher};
use heedful_runs::markup::columns;

/// What a plan whose device failed is told.
const SMALLER: &str = "if its memory is too small, give smaller batches or a smaller model";

/// The runs of a command before it begins.
pub(super) struct Plan<'a, E: Experiment> {
    pub(super) candidates: &'a [Candidate<E>],
    pub(super) datasets: &'a [E::Data],
    pub(super) backend: Backend,
    pub(super) device: Device,
    pub(super) jobs: usize,
    pub(super) shard: Option<Shard>,
}

/// What the runs of one candidate on one data set take.
struct Estimate {
    parameters: u64,
    least_memory: u128,
    seconds_per_step: f64,
    /// Of one run.
    training_seconds: f64,
}

impl<E: Experiment> Plan<'_, E> {
    /// Prints one line for each candidate and data set, and what all take together. A few steps of each are trained; nothing stays of them.
    ///
    /// # Errors
    /// What a run of a candidate ends with in its first steps, or records in `out` that cannot be read.
    pub(super) fn show(&self, out: &Path) -> Result<(), ExperimentError> {
        let finished = self.finished(out)?;
        let (mut rows, mut seconds, mut left, mut all) = (Vec::new(), 0.0, 0, 0);
        for (number, dataset) in self.datasets.iter().enumerate() {
            let name = E::card(dataset).name;
            for (place, candidate) in self.candidates.iter().enumerate() {
                let seeds = self.seeds(number, place);
                let [Some(&first), Some(&last)] = [seeds.first(), seeds.last()] else { continue };
                let run = |seed: u64| finished.contains(&(name.clone(), candidate.attention.name.clone(), seed));
                let open = seeds.iter().filter(|seed| !run(**seed)).count();
                let estimate = guarded(self.backend, SMALLER, || self.estimate(dataset, candidate, first))?;
                (seconds, left, all) = (seconds + estimate.training_seconds * open as f64, left + open, all + seeds.len());
                rows.push(vec![
                    candidate.attention.name.clone(),
                    name.clone(),
                    if first == last { first.to_string() } else { format!("{first} to {last}") },
                    format!("{open} of {}", seeds.len()),
                    grouped(estimate.parameters),
                    footprint::amount(estimate.least_memory),
                    format!("{:.1} ms", estimate.seconds_per_step * 1e3),
                    duration(estimate.training_seconds),
                ]);
            }
        }
        let head = ["attention", "data", "seeds", "runs left", "parameters", "memory from", "step", "training of a run"];
        print_line(columns(usize::MAX, &head, rows))?;
        let jobs = self.jobs.min(left);
        let at_once = if jobs > 1 { format!(", {jobs} at once") } else { String::new() };
        print_line(format!(
            "{left} of {all} runs are left for {}{at_once}. One after another they train for about {}, evaluation apart.",
            out.display(),
            duration(seconds)
        ))
    }

    /// Data set, attention and seed of the runs that `out` has already.
    fn finished(&self, out: &Path) -> Result<Vec<(String, String, u64)>, ExperimentError> {
        if !out.exists() {
            return Ok(Vec::new());
        }
        let results = Results::read(&RunFolder::at(out))?;
        let here = results.records().iter().map(|record| record.key()).filter(|key| key.backend == self.backend.name());
        Ok(here.map(|RunKey { dataset, attention, seed, .. }| (dataset, attention, seed)).collect())
    }

    /// The seeds with which this command runs a candidate on a data set; the runs are numbered by data set, seed and candidate.
    fn seeds(&self, dataset: usize, candidate: usize) -> Vec<u64> {
        let seeds: Vec<u64> = self.candidates[candidate].config.run.seeds().collect();
        if self.candidates[candidate].weights_of.is_some() {
            return Vec::new();
        }
        let index = |at: usize| (dataset * seeds.len() + at) * self.candidates.len() + candidate;
        let is_own = |at: usize| self.shard.is_none_or(|shard| shard.has(index(at)));
        seeds.iter().enumerate().filter(|(at, _)| is_own(*at)).map(|(_, seed)| *seed).collect()
    }

    fn estimate(&self, dataset: &E::Data, candidate: &Candidate<E>, seed: u64) -> Result<Estimate, ExperimentError> {
        let Candidate { attention, config, .. } = candidate;
        let least_memory = footprint::least::<E>(candidate, dataset, self.backend);
        let config = &E::of_seed(config, seed);
        let training = &config.training;
        let setup = Setup { config, data: dataset, attention };
        let key = RandomKey::from_seed(seed);
        let task = E::task(setup);
        let model = E::model(setup, &key.named("init"), &self.device.clone().autodiff())?;
        let parameters = ParameterCount::of(&task.without_training_parts(model.clone())).trainable as u64;
        let folder = tempfile::tempdir().map_err(ExperimentError::failure)?;
        let trainer = Trainer::new(&task, training, folder.path(), "", key).watcher(Watcher::Nobody);
        let seconds_per_step = trainer.seconds_per_step(model)?;
        let whole = seconds_per_step * training.steps as f64;
        let of_attempt = training.minutes.map_or(whole, |minutes| whole.min(60.0 * minutes));
        // The trials of a candidate are done once for all its seeds.
        let of_trials = training.tune.as_ref().map_or(0.0, |tuning| tuning.rates as f64 * tuning.share / config.run.seeds.max(1) as f64);
        let training_seconds = of_attempt * (sweep::count(config) as f64 + of_trials);
        Ok(Estimate { parameters, least_memory, seconds_per_step, training_seconds })
    }
}
