//! Paired tests over seeds, and what several tests together allow.
//!
//! Runs of one seed share data and batches, so their difference has less noise than the scores themselves. Sources: Student, "The probable error of a mean"
//! (Biometrika 1908); Schuirmann, "A comparison of the two one-sided tests procedure and the power approach" (1987); Holm, "A simple sequentially rejective
//! multiple test procedure" (1979). p-values are those of SciPy (`ttest_rel`, `ttest_1samp`) and statsmodels (`multipletests`).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::super::Spread;
use super::Difference;

/// How far a difference may go before it matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// The mean difference is more than minus this.
    NoWorse(f64),
    /// The mean difference lies between minus this and this.
    Equivalent(f64),
}

impl Margin {
    /// The margin itself, in the unit of the differences.
    pub fn size(self) -> f64 {
        match self {
            Self::NoWorse(margin) | Self::Equivalent(margin) => margin,
        }
    }
}

/// The paired t-test of the differences between runs of the same seeds, two-sided, and the interval of their mean at `confidence` (more than 0 and less than
/// 1). `None` if there are fewer than two differences, or if they do not vary.
pub fn paired_t(differences: &[f64], confidence: f64) -> Option<Difference> {
    let Mean { value, error, student } = Mean::of(differences)?;
    let reach = student.inverse_cdf(0.5 + confidence / 2.0) * error;
    Some(Difference { value, interval: Some([value - reach, value + reach]), p: 2.0 * student.sf((value / error).abs()), resamples: None })
}

/// The interval of the mean of a score over seeds at `confidence` (more than 0 and less than 1), by Student's t. `None` if there are fewer than two values, or if
/// they do not vary.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<[f64; 2]> {
    paired_t(values, confidence)?.interval
}

/// The p-value of the claim that the mean difference lies within a margin: one one-sided t-test against each end of it, of which the greater p counts.
///
/// `None` if there are fewer than two differences, or if they do not vary.
pub fn within_margin(differences: &[f64], margin: Margin) -> Option<f64> {
    let Mean { value, error, student } = Mean::of(differences)?;
    let above_low = student.sf((value + margin.size()) / error);
    let below_high = student.cdf((value - margin.size()) / error);
    Some(match margin {
        Margin::NoWorse(_) => above_low,
        Margin::Equivalent(_) => above_low.max(below_high),
    })
}

/// p-values adjusted by Holm's procedure, in the order given: all of at most α are significant at a family-wise error of α.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&one, &other| p[one].total_cmp(&p[other]));
    let mut adjusted = vec![0.0; p.len()];
    let mut greatest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        greatest = greatest.max((p.len() - rank) as f64 * p[index]).min(1.0);
        adjusted[index] = greatest;
    }
    adjusted
}

/// A mean with its standard error and the distribution of their ratio.
struct Mean {
    value: f64,
    error: f64,
    student: StudentsT,
}

impl Mean {
    fn of(values: &[f64]) -> Option<Self> {
        let Spread { mean, deviation, runs } = Spread::of(values)?;
        let error = deviation? / (runs as f64).sqrt();
        // Sums that are rounded leave a deviation of the last digit, which is none.
        let digits = values.iter().fold(0.0_f64, |most, value| most.max(value.abs())) * f64::EPSILON;
        (error > 4.0 * digits).then(|| Self { value: mean, error, student: student(runs - 1) })
    }
}

fn student(freedom: usize) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom as f64).expect("there is at least one degree of freedom")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        differences: Vec<f64>,
        p: f64,
        interval_99: [f64; 2],
        margin: f64,
        no_worse: f64,
        equivalent: f64,
    }

    #[test]
    fn paired_tests_and_margins_agree_with_scipy() {
        let cases: Vec<Case> = load("seed_differences");
        assert!(cases.len() >= 5);
        for case in cases {
            let what = format!("{:?}", case.differences);
            let Difference { p, interval, .. } = paired_t(&case.differences, 0.99).unwrap();
            assert_agrees(p, case.p, &what);
            for (actual, expected) in interval.unwrap().into_iter().zip(case.interval_99) {
                assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1.0), "{what}: {actual} instead of {expected}");
            }
            assert_agrees(within_margin(&case.differences, Margin::NoWorse(case.margin)).unwrap(), case.no_worse, &what);
            assert_agrees(within_margin(&case.differences, Margin::Equivalent(case.margin)).unwrap(), case.equivalent, &what);
        }
    }

    #[derive(Deserialize)]
    struct Several {
        p: Vec<f64>,
        adjusted: Vec<f64>,
    }

    #[test]
    fn adjusted_values_agree_with_statsmodels() {
        let cases: Vec<Several> = load("holm");
        assert!(cases.iter().any(|case| case.p.len() > 40));
        for Several { p, adjusted } in cases {
            for (actual, expected) in holm(&p).into_iter().zip(&adjusted) {
                assert_agrees(actual, *expected, &format!("{p:?}"));
            }
        }
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn differences_that_do_not_vary_have_no_t_test() {
        assert_eq!(paired_t(&[0.3], 0.95), None);
        assert_eq!(paired_t(&[0.3, 0.3, 0.3], 0.95), None);
        assert_eq!(paired_t(&[0.1 + 0.2, 0.3], 0.95), None, "they differ by rounding alone");
        assert_eq!(within_margin(&[0.1], Margin::Equivalent(1.0)), None);
        assert!(paired_t(&[1e-30, 3e-30], 0.95).is_some(), "small is not constant");
    }
}
