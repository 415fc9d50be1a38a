//! Selective copying (Gu and Dao 2023, arXiv 2312.00752, section 4.1; sequences as in MAD, Poli et al. 2024, arXiv 2403.17844).
//!
//! Random tokens stand among blanks. After a mark, as many blanks follow, whose targets are the tokens in their order. Each blank before the mark precedes one
//! of the tokens, chosen uniformly, so that the last token directly precedes the mark.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, ensure, ensure_lengths, ensure_vocabulary, token};

/// Options of selective copying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectiveCopyConfig {
    /// Number of tokens; the last but one is the blank, the last one the mark.
    pub vocabulary: usize,
    /// Tokens that are to be copied.
    pub copied: usize,
    /// Tokens of a sequence, at least two more than twice `copied`.
    pub length: usize,
    /// Greater lengths that are tested as well.
    pub longer: Vec<usize>,
}

impl Default for SelectiveCopyConfig {
    fn default() -> Self {
        Self { vocabulary: 16, copied: 16, length: 256, longer: Vec::new() }
    }
}

impl Generator for SelectiveCopyConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure_vocabulary(self.vocabulary, 3)?;
        ensure((1..=super::LONGEST / 4).contains(&self.copied), "copied", || {
            format!("{} tokens cannot be copied; give 1 to {}", self.copied, super::LONGEST / 4)
        })?;
        ensure_lengths(self.length, &self.longer, 2 * self.copied + 2)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (self.vocabulary, Level::lengths(self.length, &self.longer))
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let length = self.extent().1[level].length;
        let [blank, mark] = [self.vocabulary - 2, self.vocabulary - 1].map(|token| token as u32);
        let data: Vec<u32> = (0..self.copied).map(|_| token(rng, 0, self.vocabulary - 2)).collect();
        let mut blanks = vec![0; self.copied];
        (0..length - 2 * self.copied - 1).for_each(|_| blanks[rng.random_range(0..self.copied)] += 1);
        let mut tokens = Vec::with_capacity(length);
        for (&token, blanks) in data.iter().zip(blanks) {
            tokens.extend(std::iter::repeat_n(blank, blanks));
            tokens.push(token);
        }
        tokens.push(mark);
        let first = tokens.len();
        tokens.resize(length, blank);
        ScoredSequence { tokens, targets: data.into_iter().enumerate().map(|(index, token)| (first + index, token)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    #[test]
    fn the_tokens_among_the_blanks_are_expected_in_their_order() {
        let config = SelectiveCopyConfig { copied: 4, length: 24, longer: vec![48], ..SelectiveCopyConfig::default() };
        config.validate().unwrap();
        let key = RandomKey::from_seed(7);
        let mut before_first = 0;
        for number in 0..2000 {
            for (level, length) in [(0, 24), (1, 48)] {
                let ScoredSequence { tokens, targets } = config.draw(level, Purpose::Scoring, &mut key.numbered(number).rng());
                let (read, written) = tokens.split_at(length - 4);
                assert_eq!((read.last(), written), (Some(&15), &[14; 4][..]));
                let data: Vec<u32> = read[..read.len() - 1].iter().copied().filter(|&token| token != 14).collect();
                assert_eq!(targets, (length - 4..length).zip(data).collect::<Vec<_>>());
                assert_ne!(read[read.len() - 2], 14, "a blank follows the last token");
                before_first += if level == 0 { read.iter().take_while(|&&token| token == 14).count() } else { 0 };
            }
        }
        // Of the 15 blanks a quarter stands before the first token.
        assert!((before_first as f64 / 2000.0 - 15.0 / 4.0).abs() < 0.15, "{before_first}");
        assert_eq!(SelectiveCopyConfig { length: 33, ..SelectiveCopyConfig::default() }.validate().unwrap_err().field, "length");
        assert_eq!(SelectiveCopyConfig { longer: vec![256], ..SelectiveCopyConfig::default() }.validate().unwrap_err().field, "longer");
    }
}
