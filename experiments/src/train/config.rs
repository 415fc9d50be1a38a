//! The training part of an experiment's configuration.

use heedful_models::kernels::precision::Precision;
use heedful_models::training::optimiser::OptimiserConfig;
use serde::{Deserialize, Serialize};

use super::configuration_error::{ConfigurationError, ensure};
use super::loss_scale::LossScaling;
use super::schedule::ScheduleConfig;
use super::tuning::Tuning;

/// How a model is trained. Every field has a default; unknown fields are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Optimiser steps of the whole run, at least 1.
    pub steps: u64,
    /// Base learning rate, above 0; the schedule changes it over the steps.
    pub learning_rate: f64,
    /// Base learning rates that each run tries in place of `learning_rate`, each in a training of its own from the same weights. The best on the development
    /// set is kept. Without any, `learning_rate` alone is used.
    pub learning_rates: Vec<f64>,
    /// Tuning of each candidate's own learning rate, by trials before its runs; by default none.
    pub tune: Option<Tuning>,
    /// The shape of the learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// The optimiser and its constants.
    pub optimiser: OptimiserConfig,
    /// Bound on the global gradient norm: if the norm over all gradients together (of the mean loss per unit) exceeds it, all are scaled down to it.
    /// Without it nothing is clipped.
    pub max_gradient_norm: Option<f64>,
    /// Micro-batches per optimiser step, at least 1. Their losses are summed and divided by the units of all of them, so the step equals that of one
    /// large batch. The last step of an epoch may have fewer.
    pub accumulate: usize,
    /// Steps between evaluations on the development set, at least 1; the last step is always followed by one.
    pub evaluate_every: u64,
    /// Steps between checkpoints, at least 1; a new best model and the last step are always saved too.
    pub checkpoint_every: u64,
    /// Steps between lines of the log, at least 1.
    pub log_every: u64,
    /// Early stopping: the run ends after this many evaluations in a row that did not improve on the best one. Without it, never.
    pub patience: Option<u64>,
    /// If above 1, the result is the mean of the weights at this many last regular checkpoints (every `checkpoint_every` steps, and the last step) (Vaswani et
    /// al. 2017, section 6.1). Otherwise it is the model with the best development score.
    pub average: usize,
    /// Regular checkpoints that stay on disk, at least 1, besides the best one and those needed for averaging.
    pub keep: usize,
    /// Limit on the time in training steps (without evaluation and checkpoints), in minutes. A run that reaches it ends as if its steps were done; schedules
    /// still use `steps`.
    pub minutes: Option<f64>,
    /// Type of activations: `f32`, `f16` or `bf16`, where the backend supports it. Weights are kept and evaluated in 32 bits.
    pub precision: Precision,
    /// How the scale of the loss changes with `f16`.
    pub loss_scaling: LossScaling,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            steps: 10_000,
            learning_rate: 3e-4,
            learning_rates: Vec::new(),
            tune: None,
            schedule: ScheduleConfig::default(),
            optimiser: OptimiserConfig::default(),
            max_gradient_norm: Some(1.0),
            accumulate: 1,
            evaluate_every: 500,
            checkpoint_every: 500,
            log_every: 50,
            patience: None,
            average: 1,
            keep: 1,
            minutes: None,
            precision: Precision::F32,
            loss_scaling: LossScaling::default(),
        }
    }
}

impl TrainingConfig {
    /// The defaults with an evaluation and a checkpoint every so many steps.
    pub fn every(steps: u64) -> Self {
        Self { evaluate_every: steps, checkpoint_every: steps, ..Self::default() }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigurationError> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rate = self.learning_rate;
        ensure(positive(rate), "learning_rate", || format!("{rate} is not a positive number"))?;
        for (index, rate) in self.learning_rates.iter().enumerate() {
            let is_new = !self.learning_rates[..index].contains(rate);
            ensure(positive(*rate) && is_new, "learning_rates", || format!("{rate} is not a positive number, or named twice"))?;
        }
        for (field, value) in [
            ("steps", self.steps),
            ("accumulate", self.accumulate as u64),
            ("evaluate_every", self.evaluate_every),
            ("checkpoint_every", self.checkpoint_every),
            ("log_every", self.log_every),
            ("patience", self.patience.unwrap_or(1)),
            ("average", self.average as u64),
            ("keep", self.keep as u64),
        ] {
            ensure(value >= 1, field, || "must be at least 1".into())?;
        }
        for (field, value) in [("max_gradient_norm", self.max_gradient_norm), ("minutes", self.minutes)] {
            if let Some(value) = value {
                ensure(positive(value), field, || format!("{value} is not a positive number; leave the field out for no limit"))?;
            }
        }
        if let Some(tune) = &self.tune {
            let reason = || "each run tries training.learning_rates itself; give [] there, or leave --tune out".into();
            ensure(self.learning_rates.is_empty(), "tune", reason)?;
            let reason = || "the schedule noam has no learning rate that could be tuned; give another, or leave --tune out".into();
            ensure(!matches!(self.schedule, ScheduleConfig::Noam { .. }), "tune", reason)?;
            tune.validate()?;
        }
        self.loss_scaling.validate()?;
        self.schedule.validate()?;
        self.optimiser.validate()?;
        let asks_for_relative = self.optimiser.relative_step == Some(true);
        ensure(!asks_for_relative || self.has_relative_steps(), "optimiser.relative_step", || {
            "it has no effect: with it a step is the lesser of the rate and 1 / sqrt(t), and no rate of this run exceeds 1 / sqrt(t). \
             For the steps of the paper and of Hugging Face give training.learning_rate=1e-2 and training.schedule.kind=constant; \
             for a rate of your own leave it out"
                .into()
        })
    }

    /// Whether `1 / sqrt(t)` shortens a step of Adafactor at one of the rates, or the rates are those of its paper, of which that is said whatever the steps.
    fn has_relative_steps(&self) -> bool {
        let rates = if self.learning_rates.is_empty() { std::slice::from_ref(&self.learning_rate) } else { &self.learning_rates };
        let apart = (self.steps / STEPS_LOOKED_AT).max(1);
        let mut steps = (1..=self.steps).step_by(apart as usize).chain([self.steps]);
        let is_of_paper = self.schedule == ScheduleConfig::Constant && rates.contains(&RATE_OF_ADAFACTOR);
        is_of_paper || steps.any(|step| rates.iter().any(|&rate| self.schedule.rate(step, self.steps, rate) > 1.0 / (step as f64).sqrt()))
    }
}

/// The step of Shazeer and Stern 2018 is the lesser of it and `1 / sqrt(t)`.
const RATE_OF_ADAFACTOR: f64 = 1e-2;
/// Steps of a run, evenly spread, at which its rates are looked at.
const STEPS_LOOKED_AT: u64 = 10_000;

#[cfg(test)]
mod tests {
    use heedful_models::training::optimiser::OptimiserKind;

    use super::*;

    #[test]
    fn the_default_configuration_is_valid_and_survives_toml() {
        let config = TrainingConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(toml::from_str::<TrainingConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn each_field_out_of_range_is_named() {
        type Spoil = fn(&mut TrainingConfig);
        let cases: [(&str, Spoil); 16] = [
            ("steps", |c| c.steps = 0),
            ("learning_rate", |c| c.learning_rate = f64::INFINITY),
            ("learning_rates", |c| c.learning_rates = vec![1e-3, 0.0]),
            ("learning_rates", |c| c.learning_rates = vec![1e-3, 1e-3]),
            ("tune", |c| (c.tune, c.learning_rates) = (Some(Tuning::default()), vec![1e-3])),
            ("tune.rates", |c| c.tune = Some(Tuning { rates: 2, ..Tuning::default() })),
            ("tune.share", |c| c.tune = Some(Tuning { share: f64::NAN, ..Tuning::default() })),
            ("accumulate", |c| c.accumulate = 0),
            ("patience", |c| c.patience = Some(0)),
            ("average", |c| c.average = 0),
            ("max_gradient_norm", |c| c.max_gradient_norm = Some(0.0)),
            ("minutes", |c| c.minutes = Some(f64::NAN)),
            ("loss_scaling.initial", |c| c.loss_scaling.initial = 0.5),
            ("loss_scaling.growth_interval", |c| c.loss_scaling.growth_interval = 0),
            ("schedule.end", |c| c.schedule = ScheduleConfig::Linear { warmup: 0, end: f64::NAN }),
            ("optimiser.betas", |c| c.optimiser.betas = (0.9, 1.0)),
        ];
        for (field, spoil) in cases {
            let mut config = TrainingConfig::default();
            spoil(&mut config);
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_relative_step_that_shortens_no_step_is_refused_but_at_the_rate_of_its_paper() {
        let config = |steps, rate: f64, schedule: ScheduleConfig, relative| {
            let optimiser = OptimiserConfig { kind: OptimiserKind::Adafactor, relative_step: relative, ..OptimiserConfig::default() };
            TrainingConfig { steps, learning_rate: rate, schedule, optimiser, ..TrainingConfig::default() }
        };
        let linear = || ScheduleConfig::Linear { warmup: 100, end: 0.0 };
        for refused in [config(1_000_000, 1e-3, linear(), Some(true)), config(5_000, 9e-3, ScheduleConfig::Constant, Some(true))] {
            let error = refused.validate().unwrap_err();
            assert_eq!(error.field, "optimiser.relative_step");
            assert!(error.reason.contains("no effect") && error.reason.contains("training.learning_rate=1e-2"), "{error}");
        }
        for taken in [
            config(5_000, 1e-2, ScheduleConfig::Constant, Some(true)),
            config(5_000, 1e-1, linear(), Some(true)),
            config(2_000_000, 1e-3, ScheduleConfig::Constant, Some(true)),
            config(5_000, 1e-3, linear(), None),
            config(5_000, 1e-3, linear(), Some(false)),
        ] {
            assert_eq!(taken.validate(), Ok(()), "{taken:?}");
        }
    }

    /// Hugging Face's rule with `relative_step` is `min(1e-2, 1 / sqrt(t))`, with `warmup_init` too `min(1e-6 t, 1 / sqrt(t))`.
    #[test]
    fn both_relative_steps_of_hugging_face_are_schedules() {
        for step in [1, 50, 9_999, 10_000, 10_001, 80_000] {
            let (t, limit) = (step as f64, 1.0 / (step as f64).sqrt());
            let of = |schedule: ScheduleConfig| schedule.rate(step, 100_000, 1e-2).min(limit);
            assert_eq!(of(ScheduleConfig::Constant), f64::min(1e-2, limit));
            let warm = of(ScheduleConfig::InverseSquareRoot { warmup: 10_000 });
            assert!((warm - f64::min(1e-6 * t, limit)).abs() < 1e-15, "{warm} at step {step}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(toml::from_str::<TrainingConfig>("step = 3").unwrap_err().to_string().contains("step"));
        assert!(toml::from_str::<TrainingConfig>("[optimiser]\nkind = \"adam-w\"\nbeta = 0.5").is_err());
    }
}
