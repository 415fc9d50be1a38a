//! One command in progress: its runs, one after another or side by side.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use burn::tensor::Device;
use heedful_attention::random::RandomKey;

use super::STEPS_PER_SECOND;
use super::candidate::Candidate;
use super::identity::recipe;
use super::overview::Overview;
use crate::allocator::return_freed_memory;
use crate::backend::Backend;
use crate::error::{Completion, ExperimentError, print_line};
use crate::experiment::{Card, Config, Experiment, Setup};
use crate::jobs::{Shard, side_by_side};
use crate::provenance::Provenance;
use crate::record::{Budget, Machine, ResultRecord, command_line, peak_memory_bytes, reset_peak_memory};
use crate::report::{Report, Section};
use crate::results::{Results, write_result};
use crate::run_folder::{RunFolder, sha256_hex};
use crate::run_lock::{Holder, RunLock};
use crate::settings;
use crate::train::{Interrupt, Outcome, ParameterCount, Trainer, TrainingError, Watcher};

/// One command in progress.
pub(super) struct Session<'a, E: Experiment> {
    pub(super) config: &'a Config<E>,
    /// Sentences on candidates that are the same model.
    pub(super) twins: Vec<String>,
    pub(super) folder: RunFolder,
    pub(super) backend: Backend,
    pub(super) device: Device,
    pub(super) interrupt: Interrupt,
    pub(super) watcher: Watcher,
    /// Runs at once.
    pub(super) jobs: usize,
    /// Which of the runs are this command's; none for all.
    pub(super) shard: Option<Shard>,
    /// Held by the job that brings results and report up to date.
    pub(super) deriving: Mutex<()>,
}

/// One run: which candidate learns from which data set, with which seed, and the folder of its data set.
struct Run<'a, E: Experiment> {
    dataset: &'a E::Data,
    candidate: &'a Candidate<E>,
    seed: u64,
    folder: RunFolder,
}

/// How one run of a session ended.
enum RunEnd {
    Finished,
    FinishedBefore,
    Held(Holder),
    Interrupted,
}

impl<E: Experiment> Session<'_, E> {
    pub(super) fn run(mut self, datasets: &[E::Data], candidates: &[Candidate<E>]) -> Result<Completion, ExperimentError> {
        let runs = self.runs(datasets, candidates)?;
        self.jobs = self.jobs.min(runs.len()).max(1);
        if self.jobs > 1 && candidates.iter().any(|candidate| candidate.config.training.minutes.is_some()) {
            tracing::warn!("training.minutes limits the runs: {} at once do fewer steps than one alone, and score otherwise", self.jobs);
        }
        let runs: Vec<&Run<'_, E>> = runs.iter().collect();
        let overview = Overview::new(&self.watcher, &runs.iter().map(|run| run.steps()).collect::<Vec<_>>());
        let ends = self.work(&runs, datasets, &overview)?;
        // Meanwhile others have finished what was left to them, or were stopped.
        let held = runs.iter().zip(&ends).filter(|(_, end)| matches!(end, RunEnd::Held(_)));
        let held: Vec<&Run<'_, E>> = held.map(|(run, _)| *run).collect();
        held.iter().for_each(|run| overview.reopen(run.steps()));
        let second = if is_interrupted(&ends) { Vec::new() } else { self.work(&held, datasets, &overview)? };
        drop(overview);
        if is_interrupted(&ends) || is_interrupted(&second) {
            return Ok(Completion::Interrupted);
        }
        let left: Vec<String> = held.iter().zip(second).filter_map(|(run, end)| run.left(&end)).collect();
        let finished_before = ends.iter().filter(|end| matches!(end, RunEnd::FinishedBefore)).count();
        if finished_before > 0 {
            let out = self.folder.root().display();
            tracing::warn!(
                "{finished_before} runs in {out} were finished by an earlier command and not repeated; give another --out to repeat them"
            );
        }
        let results = self.derive(datasets)?;
        print_line(self.report(&results, datasets).terminal())?;
        self.twins.iter().try_for_each(print_line)?;
        print_line(format!("Report: {}", self.folder.report().display()))?;
        match left.first() {
            // Who relies on the command's end must not take the results for complete.
            Some(first) => Err(ExperimentError::failure(format!(
                "{} of the runs were left to other commands, the first being {first}; when they have ended, go on with --resume",
                left.len()
            ))),
            None => Ok(Completion::Finished),
        }
    }

    /// The runs of this command, in their order.
    fn runs<'r>(&self, datasets: &'r [E::Data], candidates: &'r [Candidate<E>]) -> Result<Vec<Run<'r, E>>, ExperimentError> {
        let mut runs = Vec::new();
        for dataset in datasets {
            let Card { name, description, tokeniser, .. } = E::card(dataset);
            tracing::info!("{name}: {description}");
            // Several data sets have the same runs, so each has a folder of its own.
            let folder = if datasets.len() == 1 { self.folder.clone() } else { self.folder.part(&name)? };
            if let Some(tokeniser) = tokeniser {
                tokeniser.save(&folder.root().join("tokenizer.json")).map_err(ExperimentError::failure)?;
            }
            for seed in self.config.run.seeds() {
                runs.extend(candidates.iter().map(|candidate| Run { dataset, candidate, seed, folder: folder.clone() }));
            }
        }
        let Some(shard) = self.shard else { return Ok(runs) };
        let all = runs.len();
        let own: Vec<_> = runs.into_iter().enumerate().filter(|(index, _)| shard.has(*index)).map(|(_, run)| run).collect();
        if own.is_empty() {
            tracing::warn!("--shard {shard} has none of the {all} runs");
        }
        Ok(own)
    }

    /// Works on runs, on several at once if there are several jobs; says how they ended. An interrupt, an error or a panic of one ends all.
    fn work(&self, runs: &[&Run<'_, E>], datasets: &[E::Data], overview: &Overview) -> Result<Vec<RunEnd>, ExperimentError> {
        side_by_side(self.jobs, runs, |run| {
            let others = RaiseUnlessDone(Some(&self.interrupt));
            let end = self.one_run(run, overview)?;
            match &end {
                RunEnd::FinishedBefore => overview.finished_before(run.steps()),
                RunEnd::Held(holder) => overview.elsewhere(run.steps(), &holder.process.host),
                RunEnd::Finished | RunEnd::Interrupted => {}
            }
            if matches!(end, RunEnd::Finished) {
                self.derive(datasets)?;
            }
            others.done();
            Ok(if matches!(end, RunEnd::Interrupted) { ControlFlow::Break(end) } else { ControlFlow::Continue(end) })
        })
    }

    /// Brings `results.json` and the report up to date, also with the runs that other commands have finished.
    fn derive(&self, datasets: &[E::Data]) -> Result<Results, ExperimentError> {
        let _guard = self.deriving.lock().unwrap_or_else(PoisonError::into_inner);
        Results::derive(&self.folder, |results| Ok(self.report(results, datasets).write(&self.folder.report())?))
    }

    fn report<'r>(&self, results: &'r Results, datasets: &[E::Data]) -> Report<'r> {
        let cards = datasets.iter().map(E::card);
        let descriptions: Vec<_> = cards.map(|card| format!("* {}: {}", card.name, card.description)).collect();
        let same = (!self.twins.is_empty()).then(|| Section { title: "The same model twice".to_owned(), body: self.twins.join("\n") });
        let has_models = !self.config.run.models.is_empty() || results.records().iter().any(|record| record.is_model);
        Report {
            title: E::TITLE.to_owned(),
            subject: if has_models { "model" } else { "attention" },
            records: results.records(),
            metrics: E::columns(),
            published: E::published(),
            sections: std::iter::once(Section { title: "Data".to_owned(), body: descriptions.join("\n") }).chain(same).collect(),
        }
    }

    fn one_run(&self, run: &Run<'_, E>, overview: &Overview) -> Result<RunEnd, ExperimentError> {
        let Run { dataset, candidate: Candidate { attention, config }, seed, folder } = run;
        let seed = *seed;
        let recipe = recipe::<E>(&self.folder, self.config, config, dataset)?;
        let config = &E::of_seed(config, seed);
        let setup = Setup { config, data: dataset, attention };
        let card = E::card(dataset);
        let training = &config.training;
        let mut record = ResultRecord {
            experiment: E::NAME.to_owned(),
            dataset: card.name,
            attention: attention.name.clone(),
            backend: self.backend.name().to_owned(),
            seed,
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data_sha256: card.sha256.to_owned(),
            machine: Machine::here(),
            budget: Budget { steps: Some(training.steps), minutes: training.minutes },
            provenance: Some(Provenance::here()),
            disturbed: self.jobs > 1,
            is_model: self.config.run.models.iter().any(|model| model.name == attention.name),
            ..Default::default()
        };
        let is_finished = || Ok::<_, ExperimentError>(Results::read(&self.folder)?.finished(&record.key(), &recipe)?.is_some());
        if is_finished()? {
            return Ok(RunEnd::FinishedBefore);
        }
        let paths = folder.run(&attention.name, seed)?;
        let _lock = match RunLock::take(paths.root())? {
            Ok(lock) => lock,
            Err(holder) => return Ok(RunEnd::Held(holder)),
        };
        // Another command may have finished it just before.
        if is_finished()? {
            return Ok(RunEnd::FinishedBefore);
        }
        let count = overview.begin(training.steps);
        if self.jobs == 1 {
            return_freed_memory();
            reset_peak_memory();
        }
        let key = RandomKey::from_seed(seed);
        let task = E::task(setup);
        let model = E::model(setup, &key.named("init"), &self.device.clone().autodiff())?;
        let parameters = ParameterCount::of(&model);
        let identity = sha256_hex(format!("{recipe} {} {seed} {}", attention.name, self.backend).as_bytes());
        let outcome = Trainer::new(&task, training, paths.root(), &identity, key)
            .resume(true)
            .watcher(self.watcher.clone())
            .count(count.clone())
            .description(format!("```toml\n{}```\n", settings::complete_text(config)?))
            .interrupt(self.interrupt.clone())
            .run(model);
        record.configuration = recipe;
        record.parameters = parameters.trainable as u64;
        record.parameters_by_part = parameters.parts.iter().map(|(part, count)| (part.clone(), *count as u64)).collect();
        let scores = match (outcome, E::diverged(config)) {
            (Ok(Outcome::Interrupted { .. }), _) => return Ok(RunEnd::Interrupted),
            (Ok(Outcome::Finished(trained)), _) => {
                record.steps = trained.steps;
                record.tokens_per_second = Some(trained.tokens_per_second);
                record.wall_seconds = trained.wall_seconds;
                record.score(STEPS_PER_SECOND, trained.steps as f64 / trained.training_seconds.max(f64::MIN_POSITIVE));
                E::score(setup, &task, &trained.model, &paths, &self.interrupt)?
            }
            (Err(TrainingError::NonFinite { step, .. }), Some(scores)) => {
                record.steps = step;
                Some(scores)
            }
            (Err(error), _) if error.is_usage() => return Err(ExperimentError::usage(error)),
            (Err(error), _) => return Err(ExperimentError::failure(error)),
        };
        let Some(scores) = scores else { return Ok(RunEnd::Interrupted) };
        // The peak is that of the process, whatever runs in it.
        record.peak_memory_bytes = if self.jobs == 1 { peak_memory_bytes() } else { None };
        record.signatures = scores.signatures;
        record.notes = scores.notes;
        for (name, value) in scores.metrics {
            record.score(&name, value);
        }
        record.columns = E::columns().into_iter().filter(|column| record.metrics.contains_key(&column.name)).collect();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        record.finished_ms = Some(now.as_millis() as u64);
        write_result(&paths, &record)?;
        overview.finish(&count);
        Ok(RunEnd::Finished)
    }
}

impl<E: Experiment> Run<'_, E> {
    /// The most steps that it takes.
    fn steps(&self) -> u64 {
        self.candidate.config.training.steps
    }

    /// Which command the run was left to, if it was.
    fn left(&self, end: &RunEnd) -> Option<String> {
        match end {
            RunEnd::Held(holder) => Some(format!("{}, seed {}: {holder}", self.candidate.attention.name, self.seed)),
            _ => None,
        }
    }
}

fn is_interrupted(ends: &[RunEnd]) -> bool {
    ends.iter().any(|end| matches!(end, RunEnd::Interrupted))
}

/// Asks all runs to save a checkpoint and stop, unless it is told that all went well.
struct RaiseUnlessDone<'a>(Option<&'a Interrupt>);

impl RaiseUnlessDone<'_> {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for RaiseUnlessDone<'_> {
    fn drop(&mut self) {
        if let Some(interrupt) = self.0 {
            interrupt.raise();
        }
    }
}
