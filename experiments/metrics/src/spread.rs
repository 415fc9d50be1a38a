//! Mean and deviation of a result over seeds.
//!
//! The idea: a result that was measured with several seeds is reported as its mean and the sample standard deviation (divisor `n - 1`), with `n`. A
//! single run has no deviation, and none is printed. Not covered: confidence intervals and tests, for which a few seeds are too few.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A result over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The arithmetic mean, in the unit of the values.
    pub mean: f64,
    /// The sample standard deviation, in the unit of the values; `None` for a single run.
    pub deviation: Option<f64>,
    /// The number of runs.
    pub runs: usize,
}

impl Spread {
    /// Mean and deviation of `values`, one per run; `None` without runs. A value that is not finite makes mean and deviation not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        // Differences from the first value keep the deviation of equal results at exactly zero.
        let first = *values.first()?;
        let mean = first + values.iter().map(|value| value - first).sum::<f64>() / runs as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (runs > 1).then(|| (squares / (runs - 1) as f64).sqrt());
        Some(Self { mean, deviation, runs })
    }
}

impl fmt::Display for Spread {
    /// `27.30 ± 0.15 (n = 3)`, or `27.30 (n = 1)`; with two decimals unless the format asks for another precision.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(2);
        write!(formatter, "{:.digits$}", self.mean)?;
        if let Some(deviation) = self.deviation {
            write!(formatter, " ± {deviation:.digits$}")?;
        }
        write!(formatter, " (n = {})", self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        values: Vec<f64>,
        mean: f64,
        deviation: Option<f64>,
    }

    #[test]
    fn mean_and_deviation_agree_with_scipy() {
        let cases: Vec<Case> = load("spread");
        assert!(cases.len() >= 4);
        for case in cases {
            let spread = Spread::of(&case.values).unwrap();
            let what = format!("{:?}", case.values);
            assert_eq!(spread.runs, case.values.len());
            assert_agrees(spread.mean, case.mean, &what);
            assert_eq!(spread.deviation.is_some(), case.deviation.is_some(), "{what}");
            if let (Some(actual), Some(expected)) = (spread.deviation, case.deviation) {
                assert_agrees(actual, expected, &what);
            }
        }
    }

    #[test]
    fn a_single_run_has_no_deviation() {
        assert_eq!(Spread::of(&[27.3]), Some(Spread { mean: 27.3, deviation: None, runs: 1 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn equal_results_have_a_deviation_of_exactly_zero() {
        assert_eq!(Spread::of(&[0.1; 3]), Some(Spread { mean: 0.1, deviation: Some(0.0), runs: 3 }));
    }

    #[test]
    fn a_spread_is_printed_with_the_number_of_runs() {
        assert_eq!(Spread::of(&[27.0, 27.5]).unwrap().to_string(), "27.25 ± 0.35 (n = 2)");
        assert_eq!(format!("{:.1}", Spread::of(&[27.0]).unwrap()), "27.0 (n = 1)");
    }
}
