//! Memorisation and compression (Poli et al. 2024, arXiv 2403.17844: MAD).

use heedful_random::RandomKey;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, distinct, ensure, ensure_lengths, ensure_vocabulary, token};

/// Options of memorisation: keys whose values are the same in all sequences and stand in none, `k ⟨insert⟩ k ⟨insert⟩ ...`. The value is expected at
/// ⟨insert⟩. It is in the weights alone, so that the task tests the model around a mechanism more than the mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoriseConfig {
    /// Number of tokens; the last one is ⟨insert⟩, of the others the first half is of keys, the second of values.
    pub vocabulary: usize,
    /// Tokens of a sequence, an even number.
    pub length: usize,
}

impl Default for MemoriseConfig {
    fn default() -> Self {
        Self { vocabulary: 256, length: 32 }
    }
}

impl MemoriseConfig {
    fn keys(&self) -> usize {
        (self.vocabulary - 1) / 2
    }

    /// The value of each key.
    fn values(&self) -> Vec<u32> {
        let mut rng = RandomKey::from_seed(0).named("memorised values").rng();
        distinct(&mut rng, self.keys(), self.vocabulary - 1 - self.keys(), self.keys())
    }
}

impl Generator for MemoriseConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 5)?;
        ensure_lengths(self.length, &[], 2)?;
        ensure(self.length.is_multiple_of(2), "length", || format!("{} tokens are no pairs; give an even number", self.length))
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &[]))
    }

    fn draw(&self, _level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let values = self.values();
        let (mut tokens, mut targets) = (Vec::new(), Vec::new());
        for pair in 0..self.length / 2 {
            let key = token(rng, 0, self.keys());
            tokens.extend([key, (self.vocabulary - 1) as u32]);
            targets.push((2 * pair + 1, values[key as usize]));
        }
        ScoredSequence { tokens, targets }
    }
}

/// Options of compression: random tokens and the mark ⟨compress⟩, after which a model is to write all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressConfig {
    /// Number of tokens; the last one is ⟨compress⟩.
    pub vocabulary: usize,
    /// Tokens of a sequence, the mark included.
    pub length: usize,
}

impl Default for CompressConfig {
    fn default() -> Self {
        Self { vocabulary: 16, length: 32 }
    }
}

impl Generator for CompressConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 3)?;
        ensure_lengths(self.length, &[], 2)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &[]))
    }

    fn draw(&self, _level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let mut tokens: Vec<u32> = (1..self.length).map(|_| token(rng, 0, self.vocabulary - 1)).collect();
        tokens.push((self.vocabulary - 1) as u32);
        ScoredSequence { targets: tokens.iter().copied().enumerate().collect(), tokens }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn a_key_has_the_same_value_in_all_sequences_and_no_two_share_one() {
        let (config, key) = (MemoriseConfig::default(), RandomKey::from_seed(6));
        let mut values = HashMap::new();
        for number in 0..400 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Training, &mut key.numbered(number).rng());
            assert_eq!((tokens.len(), targets.len()), (32, 16));
            for (at, value) in targets {
                assert!(tokens[at] == 255 && tokens[at - 1] < 127 && (127..255).contains(&value));
                assert_eq!(*values.entry(tokens[at - 1]).or_insert(value), value);
            }
        }
        assert_eq!((values.len(), values.values().collect::<HashSet<_>>().len()), (127, 127));
    }

    #[test]
    fn what_is_compressed_is_expected_whole() {
        let drawn = CompressConfig::default().draw(0, Purpose::Scoring, &mut RandomKey::from_seed(6).rng());
        assert_eq!((drawn.tokens.len(), drawn.tokens[31]), (32, 15));
        assert!(drawn.tokens[..31].iter().all(|&token| token < 15));
        assert_eq!(drawn.targets.iter().map(|target| target.1).collect::<Vec<_>>(), drawn.tokens);
    }
}
