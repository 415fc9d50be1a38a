//! Perplexity and bits per unit from summed log-likelihoods.
//!
//! The idea: add up the negative log-likelihood of everything that was scored, in nats, and what was scored, in units of text; divide once, at the
//! end. A mean of batch perplexities is another number, which depends on the batch size, and cannot be formed from this type.
//!
//! `perplexity = exp(nats / units)`, `bits per unit = nats / (units · ln 2)`.
//!
//! The unit belongs to the number: a perplexity per subword does not compare with one per word. What is left out of the totals (padding, context that
//! is only read) is the caller's choice and has to be reported with the result.

use std::f64::consts::LN_2;
use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// What a likelihood is counted per.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextUnit {
    /// Words as the data set separates them.
    Word,
    /// Entries of a subword vocabulary; state which.
    Subword,
    /// Unicode scalar values.
    Character,
    /// Bytes of UTF-8 or of whatever else the sequence consists of.
    Byte,
}

impl fmt::Display for TextUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Word => "word",
            Self::Subword => "subword",
            Self::Character => "character",
            Self::Byte => "byte",
        })
    }
}

/// Summed negative log-likelihood and the number of units it was summed over.
///
/// # Example
/// ```
/// use heedful_metrics::{LikelihoodTotal, TextUnit};
///
/// let mut total = LikelihoodTotal::new(TextUnit::Subword);
/// total.record(7.0, 3);
/// total.record(1.0, 1);
/// assert_eq!(total.perplexity(), Some(2f64.exp()));
/// // The same text has only two words.
/// assert_eq!(total.counted_per(TextUnit::Word, 2).perplexity(), Some(4f64.exp()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LikelihoodTotal {
    /// Negative natural logarithm of the likelihood of all scored units.
    pub nats: f64,
    /// How many units were scored.
    pub units: u64,
    /// What the units are.
    pub unit: TextUnit,
}

impl LikelihoodTotal {
    /// A total over nothing yet.
    pub fn new(unit: TextUnit) -> Self {
        Self { nats: 0.0, units: 0, unit }
    }

    /// Adds the **sum** (not the mean) of the negative log-likelihoods of `units` units, in nats.
    pub fn record(&mut self, nats: f64, units: u64) {
        self.nats += nats;
        self.units += units;
    }

    /// The same likelihood of the same text, counted per another unit, of which the text has `units`.
    ///
    /// This is how a model over subwords gets a perplexity per word.
    pub fn counted_per(&self, unit: TextUnit, units: u64) -> Self {
        Self { nats: self.nats, units, unit }
    }

    /// Nats per unit, the cross-entropy that training minimises; `None` if there are no units.
    pub fn nats_per_unit(&self) -> Option<f64> {
        (self.units > 0).then(|| self.nats / self.units as f64)
    }

    /// Perplexity per unit; `None` if there are no units. A sum that became infinite or not a number stays visible as such.
    pub fn perplexity(&self) -> Option<f64> {
        self.nats_per_unit().map(f64::exp)
    }

    /// Bits per unit, for instance bits per character; `None` if there are no units.
    pub fn bits_per_unit(&self) -> Option<f64> {
        self.nats_per_unit().map(|nats| nats / LN_2)
    }
}

impl AddAssign for LikelihoodTotal {
    /// # Panics
    /// If the units differ in kind.
    fn add_assign(&mut self, other: Self) {
        assert_eq!(self.unit, other.unit, "likelihoods per {} and per {} cannot be added", self.unit, other.unit);
        self.record(other.nats, other.units);
    }
}

impl Add for LikelihoodTotal {
    type Output = Self;

    /// # Panics
    /// If the units differ in kind.
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        probabilities: Vec<f64>,
        perplexity: f64,
        bits_per_unit: f64,
    }

    fn total_in_batches(probabilities: &[f64], batch_size: usize) -> LikelihoodTotal {
        let mut total = LikelihoodTotal::new(TextUnit::Word);
        for batch in probabilities.chunks(batch_size) {
            total.record(batch.iter().map(|probability| -probability.ln()).sum(), batch.len() as u64);
        }
        total
    }

    #[test]
    fn perplexity_and_bits_agree_with_scipy_for_every_batch_size() {
        let cases: Vec<Case> = load("likelihood");
        assert!(cases.len() >= 3);
        for case in cases {
            for batch_size in 1..=case.probabilities.len() {
                let total = total_in_batches(&case.probabilities, batch_size);
                let what = format!("{} units in batches of {batch_size}", case.probabilities.len());
                assert_agrees(total.perplexity().unwrap(), case.perplexity, &what);
                assert_agrees(total.bits_per_unit().unwrap(), case.bits_per_unit, &what);
            }
        }
    }

    #[test]
    fn a_uniform_model_over_k_symbols_has_perplexity_k() {
        let total = total_in_batches(&[1.0 / 256.0; 10], 3);
        assert_agrees(total.perplexity().unwrap(), 256.0, "perplexity");
        assert_agrees(total.bits_per_unit().unwrap(), 8.0, "bits");
    }

    #[test]
    fn nothing_scored_has_no_perplexity() {
        let total = LikelihoodTotal::new(TextUnit::Byte);
        assert_eq!((total.perplexity(), total.bits_per_unit(), total.nats_per_unit()), (None, None, None));
    }

    #[test]
    fn a_broken_sum_is_not_hidden() {
        let mut total = LikelihoodTotal::new(TextUnit::Byte);
        total.record(f64::NAN, 1);
        assert!(total.perplexity().unwrap().is_nan());
    }

    #[test]
    #[should_panic(expected = "per word and per subword")]
    fn totals_over_different_units_cannot_be_added() {
        let _ = LikelihoodTotal::new(TextUnit::Word) + LikelihoodTotal::new(TextUnit::Subword);
    }
}
