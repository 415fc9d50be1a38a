//! Ratios of costs that were measured in rounds, in turn.
//!
//! Both sides of a ratio are of one round, so what slows a machine down for a while slows both. Source of the interval: Efron, "Bootstrap methods: another
//! look at the jackknife" (1979), with percentiles.

use heedful_random::RandomKey;
use rand::RngExt;
use rayon::prelude::*;

/// A ratio over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianRatio {
    /// The median of the ratios of single rounds.
    pub value: f64,
    /// The middle `confidence` of the medians of resampled rounds.
    pub interval: [f64; 2],
    /// The number of rounds.
    pub rounds: usize,
}

/// The median of `numerator[i] / denominator[i]` over rounds `i`, and its bootstrap interval at `confidence` (more than 0 and less than 1) from so many
/// resamples, drawn from the stream `key`.
///
/// `None` unless both sides have the same number of rounds, at least three, and all costs are positive numbers.
pub fn median_ratio(numerator: &[f64], denominator: &[f64], confidence: f64, resamples: usize, key: &RandomKey) -> Option<MedianRatio> {
    let is_cost = |cost: &f64| cost.is_finite() && *cost > 0.0;
    let are_costs = numerator.iter().chain(denominator).all(is_cost);
    if numerator.len() != denominator.len() || numerator.len() < 3 || resamples == 0 || !are_costs {
        return None;
    }
    let ratios: Vec<f64> = numerator.iter().zip(denominator).map(|(numerator, denominator)| numerator / denominator).collect();
    let of_resample = |resample: usize| {
        let mut rng = key.numbered(resample as u64).rng();
        median((0..ratios.len()).map(|_| ratios[rng.random_range(0..ratios.len())]).collect())
    };
    let mut medians: Vec<f64> = (0..resamples).into_par_iter().map(of_resample).collect();
    medians.sort_by(f64::total_cmp);
    Some(MedianRatio { value: median(ratios.clone()), interval: super::middle(&medians, confidence), rounds: ratios.len() })
}

/// The middle value, or the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::*;

    #[test]
    fn the_interval_is_the_one_that_the_binomial_distribution_gives() {
        let denominator: Vec<f64> = (0..11).map(|round| 1.0 + f64::from(round * 7 % 11)).collect();
        let ratios: Vec<f64> = (0..11).map(|round| 1.0 + f64::from(round) / 10.0).collect();
        let numerator: Vec<f64> = ratios.iter().zip(&denominator).map(|(ratio, cost)| ratio * cost).collect();
        let found = median_ratio(&numerator, &denominator, 0.95, 10_000, &RandomKey::from_seed(1)).unwrap();
        assert!((found.value - 1.5).abs() < 1e-12 && found.rounds == 11);
        // The median of 11 draws is at most the k-th ratio if at least 6 of them are among the first k.
        let at_most = |k: u64| Binomial::new(k as f64 / 11.0, 11).unwrap().sf(5);
        let quantile = |share: f64| (1..=11).find(|&k| at_most(k) >= share).unwrap();
        let expected = [quantile(0.025), quantile(0.975)].map(|k| ratios[k as usize - 1]);
        assert!([0.025, 0.975].iter().all(|share| (1..=11).all(|k| (at_most(k) - share).abs() > 0.004)), "the draw cannot decide");
        for (end, expected) in found.interval.into_iter().zip(expected) {
            assert!((end - expected).abs() < 1e-12, "{:?} instead of {expected:?}", found.interval);
        }
    }

    #[test]
    fn a_slow_round_slows_both_sides() {
        let slow = |cost: f64| vec![cost, 10.0 * cost, cost, 3.0 * cost];
        let found = median_ratio(&slow(3.0), &slow(2.0), 0.95, 200, &RandomKey::from_seed(1)).unwrap();
        assert_eq!((found.value, found.interval), (1.5, [1.5, 1.5]));
    }

    #[test]
    fn rounds_that_do_not_belong_together_have_no_ratio() {
        let key = RandomKey::from_seed(1);
        assert_eq!(median_ratio(&[1.0, 2.0], &[1.0, 2.0], 0.95, 100, &key), None);
        assert_eq!(median_ratio(&[1.0; 4], &[1.0; 3], 0.95, 100, &key), None);
        assert_eq!(median_ratio(&[1.0, 1.0, 0.0], &[1.0; 3], 0.95, 100, &key), None);
        assert_eq!(median_ratio(&[1.0, 1.0, f64::NAN], &[1.0; 3], 0.95, 100, &key), None);
    }
}
