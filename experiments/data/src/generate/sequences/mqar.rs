//! Multi-query associative recall, MQAR (Arora et al. 2023, arXiv 2312.04927, section 4 and appendix; the generator of the authors' zoology).
//!
//! A sequence begins with `n` pairs `k v`. In the `N - 2n` positions after them each key is queried once: the token that is expected at the position of the
//! queried key is its value, which does not follow in the sequence. Keys are drawn without replacement from the tokens 1 to `V/2 - 1`, values from `V/2` to
//! `V - 1`; 0 fills the rest.
//!
//! The positions after the pairs form `G = (N - 2n) / 2` slots of two positions; a query may take the first position of a slot. Slots are drawn without
//! replacement, slot `g` (from 0) with a probability proportional to `(g + 1)^(a - 1)`: most queries come soon after the pairs.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, LONGEST, Level, Purpose, ScoredSequence, SequenceTaskError, distinct, ensure, ensure_vocabulary, token};

/// Options of MQAR.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqarConfig {
    /// Number of tokens `V`, more than a sequence has; 8192 in the paper.
    pub vocabulary: usize,
    /// `[N, n]`, length and pairs of the sequences that are trained on and tested. `N` is even and at least `4 n`.
    pub segments: Vec<[usize; 2]>,
    /// The same of sequences that are tested alone.
    pub longer: Vec<[usize; 2]>,
    /// Exponent `a` of the distribution of query slots; 1 makes it uniform.
    pub power: f64,
    /// Whether all tokens of the vocabulary fill the rest, keys and values among them, in place of 0.
    pub random_fillers: bool,
}

impl Default for MqarConfig {
    fn default() -> Self {
        Self { vocabulary: 256, segments: vec![[64, 4], [64, 8], [64, 16]], longer: Vec::new(), power: 0.01, random_fillers: false }
    }
}

impl MqarConfig {
    fn segment(&self, level: usize) -> [usize; 2] {
        *self.segments.iter().chain(&self.longer).nth(level).expect("there is such a level")
    }
}

impl Generator for MqarConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure(!self.segments.is_empty(), "segments", || {
            "none is given; give a length and a number of pairs, such as [[64, 4]]".to_owned()
        })?;
        let (mut longest, mut seen) = (0, Vec::new());
        for (field, segments) in [("segments", &self.segments), ("longer", &self.longer)] {
            for segment @ &[length, pairs] in segments {
                ensure(pairs > 0 && length.is_multiple_of(2) && pairs <= length / 4 && length <= LONGEST, field, || {
                    format!(
                        "a length of {length} with {pairs} pairs: give an even length up to {LONGEST}, and one pair to a quarter of the length"
                    )
                })?;
                ensure(!seen.contains(segment), field, || format!("{segment:?} is named twice"))?;
                seen.push(*segment);
                longest = longest.max(length);
            }
        }
        // There are more tokens than in any sequence, so that there are enough keys as well.
        ensure_vocabulary(self.vocabulary, longest + 1)?;
        ensure(self.power.is_finite(), "power", || format!("{} is not a number", self.power))
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        let level = |longer| move |&[length, pairs]: &[usize; 2]| Level { name: format!("N={length}, n={pairs}"), length, longer };
        (self.vocabulary, self.segments.iter().map(level(false)).chain(self.longer.iter().map(level(true))).collect())
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let [length, pairs] = self.segment(level);
        let half = self.vocabulary / 2;
        let keys = distinct(rng, 1, half - 1, pairs);
        let values = distinct(rng, half, self.vocabulary - half, pairs);
        let mut tokens: Vec<u32> = keys.iter().zip(&values).flat_map(|(&key, &value)| [key, value]).collect();
        tokens.resize(length, 0);
        // The first n of these exponential waiting times are a draw without replacement, in the order of the draws.
        let slots = (length - 2 * pairs) / 2;
        let mut waits: Vec<(f64, usize)> =
            (0..slots).map(|slot| (-(1.0 - rng.random::<f64>()).ln() / ((slot + 1) as f64).powf(self.power - 1.0), slot)).collect();
        waits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut targets = Vec::with_capacity(pairs);
        for ((&key, &value), (_, slot)) in keys.iter().zip(&values).zip(waits) {
            let at = 2 * pairs + 2 * slot;
            tokens[at] = key;
            targets.push((at, value));
        }
        targets.sort_unstable();
        if self.random_fillers {
            tokens.iter_mut().filter(|filler| **filler == 0).for_each(|filler| *filler = token(rng, 0, self.vocabulary));
        }
        ScoredSequence { tokens, targets }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use heedful_random::RandomKey;

    use super::*;

    const ROWS: u64 = 10_000;

    fn rows(length: usize, pairs: usize) -> impl Iterator<Item = ScoredSequence> {
        let config = MqarConfig { segments: vec![[length, pairs]], vocabulary: 1024, ..MqarConfig::default() };
        config.validate().unwrap();
        let key = RandomKey::from_seed(5);
        (0..ROWS).map(move |number| config.draw(0, Purpose::Training, &mut key.numbered(number).rng()))
    }

    #[test]
    fn every_key_is_queried_once_and_its_value_stands_among_the_pairs_alone() {
        for row in rows(64, 8).take(500) {
            let (context, queries) = row.tokens.split_at(16);
            let pairs: HashMap<u32, u32> = context.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            assert_eq!((pairs.len(), pairs.values().collect::<HashSet<_>>().len(), row.targets.len()), (8, 8, 8));
            assert!(pairs.iter().all(|(key, value)| (1..512).contains(key) && (512..1024).contains(value)));
            for &(at, value) in &row.targets {
                assert_eq!((at % 2, pairs[&row.tokens[at]]), (0, value));
            }
            let queried: HashSet<_> = row.targets.iter().map(|&(at, _)| row.tokens[at]).collect();
            assert_eq!(queried, pairs.keys().copied().collect());
            assert_eq!(queries.iter().filter(|&&token| token == 0).count(), 64 - 16 - 8);
            assert!(queries.iter().all(|&token| token < 512), "a value stands after the pairs");
        }
    }

    /// One pair has one draw of a slot; its probabilities are those of the power law (chi-squared, 30 degrees of freedom, 0.1 % at 59.7).
    #[test]
    fn slots_follow_the_power_law_of_the_first_draw() {
        let mut counts = [0u32; 31];
        for row in rows(64, 1) {
            counts[(row.targets[0].0 - 2) / 2] += 1;
        }
        let weights: Vec<f64> = (1..=31).map(|slot| f64::from(slot).powf(-0.99)).collect();
        let total: f64 = weights.iter().sum();
        let chi: f64 = weights
            .iter()
            .zip(counts)
            .map(|(weight, count)| {
                let expected = ROWS as f64 * weight / total;
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        assert!(chi < 59.7, "{chi}: {counts:?}");
    }

    /// The share of queries whose value lies less than a window before, in percent, as computed of the authors' generator.
    #[test]
    fn distances_from_queries_to_values_are_those_of_the_published_generator() {
        for (length, pairs, shares) in [
            (64, 4, [33.0, 58.0, 80.0, 100.0]),
            (64, 8, [8.0, 39.0, 76.0, 100.0]),
            (64, 16, [0.0, 4.0, 59.0, 100.0]),
            (256, 16, [1.0, 7.0, 32.0, 60.0]),
        ] {
            let mut within = [0u64; 4];
            for row in rows(length, pairs) {
                for &(at, value) in &row.targets {
                    let distance = at - row.tokens.iter().position(|&token| token == value).unwrap();
                    within.iter_mut().zip([8, 16, 32, 64]).for_each(|(count, window)| *count += u64::from(distance < window));
                }
            }
            for (count, expected) in within.iter().zip(shares) {
                let share = 100.0 * *count as f64 / (ROWS * pairs as u64) as f64;
                assert!((share - expected).abs() <= 1.0, "N={length}, n={pairs}: {share} for {expected}");
            }
        }
    }

    #[test]
    fn random_fillers_are_of_the_whole_vocabulary_and_leave_pairs_and_queries() {
        let config = MqarConfig { random_fillers: true, segments: vec![[64, 4]], vocabulary: 65, ..MqarConfig::default() };
        let plain = MqarConfig { random_fillers: false, ..config.clone() };
        let key = RandomKey::from_seed(1);
        let mut fillers = HashSet::new();
        for number in 0..200 {
            let draw = |config: &MqarConfig| config.draw(0, Purpose::Training, &mut key.numbered(number).rng());
            let (filled, plain) = (draw(&config), draw(&plain));
            assert_eq!(filled.targets, plain.targets);
            for (&filler, &token) in filled.tokens.iter().zip(&plain.tokens) {
                assert!(token == 0 || filler == token);
                fillers.extend((token == 0).then_some(filler));
            }
        }
        assert_eq!(fillers.len(), 65);
    }

    #[test]
    fn impossible_segments_are_refused_by_name() {
        let base = MqarConfig::default;
        for (field, config) in [
            ("segments", MqarConfig { segments: vec![[64, 17]], ..base() }),
            ("segments", MqarConfig { segments: vec![[63, 4]], ..base() }),
            ("segments", MqarConfig { segments: vec![[64, 0]], ..base() }),
            ("segments", MqarConfig { segments: Vec::new(), ..base() }),
            ("longer", MqarConfig { longer: vec![[64, 4]], ..base() }),
            ("vocabulary", MqarConfig { vocabulary: 64, ..base() }),
            ("power", MqarConfig { power: f64::NAN, ..base() }),
        ] {
            assert_eq!(config.validate().unwrap_err().field, field);
        }
    }
}
