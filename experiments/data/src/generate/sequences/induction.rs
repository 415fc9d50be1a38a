//! Induction heads (Gu and Dao 2023, arXiv 2312.00752, section 4.1; after Olsson et al. 2022).
//!
//! Random tokens, among which a mark stands once. The sequence ends with the mark again, and the token that followed it is expected.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, ensure_lengths, ensure_vocabulary, token};

/// Options of induction heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InductionConfig {
    /// Number of tokens; the last one is the mark.
    pub vocabulary: usize,
    /// Tokens of a sequence; 256 in the paper.
    pub length: usize,
    /// Greater lengths that are tested as well; up to 2^20 in the paper.
    pub longer: Vec<usize>,
}

impl Default for InductionConfig {
    fn default() -> Self {
        Self { vocabulary: 16, length: 64, longer: vec![128, 256] }
    }
}

impl Generator for InductionConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 3)?;
        ensure_lengths(self.length, &self.longer, 3)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &self.longer))
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let length = self.extent().1[level].length;
        let mark = self.vocabulary - 1;
        let mut tokens: Vec<u32> = (0..length).map(|_| token(rng, 0, mark)).collect();
        let at = rng.random_range(0..length - 2);
        tokens[at] = mark as u32;
        tokens[length - 1] = mark as u32;
        let targets = vec![(length - 1, tokens[at + 1])];
        ScoredSequence { tokens, targets }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    #[test]
    fn what_followed_the_mark_is_expected_and_the_mark_may_stand_anywhere() {
        let (config, key) = (InductionConfig::default(), RandomKey::from_seed(8));
        let (mut places, mut answers) = ([0; 62], [0; 15]);
        for number in 0..6200 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Scoring, &mut key.numbered(number).rng());
            let marks: Vec<usize> = (0..64).filter(|&at| tokens[at] == 15).collect();
            let [at, 63] = marks[..] else { panic!("{marks:?}") };
            assert_eq!(targets, [(63, tokens[at + 1])]);
            places[at] += 1;
            answers[targets[0].1 as usize] += 1;
        }
        assert!(places.iter().all(|&count| (50..=150).contains(&count)), "{places:?}");
        assert!(answers.iter().all(|&count| (330..=500).contains(&count)), "{answers:?}");
    }
}
