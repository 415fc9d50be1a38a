//! A run of the training loop: from its beginning or its latest checkpoint to its result.

use std::path::PathBuf;
use std::time::Instant;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use heedful_attention::registry::constraints;
use heedful_attention::tensors::read::is_queued;
use heedful_host::machine::OtherPrograms;
use heedful_host::whole_files::plain_name;
use heedful_models::kernels::precision::Precision;
use tracing::Span;
use tracing::field::Empty;

use super::average::average;
use super::configuration_error::ConfigurationError;
use super::error::TrainingError;
use super::log::{LogLine, TrainingLog};
use super::parallel::Topic;
use super::parameter::{assign_parameter_ids, first_non_finite_parameter};
use super::pending_scalars::StepNumbers;
use super::progress::{Pace, Progress};
use super::state::{BestEvaluation, Metric, TrainingState};
use super::state_dict::{load_carried, load_model, load_optimiser, to_files};
use super::task::{Outcome, Split, Task, TrainedModel};
use super::trainer::Trainer;

/// Steps that are timed for an estimate.
const TIMED_STEPS: u64 = 5;

impl<'a, T: Task> Trainer<'a, T> {
    /// Trains `model` to the end of the run, or until the interrupt is raised.
    ///
    /// # Errors
    /// Any [`TrainingError`]. Checkpoints written before it stay, and hold finite weights only.
    ///
    /// # Panics
    /// If the model is not on a device with autodiff.
    pub fn run(self, model: T::Model) -> Result<Outcome<T::Model>, TrainingError> {
        let (mut run, model) = self.begin(model)?;
        let (model, is_stopped) = run.train(model)?;
        let result = if is_stopped { None } else { run.result(&model)? };
        match result {
            Some(result) => Ok(Outcome::Finished(result)),
            None => run.stop(&model),
        }
    }

    /// Trains `model` with the first rank, until that ends or stops. Nothing is written.
    ///
    /// # Errors
    /// Any [`TrainingError`].
    ///
    /// # Panics
    /// If the model is not on a device with autodiff.
    pub fn follow(self, model: T::Model) -> Result<(), TrainingError> {
        let (mut run, model) = self.begin(model)?;
        let (model, is_stopped) = run.train(model)?;
        if is_stopped {
            run.save(&model)?;
        }
        Ok(())
    }

    /// Seconds of a training step here, the median of a few after a first one. Nothing is evaluated, and no checkpoint is written.
    ///
    /// # Errors
    /// Any [`TrainingError`].
    ///
    /// # Panics
    /// If the model is not on a device with autodiff.
    pub(crate) fn seconds_per_step(self, model: T::Model) -> Result<f64, TrainingError> {
        let (mut run, mut model) = self.begin(model)?;
        let mut seconds = Vec::new();
        for _ in 0..run.trainer.config.steps.min(TIMED_STEPS + 1) {
            let begun = Instant::now();
            (model, _) = run.optimise(model)?;
            run.look()?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        if seconds.len() > 1 {
            seconds.remove(0);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[seconds.len() / 2])
    }

    pub(super) fn begin(self, model: T::Model) -> Result<(Run<'a, T>, T::Model), TrainingError> {
        self.config.validate()?;
        self.ranks.check(self.task, self.config.accumulate)?;
        let device = model.devices().into_iter().next().expect("a model to train has parameters");
        assert!(device.is_autodiff(), "the model to train is on a device without autodiff");
        let is_queued = is_queued(&device);
        let optimiser = self.config.optimiser.init(&device.without_autodiff()).map_err(ConfigurationError::from)?;
        Run::begin(self, constraints::tie(assign_parameter_ids(model)), optimiser, is_queued)
    }
}

/// A run in progress. Its model is handed from step to step by value, so that the optimiser can update tensors in place.
pub(super) struct Run<'a, T: Task> {
    pub(super) trainer: Trainer<'a, T>,
    pub(super) optimiser: ModuleOptimizer,
    pub(super) state: TrainingState,
    pub(super) carried: T::Carried,
    pub(super) order: Vec<Vec<usize>>,
    /// None on a rank that writes nothing.
    log: Option<TrainingLog>,
    progress: Progress,
    pub(super) last_saved: Option<u64>,
    clock: Instant,
    wall_seconds_before: f64,
    /// None where nothing is known of them, where ranks of the same run are among them, and where nothing is left to train.
    others: Option<OtherPrograms>,
    disturbed_before: bool,
    /// Whether the numbers of steps stay on the device until they are looked at.
    pub(super) is_deferred: bool,
    pub(super) unread: Vec<StepNumbers>,
    /// Global norm of the gradients of the last step that was looked at, before clipping.
    pub(super) gradient_norm: f64,
    /// Mean loss of the task of the steps since a line of the log, as it was last known.
    loss: f64,
    /// The span of the epoch in progress.
    pub(super) epoch: Span,
}

impl<'a, T: Task> Run<'a, T> {
    fn begin(
        trainer: Trainer<'a, T>,
        mut model: T::Model,
        mut optimiser: ModuleOptimizer,
        is_queued: bool,
    ) -> Result<(Self, T::Model), TrainingError> {
        let log_path = trainer.folder.join("log.jsonl");
        let latest = trainer.latest()?;
        let last_saved = latest.as_ref().map(|checkpoint| checkpoint.state.step);
        let is_writing = trainer.ranks.is_first();
        let (state, carried, order, mut log) = match latest {
            None => {
                if is_writing {
                    trainer.checkpoints.clear()?;
                }
                let log = is_writing.then(|| TrainingLog::start(&log_path)).transpose()?;
                (TrainingState::default(), T::Carried::default(), Vec::new(), log)
            }
            Some(checkpoint) => {
                model = load_model(model, &checkpoint)?;
                optimiser = load_optimiser(optimiser, &checkpoint)?;
                let state = checkpoint.state.clone();
                let order = if state.epoch == 0 { Vec::new() } else { trainer.order(state.epoch)? };
                let saved = load_carried(&checkpoint)?;
                let carried = if saved.is_empty() { T::Carried::default() } else { trainer.task.restore(saved) };
                if is_writing {
                    trainer.checkpoints.prune(&state);
                }
                tracing::info!("resuming from {}", checkpoint.folder.display());
                let log = is_writing.then(|| TrainingLog::resume(&log_path, state.step, state.is_due)).transpose()?;
                (state, carried, order, log)
            }
        };
        if let (Some(text), Some(log)) = (&trainer.description, &mut log) {
            log.describe("configuration", text)?;
        }
        trainer.ranks.agree_on_weights(&model)?;
        let label = trainer.folder.file_name().map_or_else(String::new, |name| plain_name(&name.to_string_lossy()));
        let progress = Progress::new(&trainer.watcher, &label, state.step, trainer.config.steps, trainer.count.clone());
        let (wall_seconds_before, disturbed_before) = (state.wall_seconds, state.disturbed);
        let clock = Instant::now();
        let others = if trainer.ranks.size() == 1 && !state.finished { OtherPrograms::watch() } else { None };
        // The scale of 16-bit losses, and other processes, wait for the numbers of every step.
        let is_deferred = is_queued && trainer.config.precision != Precision::F16 && trainer.ranks.size() == 1;
        let mut run = Self {
            trainer,
            optimiser,
            state,
            carried,
            order,
            log,
            progress,
            last_saved,
            clock,
            wall_seconds_before,
            others,
            disturbed_before,
            is_deferred,
            unread: Vec::new(),
            gradient_norm: f64::NAN,
            loss: f64::NAN,
            epoch: Span::none(),
        };
        tracing::debug!(
            step = run.state.step,
            steps = run.trainer.config.steps,
            precision = ?run.trainer.config.precision,
            is_deferred,
            ranks = run.trainer.ranks.size(),
            "training begins"
        );
        run.epoch = run.epoch_span();
        Ok((run, model))
    }

    /// Trains until the run is finished; true if it was stopped before.
    fn train(&mut self, mut model: T::Model) -> Result<(T::Model, bool), TrainingError> {
        while !self.state.finished {
            if self.trainer.ranks.any(Topic::Stop, self.trainer.interrupt.is_raised())? {
                return Ok((model, true));
            }
            if !self.state.is_due {
                model = self.advance(model)?;
            }
            self.conclude(&model)?;
        }
        Ok((model, false))
    }

    /// One optimiser step.
    pub(super) fn advance(&mut self, model: T::Model) -> Result<T::Model, TrainingError> {
        let begun = Instant::now();
        self.start_epoch_if_due()?;
        let _epoch = self.epoch.clone().entered();
        let step = tracing::debug_span!("step", number = self.state.step + 1, logged_loss = Empty, learning_rate = Empty, tokens = Empty)
            .entered();
        let (model, learning_rate) = self.optimise(model)?;
        if self.is_looked_at() {
            self.look()?;
        }
        self.state.training_seconds += begun.elapsed().as_secs_f64();
        self.state.is_due = true;
        self.report(learning_rate)?;
        step.record("logged_loss", self.loss).record("learning_rate", learning_rate).record("tokens", self.state.tokens);
        Ok(model)
    }

    /// Whether the numbers of the step that was made are wanted at once: for the log, before a score or checkpoint, or since the seconds of steps count.
    fn is_looked_at(&self) -> bool {
        let config = self.trainer.config;
        let number = self.state.step;
        let is_due = [config.log_every, config.evaluate_every, config.checkpoint_every].iter().any(|&every| number.is_multiple_of(every));
        is_due || number >= config.steps || config.minutes.is_some()
    }

    /// Whatever is due after a step. It stays due if the interrupt is raised while the model is evaluated.
    fn conclude(&mut self, model: &T::Model) -> Result<(), TrainingError> {
        let config = self.trainer.config;
        let number = self.state.step;
        let is_time_up = match config.minutes {
            Some(minutes) => self.trainer.ranks.of_first(Topic::Time, || self.state.training_seconds >= 60.0 * minutes)?,
            None => false,
        };
        let is_last = number >= config.steps || is_time_up;
        let mut is_best = false;
        if is_last || number.is_multiple_of(config.evaluate_every) {
            let Some(found) = self.evaluate(model)? else { return Ok(()) };
            is_best = found;
        }
        self.state.is_due = false;
        let is_stale = config.patience.is_some_and(|patience| self.state.evaluations_without_improvement >= patience);
        self.state.finished = is_last || is_stale;
        let is_regular = self.state.finished || number.is_multiple_of(config.checkpoint_every);
        if is_regular {
            self.state.kept.push(number);
            let excess = self.state.kept.len().saturating_sub(config.keep.max(config.average));
            self.state.kept.drain(..excess);
        }
        if is_regular || is_best {
            self.save(model)?;
        }
        Ok(())
    }

    /// Ends the run early, with a checkpoint from which it goes on.
    fn stop(mut self, model: &T::Model) -> Result<Outcome<T::Model>, TrainingError> {
        let checkpoint = self.save(model)?;
        self.progress.line(&format!("interrupted after step {}; continue with --resume", self.state.step));
        Ok(Outcome::Interrupted { step: self.state.step, checkpoint })
    }

    fn report(&mut self, learning_rate: f64) -> Result<(), TrainingError> {
        let number = self.state.step;
        let is_logged = number.is_multiple_of(self.trainer.config.log_every);
        if self.state.logged_units > 0 {
            self.loss = self.state.logged_loss / self.state.logged_units as f64;
        }
        let loss = self.loss;
        let config = self.trainer.config;
        let seconds = self.state.training_seconds.max(f64::MIN_POSITIVE);
        let by_steps = seconds / number as f64 * config.steps.saturating_sub(number) as f64;
        let by_time = config.minutes.map_or(f64::INFINITY, |minutes| 60.0 * minutes - seconds);
        let pace =
            Pace { loss, learning_rate, tokens_per_second: self.state.tokens as f64 / seconds, remaining_seconds: by_steps.min(by_time) };
        self.progress.step(number, &pace, is_logged);
        if is_logged {
            let units = self.state.logged_units as f64;
            let added = std::mem::take(&mut self.state.logged_added);
            tracing::debug!(step = number, epoch = self.state.epoch, loss, learning_rate, tokens = self.state.tokens, "trained");
            let line = LogLine::Training {
                step: number,
                epoch: self.state.epoch,
                loss,
                added: added.into_iter().map(|Metric { name, value }| (format!("{name}_loss"), value / units)).collect(),
                learning_rate,
                gradient_norm: self.gradient_norm,
                tokens: self.state.tokens,
                seconds: self.wall_seconds(),
            };
            self.append(&line)?;
            self.state.logged_loss = 0.0;
            self.state.logged_units = 0;
        }
        Ok(())
    }

    fn append(&mut self, line: &LogLine) -> Result<(), TrainingError> {
        self.log.as_mut().map_or(Ok(()), |log| log.append(line))
    }

    /// Evaluates the model; true if it is the best so far, `None` if the interrupt was raised meanwhile.
    fn evaluate(&mut self, model: &T::Model) -> Result<Option<bool>, TrainingError> {
        let _span = tracing::debug_span!("evaluation", step = self.state.step).entered();
        let selection = self.trainer.task.selection();
        let metrics = self.trainer.ranks.of_first(Topic::Scores, || self.metrics_of(&model.valid()))?;
        let Some(metrics) = metrics else { return Ok(None) };
        let value = metrics.iter().find(|metric| metric.name == selection.metric).map(|metric| metric.value);
        let Some(value) = value else {
            let present = metrics.into_iter().map(|metric| metric.name).collect();
            return Err(TrainingError::UnknownMetric { wanted: selection.metric, present });
        };
        let step = self.state.step;
        self.append(&LogLine::evaluation(step, self.state.epoch, self.wall_seconds(), &metrics))?;
        let shown: Vec<String> = metrics.iter().map(|metric| format!("{} {:.4}", metric.name, metric.value)).collect();
        self.progress.line(&format!("step {step}: {}", shown.join("  ")));
        tracing::debug!(step, metrics = shown.join("  "), "evaluated");
        let is_best = selection.improves(value, self.state.best.as_ref().map(|best| best.value));
        if is_best {
            self.state.best = Some(BestEvaluation { step, value, metrics: metrics.clone() });
            self.state.evaluations_without_improvement = 0;
        } else {
            self.state.evaluations_without_improvement += 1;
        }
        self.state.last_metrics = metrics;
        Ok(Some(is_best))
    }

    fn metrics_of(&self, model: &T::Model) -> Option<Vec<Metric>> {
        let scores = self.trainer.task.evaluate(model, Split::Valid, &self.trainer.interrupt)?;
        Some(scores.metrics.into_iter().map(|(name, value)| Metric { name, value }).collect())
    }

    /// Saves a checkpoint of the current step, unless it has one. The first rank writes it.
    fn save(&mut self, model: &T::Model) -> Result<PathBuf, TrainingError> {
        self.look()?;
        let step = self.state.step;
        if self.last_saved == Some(step) {
            if self.trainer.ranks.is_first() {
                // After an evaluation that was interrupted, other checkpoints may be the ones to keep.
                self.trainer.checkpoints.prune(&self.state);
            }
            return Ok(self.trainer.checkpoints.path(step));
        }
        if let Some(path) = first_non_finite_parameter(model) {
            return Err(self.non_finite(step, "weight", format!("the parameter {path}")));
        }
        self.trainer.ranks.agree_on_weights(model)?;
        if let Some(log) = &self.log {
            self.state.wall_seconds = self.wall_seconds();
            self.state.disturbed = self.is_disturbed();
            log.sync()?;
            let _span = tracing::debug_span!("checkpoint", step).entered();
            let files = to_files(model, &self.optimiser, self.trainer.task.save(&self.carried));
            self.trainer.checkpoints.save(&self.state, &files)?;
        }
        self.last_saved = Some(step);
        Ok(self.trainer.checkpoints.path(step))
    }

    /// The result of a run whose steps are done; `None` if the interrupt was raised meanwhile.
    fn result(&self, model: &T::Model) -> Result<Option<TrainedModel<T::Model>>, TrainingError> {
        let checkpoints = &self.trainer.checkpoints;
        let load = |step: u64| -> Result<T::Model, TrainingError> { Ok(load_model(model.valid(), &checkpoints.load(step)?)?) };
        let last = self.state.kept.len().saturating_sub(self.trainer.config.average);
        let averaged_steps = &self.state.kept[last..];
        let (result, step, metrics) = if averaged_steps.len() > 1 {
            let mean = average(averaged_steps.iter().map(|&step| load(step)))?.expect("there are checkpoints to average");
            let Some(metrics) = self.metrics_of(&mean) else { return Ok(None) };
            (mean, self.state.step, metrics)
        } else {
            match &self.state.best {
                Some(best) => (load(best.step)?, best.step, best.metrics.clone()),
                // No evaluation gave a number to select by.
                None => (model.valid(), self.state.step, self.state.last_metrics.clone()),
            }
        };
        Ok(Some(TrainedModel {
            model: self.trainer.task.without_training_parts(result),
            step,
            steps: self.state.step,
            averaged: averaged_steps.len().max(1),
            metrics,
            tokens: self.state.tokens,
            tokens_per_second: self.state.tokens as f64 / self.state.training_seconds.max(f64::MIN_POSITIVE),
            wall_seconds: self.wall_seconds(),
            training_seconds: self.state.training_seconds,
            disturbed: self.is_disturbed(),
        }))
    }

    /// The error of a quantity that ceased to be a number.
    pub(super) fn non_finite(&self, step: u64, quantity: &'static str, place: String) -> TrainingError {
        let checkpoint = self.last_saved.map(|step| self.trainer.checkpoints.path(step));
        let (wall_seconds, disturbed) = (self.wall_seconds(), self.is_disturbed());
        TrainingError::NonFinite { step, quantity, place, checkpoint, wall_seconds, disturbed }
    }

    fn is_disturbed(&self) -> bool {
        self.disturbed_before || self.others.is_some_and(|others| others.disturb())
    }

    fn wall_seconds(&self) -> f64 {
        self.wall_seconds_before + self.clock.elapsed().as_secs_f64()
    }
}
