//! A needle in a long text: marked keys with values of several tokens, among random tokens (the pass-keys and needles of RULER, Hsieh et al. 2024, arXiv
//! 2404.06654, with generated tokens in place of words).
//!
//! A needle is `⟨mark⟩ k v1 ... vm` at a random depth. The sequence ends with `⟨mark⟩ k` and all but the last token of the value; the value is expected.
//! Further needles with other keys distract.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, distinct, ensure, ensure_lengths, ensure_vocabulary, token};

/// Options of needles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NeedleConfig {
    /// Number of tokens; the last one is the mark, all others occur in the text, in keys and in values.
    pub vocabulary: usize,
    /// Tokens of a value `m`, at least 1.
    pub value: usize,
    /// Needles that are not asked for.
    pub distractors: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Greater lengths that are tested as well.
    pub longer: Vec<usize>,
}

impl Default for NeedleConfig {
    fn default() -> Self {
        Self { vocabulary: 64, value: 4, distractors: 0, length: 128, longer: vec![256] }
    }
}

impl Generator for NeedleConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure((1..=super::LONGEST / 4).contains(&self.value), "value", || {
            format!("{} tokens are no value; give 1 to {}", self.value, super::LONGEST / 4)
        })?;
        ensure(self.distractors <= super::LONGEST / 4, "distractors", || format!("{} are too many", self.distractors))?;
        // There are as many keys as needles, and a token for values.
        ensure_vocabulary(self.vocabulary, self.distractors + 3)?;
        let needles = (self.distractors + 1).saturating_mul(self.value + 2);
        ensure_lengths(self.length, &self.longer, needles.saturating_add(self.value + 1))
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &self.longer))
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let length = self.extent().1[level].length;
        let mark = self.vocabulary - 1;
        let keys = distinct(rng, 0, mark, self.distractors + 1);
        let needles: Vec<Vec<u32>> =
            keys.iter().map(|&key| [mark as u32, key].into_iter().chain((0..self.value).map(|_| token(rng, 0, mark))).collect()).collect();
        let text = length - (self.value + 1) - needles.len() * (self.value + 2);
        // Where in the text each needle stands; those at one place follow each other in random order.
        let mut places: Vec<(usize, usize)> = (0..needles.len()).map(|needle| (rng.random_range(0..=text), needle)).collect();
        let asked = &needles[0];
        let order = distinct(rng, 0, needles.len(), needles.len());
        places.sort_by_key(|&(place, needle)| (place, order[needle]));
        let mut tokens = Vec::with_capacity(length);
        let mut written = 0;
        for (place, needle) in places {
            tokens.extend((written..place).map(|_| token(rng, 0, mark)));
            tokens.extend(&needles[needle]);
            written = place;
        }
        tokens.extend((written..text).map(|_| token(rng, 0, mark)));
        let first = tokens.len() + 1;
        tokens.extend(&asked[..asked.len() - 1]);
        ScoredSequence { tokens, targets: asked[2..].iter().enumerate().map(|(index, &token)| (first + index, token)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    #[test]
    fn the_value_of_the_needle_with_the_key_that_is_asked_is_expected() {
        let config = NeedleConfig { distractors: 2, length: 64, ..NeedleConfig::default() };
        config.validate().unwrap();
        let key = RandomKey::from_seed(9);
        let mut depths = Vec::new();
        for number in 0..2000 {
            let ScoredSequence { tokens, targets } = config.draw(0, Purpose::Scoring, &mut key.numbered(number).rng());
            assert_eq!((tokens.len(), tokens[59], targets.len()), (64, 63, 4));
            let needles: Vec<usize> = (0..59).filter(|&at| tokens[at] == 63).collect();
            assert_eq!(needles.len(), 3);
            let asked: Vec<usize> = needles.into_iter().filter(|&at| tokens[at + 1] == tokens[60]).collect();
            let [at] = asked[..] else { panic!("{asked:?}") };
            for (index, &(position, token)) in targets.iter().enumerate() {
                assert_eq!((position, token), (60 + index, tokens[at + 2 + index]));
            }
            assert_eq!(tokens[61..], tokens[at + 2..at + 5]);
            depths.push(at as f64);
        }
        let mean = depths.iter().sum::<f64>() / 2000.0;
        // Places are even over the text, so the mean is that of the middle needle.
        assert!((mean - 53.0 / 2.0).abs() < 1.5, "{mean}");
        assert_eq!(NeedleConfig { length: 10, ..NeedleConfig::default() }.validate().unwrap_err().field, "length");
    }
}
