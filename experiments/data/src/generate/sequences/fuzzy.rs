//! Fuzzy recall (Poli et al. 2024, arXiv 2403.17844: MAD): keys and values are motifs of one to three tokens.
//!
//! A motif has no token twice. Keys of training have 1, 2 or 3 tokens, those of tests always 3. One pair is sure to occur twice, the second time at the end;
//! padding on the left makes all sequences as long as each other. Training expects every next token, scores are of the values of keys that were seen before.
//! Unlike the authors' generator, this one leaves no sequence without the pair that is asked for at its end.

use std::collections::HashMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, distinct, ensure_lengths, ensure_vocabulary};

/// Most tokens of a motif.
const MOTIF: usize = 3;

/// Options of fuzzy recall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FuzzyRecallConfig {
    /// Number of tokens; the last one is padding, of the others the first half is of keys, the second of values.
    pub vocabulary: usize,
    /// Tokens that a model reads.
    pub length: usize,
}

impl Default for FuzzyRecallConfig {
    fn default() -> Self {
        Self { vocabulary: 16, length: 128 }
    }
}

impl Generator for FuzzyRecallConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 2 * MOTIF + 1)?;
        ensure_lengths(self.length, &[], 8 * MOTIF)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &[]))
    }

    fn draw(&self, _level: usize, purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let padding = self.vocabulary - 1;
        let half = padding / 2;
        let key = |rng: &mut ChaCha8Rng| {
            let size = if purpose == Purpose::Training { rng.random_range(1..=MOTIF) } else { MOTIF };
            distinct(rng, 0, half, size)
        };
        let value = |rng: &mut ChaCha8Rng| {
            let size = rng.random_range(1..=MOTIF);
            distinct(rng, half, padding - half, size)
        };
        let (asked, answer) = (key(rng), value(rng));
        let end = self.length - asked.len() - answer.len();
        // A pair is shorter than what is left after it, so that the one that is asked for is not skipped.
        let mut asked_at = Some(rng.random_range(0..=end - 4 * MOTIF));
        let (mut tokens, mut known, mut values) = (Vec::new(), Vec::new(), HashMap::new());
        while tokens.len() < end - 2 * MOTIF {
            let is_due = asked_at.is_some_and(|at| tokens.len() >= at);
            let key = if is_due { asked.clone() } else { key(rng) };
            if key == asked {
                asked_at = None;
                values.entry(key.clone()).or_insert_with(|| (answer.clone(), 0));
            }
            let (value, times) = values.entry(key.clone()).or_insert_with(|| (value(rng), 0));
            tokens.extend(&key);
            if *times > 0 {
                known.extend(tokens.len()..tokens.len() + value.len());
            }
            *times += 1;
            tokens.extend(&*value);
        }
        tokens.extend(&asked);
        known.extend(tokens.len()..tokens.len() + answer.len());
        tokens.extend(&answer);
        let missing = self.length + 1 - tokens.len();
        tokens.splice(0..0, std::iter::repeat_n(padding as u32, missing));
        match purpose {
            Purpose::Training => ScoredSequence::continued(tokens),
            Purpose::Scoring => {
                let known: Vec<usize> = known.into_iter().map(|at| at + missing).collect();
                ScoredSequence::continued_at(tokens, &known)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    /// The pairs of a sequence that ends with a value, and the last key: runs of tokens of keys and of values follow each other.
    fn motifs(tokens: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let mut motifs: Vec<(usize, Vec<u32>)> = Vec::new();
        for (at, &token) in tokens.iter().enumerate().filter(|(_, token)| **token < 15) {
            match motifs.last_mut() {
                Some((_, motif)) if (motif[0] < 7) == (token < 7) => motif.push(token),
                _ => motifs.push((at, vec![token])),
            }
        }
        motifs
    }

    #[test]
    fn values_of_keys_that_were_seen_are_scored_and_keys_of_tests_have_three_tokens() {
        let (config, key) = (FuzzyRecallConfig::default(), RandomKey::from_seed(4));
        for number in 0..400 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Scoring, &mut key.numbered(number).rng());
            assert_eq!(tokens.len(), 128);
            let mut whole = tokens.clone();
            whole.push(targets.last().unwrap().1);
            let mut expected = Vec::new();
            let mut values: HashMap<Vec<u32>, Vec<u32>> = HashMap::new();
            for pair in motifs(&whole).chunks(2) {
                let [(_, key), (at, value)] = pair else { panic!("a key without a value") };
                assert!(key.len() == 3 && (1..=3).contains(&value.len()));
                if let Some(before) = values.insert(key.clone(), value.clone()) {
                    assert_eq!(&before, value);
                    expected.extend(value.iter().enumerate().map(|(index, &token)| (at + index - 1, token)));
                }
            }
            assert_eq!(targets, expected);
        }
    }

    #[test]
    fn keys_of_training_have_all_sizes_and_every_token_but_padding_may_be_expected() {
        let (config, key) = (FuzzyRecallConfig::default(), RandomKey::from_seed(4));
        let mut sizes = [0; 10];
        for number in 0..400 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Training, &mut key.numbered(number).rng());
            assert_eq!((tokens.len(), targets.len()), (128, 128));
            motifs(&tokens).iter().filter(|(_, motif)| motif[0] < 7).for_each(|(_, motif)| sizes[motif.len()] += 1);
        }
        let all: i32 = sizes.iter().sum();
        let thirds = |count: &i32| (f64::from(*count) / f64::from(all) - 1.0 / 3.0).abs() < 0.03;
        assert!(sizes[1..=3].iter().all(thirds), "{sizes:?}");
    }
}
