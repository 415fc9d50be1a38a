//! Learning-rate schedules: the rate as a function of the step.
//!
//! A schedule is a pure function, so a resumed run needs no schedule state.

use std::f64::consts::PI;

use heedful_attention::contract::unit_variant::without_options;
use serde::{Deserialize, Serialize};

use super::configuration_error::{ConfigurationError, ensure};

/// How the learning rate changes over the steps of a run.
///
/// Below, `t` is the step counted from 1, `T` the number of steps of the run and `r` the base rate (`learning_rate` of the training configuration).
/// All warm-ups rise linearly: `r * t / warmup` for `t <= warmup`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ScheduleConfig {
    /// `r` at every step.
    #[default]
    #[serde(deserialize_with = "without_options")]
    Constant,
    /// `factor * d_model^-0.5 * min(t^-0.5, t * warmup^-1.5)` (Vaswani et al. 2017, equation 3). The base rate plays no part.
    Noam {
        /// Steps of linear rise, at least 1 (4000 in the paper).
        warmup: u64,
        /// Scale of the whole curve (1 in the paper).
        #[serde(default = "one")]
        factor: f64,
        /// Width of the model, at least 1.
        d_model: usize,
    },
    /// Warm-up to `r`, then a straight line that reaches `end` at step `T`.
    Linear {
        /// Steps of linear rise; 0 starts at `r`.
        #[serde(default)]
        warmup: u64,
        /// Rate at the last step (a learning rate, not a fraction of `r`).
        #[serde(default)]
        end: f64,
    },
    /// Warm-up to `r`, then half a cosine wave that reaches `end` at step `T` (Loshchilov and Hutter 2017, without restarts).
    Cosine {
        /// Steps of linear rise; 0 starts at `r`.
        #[serde(default)]
        warmup: u64,
        /// Rate at the last step (a learning rate, not a fraction of `r`).
        #[serde(default)]
        end: f64,
    },
    /// Warm-up to `r`, then `r * sqrt(warmup / t)`.
    InverseSquareRoot {
        /// Steps of linear rise; 0 counts as 1, which gives `r / sqrt(t)`.
        #[serde(default)]
        warmup: u64,
    },
}

fn one() -> f64 {
    1.0
}

impl ScheduleConfig {
    /// The learning rate of `step`.
    ///
    /// `step` counts from 1; a step after `total_steps` has the rate of the last one. `base` is the base rate.
    ///
    /// # Panics
    /// If `step` is 0.
    pub fn rate(&self, step: u64, total_steps: u64, base: f64) -> f64 {
        assert!(step >= 1, "steps count from 1");
        let t = step as f64;
        match *self {
            Self::Constant => base,
            Self::Noam { warmup, factor, d_model } => {
                factor * (d_model as f64).powf(-0.5) * t.powf(-0.5).min(t * (warmup as f64).powf(-1.5))
            }
            Self::Linear { warmup, .. } | Self::Cosine { warmup, .. } | Self::InverseSquareRoot { warmup } if step <= warmup => {
                base * t / warmup as f64
            }
            Self::Linear { warmup, end } => base + (end - base) * progress(step, warmup, total_steps),
            Self::Cosine { warmup, end } => end + (base - end) * 0.5 * (1.0 + (PI * progress(step, warmup, total_steps)).cos()),
            Self::InverseSquareRoot { warmup } => base * (warmup.max(1) as f64 / t).sqrt(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigurationError> {
        match *self {
            Self::Constant | Self::InverseSquareRoot { .. } => Ok(()),
            Self::Noam { warmup, factor, d_model } => {
                ensure(warmup >= 1, "schedule.warmup", || "the noam schedule needs a warm-up of at least 1 step".into())?;
                ensure(factor.is_finite() && factor > 0.0, "schedule.factor", || format!("{factor} is not a positive number"))?;
                ensure(d_model >= 1, "schedule.d_model", || "the width of the model is at least 1".into())
            }
            Self::Linear { end, .. } | Self::Cosine { end, .. } => {
                ensure(end.is_finite() && end >= 0.0, "schedule.end", || format!("{end} is not a learning rate of 0 or more"))
            }
        }
    }
}

/// How much of the way from the end of the warm-up (0) to the last step (1) is done.
fn progress(step: u64, warmup: u64, total_steps: u64) -> f64 {
    let length = total_steps.saturating_sub(warmup).max(1) as f64;
    ((step - warmup) as f64 / length).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1e-300), "{found} is not {expected}");
    }

    #[test]
    fn noam_follows_equation_3_of_vaswani_et_al() {
        let noam = ScheduleConfig::Noam { warmup: 4000, factor: 1.0, d_model: 512 };
        let d = 1.0 / 512f64.sqrt();
        assert_close(noam.rate(1, 100_000, 9.0), d / 4000f64.powf(1.5));
        assert_close(noam.rate(1000, 100_000, 9.0), d * 1000.0 / 4000f64.powf(1.5));
        assert_close(noam.rate(4000, 100_000, 9.0), d / 4000f64.sqrt());
        assert_close(noam.rate(16_000, 100_000, 9.0), d / 16_000f64.sqrt());
        let doubled = ScheduleConfig::Noam { warmup: 4000, factor: 2.0, d_model: 512 };
        assert_close(doubled.rate(77, 1, 0.0), 2.0 * noam.rate(77, 1, 0.0));
    }

    #[test]
    fn linear_rises_to_the_base_rate_and_falls_to_the_end_rate() {
        let linear = ScheduleConfig::Linear { warmup: 10, end: 0.1 };
        assert_close(linear.rate(1, 110, 1.0), 0.1);
        assert_close(linear.rate(10, 110, 1.0), 1.0);
        assert_close(linear.rate(60, 110, 1.0), 0.55);
        assert_close(linear.rate(110, 110, 1.0), 0.1);
        assert_close(linear.rate(500, 110, 1.0), 0.1);
    }

    #[test]
    fn cosine_is_half_way_at_half_time() {
        let cosine = ScheduleConfig::Cosine { warmup: 10, end: 0.2 };
        assert_close(cosine.rate(5, 110, 1.0), 0.5);
        assert_close(cosine.rate(10, 110, 1.0), 1.0);
        assert_close(cosine.rate(60, 110, 1.0), 0.6);
        assert_close(cosine.rate(35, 110, 1.0), 0.2 + 0.8 * 0.5 * (1.0 + (PI / 4.0).cos()));
        assert_close(cosine.rate(110, 110, 1.0), 0.2);
    }

    #[test]
    fn inverse_square_root_halves_at_four_times_the_warm_up() {
        let schedule = ScheduleConfig::InverseSquareRoot { warmup: 100 };
        assert_close(schedule.rate(50, 1, 3.0), 1.5);
        assert_close(schedule.rate(100, 1, 3.0), 3.0);
        assert_close(schedule.rate(400, 1, 3.0), 1.5);
        assert_close(ScheduleConfig::InverseSquareRoot { warmup: 0 }.rate(9, 1, 3.0), 1.0);
    }

    #[test]
    fn a_warm_up_longer_than_the_run_only_rises() {
        let cosine = ScheduleConfig::Cosine { warmup: 100, end: 0.0 };
        assert_close(cosine.rate(50, 50, 1.0), 0.5);
        assert_eq!(ScheduleConfig::Constant.rate(50, 50, 0.25), 0.25);
    }

    #[test]
    fn schedules_are_read_by_kind_and_refuse_unknown_fields() {
        let read: ScheduleConfig = toml::from_str("kind = \"noam\"\nwarmup = 8\nd_model = 4").unwrap();
        assert_eq!(read, ScheduleConfig::Noam { warmup: 8, factor: 1.0, d_model: 4 });
        let read: ScheduleConfig = toml::from_str("kind = \"inverse-square-root\"\nwarmup = 8").unwrap();
        assert_eq!(read, ScheduleConfig::InverseSquareRoot { warmup: 8 });
        assert!(toml::from_str::<ScheduleConfig>("kind = \"cosine\"\nwarm_up = 8").is_err());
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let refused = |schedule: ScheduleConfig| schedule.validate().unwrap_err().field;
        assert_eq!(refused(ScheduleConfig::Noam { warmup: 0, factor: 1.0, d_model: 8 }), "schedule.warmup");
        assert_eq!(refused(ScheduleConfig::Noam { warmup: 1, factor: f64::NAN, d_model: 8 }), "schedule.factor");
        assert_eq!(refused(ScheduleConfig::Noam { warmup: 1, factor: 1.0, d_model: 0 }), "schedule.d_model");
        assert_eq!(refused(ScheduleConfig::Linear { warmup: 0, end: -1.0 }), "schedule.end");
        assert_eq!(ScheduleConfig::Cosine { warmup: 0, end: 0.0 }.validate(), Ok(()));
    }
}
