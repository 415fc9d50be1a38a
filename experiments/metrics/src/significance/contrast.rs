//! Contrasts: weighted sums of the scores of several contenders, over seeds and over the items of their test sets.
//!
//! A difference is the simplest: one contender counts once, the other minus once. "Which of two mechanisms loses more by leaving something out" has four
//! terms, and accuracies on two tasks together have two on each side. The score of a contender is the mean over its runs; run `i` of every contender has the
//! same seed.
//!
//! Source of the resampling over two levels: Davison and Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8: runs are drawn with
//! replacement, and within each drawn run its items.

use heedful_random::RandomKey;
use rand::RngExt;
use rayon::prelude::*;

use super::{Difference, ItemStatistics, Margin, middle, outside};

/// The score that summed statistics amount to.
pub type Score<'a> = dyn Fn(&[f64]) -> f64 + Sync + 'a;

/// One contender of a contrast.
#[derive(Clone, Copy)]
pub struct Term<'a> {
    /// What its score counts; negative for what is subtracted.
    pub weight: f64,
    /// Which test set its items are: contenders with the same number here have the same items.
    pub set: usize,
    /// The statistics of the items in each run. A score that is not made of items is a run of a single one.
    pub runs: &'a [ItemStatistics],
    /// The score that summed statistics amount to.
    pub score: &'a Score<'a>,
}

impl Term<'_> {
    fn value(&self, run: usize) -> f64 {
        self.weight * (self.score)(&self.runs[run].total())
    }
}

/// A weighted sum of scores, or the ratio of two.
#[derive(Clone)]
pub struct Contrast<'a> {
    /// The terms of the sum.
    pub terms: Vec<Term<'a>>,
    /// The terms of a sum that it is divided by; none for a plain sum.
    pub divisor: Vec<Term<'a>>,
}

impl Contrast<'_> {
    /// The number of runs of each contender.
    ///
    /// # Panics
    /// If there is no term, or contenders differ in the number of runs, or those of one set in the number of items.
    pub fn runs(&self) -> usize {
        let runs = self.all().next().expect("a contrast has terms").runs.len();
        for term in self.all() {
            assert!(term.runs.len() == runs && runs > 0, "all contenders need the same seeds");
            let items = self.items(term.set);
            assert!(term.runs.iter().all(|run| run.items() == items && items > 0), "all runs on a test set need the same items");
        }
        runs
    }

    /// The value over all runs and items.
    pub fn value(&self) -> f64 {
        let runs: Vec<usize> = (0..self.runs()).collect();
        self.of(&|term| runs.iter().map(|&run| term.value(run)).sum::<f64>() / runs.len() as f64)
    }

    /// The value of each seed.
    pub fn by_seed(&self) -> Vec<f64> {
        (0..self.runs()).map(|run| self.of(&|term| term.value(run))).collect()
    }

    /// Values on resamples, ascending: runs drawn with replacement, the same for all contenders, and within each of them items drawn with replacement, the
    /// same for all contenders that have them. `key` is the stream that they are drawn from.
    pub fn bootstrap(&self, resamples: usize, key: &RandomKey) -> Resampled {
        let (runs, sets) = (self.runs(), self.sets());
        let of_resample = |resample: usize| {
            let key = key.numbered(resample as u64);
            let mut rng = key.named("runs").rng();
            let drawn: Vec<usize> = (0..runs).map(|_| rng.random_range(0..runs)).collect();
            // By set and drawn run.
            let items: Vec<Vec<Vec<usize>>> = (0..sets)
                .map(|set| {
                    let (items, mut rng) = (self.items(set), key.named("items").numbered(set as u64).rng());
                    drawn.iter().map(|_| (0..items).map(|_| rng.random_range(0..items.max(1))).collect()).collect()
                })
                .collect();
            self.of(&|term| {
                let score = |(&run, items): (&usize, &Vec<usize>)| (term.score)(&term.runs[run].sum_of(items.iter().copied()));
                term.weight * drawn.iter().zip(&items[term.set]).map(score).sum::<f64>() / runs as f64
            })
        };
        let mut values: Vec<f64> = (0..resamples).into_par_iter().map(of_resample).collect();
        values.sort_by(f64::total_cmp);
        Resampled { values }
    }

    /// Paired approximate randomisation: how often is the sum, without its sign, as large if the contenders of each pair swap their output on half of the
    /// items, at random? The `i`-th term that is added swaps with the `i`-th that is subtracted, in all runs alike, and pairs on the same items swap together.
    /// A divisor plays no part: whether a ratio is zero is decided by what is divided.
    ///
    /// `None` unless the pairs have the same items and weights of opposite sign.
    pub fn randomisation(&self, resamples: usize, key: &RandomKey) -> Option<Difference> {
        let runs = self.runs();
        let side = |sign: f64| self.terms.iter().filter(move |term| term.weight * sign > 0.0);
        let pairs: Vec<(&Term<'_>, &Term<'_>)> = side(1.0).zip(side(-1.0)).collect();
        let is_pair = |(plus, minus): &(&Term<'_>, &Term<'_>)| plus.set == minus.set && plus.weight == -minus.weight;
        if 2 * pairs.len() != self.terms.len() || !pairs.iter().all(is_pair) {
            return None;
        }
        let value = Self { terms: self.terms.clone(), divisor: Vec::new() }.value();
        let of_resample = |resample: usize| {
            let key = key.numbered(resample as u64);
            let swaps: Vec<Vec<bool>> = (0..self.sets())
                .map(|set| {
                    let mut rng = key.numbered(set as u64).rng();
                    (0..self.items(set)).map(|_| rng.random()).collect()
                })
                .collect();
            let of_pair = |&(plus, minus): &(&Term<'_>, &Term<'_>)| {
                let swaps = &swaps[plus.set];
                let of_run = |run: usize| {
                    let [system, baseline] = plus.runs[run].swapped(&minus.runs[run], swaps);
                    plus.weight * ((plus.score)(&system) - (minus.score)(&baseline))
                };
                (0..runs).map(of_run).sum::<f64>() / runs as f64
            };
            pairs.iter().map(of_pair).sum::<f64>().abs()
        };
        // Sums in another order differ in their last digits.
        let least = value.abs() * (1.0 - 1e-9);
        let count = (0..resamples).into_par_iter().filter(|&resample| of_resample(resample) >= least).count();
        Some(Difference { value, interval: None, p: (count + 1) as f64 / (resamples + 1) as f64, resamples: Some(resamples) })
    }

    fn of(&self, value: &(dyn Fn(&Term<'_>) -> f64 + '_)) -> f64 {
        let sum = |terms: &[Term<'_>]| terms.iter().map(value).sum::<f64>();
        if self.divisor.is_empty() { sum(&self.terms) } else { sum(&self.terms) / sum(&self.divisor) }
    }

    fn all(&self) -> impl Iterator<Item = &Term<'_>> {
        self.terms.iter().chain(&self.divisor)
    }

    fn sets(&self) -> usize {
        self.all().map(|term| term.set + 1).max().unwrap_or(0)
    }

    /// The number of items in a set; 0 of a number that no contender has.
    fn items(&self, set: usize) -> usize {
        self.all().find(|term| term.set == set).map_or(0, |term| term.runs[0].items())
    }
}

/// Values of a contrast on resamples, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Resampled {
    values: Vec<f64>,
}

impl Resampled {
    /// The middle `confidence` (more than 0 and less than 1) of the values; without bounds if a score is not defined on more resamples than may lie outside.
    pub fn interval(&self, confidence: f64) -> [f64; 2] {
        let defined: Vec<f64> = self.values.iter().copied().filter(|value| !value.is_nan()).collect();
        let undefined = self.values.len() - defined.len();
        match undefined > outside(self.values.len(), confidence) || defined.is_empty() {
            true => [f64::NEG_INFINITY, f64::INFINITY],
            false => middle(&defined, confidence),
        }
    }

    /// The p-value of the claim that the contrast lies within a margin: the share of resamples beyond it, of the two ends the greater one. A resample on which
    /// a score is not defined lies beyond.
    pub fn within_margin(&self, margin: Margin) -> f64 {
        let share = |is_beyond: &dyn Fn(f64) -> bool| {
            let count = self.values.iter().filter(|value| value.is_nan() || is_beyond(**value)).count();
            (count + 1) as f64 / (self.values.len() + 1) as f64
        };
        let below = share(&|value| value <= -margin.size());
        match margin {
            Margin::NoWorse(_) => below,
            Margin::Equivalent(size) => below.max(share(&|value| value >= size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{ContinuousCDF, Normal};

    use super::super::super::Combination;
    use super::super::PairedOutputs;
    use super::*;

    fn key() -> RandomKey {
        RandomKey::from_seed(1)
    }

    fn mean(sum: &[f64]) -> f64 {
        sum[0] / sum[1]
    }

    fn statistics(rows: impl IntoIterator<Item = f64>) -> ItemStatistics {
        ItemStatistics::new(rows.into_iter().map(|value| vec![value, 1.0]))
    }

    fn term(weight: f64, set: usize, runs: &[ItemStatistics]) -> Term<'_> {
        Term { weight, set, runs, score: &mean }
    }

    fn contrast<'a>(terms: &[Term<'a>]) -> Contrast<'a> {
        Contrast { terms: terms.to_vec(), divisor: Vec::new() }
    }

    /// Values between -1 and 1 without a pattern that matters.
    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut rng = RandomKey::from_seed(seed).rng();
        (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    #[test]
    fn a_contrast_of_four_is_a_difference_of_differences_for_each_seed() {
        let [a, b, c, d] = [[1.0, 2.0], [0.5, 0.5], [3.0, 1.0], [1.0, 4.0]].map(|scores| scores.map(|score| statistics([score])));
        let four = contrast(&[term(1.0, 0, &a), term(1.0, 0, &d), term(-1.0, 0, &b), term(-1.0, 0, &c)]);
        assert_eq!(four.by_seed(), [(1.0 - 0.5) - (3.0 - 1.0), (2.0 - 0.5) - (1.0 - 4.0)]);
        assert_eq!(four.value(), 1.5);
        let share = Contrast { divisor: vec![term(1.0, 0, &c), term(-1.0, 0, &b)], ..contrast(&[term(1.0, 0, &a), term(-1.0, 0, &b)]) };
        assert_eq!((share.by_seed(), share.value()), (vec![0.2, 3.0], 2.0 / 3.0));
    }

    #[test]
    fn the_bootstrap_has_the_variance_of_both_levels() {
        // Each run adds its own deviation to the items' differences.
        let (runs, items) = (7, 60);
        let deviations: Vec<f64> = noise(1, runs).into_iter().map(|deviation| 0.3 * deviation).collect();
        let system: Vec<_> =
            (0..runs).map(|run| statistics(noise(10 + run as u64, items).iter().map(|v| 1.0 + deviations[run] + v))).collect();
        let baseline: Vec<_> = (0..runs).map(|_| statistics(vec![0.0; items])).collect();
        let own = contrast(&[term(1.0, 0, &system), term(-1.0, 0, &baseline)]);
        let variance = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
        };
        let within: f64 = system.iter().map(|run| variance(&run.rows().map(|row| row[0]).collect::<Vec<_>>()) / items as f64).sum::<f64>();
        let expected = (variance(&own.by_seed()) + within / runs as f64) / runs as f64;
        let resampled = own.bootstrap(4000, &key());
        let found = variance(&resampled.values);
        assert!((found / expected - 1.0).abs() < 0.08, "{found} instead of {expected}");
        assert!(within / runs as f64 > 0.02 * variance(&own.by_seed()), "items matter");
        let [low, high] = resampled.interval(0.9);
        let reach = Normal::standard().inverse_cdf(0.95) * expected.sqrt();
        assert!(
            (low - (own.value() - reach)).abs() < 0.25 * reach && (high - (own.value() + reach)).abs() < 0.25 * reach,
            "{low} to {high}"
        );
        assert_eq!(own.bootstrap(4000, &key()), resampled);
    }

    #[test]
    fn resamples_draw_the_same_items_for_contenders_of_one_set_alone() {
        let rows = noise(3, 50);
        let (one, other) = ([statistics(rows.clone())], [statistics(rows.iter().map(|value| value - 0.5))]);
        let same = contrast(&[term(1.0, 0, &one), term(-1.0, 0, &other)]).bootstrap(200, &key()).interval(0.99);
        assert!(same.iter().all(|end| (end - 0.5).abs() < 1e-12), "{same:?}");
        let apart = contrast(&[term(1.0, 0, &one), term(-1.0, 1, &other)]).bootstrap(200, &key()).interval(0.99);
        assert!(apart[1] - apart[0] > 0.2, "{apart:?}");
    }

    #[test]
    fn randomisation_of_one_pair_is_that_of_paired_outputs() {
        let right =
            |shift: usize, below: usize| statistics((0..400).map(move |item| f64::from(u8::from((item * 37 + shift) % 101 < below))));
        let (system, baseline) = ([right(0, 63), right(9, 63)], [right(3, 59), right(40, 59)]);
        let own = contrast(&[term(1.0, 0, &system), term(-1.0, 0, &baseline)]).randomisation(4000, &key()).unwrap();
        let pair = PairedOutputs { system: &system, baseline: &baseline, score: &mean }.randomisation(4000, &key());
        assert!((own.value - pair.value).abs() < 1e-12 && own.p > 0.01 && own.p < 0.99, "{own:?}");
        assert!((own.p - pair.p).abs() < 0.03, "{} and {}", own.p, pair.p);
    }

    #[test]
    fn randomisation_finds_an_interaction_and_not_a_common_effect() {
        let with = |seed: u64, shift: f64| [statistics(noise(seed, 300).into_iter().map(|value| value + shift))];
        // Leaving something out costs both 2, or the second 0.5 more.
        for (further, is_found) in [(0.0, false), (0.5, true)] {
            let (a, a_without, b, b_without) = (with(1, 5.0), with(2, 3.0), with(3, 4.0), with(4, 2.0 - further));
            let four = contrast(&[term(1.0, 0, &b), term(1.0, 0, &a_without), term(-1.0, 0, &a), term(-1.0, 0, &b_without)]);
            let p = four.randomisation(2000, &key()).unwrap().p;
            assert_eq!(p < 0.001, is_found, "{p}");
        }
    }

    #[test]
    fn only_pairs_on_the_same_items_swap() {
        let (one, other) = ([statistics(noise(1, 9))], [statistics(noise(2, 9))]);
        assert_eq!(contrast(&[term(1.0, 0, &one), term(-1.0, 1, &other)]).randomisation(10, &key()), None);
        assert_eq!(contrast(&[term(1.0, 0, &one), term(-0.5, 0, &other)]).randomisation(10, &key()), None);
        assert_eq!(contrast(&[term(1.0, 0, &one)]).randomisation(10, &key()), None);
    }

    #[test]
    fn margins_count_the_resamples_beyond_them() {
        let resampled = Resampled { values: (0..99).map(|n| f64::from(n) - 49.0).collect() };
        // 10 values are at most -40, and as many at least 40.
        assert_eq!(resampled.within_margin(Margin::NoWorse(40.0)), 11.0 / 100.0);
        assert_eq!(resampled.within_margin(Margin::Equivalent(40.0)), 11.0 / 100.0);
        let shifted = Resampled { values: resampled.values.iter().map(|value| value + 10.0).collect() };
        assert_eq!(shifted.within_margin(Margin::NoWorse(40.0)), 1.0 / 100.0);
        assert_eq!(shifted.within_margin(Margin::Equivalent(40.0)), 21.0 / 100.0);
    }

    #[test]
    fn undefined_resamples_lie_beyond_every_margin_and_bound_nothing() {
        let values = |undefined: usize| (0..200 - undefined).map(|n| n as f64 / 200.0).chain(vec![f64::NAN; undefined]).collect();
        let (few, many) = (Resampled { values: values(1) }, Resampled { values: values(40) });
        assert_eq!(few.interval(0.95), [4.0 / 200.0, 194.0 / 200.0]);
        assert_eq!(many.interval(0.95), [f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!(many.within_margin(Margin::NoWorse(9.0)), 41.0 / 201.0);
    }

    #[test]
    fn corpus_scores_are_those_of_the_drawn_items() {
        // A ratio of sums is no mean of ratios.
        let rows = vec![vec![1.0, 1.0], vec![1.0, 9.0]];
        let runs = [Combination::Ratio.terms(&rows).unwrap()];
        let score = |sum: &[f64]| Combination::Ratio.score(sum);
        let ratio = Contrast { terms: vec![Term { weight: 1.0, set: 0, runs: &runs, score: &score }], divisor: Vec::new() };
        assert_eq!(ratio.value(), 0.2);
        assert_eq!(ratio.bootstrap(500, &key()).interval(0.99), [1.0 / 9.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "same seeds")]
    fn contenders_with_other_numbers_of_runs_are_refused() {
        let (one, two) = ([statistics([1.0])], [statistics([1.0]), statistics([2.0])]);
        contrast(&[term(1.0, 0, &one), term(-1.0, 0, &two)]).value();
    }
}
