//! Tests over the sentences of a test set.

use heedful_attention::random::RandomKey;
use rand::RngExt;
use rayon::prelude::*;

use super::super::bleu::MAX_ORDER;
use super::super::{Bleu, BleuStatistics, ChrF, ChrFStatistics, NgramOverlap};
use super::Difference;

/// A corpus score of hypotheses and references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CorpusMetric {
    /// BLEU.
    Bleu(Bleu),
    /// chrF.
    ChrF(ChrF),
}

impl CorpusMetric {
    /// What the score is computed from, by sentence, with one reference each.
    ///
    /// # Panics
    /// If there are no hypotheses or not as many references.
    pub fn statistics<H: AsRef<str>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[R]) -> SentenceStatistics {
        let references: Vec<[&str; 1]> = references.iter().map(|reference| [reference.as_ref()]).collect();
        let row = |counts: &mut dyn Iterator<Item = u64>| counts.map(|count| count as f64).collect();
        match self {
            Self::Bleu(bleu) => SentenceStatistics::new(bleu.corpus_statistics(hypotheses, &references).into_iter().map(
                |BleuStatistics { sys_len, ref_len, counts, totals }| row(&mut [sys_len, ref_len].into_iter().chain(counts).chain(totals)),
            )),
            Self::ChrF(chrf) => SentenceStatistics::new(chrf.corpus_statistics(hypotheses, &references).into_iter().map(|statistics| {
                row(&mut statistics.orders.into_iter().flat_map(|order| [order.hypothesis, order.reference, order.matches]))
            })),
        }
    }

    /// The score, 0 to 100, that summed statistics amount to.
    ///
    /// # Panics
    /// If the statistics are those of another metric.
    pub fn score(&self, sum: &[f64]) -> f64 {
        // Counts are whole and far below what a float holds exactly.
        let counts: Vec<u64> = sum.iter().map(|&count| count as u64).collect();
        match self {
            Self::Bleu(bleu) => {
                let order = |first: usize| std::array::from_fn(|order| counts[first + order]);
                let [sys_len, ref_len] = [counts[0], counts[1]];
                bleu.score(&BleuStatistics { sys_len, ref_len, counts: order(2), totals: order(2 + MAX_ORDER) }).score
            }
            Self::ChrF(chrf) => {
                let overlap = |order: &[u64]| NgramOverlap { hypothesis: order[0], reference: order[1], matches: order[2] };
                chrf.score(&ChrFStatistics { orders: counts.chunks_exact(3).map(overlap).collect() }).score
            }
        }
    }
}

/// What a corpus score is computed from, by sentence: the score is a function of the sum.
#[derive(Clone, Debug, PartialEq)]
pub struct SentenceStatistics {
    width: usize,
    values: Vec<f64>,
}

impl SentenceStatistics {
    /// One row of equal width for each sentence.
    ///
    /// # Panics
    /// If the rows differ in width.
    pub fn new(rows: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let width = rows.peek().map_or(0, Vec::len);
        let values = rows.inspect(|row| assert_eq!(row.len(), width, "sentences have as many statistics as the first")).flatten().collect();
        Self { width, values }
    }

    /// The number of sentences.
    pub fn sentences(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// The sum over all sentences.
    pub fn total(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.width];
        (0..self.sentences()).for_each(|sentence| self.add(sentence, &mut sum));
        sum
    }

    fn add(&self, sentence: usize, sum: &mut [f64]) {
        let row = &self.values[sentence * self.width..(sentence + 1) * self.width];
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
}

/// What two systems said to the same sentences, once for each of their runs. A system's score is the mean over its runs.
#[derive(Clone, Copy)]
pub struct PairedOutputs<'a> {
    /// Each run of the system.
    pub system: &'a [SentenceStatistics],
    /// Each run of the baseline.
    pub baseline: &'a [SentenceStatistics],
    /// The score that summed statistics amount to.
    pub score: &'a (dyn Fn(&[f64]) -> f64 + Sync),
}

impl PairedOutputs<'_> {
    /// Paired bootstrap resampling: how often do test sets drawn from this one, with replacement, move the difference by as much as it amounts to?
    ///
    /// `p` is sacreBLEU's: with `dᵢ = |difference on resample i|`, the share of resamples whose `dᵢ − mean(d)` is more than the difference observed. The
    /// interval holds the middle `confidence` of the differences. `key` is the stream that the resamples are drawn from. By that count equal systems
    /// have the smallest `p` there is, `1 / (resamples + 1)`; so they have in [`Self::randomisation`].
    ///
    /// # Panics
    /// If a side has no run, or if runs differ in the number of their sentences.
    pub fn bootstrap(&self, confidence: f64, resamples: usize, key: &RandomKey) -> Difference {
        let sentences = self.sentences();
        self.bootstrap_with(confidence, resamples, |resample| {
            let mut rng = key.numbered(resample as u64).rng();
            (0..sentences).map(|_| rng.random_range(0..sentences)).collect()
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
        let p = estimated_p(differences.iter().map(|difference| difference.abs() - mean), value.abs());
        differences.sort_by(f64::total_cmp);
        // A share that is a whole number of resamples must not fall short of it by rounding.
        let outside = (resamples as f64 * (1.0 - confidence) / 2.0 + 1e-9) as usize;
        let interval = differences.get(outside).zip(differences.iter().nth_back(outside)).map(|(&low, &high)| [low, high]);
        Difference { value, interval, p, resamples: Some(resamples) }
    }

    /// Paired approximate randomisation: how often is the difference as large if both systems swap their output on half of the sentences, at random?
    ///
    /// `p` is sacreBLEU's. Run `i` of the system swaps with run `i` of the baseline. `key` is the stream that the swaps are drawn from.
    ///
    /// # Panics
    /// If the sides differ in the number of runs or have none, or if runs differ in the number of their sentences.
    pub fn randomisation(&self, resamples: usize, key: &RandomKey) -> Difference {
        let sentences = self.sentences();
        self.randomisation_with(resamples, |resample| {
            let mut rng = key.numbered(resample as u64).rng();
            (0..sentences).map(|_| rng.random()).collect()
        })
    }

    fn randomisation_with(&self, resamples: usize, draw: impl Fn(usize) -> Vec<bool> + Sync) -> Difference {
        assert_eq!(self.system.len(), self.baseline.len(), "each run of the system swaps with one of the baseline");
        let value = self.difference();
        let on_resample = |resample: usize| {
            let swaps = draw(resample);
            let differences = self.system.iter().zip(self.baseline).map(|(system, baseline)| {
                let mut sums = [vec![0.0; system.width], vec![0.0; system.width]];
                for (sentence, &swap) in swaps.iter().enumerate() {
                    system.add(sentence, &mut sums[usize::from(swap)]);
                    baseline.add(sentence, &mut sums[usize::from(!swap)]);
                }
                (self.score)(&sums[0]) - (self.score)(&sums[1])
            });
            (differences.sum::<f64>() / self.system.len() as f64).abs()
        };
        let differences: Vec<f64> = (0..resamples).into_par_iter().map(on_resample).collect();
        Difference { value, interval: None, p: estimated_p(differences.into_iter(), value.abs()), resamples: Some(resamples) }
    }

    fn difference(&self) -> f64 {
        let all: Vec<usize> = (0..self.sentences()).collect();
        self.mean_score(self.system, &all) - self.mean_score(self.baseline, &all)
    }

    fn mean_score(&self, runs: &[SentenceStatistics], chosen: &[usize]) -> f64 {
        let score = |run: &SentenceStatistics| {
            let mut sum = vec![0.0; run.width];
            chosen.iter().for_each(|&sentence| run.add(sentence, &mut sum));
            (self.score)(&sum)
        };
        runs.iter().map(score).sum::<f64>() / runs.len() as f64
    }

    fn sentences(&self) -> usize {
        assert!(!self.system.is_empty() && !self.baseline.is_empty(), "both systems need at least one run");
        let sentences = self.system[0].sentences();
        let runs = self.system.iter().chain(self.baseline);
        runs.for_each(|run| assert_eq!(run.sentences(), sentences, "all runs need the same sentences"));
        sentences
    }
}

/// sacreBLEU's `(count + 1) / (n + 1)` of the values greater than `observed`.
fn estimated_p(values: impl ExactSizeIterator<Item = f64>, observed: f64) -> f64 {
    let n = values.len();
    (values.filter(|&value| value > observed).count() + 1) as f64 / (n + 1) as f64
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::super::fixtures::{assert_agrees, load};
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

    fn statistics(rows: &[f64]) -> SentenceStatistics {
        SentenceStatistics::new(rows.iter().map(|&value| vec![value, 1.0]))
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
                let swapped = outputs.randomisation_with(case.swaps.len(), |resample| case.swaps[resample].clone());
                assert_agrees(swapped.p, expected.randomisation, &what);
            }
        }
    }

    #[test]
    fn sentences_tell_a_real_difference_from_none() {
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
    fn the_score_of_several_runs_is_their_mean() {
        let system = [statistics(&[1.0, 2.0]), statistics(&[3.0, 4.0])];
        let baseline = [statistics(&[0.0, 1.0])];
        let difference = PairedOutputs { system: &system, baseline: &baseline, score: &mean }.bootstrap(0.95, 10, &key());
        assert_eq!((difference.value, difference.interval), (2.0, Some([2.0, 2.0])));
        assert_eq!(difference.p, 1.0 / 11.0, "every resample has the same difference");
    }

    #[test]
    #[should_panic(expected = "same sentences")]
    fn outputs_on_other_sentences_are_refused() {
        let (system, baseline) = ([statistics(&[1.0, 2.0])], [statistics(&[1.0])]);
        PairedOutputs { system: &system, baseline: &baseline, score: &mean }.bootstrap(0.95, 10, &key());
    }
}
