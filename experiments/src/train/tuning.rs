//! Trials of learning rates for each candidate before its runs.

use serde::{Deserialize, Serialize};

use super::config::TrainingConfig;
use super::configuration_error::{ConfigurationError, ensure};
use super::schedule::ScheduleConfig;

/// Most rates of a grid, and most further ones: more would be a slip of the pen.
const MOST: usize = 100;

/// Tuning of each candidate's own learning rate: all candidates try the same rates for a share of the steps, and further ones beyond the best if it lies at an
/// end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Rates that every candidate tries, at least 3: a geometric series around `training.learning_rate`.
    pub rates: usize,
    /// Ratio of neighbouring rates, above 1.
    pub factor: f64,
    /// Most further rates beyond the ends, where the best lies at an end.
    pub further: usize,
    /// Share of the steps of a trial, above 0 and at most 1. The schedule is shortened alike.
    pub share: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { rates: 5, factor: 2.0, further: 4, share: 1.0 / 3.0 }
    }
}

impl Tuning {
    pub(super) fn validate(&self) -> Result<(), ConfigurationError> {
        let Self { rates, factor, further, share } = *self;
        ensure((3..=MOST).contains(&rates), "tune.rates", || format!("{rates} is not from 3 to {MOST}"))?;
        ensure(factor > 1.0 && factor <= 1e3, "tune.factor", || format!("{factor} is not above 1 and at most 1000"))?;
        ensure(further <= MOST, "tune.further", || format!("{further} is more than {MOST}"))?;
        ensure(share > 0.0 && share <= 1.0, "tune.share", || format!("{share} is not above 0 and at most 1"))
    }

    /// The rates that all candidates try, in ascending order.
    pub fn grid(&self, middle: f64) -> Vec<f64> {
        let below = (self.rates - 1) / 2;
        (0..self.rates).map(|index| middle * self.factor.powi(index as i32 - below as i32)).collect()
    }

    /// The next rate beyond an end: beyond the best if it is the greatest or the least of the tried rates, and below all of them if all diverged. `None` if the
    /// best lies inside, or no further rates are left.
    pub fn next(&self, tried: &[f64], best: Option<f64>) -> Option<f64> {
        if tried.len() >= self.rates + self.further {
            return None;
        }
        let (least, greatest) = ends(tried);
        match best {
            Some(best) if best == greatest => Some(greatest * self.factor),
            Some(best) if best > least => None,
            _ => Some(least / self.factor),
        }
        .filter(|rate| rate.is_normal())
    }
}

/// The least and the greatest of rates.
fn ends(tried: &[f64]) -> (f64, f64) {
    tried.iter().fold((f64::INFINITY, 0.0), |(least, greatest), &rate| (rate.min(least), rate.max(greatest)))
}

/// Whether the best of the rates that were tried lies between others.
pub(crate) fn is_inside(tried: &[f64], best: f64) -> bool {
    let (least, greatest) = ends(tried);
    least < best && best < greatest
}

impl TrainingConfig {
    /// The training that tries a rate.
    pub(crate) fn trial(&self, Tuning { share, .. }: &Tuning, learning_rate: f64) -> Self {
        let part = |count: u64| (count as f64 * share).ceil() as u64;
        let schedule = match self.schedule.clone() {
            ScheduleConfig::Linear { warmup, end } => ScheduleConfig::Linear { warmup: part(warmup), end },
            ScheduleConfig::Cosine { warmup, end } => ScheduleConfig::Cosine { warmup: part(warmup), end },
            ScheduleConfig::InverseSquareRoot { warmup } => ScheduleConfig::InverseSquareRoot { warmup: part(warmup) },
            other => other,
        };
        Self {
            steps: part(self.steps),
            learning_rate,
            schedule,
            evaluate_every: part(self.evaluate_every),
            checkpoint_every: part(self.checkpoint_every),
            minutes: self.minutes.map(|minutes| minutes * share),
            tune: None,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_geometric_around_the_learning_rate() {
        let tuning = Tuning::default();
        assert_eq!(tuning.grid(1e-3), [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]);
        assert_eq!(Tuning { rates: 4, factor: 10.0, ..tuning }.grid(1.0), [0.1, 1.0, 10.0, 100.0]);
    }

    #[test]
    fn the_grid_is_extended_until_the_best_is_inside_or_the_bound_ends_it() {
        let tuning = Tuning { rates: 3, further: 2, ..Tuning::default() };
        let mut tried = tuning.grid(1.0);
        assert_eq!(tuning.next(&tried, Some(1.0)), None);
        assert_eq!(tuning.next(&tried, Some(0.5)), Some(0.25));
        assert_eq!(tuning.next(&tried, None), Some(0.25), "all diverged");
        assert_eq!(tuning.next(&tried, Some(2.0)), Some(4.0));
        tried.push(4.0);
        assert!(is_inside(&tried, 2.0) && !is_inside(&tried, 4.0) && !is_inside(&tried, 0.5));
        assert_eq!(tuning.next(&tried, Some(4.0)), Some(8.0));
        tried.push(8.0);
        assert_eq!(tuning.next(&tried, Some(8.0)), None, "no further ones are left");
    }

    #[test]
    fn a_trial_is_a_shorter_training_with_the_same_shape() {
        let schedule = ScheduleConfig::Linear { warmup: 30, end: 0.0 };
        let config = TrainingConfig { steps: 100, evaluate_every: 50, schedule, tune: Some(Tuning::default()), ..Default::default() };
        let trial = config.trial(&Tuning::default(), 0.5);
        assert_eq!((trial.steps, trial.learning_rate, trial.evaluate_every, trial.tune.as_ref()), (34, 0.5, 17, None));
        assert_eq!(trial.schedule, ScheduleConfig::Linear { warmup: 10, end: 0.0 });
        assert_eq!(trial.validate(), Ok(()));
    }
}
