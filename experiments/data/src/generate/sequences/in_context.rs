//! In-context recall and its noisy form (Poli et al. 2024, arXiv 2403.17844: MAD).
//!
//! Pairs `k v k v ...` whose keys are drawn with replacement; within a sequence a key always has the same value. The last key occurred before. Training expects
//! every next token, including unpredictable ones: keys, and values at their first occurrence. Scores cover the values of keys that occurred before.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, ensure, ensure_lengths, ensure_vocabulary, token};

/// Options of in-context recall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InContextRecallConfig {
    /// Number of tokens; keys are the first half of them, values the second.
    pub vocabulary: usize,
    /// Tokens of the pairs, an even number. A model reads all but the last.
    pub length: usize,
}

impl Default for InContextRecallConfig {
    fn default() -> Self {
        Self { vocabulary: 16, length: 128 }
    }
}

/// Options of noisy recall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoisyRecallConfig {
    /// Number of tokens, those of noise included.
    pub vocabulary: usize,
    /// Number of tokens that are noise: the last ones.
    pub noise_vocabulary: usize,
    /// Share of the pairs that two noise tokens replace, above 0 and below 1.
    pub noise: f64,
    /// Tokens of the pairs, an even number. A model reads all but the last.
    pub length: usize,
}

impl Default for NoisyRecallConfig {
    fn default() -> Self {
        Self { vocabulary: 32, noise_vocabulary: 16, noise: 0.2, length: 128 }
    }
}

fn ensure_even(length: usize) -> Result<(), SequenceTaskError> {
    ensure_lengths(length, &[], 4)?;
    ensure(length.is_multiple_of(2), "length", || format!("{length} tokens are no pairs; give an even number"))
}

/// Pairs of tokens below `vocabulary`, among noise of the tokens from there on.
fn draw(rng: &mut ChaCha8Rng, vocabulary: usize, length: usize, noise: Option<(f64, usize)>, purpose: Purpose) -> ScoredSequence {
    let keys = vocabulary / 2;
    let mut values = vec![None; keys];
    let (mut tokens, mut known, mut seen) = (Vec::with_capacity(length), Vec::new(), Vec::new());
    let others = length / 2 - 1;
    // One of them is a pair in any case, so that the last key has been seen.
    let pair = rng.random_range(0..others);
    for index in 0..others {
        if let Some((_, kinds)) = noise.filter(|(share, _)| index != pair && rng.random_bool(*share)) {
            tokens.extend([token(rng, vocabulary, kinds), token(rng, vocabulary, kinds)]);
            continue;
        }
        let key = rng.random_range(0..keys);
        match values[key] {
            Some(_) => known.push(tokens.len() + 1),
            None => seen.push(key),
        }
        let value = *values[key].get_or_insert_with(|| token(rng, keys, vocabulary - keys));
        tokens.extend([key as u32, value]);
    }
    let last = seen[rng.random_range(0..seen.len())];
    tokens.extend([last as u32, values[last].expect("the key was seen")]);
    known.push(tokens.len() - 1);
    match purpose {
        Purpose::Training => ScoredSequence::continued(tokens),
        Purpose::Scoring => ScoredSequence::continued_at(tokens, &known),
    }
}

impl Generator for InContextRecallConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 2)?;
        ensure_even(self.length)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &[]))
    }

    fn draw(&self, _level: usize, purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        draw(rng, self.vocabulary, self.length, None, purpose)
    }
}

impl Generator for NoisyRecallConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure(self.noise_vocabulary > 0, "noise_vocabulary", || "there is no token of noise; give at least 1".to_owned())?;
        ensure_vocabulary(self.vocabulary, self.noise_vocabulary.saturating_add(2))?;
        let noise = self.noise;
        ensure(noise > 0.0 && noise < 1.0, "noise", || {
            format!("{noise} is not between 0 and 1; without noise the task is in-context-recall")
        })?;
        ensure_even(self.length)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &[]))
    }

    fn draw(&self, _level: usize, purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        draw(rng, self.vocabulary - self.noise_vocabulary, self.length, Some((self.noise, self.noise_vocabulary)), purpose)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use heedful_random::RandomKey;

    use super::*;

    fn rows(task: &dyn Generator, purpose: Purpose) -> Vec<ScoredSequence> {
        let key = RandomKey::from_seed(2);
        (0..400).map(|number| task.draw(0, purpose, &mut key.numbered(number).rng())).collect()
    }

    /// What a dictionary of the pairs so far says at a position.
    fn recalled(tokens: &[u32], at: usize) -> Option<u32> {
        tokens[..at].chunks_exact(2).rfind(|pair| pair[0] == tokens[at]).map(|pair| pair[1])
    }

    #[test]
    fn values_of_keys_that_were_seen_are_scored_and_no_others() {
        let mut maps = HashMap::new();
        for row in rows(&InContextRecallConfig::default(), Purpose::Scoring) {
            assert_eq!(row.tokens.len(), 127);
            let scored: Vec<(usize, u32)> =
                (0..127).step_by(2).filter_map(|at| recalled(&row.tokens, at).map(|value| (at, value))).collect();
            assert_eq!(row.targets, scored);
            assert_eq!(row.targets.last().unwrap().0, 126);
            row.tokens.chunks_exact(2).for_each(|pair| *maps.entry((pair[0], pair[1])).or_insert(0) += 1);
        }
        assert_eq!(maps.len(), 64, "each key has each value in some sequence");
    }

    #[test]
    fn training_expects_every_next_token() {
        for row in rows(&InContextRecallConfig::default(), Purpose::Training) {
            assert_eq!(row.targets.len(), 127);
            assert!(row.targets[..126].iter().all(|&(at, token)| row.tokens[at + 1] == token));
            assert_eq!(row.targets[126].1, recalled(&row.tokens, 126).unwrap());
        }
    }

    #[test]
    fn noise_has_its_share_and_is_never_scored() {
        let (mut noise, mut pairs) = (0, 0);
        for row in rows(&NoisyRecallConfig { noise: 0.4, ..NoisyRecallConfig::default() }, Purpose::Scoring) {
            assert!(row.targets.iter().all(|&(at, token)| row.tokens[at] < 8 && (8..16).contains(&token)));
            for pair in row.tokens.chunks_exact(2) {
                assert_eq!(pair[0] >= 16, pair[1] >= 16);
                noise += usize::from(pair[0] >= 16);
                pairs += 1;
            }
        }
        let share = noise as f64 / pairs as f64;
        // One pair in 63 is no noise in any case.
        assert!((share - 0.4 * 62.0 / 63.0).abs() < 0.01, "{share}");
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let refused = |task: &dyn Generator| task.validate().unwrap_err().field;
        assert_eq!(refused(&InContextRecallConfig { length: 127, ..InContextRecallConfig::default() }), "length");
        assert_eq!(refused(&InContextRecallConfig { vocabulary: 1, ..InContextRecallConfig::default() }), "vocabulary");
        assert_eq!(refused(&NoisyRecallConfig { noise: 0.0, ..NoisyRecallConfig::default() }), "noise");
        assert_eq!(refused(&NoisyRecallConfig { noise_vocabulary: 0, ..NoisyRecallConfig::default() }), "noise_vocabulary");
        assert_eq!(refused(&NoisyRecallConfig { vocabulary: 17, ..NoisyRecallConfig::default() }), "vocabulary");
    }
}
