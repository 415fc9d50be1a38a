//! Span corruption (Raffel et al. 2020, section 3.1.4; the "i.i.d. denoising with spans" of T5): an encoder-decoder learns to fill gaps.
//!
//! A fraction of a sequence is hidden, in spans with a given mean length. The encoder reads a sentinel in place of each span; the decoder predicts each
//! sentinel followed by its tokens. Shown and hidden tokens are cut into the same number of pieces at random places, and the pieces alternate; a sequence
//! begins with a shown piece.

use heedful_attention::prelude::*;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

/// Amount of corruption. The first sentinel must be given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanCorruptionConfig {
    /// Id of the first sentinel, equal to the number of all other tokens. Further sentinels follow it.
    pub sentinel: u32,
    /// Fraction of hidden tokens, greater than 0 and less than 1 (default 0.15).
    pub density: f64,
    /// Mean length of a hidden span in tokens, at least 1 (default 3).
    pub mean_span: f64,
}

impl Default for SpanCorruptionConfig {
    fn default() -> Self {
        Self { sentinel: 0, density: 0.15, mean_span: 3.0 }
    }
}

/// A sequence with gaps, and their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrupted {
    /// Shown tokens, with a sentinel per gap.
    pub source: Vec<u32>,
    /// Each sentinel followed by its tokens.
    pub target: Vec<u32>,
}

impl SpanCorruptionConfig {
    /// Checks the options.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("span corruption");
        if !(self.density > 0.0 && self.density < 1.0) {
            return Err(check.refuse("density", self.density, "give a share greater than 0 and less than 1"));
        }
        if !(self.mean_span >= 1.0 && self.mean_span.is_finite()) {
            return Err(check.refuse("mean_span", self.mean_span, "give a number of at least 1"));
        }
        Ok(())
    }

    /// Number of hidden tokens and of spans in a sequence: of two or more tokens, at least one is hidden and one shown.
    fn counts(&self, length: usize) -> (usize, usize) {
        let hidden = ((length as f64 * self.density).round() as usize).clamp(1, length.max(2) - 1);
        let spans = ((hidden as f64 / self.mean_span).round() as usize).clamp(1, hidden.min(length - hidden).max(1));
        (hidden, spans)
    }

    /// Number of sentinels for a sequence of this length.
    pub fn sentinels(&self, length: usize) -> usize {
        if length < 2 { 0 } else { self.counts(length).1 }
    }

    /// Hides spans of a sequence. Sequences of fewer than two tokens are unchanged.
    pub fn corrupt(&self, tokens: &[u32], key: &RandomKey) -> Corrupted {
        if tokens.len() < 2 {
            return Corrupted { source: tokens.to_vec(), target: Vec::new() };
        }
        let (hidden, spans) = self.counts(tokens.len());
        let shown_pieces = pieces(tokens.len() - hidden, spans, &key.named("shown"));
        let hidden_pieces = pieces(hidden, spans, &key.named("hidden"));
        let mut corrupted = Corrupted::default();
        let mut rest = tokens;
        for (sentinel, (shown, hidden)) in (self.sentinel..).zip(shown_pieces.into_iter().zip(hidden_pieces)) {
            let (shown, after) = rest.split_at(shown);
            let (hidden, after) = after.split_at(hidden);
            corrupted.source.extend(shown);
            corrupted.source.push(sentinel);
            corrupted.target.push(sentinel);
            corrupted.target.extend(hidden);
            rest = after;
        }
        corrupted
    }
}

/// Lengths, each at least 1, of `count` pieces of a total length; all divisions are equally probable.
fn pieces(length: usize, count: usize, key: &RandomKey) -> Vec<usize> {
    let mut begins: Vec<bool> = (1..length).map(|index| index < count).collect();
    begins.shuffle(&mut key.rng());
    let mut pieces = vec![1];
    for begins in begins {
        match pieces.last_mut() {
            Some(last) if !begins => *last += 1,
            _ => pieces.push(1),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SpanCorruptionConfig = SpanCorruptionConfig { sentinel: 1000, density: 0.15, mean_span: 3.0 };

    /// The original sequence.
    fn filled(corrupted: &Corrupted) -> Vec<u32> {
        let fill = |sentinel: u32| {
            let at = corrupted.target.iter().position(|&token| token == sentinel).unwrap();
            corrupted.target[at + 1..].iter().copied().take_while(|&token| token < CONFIG.sentinel).collect::<Vec<_>>()
        };
        corrupted.source.iter().flat_map(|&token| if token < CONFIG.sentinel { vec![token] } else { fill(token) }).collect()
    }

    #[test]
    fn sentinels_stand_for_what_is_missing() {
        for length in [2, 3, 7, 64, 200] {
            let tokens: Vec<u32> = (0..length).collect();
            for seed in 0..20 {
                let corrupted = CONFIG.corrupt(&tokens, &RandomKey::from_seed(seed));
                assert_eq!(filled(&corrupted), tokens);
                let sentinels = corrupted.source.iter().filter(|&&token| token >= CONFIG.sentinel).count();
                assert_eq!(sentinels, CONFIG.sentinels(length as usize));
                let hidden = corrupted.target.len() - sentinels;
                assert_eq!(hidden, (f64::from(length) * 0.15).round().max(1.0) as usize);
                assert!(corrupted.source[0] == 0 && *corrupted.source.last().unwrap() >= CONFIG.sentinel);
            }
        }
        let all: std::collections::HashSet<_> =
            (0..20).map(|seed| CONFIG.corrupt(&(0..64).collect::<Vec<_>>(), &RandomKey::from_seed(seed)).source).collect();
        assert!(all.len() > 15, "spans lie elsewhere each time");
    }

    #[test]
    fn spans_have_the_mean_length_that_was_asked_for() {
        let tokens: Vec<u32> = (0..400).collect();
        let corrupted = CONFIG.corrupt(&tokens, &RandomKey::from_seed(1));
        assert_eq!((corrupted.target.len(), corrupted.source.len()), (60 + 20, 340 + 20));
        assert_eq!(CONFIG.corrupt(&[7], &RandomKey::from_seed(1)), Corrupted { source: vec![7], target: vec![] });
    }

    #[test]
    fn pieces_are_drawn_evenly() {
        let mut first = [0; 4];
        for seed in 0..4000 {
            let pieces = pieces(4, 2, &RandomKey::from_seed(seed));
            assert_eq!((pieces.len(), pieces.iter().sum::<usize>()), (2, 4));
            first[pieces[0]] += 1;
        }
        assert!(first[0] == 0 && first[1..].iter().all(|&count| (1200..1470).contains(&count)), "{first:?}");
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |config: SpanCorruptionConfig, option: &str| assert!(config.validate().unwrap_err().to_string().contains(option));
        refused(SpanCorruptionConfig { density: 1.0, ..CONFIG }, "density");
        refused(SpanCorruptionConfig { mean_span: 0.5, ..CONFIG }, "mean_span");
    }
}
