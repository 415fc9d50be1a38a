//! The training loop.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;
use heedful_attention::constraints;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::precision::{Precision, cast};

use super::average::average;
use super::checkpoint::{Checkpoint, CheckpointFolder};
use super::config::TrainingConfig;
use super::configuration_error::ConfigurationError;
use super::error::TrainingError;
use super::gradient::{clipping_factor, scale as scale_gradients, squared_norms};
use super::interrupt::Interrupt;
use super::log::{LogLine, TrainingLog};
use super::loss_scale::LossScale;
use super::parallel::{GradientSum, Ranks, Topic};
use super::parameter::{assign_parameter_ids, first_non_finite_parameter, read_scalars};
use super::progress::{Pace, Progress, StepCount, Watcher};
use super::record::{load_carried, load_model, load_optimiser, to_files};
use super::state::{BestEvaluation, Metric, TrainingState};
use super::task::{Outcome, Pass, Split, Task, TrainedModel, first_non_finite_activation};

/// Steps that are timed for an estimate.
const TIMED_STEPS: u64 = 5;

static ALONE: Ranks = Ranks::alone();

/// Trains a model on a task in one run folder.
///
/// The folder receives `log.jsonl`, the same for TensorBoard, and `checkpoint/`. All randomness follows from the key and from the numbers of step, epoch and batch, so a run that is
/// stopped and resumed gives the weights of one that was not, bit for bit where the backend itself is deterministic.
pub struct Trainer<'a, T: Task> {
    task: &'a T,
    config: &'a TrainingConfig,
    folder: PathBuf,
    key: RandomKey,
    checkpoints: CheckpointFolder,
    resume: bool,
    watcher: Watcher,
    description: Option<String>,
    interrupt: Interrupt,
    count: StepCount,
    ranks: &'a Ranks,
}

impl<'a, T: Task> Trainer<'a, T> {
    /// A trainer for the run in `folder`. `digest` is the SHA-256 of the whole configuration, in hexadecimal; a checkpoint written under another one is
    /// refused.
    pub fn new(task: &'a T, config: &'a TrainingConfig, folder: &Path, digest: &str, key: RandomKey) -> Self {
        Self {
            task,
            config,
            folder: folder.to_path_buf(),
            key,
            checkpoints: CheckpointFolder::new(folder, digest),
            resume: false,
            watcher: Watcher::default(),
            description: None,
            interrupt: Interrupt::new(),
            count: StepCount::of(config.steps),
            ranks: &ALONE,
        }
    }

    /// Whether to continue from the latest checkpoint. Without one the run starts afresh. If false, earlier checkpoints and logs in the folder are
    /// deleted.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Who watches the run.
    pub fn watcher(mut self, watcher: Watcher) -> Self {
        self.watcher = watcher;
        self
    }

    /// What the run is, in Markdown, for those who look at its curves in TensorBoard.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// The flag that stops the run.
    pub fn interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Where steps are counted.
    pub(crate) fn count(mut self, count: StepCount) -> Self {
        self.count = count;
        self
    }

    /// The processes that train the model together. The first of them calls [`run`](Self::run), the others call [`follow`](Self::follow).
    pub fn ranks(mut self, ranks: &'a Ranks) -> Self {
        self.ranks = ranks;
        self
    }

    #[cfg(test)]
    pub(crate) fn checkpoints(mut self, checkpoints: CheckpointFolder) -> Self {
        self.checkpoints = checkpoints;
        self
    }

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
            seconds.push(begun.elapsed().as_secs_f64());
        }
        if seconds.len() > 1 {
            seconds.remove(0);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[seconds.len() / 2])
    }

    /// The checkpoint to go on from, which the first rank reads for all.
    fn latest(&self) -> Result<Option<Checkpoint>, TrainingError> {
        let step = if self.resume && self.ranks.is_first() { self.checkpoints.latest()? } else { None };
        let own = step.map(|step| self.checkpoints.load(step)).transpose()?;
        if self.ranks.size() == 1 {
            return Ok(own);
        }
        let parts = own.as_ref().map_or_else(Vec::new, Checkpoint::to_parts);
        Ok(Checkpoint::from_parts(self.ranks.parts_of_first(Topic::Checkpoint, &parts)?))
    }

    fn epoch_key(&self, epoch: u64) -> RandomKey {
        self.key.named("order").numbered(epoch)
    }

    fn begin(self, model: T::Model) -> Result<(Run<'a, T>, T::Model), TrainingError> {
        self.config.validate()?;
        self.ranks.check(self.task, self.config.accumulate)?;
        let device = model.devices().into_iter().next().expect("a model to train has parameters");
        assert!(device.is_autodiff(), "the model to train is on a device without autodiff");
        let optimiser = self.config.optimiser.init(&device.without_autodiff()).map_err(ConfigurationError::from)?;
        Run::begin(self, constraints::tie(assign_parameter_ids(model)), optimiser)
    }
}

/// A run in progress. Its model is handed from step to step by value, so that the optimiser can update tensors in place.
struct Run<'a, T: Task> {
    trainer: Trainer<'a, T>,
    optimiser: ModuleOptimizer,
    state: TrainingState,
    carried: T::Carried,
    order: Vec<Vec<usize>>,
    /// None on a rank that writes nothing.
    log: Option<TrainingLog>,
    progress: Progress,
    last_saved: Option<u64>,
    clock: Instant,
    wall_seconds_before: f64,
}

/// What one optimiser step did.
struct Step {
    learning_rate: f64,
    gradient_norm: f64,
}

/// One forward and backward pass: which batch, and the random stream of its dropout.
struct MicroBatch {
    items: Vec<usize>,
    data_key: RandomKey,
    dropout_key: RandomKey,
}

impl<'a, T: Task> Run<'a, T> {
    fn begin(trainer: Trainer<'a, T>, mut model: T::Model, mut optimiser: ModuleOptimizer) -> Result<(Self, T::Model), TrainingError> {
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
                let order = if state.epoch == 0 { Vec::new() } else { epoch_order(&trainer, state.epoch)? };
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
        let label = trainer.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let progress = Progress::new(&trainer.watcher, &label, state.step, trainer.config.steps, trainer.count.clone());
        let wall_seconds_before = state.wall_seconds;
        let clock = Instant::now();
        Ok((Self { trainer, optimiser, state, carried, order, log, progress, last_saved, clock, wall_seconds_before }, model))
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
    fn advance(&mut self, model: T::Model) -> Result<T::Model, TrainingError> {
        let begun = Instant::now();
        let (model, step) = self.optimise(model)?;
        self.state.training_seconds += begun.elapsed().as_secs_f64();
        self.state.is_due = true;
        self.report(&step)?;
        Ok(model)
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

    /// The passes of the next step: `accumulate` batches, fewer at the end of an epoch.
    fn next_micro_batches(&mut self) -> Result<Vec<MicroBatch>, TrainingError> {
        if self.state.batches_in_epoch >= self.order.len() {
            let epoch = self.state.epoch + 1;
            self.order = epoch_order(&self.trainer, epoch)?;
            self.state.epoch = epoch;
            self.state.batches_in_epoch = 0;
            self.trainer.task.start_epoch(&mut self.carried);
        }
        let first = self.state.batches_in_epoch;
        let after = (first + self.trainer.config.accumulate).min(self.order.len());
        let key = self.trainer.key;
        let data_key = key.named("batch").numbered(self.state.epoch);
        let dropout_key = key.named("dropout").numbered(self.state.step + 1);
        self.state.batches_in_epoch = after;
        let micro_batch = |(number, items): (usize, &Vec<usize>)| MicroBatch {
            items: items.clone(),
            data_key: data_key.numbered((first + number) as u64),
            dropout_key: dropout_key.numbered(number as u64),
        };
        Ok(self.order[first..after].iter().enumerate().map(micro_batch).collect())
    }

    /// Forward, backward and update. The losses and all gradients' norms are read with one transfer, before the weights change.
    fn optimise(&mut self, model: T::Model) -> Result<(T::Model, Step), TrainingError> {
        let task = self.trainer.task;
        let config = self.trainer.config;
        let ranks = self.trainer.ranks;
        let (losses, units, gradients, gradient_norm) = loop {
            let micro_batches = self.next_micro_batches()?;
            let epoch = self.state.epoch;
            let scale = self.loss_scale();
            // What the gradients are of: the model itself, or a copy with fewer bits.
            let copy = (config.precision != Precision::F32).then(|| constraints::tie(cast(model.clone(), config.precision.dtype())));
            let passed = copy.as_ref().unwrap_or(&model);
            let mut sum = GradientSum::new(ranks, passed);
            let mut scalars: Vec<Tensor<1>> = Vec::new();
            let mut units = 0;
            for round in micro_batches.chunks(ranks.size()) {
                let own = round.get(ranks.rank()).map(|micro_batch| {
                    let batch = task.batch(&micro_batch.items, epoch, &micro_batch.data_key);
                    units += task.units(&batch);
                    let loss = task.loss(passed, &batch, self.pass(micro_batch.dropout_key), &mut Probe::off());
                    assert_eq!(loss.dims(), [1], "a loss has one element");
                    let scaled = if scale == 1.0 { loss.clone() } else { loss.clone() * scale };
                    scalars.push(loss.inner().cast(burn::tensor::FloatDType::F32));
                    GradientsParams::from_grads(scaled.backward(), passed)
                });
                sum.add(passed, own, round.len())?;
            }
            let gradients = sum.finish(passed)?;
            let computed = scalars.len();
            let (paths, norms): (Vec<_>, Vec<_>) = squared_norms(&model, &gradients).into_iter().unzip();
            scalars.extend(norms);
            let values = read_scalars(scalars);
            let (losses, squares) = values.split_at(computed);
            let (losses, units) = ranks.totals(losses, units, micro_batches.len())?;
            assert!(units > 0, "the batches of step {} in epoch {epoch} have no units", self.state.step + 1);
            if let Some(failed) = losses.iter().position(|loss| !loss.is_finite()) {
                return Err(self.non_finite_loss(passed, &micro_batches[failed], &paths, squares));
            }
            if let Some(failed) = squares.iter().position(|square| !square.is_finite()) {
                if self.state.loss_scale.as_mut().is_some_and(LossScale::shrink) {
                    tracing::info!(
                        "step {}: the gradients exceed 16 bits; the scale of the loss goes down to {}",
                        self.state.step + 1,
                        self.loss_scale()
                    );
                    continue;
                }
                return Err(self.non_finite("gradient", format!("the gradient of {}", paths[failed])));
            }
            if let Some(held) = &mut self.state.loss_scale {
                held.hold(&config.loss_scaling);
            }
            let gradient_norm = squares.iter().sum::<f64>().sqrt() / units as f64 / scale;
            let factor = clipping_factor(gradient_norm, config.max_gradient_norm) / units as f64 / scale;
            break (losses, units, scale_gradients(&model, gradients, factor), gradient_norm);
        };
        let learning_rate = config.schedule.rate(self.state.step + 1, config.steps, config.learning_rate);
        let model = constraints::tie(constraints::apply(self.optimiser.step(learning_rate, model, gradients)));
        let model = task.after_step(model);
        self.state.step += 1;
        self.state.tokens += units as u64;
        self.state.logged_loss += losses.iter().sum::<f64>();
        self.state.logged_units += units as u64;
        Ok((model, Step { learning_rate, gradient_norm }))
    }

    /// What losses are multiplied by before the backward pass.
    fn loss_scale(&mut self) -> f64 {
        let config = self.trainer.config;
        match config.precision {
            Precision::F16 => self.state.loss_scale.get_or_insert_with(|| LossScale::new(&config.loss_scaling)).scale,
            Precision::F32 | Precision::Bf16 => 1.0,
        }
    }

    /// What the next forward pass is given.
    fn pass(&mut self, key: RandomKey) -> Pass<'_, T::Carried> {
        let epoch_key = self.trainer.epoch_key(self.state.epoch);
        Pass { key, epoch_key, step: self.state.step + 1, steps: self.trainer.config.steps, carried: &mut self.carried }
    }

    fn non_finite_loss(&mut self, model: &T::Model, micro_batch: &MicroBatch, paths: &[String], squares: &[f64]) -> TrainingError {
        let task = self.trainer.task;
        let batch = task.batch(&micro_batch.items, self.state.epoch, &micro_batch.data_key);
        let gradient = || squares.iter().position(|square| !square.is_finite()).map(|at| format!("the gradient of {}", paths[at]));
        let place = first_non_finite_parameter(model)
            .map(|path| format!("the parameter {path}"))
            .or_else(|| {
                // What is carried has gradients, which the model that is looked into has not.
                let mut carried = T::Carried::default();
                let located = |probe: &mut Probe| {
                    task.loss(&model.valid(), &batch, Pass { carried: &mut carried, ..self.pass(micro_batch.dropout_key) }, probe);
                };
                task.can_locate().then(|| first_non_finite_activation(located)).flatten()
            })
            .or_else(gradient)
            .unwrap_or_else(|| "the loss itself".to_string());
        self.non_finite("loss", place)
    }

    fn non_finite(&self, quantity: &'static str, place: String) -> TrainingError {
        let checkpoint = self.last_saved.map(|step| self.trainer.checkpoints.path(step));
        TrainingError::NonFinite { step: self.state.step + 1, quantity, place, checkpoint }
    }

    fn report(&mut self, step: &Step) -> Result<(), TrainingError> {
        let number = self.state.step;
        let is_logged = number.is_multiple_of(self.trainer.config.log_every);
        let loss = self.state.logged_loss / self.state.logged_units as f64;
        let config = self.trainer.config;
        let seconds = self.state.training_seconds.max(f64::MIN_POSITIVE);
        let by_steps = seconds / number as f64 * config.steps.saturating_sub(number) as f64;
        let by_time = config.minutes.map_or(f64::INFINITY, |minutes| 60.0 * minutes - seconds);
        let pace = Pace {
            loss,
            learning_rate: step.learning_rate,
            tokens_per_second: self.state.tokens as f64 / seconds,
            remaining_seconds: by_steps.min(by_time),
        };
        self.progress.step(number, &pace, is_logged);
        if is_logged {
            let line = LogLine::Training {
                step: number,
                epoch: self.state.epoch,
                loss,
                learning_rate: step.learning_rate,
                gradient_norm: step.gradient_norm,
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
        let step = self.state.step;
        if self.last_saved == Some(step) {
            if self.trainer.ranks.is_first() {
                // After an evaluation that was interrupted, other checkpoints may be the ones to keep.
                self.trainer.checkpoints.prune(&self.state);
            }
            return Ok(self.trainer.checkpoints.path(step));
        }
        if let Some(path) = first_non_finite_parameter(model) {
            let checkpoint = self.last_saved.map(|step| self.trainer.checkpoints.path(step));
            return Err(TrainingError::NonFinite { step, quantity: "weight", place: format!("the parameter {path}"), checkpoint });
        }
        self.trainer.ranks.agree_on_weights(model)?;
        if let Some(log) = &self.log {
            self.state.wall_seconds = self.wall_seconds();
            log.sync()?;
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
            model: result,
            step,
            steps: self.state.step,
            averaged: averaged_steps.len().max(1),
            metrics,
            tokens: self.state.tokens,
            tokens_per_second: self.state.tokens as f64 / self.state.training_seconds.max(f64::MIN_POSITIVE),
            wall_seconds: self.wall_seconds(),
            training_seconds: self.state.training_seconds,
        }))
    }

    fn wall_seconds(&self) -> f64 {
        self.wall_seconds_before + self.clock.elapsed().as_secs_f64()
    }
}

fn epoch_order<T: Task>(trainer: &Trainer<'_, T>, epoch: u64) -> Result<Vec<Vec<usize>>, TrainingError> {
    let order = trainer.task.epoch(epoch, &trainer.epoch_key(epoch));
    if order.is_empty() { Err(TrainingError::EmptyEpoch { epoch }) } else { Ok(order) }
}
