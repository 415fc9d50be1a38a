//! Whether a difference between two systems may be chance.
//!
//! Two questions are answered. Over *seeds*: would other initial weights and another order of the data have given the same difference? Welch's t-test
//! ([`welch`]) and a randomisation test ([`randomisation`]) compare the scores of several runs. Over *items* (sentences, examples, questions): would another
//! test set have given it? Paired bootstrap resampling and paired approximate randomisation ([`PairedOutputs`]) draw from the statistics of the items that
//! both systems were tested on, and McNemar's test ([`mcnemar`]) counts those that one of them alone has right; what they say holds for these trained
//! models and not for others of their kind.
//!
//! Sources: McNemar, "Note on the sampling error of the difference between correlated proportions" (Psychometrika 1947), with exact probabilities; Welch, "The
//! generalization of 'Student's' problem" (Biometrika 1947); Noreen, "Computer-Intensive Methods for Testing Hypotheses" (1989); Koehn, "Statistical
//! Significance Tests for Machine Translation Evaluation" (EMNLP 2004), section 4; Riezler and Maxwell, "On Some Pitfalls in Automatic Evaluation and
//! Significance Testing for MT" (2005). p-values are those of SciPy (`ttest_ind` with unequal variances, `permutation_test`) and sacreBLEU (`--paired-bs`,
//! `--paired-ar`).
//!
//! For claims that are fixed in advance: paired tests over seeds ([`paired_t`], [`within_margin`]), weighted sums of scores over seeds
//! and items at once ([`Contrast`]), ratios of costs over rounds ([`median_ratio`]), and the correction for several tests ([`holm`]).

mod contrast;
mod items;
mod rounds;
mod seeds;

use heedful_random::RandomKey;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use super::Spread;

pub use contrast::{Contrast, Resampled, Score, Term};
pub use items::{ItemStatistics, PairedOutputs};
pub use rounds::{MedianRatio, median_ratio};
pub use seeds::{Margin, holm, mean_interval, paired_t, within_margin};

/// What a test says about the difference of two systems. All tests are two-sided, but for the bootstrap, which counts as sacreBLEU does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The score of the system minus that of the baseline.
    pub value: f64,
    /// The confidence interval of the difference; `None` for tests that give none.
    pub interval: Option<[f64; 2]>,
    /// The probability of so large a difference, of either sign, if there were none; 0 to 1.
    pub p: f64,
    /// The number of random resamples that `p` was estimated from; `None` where it was computed exactly.
    pub resamples: Option<usize>,
}

/// Welch's t-test of the means of two samples, and the interval of their difference at `confidence` (more than 0 and less than 1).
///
/// `None` if a sample has fewer than two values, or if neither varies.
pub fn welch(system: &[f64], baseline: &[f64], confidence: f64) -> Option<Difference> {
    let (a, b) = (Spread::of(system)?, Spread::of(baseline)?);
    let squared_error = |spread: &Spread| Some(spread.deviation?.powi(2) / spread.runs as f64);
    let (a_error, b_error) = (squared_error(&a)?, squared_error(&b)?);
    let error = (a_error + b_error).sqrt();
    if error == 0.0 {
        return None;
    }
    let value = a.mean - b.mean;
    // Shares of the squared error keep the degrees of freedom apart from the unit of the scores.
    let share = a_error / (a_error + b_error);
    let freedom = 1.0 / (share.powi(2) / (a.runs - 1) as f64 + (1.0 - share).powi(2) / (b.runs - 1) as f64);
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = student.inverse_cdf(0.5 + confidence / 2.0) * error;
    Some(Difference { value, interval: Some([value - reach, value + reach]), p: 2.0 * student.sf((value / error).abs()), resamples: None })
}

/// The exact p-value of McNemar's test: could items that only one of two systems has right fall to them so unevenly, were each equally likely to be either's?
///
/// It is twice the probability of at most so few of the lesser number among all of them, and 1 if there are none.
pub fn mcnemar(only_system: u64, only_baseline: u64) -> f64 {
    let fair = Binomial::new(0.5, only_system + only_baseline).expect("a half is a probability");
    (2.0 * fair.cdf(only_system.min(only_baseline))).min(1.0)
}

/// The randomisation test of two samples: how often does a division of all values into groups of the two sizes give means as far apart?
///
/// All divisions are tried if they are at most `resamples`, so many random ones otherwise; `key` is the stream that they are drawn from. `None` if a
/// sample is empty. With few values `p` cannot be small: for three and three there are 20 divisions, and the least is 0.1.
pub fn randomisation(system: &[f64], baseline: &[f64], resamples: usize, key: &RandomKey) -> Option<Difference> {
    let value = Spread::of(system)?.mean - Spread::of(baseline)?.mean;
    // Centred values: a common offset would cost digits.
    let pooled: Vec<f64> = system.iter().chain(baseline).map(|value| value - system[0]).collect();
    let (total, range) = (pooled.iter().sum::<f64>(), pooled.iter().fold(0.0_f64, |range, value| range.max(value.abs())));
    let distance = |chosen: f64| (chosen / system.len() as f64 - (total - chosen) / baseline.len() as f64).abs();
    // Sums in another order differ in their last digits.
    let least = distance(pooled[..system.len()].iter().sum()) - 1e-12 * range;
    let is_as_far = |chosen: f64| distance(chosen) >= least;
    if let Some(divisions) = combinations(pooled.len(), system.len()).filter(|&count| count <= resamples) {
        let mut chosen: Vec<usize> = (0..system.len()).collect();
        let mut count = 0;
        loop {
            count += usize::from(is_as_far(chosen.iter().map(|&index| pooled[index]).sum()));
            if !advance(&mut chosen, pooled.len()) {
                break;
            }
        }
        return Some(Difference { value, interval: None, p: count as f64 / divisions as f64, resamples: None });
    }
    let is_counted = |resample: usize| {
        let mut shuffled = pooled.clone();
        let (chosen, _) = shuffled.partial_shuffle(&mut key.numbered(resample as u64).rng(), system.len());
        is_as_far(chosen.iter().sum())
    };
    let count = (0..resamples).into_par_iter().filter(|&resample| is_counted(resample)).count();
    Some(Difference { value, interval: None, p: (count + 1) as f64 / (resamples + 1) as f64, resamples: Some(resamples) })
}

/// How many of so many resamples lie outside of each end of an interval.
fn outside(resamples: usize, confidence: f64) -> usize {
    // A share that is a whole number of resamples must not fall short of it by rounding.
    (resamples as f64 * (1.0 - confidence) / 2.0 + 1e-9) as usize
}

/// The ends of the middle `confidence` of ascending values, of which there is at least one.
fn middle(ascending: &[f64], confidence: f64) -> [f64; 2] {
    let outside = outside(ascending.len(), confidence);
    [ascending[outside], ascending[ascending.len() - 1 - outside]]
}

/// The number of ways to choose `k` of `n`; `None` if it is too large to count.
fn combinations(n: usize, k: usize) -> Option<usize> {
    // Each product is divisible: it is a number of combinations itself.
    (0..k.min(n - k)).try_fold(1usize, |count, index| Some(count.checked_mul(n - index)? / (index + 1)))
}

/// The next choice of ascending indices below `n` in the order of a dictionary; `false` after the last.
fn advance(chosen: &mut [usize], n: usize) -> bool {
    let k = chosen.len();
    let Some(place) = (0..k).rfind(|&place| chosen[place] < n - k + place) else { return false };
    chosen[place] += 1;
    for later in place + 1..k {
        chosen[later] = chosen[later - 1] + 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Samples {
        system: Vec<f64>,
        baseline: Vec<f64>,
        welch: Option<Welch>,
        randomisation: f64,
    }

    #[derive(Deserialize)]
    struct Welch {
        p: f64,
        interval_95: [f64; 2],
        interval_80: [f64; 2],
    }

    fn key() -> RandomKey {
        RandomKey::from_seed(1)
    }

    #[test]
    fn tests_over_seeds_agree_with_scipy() {
        let cases: Vec<Samples> = load("samples");
        assert!(cases.iter().filter(|case| case.welch.is_some()).count() > 8);
        for case in cases {
            let what = format!("{:?} and {:?}", case.system, case.baseline);
            let difference = welch(&case.system, &case.baseline, 0.95);
            assert_eq!(difference.is_some(), case.welch.is_some(), "{what}");
            if let (Some(Difference { p, interval: Some(interval), .. }), Some(expected)) = (difference, case.welch) {
                assert_agrees(p, expected.p, &what);
                let wide = welch(&case.system, &case.baseline, 0.8).unwrap().interval.unwrap();
                for (actual, expected) in interval.into_iter().chain(wide).zip(expected.interval_95.into_iter().chain(expected.interval_80))
                {
                    assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1.0), "{what}: {actual} instead of {expected}");
                }
            }
            let exact = randomisation(&case.system, &case.baseline, usize::MAX, &key()).unwrap();
            assert_agrees(exact.p, case.randomisation, &what);
            assert_eq!(exact.resamples, None);
        }
    }

    #[derive(Deserialize)]
    struct Tails {
        t: f64,
        freedom: f64,
        p: f64,
    }

    #[test]
    fn the_tails_of_student_agree_with_scipy() {
        let cases: Vec<Tails> = load("student");
        assert!(cases.len() > 100);
        for Tails { t, freedom, p } in cases {
            let student = StudentsT::new(0.0, 1.0, freedom).unwrap();
            assert_agrees(2.0 * student.sf(t.abs()), p, &format!("t = {t}, {freedom} degrees of freedom"));
        }
    }

    #[test]
    fn mcnemar_counts_the_coins_that_fall_so_unevenly() {
        // Of 32 ways for 5 coins, 2 are all heads or all tails; of 64 for 6, 14 have at most one head or at most one tail.
        assert_agrees(mcnemar(5, 0), 2.0 / 32.0, "5 of 5");
        assert_eq!(mcnemar(0, 5), mcnemar(5, 0));
        assert_agrees(mcnemar(1, 5), 14.0 / 64.0, "1 of 6");
        assert_eq!([mcnemar(0, 0), mcnemar(3, 3), mcnemar(1, 1)], [1.0; 3]);
        // Summed in whole numbers.
        assert_agrees(mcnemar(86, 150), 3.715_936_139_571_442e-5, "86 and 150");
    }

    #[test]
    fn random_divisions_come_near_the_exact_test_and_follow_from_the_key() {
        let (system, baseline) = ([3.1, 2.9, 3.3, 3.0, 3.2, 2.8], [2.9, 2.7, 3.0, 2.6, 3.1, 2.85]);
        let exact = randomisation(&system, &baseline, 1000, &key()).unwrap();
        let drawn = randomisation(&system, &baseline, 923, &key()).unwrap();
        assert_eq!((exact.resamples, drawn.resamples), (None, Some(923)), "there are 924 divisions");
        assert!((drawn.p - exact.p).abs() < 0.03, "{} and {}", drawn.p, exact.p);
        assert_eq!(randomisation(&system, &baseline, 923, &key()), Some(drawn));
        assert_ne!(randomisation(&system, &baseline, 923, &RandomKey::from_seed(2)).unwrap().p, drawn.p);
    }

    #[test]
    fn what_does_not_vary_or_has_one_run_has_no_t_test() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.95), None);
        assert_eq!(welch(&[0.1, 0.1, 0.1], &[0.2, 0.2], 0.95), None);
        assert_eq!(randomisation(&[], &[1.0], 100, &key()), None);
        assert_eq!(randomisation(&[1.0, 1.0], &[1.0, 1.0], 100, &key()).unwrap().p, 1.0);
    }

    #[test]
    fn the_number_of_divisions_is_counted_or_given_up() {
        assert_eq!([combinations(6, 3), combinations(7, 7), combinations(1001, 1)], [Some(20), Some(1), Some(1001)]);
        assert_eq!(combinations(200, 100), None);
        let mut chosen = [0, 1, 2];
        let mut count = 1;
        while advance(&mut chosen, 6) {
            assert!(chosen.is_sorted_by(|a, b| a < b) && chosen[2] < 6);
            count += 1;
        }
        assert_eq!((count, chosen), (20, [3, 4, 5]));
    }
}
