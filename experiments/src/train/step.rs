//! One step of a run: forward and backward passes, their gradients together, and the update.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use heedful_attention::prelude::*;
use heedful_attention::registry::constraints;
use heedful_models::kernels::precision::{Precision, cast};
use tracing::{Span, trace_span};

use super::error::TrainingError;
use super::gradient::{clipping_factor, scale as scale_gradients, scale_on_device, squared_norms};
use super::loss::LossNumbers;
use super::loss_scale::LossScale;
use super::parallel::GradientSum;
use super::parameter::{first_non_finite_parameter, read_scalars};
use super::pending_scalars::StepNumbers;
use super::run::Run;
use super::task::{Pass, Task, first_non_finite_activation};

/// One forward and backward pass: which batch, and the random stream of its dropout.
struct MicroBatch {
    items: Vec<usize>,
    data_key: RandomKey,
    dropout_key: RandomKey,
}

impl<T: Task> Run<'_, T> {
    /// Begins the next epoch if no batch of the present one is left.
    pub(super) fn start_epoch_if_due(&mut self) -> Result<(), TrainingError> {
        if self.state.batches_in_epoch >= self.order.len() {
            let epoch = self.state.epoch + 1;
            self.order = self.trainer.order(epoch)?;
            self.state.epoch = epoch;
            self.state.batches_in_epoch = 0;
            self.trainer.task.start_epoch(&mut self.carried);
            self.epoch = self.epoch_span();
        }
        Ok(())
    }

    pub(super) fn epoch_span(&self) -> Span {
        tracing::debug_span!("epoch", number = self.state.epoch, batches = self.order.len())
    }

    /// The passes of the next step: `accumulate` batches, fewer at the end of an epoch.
    fn next_micro_batches(&mut self) -> Result<Vec<MicroBatch>, TrainingError> {
        self.start_epoch_if_due()?;
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

    /// Forward, backward and update; returns the model and the learning rate. The losses and all gradients' norms are read with one transfer, before the
    /// weights change, or with those of other steps later.
    pub(super) fn optimise(&mut self, model: T::Model) -> Result<(T::Model, f64), TrainingError> {
        let task = self.trainer.task;
        let config = self.trainer.config;
        let ranks = self.trainer.ranks;
        let (units, gradients) = loop {
            let micro_batches = self.next_micro_batches()?;
            let epoch = self.state.epoch;
            let scale = self.loss_scale();
            // What the gradients are of: the model itself, or a copy with fewer bits.
            let copy = (config.precision != Precision::F32).then(|| constraints::tie(cast(model.clone(), config.precision.dtype())));
            let passed = copy.as_ref().unwrap_or(&model);
            let mut sum = GradientSum::new(ranks, passed);
            let mut scalars: Vec<Tensor<1>> = Vec::new();
            let mut names: Vec<Vec<&'static str>> = Vec::new();
            let mut units = 0;
            for round in micro_batches.chunks(ranks.size()) {
                let own = round.get(ranks.rank()).map(|micro_batch| {
                    let batch = trace_span!("batch", items = micro_batch.items.len())
                        .in_scope(|| task.batch(&micro_batch.items, epoch, &micro_batch.data_key));
                    units += task.units(&batch);
                    let loss = trace_span!("forward")
                        .in_scope(|| task.loss(passed, &batch, self.pass(micro_batch.dropout_key), &mut Probe::off()));
                    let total = loss.total();
                    assert_eq!(total.dims(), [1], "a loss has one element");
                    let scaled = if scale == 1.0 { total.clone() } else { total.clone() * scale };
                    scalars.extend(loss.tensors(total));
                    names.push(loss.names());
                    trace_span!("backward").in_scope(|| GradientsParams::from_grads(scaled.backward(), passed))
                });
                sum.add(passed, own, round.len())?;
            }
            let gradients = sum.finish(passed)?;
            let computed = scalars.len();
            let (paths, norms): (Vec<_>, Vec<_>) = squared_norms(&model, &gradients).into_iter().unzip();
            scalars.extend(norms);
            if self.is_deferred {
                assert!(units > 0, "the batches of step {} in epoch {epoch} have no units", self.state.step + 1);
                let numbers = StepNumbers { step: self.state.step + 1, units, losses: names, paths, numbers: Tensor::cat(scalars, 0) };
                let factor = numbers.gradient_factor(config.max_gradient_norm);
                self.unread.push(numbers);
                break (units, scale_on_device(&model, gradients, &factor));
            }
            let values = read_scalars(scalars);
            let (mut own, squares) = values.split_at(computed);
            let own: Vec<LossNumbers> = names.iter().map(|names| LossNumbers::of(names, &mut own)).collect();
            let (losses, units) = ranks.totals(own, units, micro_batches.len())?;
            assert!(units > 0, "the batches of step {} in epoch {epoch} have no units", self.state.step + 1);
            if let Some(failed) = losses.iter().position(|loss| !loss.total.is_finite()) {
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
                return Err(self.non_finite(self.state.step + 1, "gradient", format!("the gradient of {}", paths[failed])));
            }
            if let Some(held) = &mut self.state.loss_scale {
                held.hold(&config.loss_scaling);
            }
            self.gradient_norm = squares.iter().sum::<f64>().sqrt() / units as f64 / scale;
            self.state.log_losses(&losses, units);
            let factor = clipping_factor(self.gradient_norm, config.max_gradient_norm) / units as f64 / scale;
            break (units, scale_gradients(&model, gradients, factor));
        };
        let learning_rate = config.schedule.rate(self.state.step + 1, config.steps, config.learning_rate);
        let model =
            trace_span!("update").in_scope(|| constraints::tie(constraints::apply(self.optimiser.step(learning_rate, model, gradients))));
        let model = task.after_step(model);
        self.state.step += 1;
        self.state.tokens += units as u64;
        Ok((model, learning_rate))
    }

    /// Reads the numbers of all steps that have not been looked at, with one transfer.
    pub(super) fn look(&mut self) -> Result<(), TrainingError> {
        let unread = std::mem::take(&mut self.unread);
        let all = read_scalars(unread.iter().map(|step| step.numbers.clone()).collect());
        let mut rest = &all[..];
        for step in unread {
            let losses: Vec<LossNumbers> = step.losses.iter().map(|names| LossNumbers::of(names, &mut rest)).collect();
            let squares;
            (squares, rest) = rest.split_at(step.paths.len());
            if let Some((quantity, place)) = step.first_non_finite(&losses, squares) {
                return Err(self.non_finite(step.step, quantity, place));
            }
            self.gradient_norm = squares.iter().sum::<f64>().sqrt() / step.units as f64;
            self.state.log_losses(&losses, step.units);
        }
        Ok(())
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
        self.non_finite(self.state.step + 1, "loss", place)
    }
}
