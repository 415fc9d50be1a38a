//! Tests over the items of a test set: its sentences, examples, questions.

use heedful_random::RandomKey;
use rand::RngExt;
use rayon::prelude::*;

use super::{Difference, middle};

/// What a score is computed from, by item: the score is a function of the sum.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemStatistics {
    width: usize,
    values: Vec<f64>,
}

impl ItemStatistics {
    /// One row of equal width for each item.
    ///
    /// # Panics
    /// If the rows differ in width.
    pub fn new(rows: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let width = rows.peek().map_or(0, Vec::len);
        let values = rows.inspect(|row| assert_eq!(row.len(), width, "items have as many statistics as the first")).flatten().collect();
        Self { width, values }
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// The sum over all items.
    pub fn total(&self) -> Vec<f64> {
        self.sum_of(0..self.items())
    }

    /// The statistics of each item.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// The sum over these items, each as often as it is named.
    pub(super) fn sum_of(&self, items: impl IntoIterator<Item = usize>) -> Vec<f64> {
        let mut sum = vec![0.0; self.width];
        items.into_iter().for_each(|item| self.add(item, &mut sum));
        sum
    }

    /// The sums over all items of both, after those that are marked have swapped sides.
    pub(super) fn swapped(&self, other: &Self, swaps: &[bool]) -> [Vec<f64>; 2] {
        let mut sums = [vec![0.0; self.width], vec![0.0; self.width]];
        for (item, &swap) in swaps.iter().enumerate() {
            self.add(item, &mut sums[usize::from(swap)]);
            other.add(item, &mut sums[usize::from(!swap)]);
        }
        sums
    }

    fn add(&self, item: usize, sum: &mut [f64]) {
        let row = &self.values[item * self.width..(item + 1) * self.width];
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
}

/// What two systems gave for the same items, once for each of their runs. A system's score is the mean over its runs.
#[derive(Clone, Copy)]
pub struct PairedOutputs<'a> {
    /// Each run of the system.
    pub system: &'a [ItemStatistics],
    /// Each run of the baseline.
    pub baseline: &'a [ItemStatistics],
    /// The score that summed statistics amount to.
    pub score: &'a (dyn Fn(&[f64]) -> f64 + Sync),
}

impl PairedOutputs<'_> {
    /// Paired bootstrap resampling: how often do test sets drawn from this one, with replacement, move the difference by as much as it amounts to?
    ///
    /// `p` is sacreBLEU's: with `dᵢ = |difference on resample i|`, the share of resamples whose `dᵢ − mean(d)` is more than the difference observed. The
    /// interval holds the middle `confidence` of the differences. `key` is the stream that the resamples are drawn from. By that count equal systems
    /// have the smallest `p` there is, `1 / (resamples + 1)`. Where the difference is clear, hardly a resample has the other sign, and `p` is that of a
    /// one-sided test; whether zero lies in the interval is the two-sided question.
    ///
    /// # Panics
    /// If a side has no run, or if runs differ in the number of their items.
    pub fn bootstrap(&self, confidence: f64, resamples: usize, key: &RandomKey) -> Difference {
        let items = self.items();
        self.bootstrap_with(confidence, resamples, |resample| {
            let mut rng = key.numbered(resample as u64).rng();
            (0..items).map(|_| rng.random_range(0..items)).collect()
        })
    }

    fn bootstrap_with(&self, confidence: f64, resamples: usize, draw: impl Fn(usize) -> Vec<usize> + Sync) -> Difference {
        let value = self.difference();
        let on_resample = |resample: usize| {
            let chosen = draw(resample);
            self.mean_score(self.system, &chosen) - self.mean_score(self.baseline, &chosen)
        };
        let mut differences: Vec<f64> = (0..resamples).into_par_iter().map(on_resample).collect();
        let mean = differences.iter().map(|difference| difference.abs()).sum::<f64>() / resamples as f64;
        let p = estimated_p(differences.iter().map(|difference| difference.abs() - mean > value.abs()));
        differences.sort_by(f64::total_cmp);
        let interval = (resamples > 0).then(|| middle(&differences, confidence));
        Difference { value, interval, p, resamples: Some(resamples) }
    }

    /// Paired approximate randomisation: how often is the difference as large if both systems swap their output on half of the items, at random?
    ///
    /// `p` is sacreBLEU's, but for resamples whose difference is the one observed: they count (Noreen 1989). A share of items that were answered right has many
    /// of them, and equal systems have a `p` of 1. Run `i` of the system swaps with run `i` of the baseline. `key` is the stream that the swaps are drawn from.
    ///
    /// # Panics
    /// If the sides differ in the number of runs or have none, or if runs differ in the number of their items.
    pub fn randomisation(&self, resamples: usize, key: &RandomKey) -> Difference {
        let items = self.items();
        self.randomisation_with(resamples, |resample| {
            let mut rng = key.numbered(resample as u64).rng();
            (0..items).map(|_| rng.random()).collect()
        })
    }

    fn randomisation_with(&self, resamples: usize, draw: impl Fn(usize) -> Vec<bool> + Sync) -> Difference {
        let value = self.difference();
        // Sums in another order differ in their last digits.
        let least = value.abs() * (1.0 - 1e-9);
        let p = estimated_p(self.swapped(resamples, draw).iter().map(|&difference| difference >= least));
        Difference { value, interval: None, p, resamples: Some(resamples) }
    }

    /// How far apart the sides are in each resample, without a sign.
    fn swapped(&self, resamples: usize, draw: impl Fn(usize) -> Vec<bool> + Sync) -> Vec<f64> {
        assert_eq!(self.system.len(), self.baseline.len(), "each run of the system swaps with one of the baseline");
        let on_resample = |resample: usize| {
            let swaps = draw(resample);
            let differences = self.system.iter().zip(self.baseline).map(|(system, baseline)| {
                let sums = system.swapped(baseline, &swaps);
                (self.score)(&sums[0]) - (self.score)(&sums[1])
            });
            (differences.sum::<f64>() / self.system.len() as f64).abs()
        };
        (0..resamples).into_par_iter().map(on_resample).collect()
    }

    fn difference(&self) -> f64 {
        let all: Vec<usize> = (0..self.items()).collect();
        self.mean_score(self.system, &all) - self.mean_score(self.baseline, &all)
    }

    fn mean_score(&self, runs: &[ItemStatistics], chosen: &[usize]) -> f64 {
        let score = |run: &ItemStatistics| (self.score)(&run.sum_of(chosen.iter().copied()));
        runs.iter().map(score).sum::<f64>() / runs.len() as f64
    }

    fn items(&self) -> usize {
        assert!(!self.system.is_empty() && !self.baseline.is_empty(), "both systems need at least one run");
        let items = self.system[0].items();
        let runs = self.system.iter().chain(self.baseline);
        runs.for_each(|run| assert_eq!(run.items(), items, "all runs need the same items"));
        items
    }
}

/// sacreBLEU's `(count + 1) / (n + 1)` of the resamples that are as far.
fn estimated_p(is_as_far: impl ExactSizeIterator<Item = bool>) -> f64 {
    let n = is_as_far.len();
    (is_as_far.filter(|&is_as_far| is_as_far).count() + 1) as f64 / (n + 1) as f64
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use statrs::distribution::{ContinuousCDF, Normal};

    use super::super::super::fixtures::{assert_agrees, load};
    use super::super::super::{Bleu, ChrF, Combination, CorpusMetric};
    use super::super::mcnemar;
    use super::*;

    #[derive(Deserialize)]
    struct Translations {
        name: String,
        system: Vec<String>,
        baseline: Vec<String>,
        references: Vec<String>,
        selections: Vec<Vec<usize>>,
        swaps: Vec<Vec<bool>>,
        bleu: Paired,
        chrf: Paired,
    }

    #[derive(Deserialize)]
    struct Paired {
        difference: f64,
        interval: [f64; 2],
        bootstrap: f64,
        randomisation: f64,
    }

    fn key() -> RandomKey {
        RandomKey::from_seed(1)
    }

    fn statistics(rows: &[f64]) -> ItemStatistics {
        ItemStatistics::new(rows.iter().map(|&value| vec![value, 1.0]))
    }

    fn mean(sum: &[f64]) -> f64 {
        sum[0] / sum[1]
    }

    #[test]
    fn tests_over_sentences_agree_with_sacrebleu() {
        let cases: Vec<Translations> = load("paired");
        assert!(cases.len() >= 3);
        for case in cases {
            for (metric, expected) in [(CorpusMetric::Bleu(Bleu::default()), &case.bleu), (CorpusMetric::ChrF(ChrF::default()), &case.chrf)]
            {
                let runs = [&case.system, &case.baseline].map(|text| [metric.statistics(text, &case.references)]);
                let score = |sum: &[f64]| metric.score(sum);
                let outputs = PairedOutputs { system: &runs[0], baseline: &runs[1], score: &score };
                let bootstrap = outputs.bootstrap_with(0.95, case.selections.len(), |resample| case.selections[resample].clone());
                let what = format!("{}, {metric:?}", case.name);
                assert_agrees(bootstrap.value, expected.difference, &what);
                assert_agrees(bootstrap.p, expected.bootstrap, &what);
                let [low, high] = bootstrap.interval.unwrap();
                assert_agrees(low, expected.interval[0], &what);
                assert_agrees(high, expected.interval[1], &what);
                // sacreBLEU leaves out resamples that are exactly as far, which is all the difference.
                let swapped = outputs.swapped(case.swaps.len(), |resample| case.swaps[resample].clone());
                let farther = |least: f64| swapped.iter().map(move |&difference| difference > least);
                assert_agrees(estimated_p(farther(bootstrap.value.abs())), expected.randomisation, &what);
                let counted = outputs.randomisation_with(case.swaps.len(), |resample| case.swaps[resample].clone());
                assert_agrees(counted.p, estimated_p(farther(bootstrap.value.abs() - 1e-6)), &what);
                assert!(case.system != case.baseline || counted.p == 1.0, "{what}");
            }
        }
    }

    #[test]
    fn items_tell_a_real_difference_from_none() {
        let noise: Vec<f64> = (0..200).map(|n| f64::from(n * 37 % 101)).collect();
        let better: Vec<f64> = noise.iter().enumerate().map(|(n, value)| value + 2.0 + (n % 3) as f64).collect();
        let other: Vec<f64> = noise.iter().enumerate().map(|(n, value)| value + if n % 2 == 0 { 5.0 } else { -5.0 }).collect();
        for (scores, is_real) in [(&better, true), (&other, false)] {
            let (system, baseline) = ([statistics(scores)], [statistics(&noise)]);
            let outputs = PairedOutputs { system: &system, baseline: &baseline, score: &mean };
            let tests = [outputs.bootstrap(0.95, 500, &key()), outputs.randomisation(500, &key())];
            for Difference { p, .. } in tests {
                assert!(if is_real { p < 0.01 } else { p > 0.2 }, "{p}");
            }
            let [low, high] = tests[0].interval.unwrap();
            assert_eq!(low > 0.0 || high < 0.0, is_real, "{low} to {high}");
            assert_eq!(outputs.bootstrap(0.95, 500, &key()), tests[0]);
        }
    }

    #[test]
    fn tests_of_an_accuracy_come_near_what_theory_says_of_many_items() {
        // Of 2000 items, 130 are right for the system alone and 100 for the baseline alone.
        let (items, gained, lost, resamples) = (2000.0_f64, 130, 100, 10_000);
        let right = |is_right: &dyn Fn(usize) -> bool| {
            let rows: Vec<Vec<f64>> = (0..items as usize).map(|item| vec![f64::from(u8::from(is_right(item)))]).collect();
            [Combination::Mean.terms(&rows).unwrap()]
        };
        let system = right(&|item| item < gained || item >= gained + lost);
        let baseline = right(&|item| item >= gained);
        let score = |sum: &[f64]| Combination::Mean.score(sum);
        let outputs = PairedOutputs { system: &system, baseline: &baseline, score: &score };
        let (net, either) = ((gained - lost) as f64, (gained + lost) as f64);
        let (value, error) = (net / items, (either - net * net / items).sqrt() / items);
        let normal = Normal::standard();

        let bootstrap = outputs.bootstrap(0.9, resamples, &key());
        assert_agrees(bootstrap.value, value, "difference");
        for (end, quantile) in bootstrap.interval.unwrap().into_iter().zip([0.05, 0.95]) {
            let expected = value + normal.inverse_cdf(quantile) * error;
            assert!((end - expected).abs() < 0.08 * error, "{end} instead of {expected}");
        }
        let one_sided = normal.sf(value / error);
        assert!((bootstrap.p - one_sided).abs() < 0.006, "{} instead of {one_sided}", bootstrap.p);

        let exact = mcnemar(gained as u64, lost as u64);
        let swapped = outputs.randomisation(resamples, &key()).p;
        assert!((swapped - exact).abs() < 0.008, "{swapped} instead of {exact}: swaps are McNemar's coins");
    }

    #[test]
    fn the_score_of_several_runs_is_their_mean() {
        let system = [statistics(&[1.0, 2.0]), statistics(&[3.0, 4.0])];
        let baseline = [statistics(&[0.0, 1.0])];
        let difference = PairedOutputs { system: &system, baseline: &baseline, score: &mean }.bootstrap(0.95, 10, &key());
        assert_eq!((difference.value, difference.interval), (2.0, Some([2.0, 2.0])));
        assert_eq!(difference.p, 1.0 / 11.0, "every resample has the same difference");
    }

    #[test]
    #[should_panic(expected = "same items")]
    fn outputs_on_other_items_are_refused() {
        let (system, baseline) = ([statistics(&[1.0, 2.0])], [statistics(&[1.0])]);
        PairedOutputs { system: &system, baseline: &baseline, score: &mean }.bootstrap(0.95, 10, &key());
    }
}
