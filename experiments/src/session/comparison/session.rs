//! One command in progress: its runs, one after another or side by side.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Instant, SystemTime};

use burn::tensor::Device;
use heedful_host::allocator::return_freed_memory;
use heedful_host::checksum::sha256_hex;
use heedful_host::command::command_line;
use heedful_host::interrupt::Interrupt;
use heedful_host::machine::{Machine, OtherPrograms, peak_memory_bytes, reset_peak_memory};
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::{FileError, make_folder, write_atomically};
use heedful_random::RandomKey;
use heedful_runs::record::{Budget, FEED_FORWARD_WIDTH, ResultRecord, STEPS_PER_SECOND};
use heedful_runs::results::write_result;
use heedful_runs::run_folder::RunPaths;
use heedful_runs::run_lock::{Holder, RunLock};
use heedful_runs::settings;

use super::distributed::Word;
use super::idle::Remark;
use super::overview::Overview;
use super::preparation::Preparation;
use super::runs::{Run, Runs, columns};
use super::sweep::{Attempt, Sweep, attempts, keep};
use super::tuning::TuningEnd;
use crate::session::error::{Completion, ExperimentError};
use crate::session::experiment::Scores;
use crate::session::experiment::definition::{Candidate, Config, Experiment, Setup, Trained};
use crate::session::jobs::{Shard, side_by_side};
use crate::session::mixture_weights;
use crate::session::provenance;
use crate::train::{CheckpointFolder, Outcome, ParameterCount, Ranks, Task, Trainer, TrainingError, Watcher, load_model};

/// One command in progress.
pub(super) struct Session<'a, E: Experiment> {
    pub(super) runs: Runs<'a, E>,
    pub(super) device: Device,
    pub(super) interrupt: Interrupt,
    /// The processes that train each model.
    pub(super) ranks: &'a Ranks,
    pub(super) watcher: Watcher,
    /// Whether the command asked to go on with what is in its folder.
    pub(super) is_resumed: bool,
    /// Whether the table of the results is printed.
    pub(super) is_shown: bool,
    /// Runs at once.
    pub(super) jobs: usize,
    /// Which of the runs are this command's; none for all.
    pub(super) shard: Option<Shard>,
}

/// How one run of a session ended.
pub(super) enum RunEnd {
    Finished,
    FinishedBefore,
    Held(Holder),
    Interrupted,
}

impl<'a, E: Experiment> Session<'a, E> {
    /// What is needed to do what the runs rest on.
    pub(super) fn preparation(&self) -> Preparation<'_, E> {
        let Self { runs: Runs { config, datasets, backend, folder, .. }, device, shard, .. } = self;
        let (watcher, interrupt) = (self.watcher.clone(), self.interrupt.clone());
        let (backend, shard, out) = (*backend, *shard, folder.root());
        Preparation { config, datasets, backend, device, watcher, interrupt, shard, out, is_dry: false }
    }

    /// Does the runs, and draws the reports of what is finished, also when the command is interrupted or a run fails.
    pub(super) fn run(mut self) -> Result<Completion, ExperimentError> {
        let end = self.do_runs();
        let can_draw = match end {
            // Other ranks wait for the message of this one.
            Err(_) => self.ranks.size() == 1,
            // A task of an array has seconds until it is killed; the task that ends last draws the reports.
            Ok(Completion::Interrupted) => self.shard.is_none(),
            Ok(_) => true,
        };
        if can_draw
            && self.runs.is_behind()
            && let Err(error) = self.runs.derive(true)
        {
            tracing::warn!("the report lacks runs: {error}");
        }
        end
    }

    fn do_runs(&mut self) -> Result<Completion, ExperimentError> {
        let runs = self.own()?;
        // What all runs are compared with is computed by one of the commands that share them.
        if self.shard.is_none_or(|shard| shard.has(0)) && !self.runs.complete_trivial_baselines(&self.interrupt)? {
            return Ok(Completion::Interrupted);
        }
        self.jobs = self.jobs.min(runs.len()).max(1);
        if self.jobs > 1 && self.runs.candidates.iter().any(|candidate| candidate.config.training.minutes.is_some()) {
            tracing::warn!(
                "training.minutes limits the runs: {} parallel runs do fewer steps than a single one, which changes their scores",
                self.jobs
            );
        }
        // What has the weights of others comes after all that are trained.
        let (trained, scored): (Vec<&Run<'_, E>>, Vec<_>) = runs.iter().partition(|run| run.candidate.weights_of.is_none());
        let runs: Vec<&Run<'_, E>> = trained.iter().chain(&scored).copied().collect();
        let overview = Overview::new(&self.watcher, &runs.iter().map(|run| run.steps()).collect::<Vec<_>>());
        let mut ends = self.work(&trained, &overview)?;
        if !is_interrupted(&ends) {
            ends.extend(self.work(&scored, &overview)?);
        }
        // Meanwhile others have finished what was left to them, or were stopped.
        let held = runs.iter().zip(&ends).filter(|(_, end)| matches!(end, RunEnd::Held(_)));
        let held: Vec<&Run<'_, E>> = held.map(|(run, _)| *run).collect();
        held.iter().for_each(|run| overview.reopen(run.steps()));
        let second = if is_interrupted(&ends) { Vec::new() } else { self.work(&held, &overview)? };
        drop(overview);
        if is_interrupted(&ends) || is_interrupted(&second) {
            return Ok(Completion::Interrupted);
        }
        let left: Vec<String> = held.iter().zip(second).filter_map(|(run, end)| run.left(&end)).collect();
        let finished_before = ends.iter().filter(|end| matches!(end, RunEnd::FinishedBefore)).count();
        if finished_before > 0 {
            let out = self.runs.folder.root().display();
            tracing::warn!(
                "{finished_before} runs in {out} were finished by an earlier command and not repeated; give another --out to repeat them"
            );
        }
        self.runs.derive(true)?;
        if self.is_shown {
            self.runs.show()?;
        }
        match left.first() {
            // Who relies on the command's end must not take the results for complete.
            Some(first) => Err(ExperimentError::failure(format!(
                "runs left to other commands: {}, the first being {first}; when they have ended, continue with --resume",
                left.len()
            ))),
            None => Ok(Completion::Finished),
        }
    }

    /// The runs of this command, in their order.
    fn own(&self) -> Result<Vec<Run<'a, E>>, ExperimentError> {
        let runs = self.runs.all()?;
        let Some(shard) = self.shard else { return Ok(runs) };
        let all = runs.len();
        let own: Vec<_> = runs.into_iter().enumerate().filter(|(index, _)| shard.has(*index)).map(|(_, run)| run).collect();
        if own.is_empty() {
            tracing::warn!("--shard {shard} has none of the {all} runs");
        }
        Ok(own)
    }

    /// Works on runs, on several at once if there are several jobs; says how they ended. An interrupt, an error or a panic of one ends all.
    fn work(&self, runs: &[&Run<'_, E>], overview: &Overview) -> Result<Vec<RunEnd>, ExperimentError> {
        side_by_side(self.jobs, runs, |run| {
            let others = RaiseUnlessDone(Some(&self.interrupt));
            let end = self.one_run(run, overview)?;
            match &end {
                RunEnd::FinishedBefore => overview.finished_before(run.steps()),
                RunEnd::Held(holder) => overview.elsewhere(run.steps(), &holder.process.host),
                RunEnd::Finished | RunEnd::Interrupted => {}
            }
            if matches!(end, RunEnd::Finished) {
                self.runs.derive(false)?;
            }
            others.done();
            Ok(if matches!(end, RunEnd::Interrupted) { ControlFlow::Break(end) } else { ControlFlow::Continue(end) })
        })
    }

    /// Does a run, unless it is finished or another process works on it. Why it fails stands in its folder until it is begun again.
    pub(super) fn one_run(&self, run: &Run<'_, E>, overview: &Overview) -> Result<RunEnd, ExperimentError> {
        // Another command may have finished it, and have been killed before it took its lock away.
        self.runs.look_at(&run.folder.run_at(&run.candidate.attention.name, run.seed))?;
        if self.runs.is_finished(run)? {
            return Ok(RunEnd::FinishedBefore);
        }
        let paths = run.folder.run(&run.candidate.attention.name, run.seed)?;
        let _lock = match RunLock::take(paths.root())? {
            Ok(lock) => lock,
            Err(holder) => return Ok(RunEnd::Held(holder)),
        };
        // Another command may have finished it just before.
        self.runs.look_at(&paths)?;
        if self.runs.is_finished(run)? {
            return Ok(RunEnd::FinishedBefore);
        }
        let failure = FailureNote::begin(&paths)?;
        let (dataset, attention, backend) = (E::card(run.dataset).name, &run.candidate.attention.name, self.runs.backend.name());
        let _span = tracing::info_span!("run", experiment = E::NAME, dataset, attention, seed = run.seed, backend).entered();
        let end = match &run.candidate.weights_of {
            Some(source) => self.score_again(run, source, &paths, overview),
            None => self.train(run, &paths, overview),
        };
        failure.end(&end);
        end
    }

    /// The record of a run before it is begun.
    fn record(&self, run: &Run<'_, E>, config: &Config<E>) -> ResultRecord {
        let Run { dataset, candidate: Candidate { attention, .. }, seed, .. } = run;
        let card = E::card(dataset);
        let training = &config.training;
        let is_of_run = |remark: &&Remark| (&remark.candidate, &remark.dataset) == (&attention.name, &card.name);
        let mut notes: Vec<String> = self.runs.idle.iter().filter(is_of_run).map(|remark| remark.sentence.clone()).collect();
        let mut metrics = BTreeMap::new();
        if self.runs.config.run.match_parameters.is_some() {
            let (width, first) = (config.model.d_ff, &self.runs.candidates[0].attention.name);
            metrics.insert(FEED_FORWARD_WIDTH.to_owned(), Some(width as f64));
            if *first != attention.name {
                notes.push(format!(
                    "its feed-forward width is {width}, so that it has as nearly the parameters of {first} as widths of that multiple allow"
                ));
            }
        }
        ResultRecord {
            metrics,
            notes,
            experiment: E::NAME.to_owned(),
            dataset: card.name,
            attention: attention.name.clone(),
            backend: self.runs.backend.name().to_owned(),
            seed: *seed,
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data_sha256: card.sha256.to_owned(),
            machine: Machine::here(),
            budget: Budget { steps: Some(training.steps), minutes: training.minutes },
            provenance: Some(Provenance { ranks: Some(self.ranks.size()).filter(|size| *size > 1), ..provenance::here() }),
            disturbed: self.jobs > 1,
            is_model: self.runs.config.run.models.iter().any(|model| model.name == attention.name),
            ..Default::default()
        }
    }

    /// Says that a run goes on where it was stopped, to a command that did not ask for it.
    fn tell_of_continuation(&self, run: &Run<'_, E>, folder: &Path) {
        let latest = || CheckpointFolder::of_any_configuration(folder).latest().ok().flatten();
        if let (false, Some(step)) = (self.is_resumed, latest()) {
            tracing::warn!("{run} was begun by an earlier command and goes on after step {step}; give another --out to begin anew");
        }
    }

    /// Scores the model that another run has trained, with the configuration of this one.
    fn score_again(&self, run: &Run<'_, E>, source: &str, paths: &RunPaths, overview: &Overview) -> Result<RunEnd, ExperimentError> {
        let Run { dataset, candidate: Candidate { attention, config, .. }, seed, .. } = run;
        let (begun, others) = (Instant::now(), OtherPrograms::watch());
        let config = &E::of_seed(config, *seed);
        let setup = Setup { config, data: dataset, attention };
        let mut record = self.record(run, config);
        let count = overview.begin(run.steps());
        let failed = |problem: String| ExperimentError::failure(format!("{run}: {problem}"));
        self.runs.look_at(&run.folder.run_at(source, *seed))?;
        let of_source = |other: &ResultRecord| {
            (&other.attention, other.seed, &other.dataset, &other.backend) == (&source.to_owned(), *seed, &record.dataset, &record.backend)
        };
        let trained = self.runs.record(of_source).ok_or_else(|| {
            failed(format!("it has the weights of {source}, which is not trained yet; when that run is finished, go on with --resume"))
        })?;
        let folder = self.runs.folder.existing_run(&record.dataset, source, *seed);
        let folder = folder.ok_or_else(|| failed(format!("the folder of {source} is not there any more")))?;
        let checkpoint = CheckpointFolder::of_any_configuration(folder.root()).best().map_err(ExperimentError::failure)?;
        let checkpoint = checkpoint.ok_or_else(|| failed(format!("`{}` has no checkpoint", folder.root().display())))?;
        let initial = E::model(setup, &RandomKey::from_seed(*seed).named("init"), &self.device)?;
        let task = E::task(setup);
        let model = task.without_training_parts(load_model(initial.clone(), &checkpoint).map_err(ExperimentError::failure)?);
        let Some(mut scores) = E::score(setup, Trained { task: &task, model: &model, paths }, &self.interrupt)? else {
            return Ok(RunEnd::Interrupted);
        };
        E::score_change(setup, &model, &|| Ok(initial.clone()), &mut scores)?;
        scores.notes.extend(mixture_weights::note(&model));
        record.configuration.clone_from(&run.recipe);
        (record.steps, record.parameters) = (trained.steps, trained.parameters);
        record.parameters_by_part.clone_from(&trained.parameters_by_part);
        record.wall_seconds = begun.elapsed().as_secs_f64();
        record.disturbed |= others.is_some_and(|others| others.disturb());
        record.notes.push(format!("the weights are those of {source}; nothing was trained"));
        finish::<E>(&self.runs, record, scores, paths)?;
        overview.finish(&count);
        Ok(RunEnd::Finished)
    }

    fn train(&self, run: &Run<'_, E>, paths: &RunPaths, overview: &Overview) -> Result<RunEnd, ExperimentError> {
        let Run { dataset, candidate: Candidate { attention, config, .. }, seed, recipe, .. } = run;
        let seed = *seed;
        let tuned = match &config.training.tune {
            None => None,
            Some(tuning) => match self.tuned(run, tuning)? {
                TuningEnd::Tuned(tuned) => Some(tuned),
                TuningEnd::Interrupted => return Ok(RunEnd::Interrupted),
                TuningEnd::Held(holder) => return Ok(RunEnd::Held(holder)),
            },
        };
        let mut config = E::of_seed(config, seed);
        if let Some(rate) = tuned.as_ref().and_then(|tuned| tuned.best) {
            config.training.learning_rate = rate;
        }
        let config = &config;
        let setup = Setup { config, data: dataset, attention };
        let mut record = self.record(run, config);
        if let Some(tuned) = &tuned {
            tuned.record(&mut record);
            if tuned.best.is_none() {
                let scores = E::diverged(config).ok_or_else(|| ExperimentError::failure(format!("{run}: {tuned}")))?;
                record.configuration.clone_from(recipe);
                finish::<E>(&self.runs, record, scores, paths)?;
                return Ok(RunEnd::Finished);
            }
        }
        let count = overview.begin(run.steps());
        if self.jobs == 1 {
            return_freed_memory();
            reset_peak_memory();
        }
        let key = RandomKey::from_seed(seed);
        let task = E::task(setup);
        let rate = tuned.as_ref().map_or_else(String::new, |_| format!(" tuned {}", config.training.learning_rate));
        let identity = format!("{recipe} {} {seed} {}{rate}", attention.name, self.runs.backend);
        let attempts = attempts(config, paths.root());
        let (mut sweep, mut failure) = (Sweep::new(task.selection()), None);
        for Attempt { training, folder, rate } in &attempts {
            Word::Train { dataset: record.dataset.clone(), attention: attention.name.clone(), seed, rate: *rate }.tell(self.ranks)?;
            make_folder(folder)?;
            let model = E::model(setup, &key.named("init"), &self.device.clone().autodiff())?;
            self.tell_of_continuation(run, folder);
            let parameters = ParameterCount::of(&task.without_training_parts(model.clone()));
            record.parameters = parameters.trainable as u64;
            record.parameters_by_part = parameters.parts.iter().map(|(part, count)| (part.clone(), *count as u64)).collect();
            let of_rate = rate.map_or_else(String::new, |_| format!(" {}", training.learning_rate));
            let identity = sha256_hex(format!("{identity}{of_rate}").as_bytes());
            let outcome = Trainer::new(&task, training, folder, &identity, key)
                .resume(true)
                .watcher(self.watcher.clone())
                .count(count.clone())
                .description(format!("```toml\n{}```\n", settings::complete_text(config)?))
                .interrupt(self.interrupt.clone())
                .ranks(self.ranks)
                .run(model);
            match outcome {
                Ok(Outcome::Interrupted { .. }) => return Ok(RunEnd::Interrupted),
                Ok(Outcome::Finished(trained)) => sweep.finished(training.learning_rate, trained),
                Err(error) => match &error {
                    TrainingError::NonFinite { wall_seconds, disturbed, .. } => {
                        sweep.diverged(training.learning_rate, *wall_seconds, *disturbed);
                        failure = Some(error);
                    }
                    _ => return Err(error.into()),
                },
            }
        }
        record.configuration.clone_from(recipe);
        let scores = match (sweep.best(), failure, E::diverged(config)) {
            (Some((index, trained)), ..) => {
                record.steps = trained.steps;
                record.tokens_per_second = Some(trained.tokens_per_second);
                record.score(STEPS_PER_SECOND, trained.steps as f64 / trained.training_seconds.max(f64::MIN_POSITIVE));
                let mut scores = E::score(setup, Trained { task: &task, model: &trained.model, paths }, &self.interrupt)?;
                if let Some(scores) = &mut scores {
                    E::score_change(setup, &trained.model, &|| E::model(setup, &key.named("init"), &self.device), scores)?;
                    scores.notes.extend(mixture_weights::note(&trained.model));
                }
                if attempts[index].rate.is_some() && scores.is_some() {
                    keep(&attempts[index].folder, paths.root())?;
                }
                scores
            }
            (None, Some(TrainingError::NonFinite { step, .. }), Some(scores)) => {
                record.steps = step;
                Some(scores)
            }
            (None, Some(error), _) => return Err(ExperimentError::failure(sweep.failure(&error))),
            (None, None, _) => unreachable!("a run trains at least once"),
        };
        let Some(scores) = scores else { return Ok(RunEnd::Interrupted) };
        // The peak is that of the process, whatever runs in it.
        record.peak_memory_bytes = if self.jobs == 1 { peak_memory_bytes() } else { None };
        sweep.record(&mut record);
        if attempts[0].rate.is_some() {
            sweep.record_rates(&mut record);
        }
        finish::<E>(&self.runs, record, scores, paths)?;
        overview.finish(&count);
        Ok(RunEnd::Finished)
    }
}

/// Puts the scores into a record and writes it, with what items contributed to them.
fn finish<E: Experiment>(runs: &Runs<'_, E>, mut record: ResultRecord, scores: Scores, paths: &RunPaths) -> Result<(), ExperimentError> {
    record.signatures.extend(scores.signatures);
    record.notes = [scores.notes, record.notes].concat();
    record.items = scores.made_of;
    for table in &scores.items {
        if table.is_finite() {
            paths.write_items(table)?;
        } else {
            // JSON has no such numbers, and no test a use for them.
            record.items.retain(|_, score| score.is_of_texts() || score.set != table.set());
        }
    }
    for (name, value) in scores.metrics {
        record.score(&name, value);
    }
    record.columns = columns::<E>(runs.config).into_iter().filter(|column| record.metrics.contains_key(&column.name)).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    record.finished_ms = Some(now.as_millis() as u64);
    write_result(paths, &record)?;
    Ok(())
}

impl<E: Experiment> Run<'_, E> {
    /// Which command the run was left to, if it was.
    fn left(&self, end: &RunEnd) -> Option<String> {
        match end {
            RunEnd::Held(holder) => Some(format!("{self}: {holder}")),
            _ => None,
        }
    }
}

/// The file that says why a run failed: it is removed when the run begins, and written when it fails or panics.
struct FailureNote<'a>(&'a RunPaths);

impl<'a> FailureNote<'a> {
    fn begin(run: &'a RunPaths) -> Result<Self, ExperimentError> {
        match std::fs::remove_file(run.error()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FileError::write(run.error(), source).into()),
            _ => Ok(Self(run)),
        }
    }

    fn end(&self, end: &Result<RunEnd, ExperimentError>) {
        if let Err(error) = end {
            self.write(&error.to_string());
        }
    }

    fn write(&self, reason: &str) {
        // Where nothing can be written, the command still says why it failed.
        let _ = write_atomically(&self.0.error(), format!("{reason}\n").as_bytes());
    }
}

impl Drop for FailureNote<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.write("it broke off within a step; the output of its command says why");
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
