//! BLEU of a corpus or a sentence, as sacreBLEU 2 defines it.
//!
//! The idea: count how many 1- to 4-grams of the hypotheses occur in a reference (each as often at most as in the reference that has it most often),
//! take the geometric mean of the four precisions and multiply by a penalty for hypotheses that are shorter than their references:
//!
//! `BLEU = BP · exp(¼ Σₙ ln pₙ)`, `BP = min(1, exp(1 − r / c))`, with `c` and `r` the summed lengths of hypotheses and closest references.
//!
//! Sources: Papineni et al., "BLEU" (ACL 2002), sections 2.1 to 2.3; Post, "A Call for Clarity in Reporting BLEU Scores" (WMT 2018) for the
//! tokenisation of untokenised text; Chen and Cherry, "A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU" (WMT 2014) for
//! smoothing. Counts are integers that are summed over sentences before anything is divided.
//!
//! Deviation from sacreBLEU: with [`Smoothing::AddK`] the reported counts and totals are those before smoothing; score and precisions are the same.
//! Not covered: other orders than four and the tokenisers of sacreBLEU that need a dictionary or a model (`ja-mecab`, `ko-mecab`, `spm` and its like).

mod tokeniser;

use std::collections::HashMap;
use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::TextMetric;
use super::clipped::{counts, take};
use super::text_metric::each_example;

pub use tokeniser::Tokeniser;

/// The longest n-gram that BLEU counts.
pub const MAX_ORDER: usize = 4;

/// What replaces the precision of an order without any match, which would otherwise make the score zero (Chen and Cherry 2014).
///
/// A corpus without a single matching word scores zero under every choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoothing {
    /// The k-th order without a match counts as having `2⁻ᵏ` matches (method 3; NIST's); the default.
    #[default]
    Exp,
    /// An order without a match counts as having this many matches (method 1; sacreBLEU's default value is 0.1).
    Floor(f64),
    /// This number is added to matches and totals of all orders above one (method 2; sacreBLEU's default value is 1).
    AddK(f64),
    /// An order without a match makes the score zero.
    None,
}

impl Smoothing {
    /// The value of the signature's `smooth` field.
    pub fn name(&self) -> String {
        match self {
            Self::Exp => "exp".to_owned(),
            Self::Floor(value) => format!("floor[{value:.2}]"),
            Self::AddK(value) => format!("add-k[{value:.2}]"),
            Self::None => "none".to_owned(),
        }
    }
}

/// The BLEU metric with its options; the default is the setting in which BLEU is reported.
///
/// # Example
/// ```
/// use heedful_metrics::{Bleu, TextMetric};
///
/// let bleu = Bleu::default();
/// let score = bleu.corpus_score(&["The cat sat on the mat."], &[["The cat sat on a mat."]]);
/// assert_eq!(score.to_string(), "BLEU = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bleu {
    /// How hypotheses and references are cut into words.
    pub tokeniser: Tokeniser,
    /// Whether case is ignored. Scores are higher then.
    pub lowercase: bool,
    /// What happens to orders without a match.
    pub smoothing: Smoothing,
    /// Whether orders that no hypothesis is long enough for are left out of the mean, instead of making the score zero.
    pub effective_order: bool,
}

impl Bleu {
    /// Checks the options.
    ///
    /// # Errors
    /// A value of the smoothing that is not greater than 0: what is wrong and the remedy.
    pub fn validate(&self) -> Result<(), String> {
        match self.smoothing {
            Smoothing::Floor(value) | Smoothing::AddK(value) if !(value > 0.0 && value.is_finite()) => {
                Err(format!("{value} is not a number greater than 0; sacreBLEU has 0.1 for floor and 1 for add-k"))
            }
            _ => Ok(()),
        }
    }

    /// The sufficient statistics of one sentence.
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> BleuStatistics {
        assert!(!references.is_empty(), "BLEU needs at least one reference for each sentence");
        let hypothesis = self.words(hypothesis);
        let references: Vec<Vec<String>> = references.iter().map(|reference| self.words(reference.as_ref())).collect();

        // Of two references that are equally close in length the shorter counts.
        let closest = references.iter().map(Vec::len).min_by_key(|&length| (length.abs_diff(hypothesis.len()), length));
        let mut statistics = BleuStatistics {
            sys_len: hypothesis.len() as u64,
            ref_len: closest.expect("there is a reference") as u64,
            ..BleuStatistics::default()
        };
        for order in 1..=MAX_ORDER {
            let mut available: HashMap<&[String], u64> = HashMap::new();
            for reference in &references {
                for (ngram, count) in counts(reference.windows(order)) {
                    let most = available.entry(ngram).or_default();
                    *most = (*most).max(count);
                }
            }
            let ngrams = hypothesis.windows(order);
            statistics.totals[order - 1] = ngrams.len() as u64;
            statistics.counts[order - 1] = ngrams.filter(|&ngram| take(&mut available, ngram)).count() as u64;
        }
        statistics
    }

    /// The BLEU of one sentence, always with effective order. Its mean over sentences is not the BLEU of the corpus.
    ///
    /// The [`signature`](Self::signature) of such a score is that of the same options with `effective_order`.
    ///
    /// # Panics
    /// As [`statistics`](Self::statistics) and [`score`](Self::score).
    pub fn sentence_score<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> BleuScore {
        Self { effective_order: true, ..*self }.score(&self.statistics(hypothesis, references))
    }

    fn words(&self, text: &str) -> Vec<String> {
        if self.lowercase { self.tokeniser.words(&text.to_lowercase()) } else { self.tokeniser.words(text) }
    }
}

impl TextMetric for Bleu {
    type Statistics = BleuStatistics;
    type Score = BleuScore;

    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<BleuStatistics> {
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references))
    }

    /// # Panics
    /// If the smoothing value is negative or not finite.
    fn score(&self, statistics: &BleuStatistics) -> BleuScore {
        if let Smoothing::Floor(value) | Smoothing::AddK(value) = self.smoothing {
            assert!(value.is_finite() && value >= 0.0, "BLEU's smoothing value must be finite and not negative, not {value}");
        }
        let BleuStatistics { sys_len, ref_len, counts, totals } = *statistics;
        let brevity_penalty = match sys_len {
            0 if ref_len > 0 => 0.0,
            _ if sys_len < ref_len => (1.0 - ref_len as f64 / sys_len as f64).exp(),
            _ => 1.0,
        };
        let mut result = BleuScore { score: 0.0, counts, totals, precisions: [0.0; MAX_ORDER], brevity_penalty, sys_len, ref_len };
        if counts == [0; MAX_ORDER] {
            return result;
        }

        let mut orders = MAX_ORDER;
        let mut missing = 1.0;
        for index in 0..MAX_ORDER {
            let added = if let (Smoothing::AddK(k), 1..) = (self.smoothing, index) { k } else { 0.0 };
            let count = counts[index] as f64 + added;
            let total = totals[index] as f64 + added;
            if total == 0.0 {
                break;
            }
            if self.effective_order {
                orders = index + 1;
            }
            result.precisions[index] = match self.smoothing {
                _ if count > 0.0 => 100.0 * count / total,
                Smoothing::Exp => {
                    missing *= 2.0;
                    100.0 / (missing * total)
                }
                Smoothing::Floor(value) => 100.0 * value / total,
                Smoothing::AddK(_) | Smoothing::None => 0.0,
            };
        }
        // The logarithm of a zero precision is minus infinity and its exponential zero again.
        let log_precisions: f64 = result.precisions[..orders].iter().map(|precision| precision.ln()).sum();
        result.score = brevity_penalty * (log_precisions / orders as f64).exp();
        result
    }

    fn signature(&self, references: Option<usize>) -> String {
        let effective = if self.effective_order { "eff:yes" } else { "eff:no" };
        let tokeniser = format!("tok:{}", self.tokeniser.name());
        let smoothing = format!("smooth:{}", self.smoothing.name());
        [&super::reference_field(references), super::case_field(self.lowercase), effective, &tokeniser, &smoothing, super::VERSION_FIELD]
            .join("|")
    }
}

/// What BLEU needs to know of a sentence or, summed, of a corpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BleuStatistics {
    /// Words in the hypotheses.
    pub sys_len: u64,
    /// Words in those references that are closest in length.
    pub ref_len: u64,
    /// Matching n-grams of the hypotheses, `counts[n - 1]` for order `n`.
    pub counts: [u64; MAX_ORDER],
    /// All n-grams of the hypotheses, `totals[n - 1]` for order `n`.
    pub totals: [u64; MAX_ORDER],
}

impl Add for BleuStatistics {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |one: [u64; MAX_ORDER], other: [u64; MAX_ORDER]| std::array::from_fn(|index| one[index] + other[index]);
        Self {
            sys_len: self.sys_len + other.sys_len,
            ref_len: self.ref_len + other.ref_len,
            counts: sum(self.counts, other.counts),
            totals: sum(self.totals, other.totals),
        }
    }
}

/// A BLEU score with what it was made of. `Display` prints the line that sacreBLEU prints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BleuScore {
    /// The score, 0 to 100.
    pub score: f64,
    /// Matching n-grams per order, before smoothing.
    pub counts: [u64; MAX_ORDER],
    /// All n-grams of the hypotheses per order, before smoothing.
    pub totals: [u64; MAX_ORDER],
    /// Precisions per order after smoothing, 0 to 100; all zero if nothing matches.
    pub precisions: [f64; MAX_ORDER],
    /// The factor for hypotheses that are too short, 0 to 1.
    pub brevity_penalty: f64,
    /// Words in the hypotheses.
    pub sys_len: u64,
    /// Words in those references that are closest in length.
    pub ref_len: u64,
}

impl BleuScore {
    /// Length of the hypotheses relative to the references; zero if the references are empty.
    pub fn ratio(&self) -> f64 {
        if self.ref_len == 0 { 0.0 } else { self.sys_len as f64 / self.ref_len as f64 }
    }
}

impl fmt::Display for BleuScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p1, p2, p3, p4] = self.precisions;
        write!(formatter, "BLEU = {:.2} {p1:.1}/{p2:.1}/{p3:.1}/{p4:.1} ", self.score)?;
        write!(formatter, "(BP = {:.3} ratio = {:.3} ", self.brevity_penalty, self.ratio())?;
        write!(formatter, "hyp_len = {} ref_len = {})", self.sys_len, self.ref_len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_agrees, assert_all_agree, corpora, fields, load};
    use super::super::reference_count;
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        options: Bleu,
        score: f64,
        counts: [u64; MAX_ORDER],
        totals: [u64; MAX_ORDER],
        precisions: [f64; MAX_ORDER],
        brevity_penalty: f64,
        sys_len: u64,
        ref_len: u64,
        display: String,
        signature: String,
        sentence_scores: Vec<f64>,
    }

    #[derive(Deserialize)]
    struct Tokenisation {
        tokeniser: Tokeniser,
        text: String,
        words: Vec<String>,
    }

    fn for_each_case(check: impl FnMut(&Corpus<Case>, &Case, &str)) {
        fixtures::for_each_case(&corpora("bleu", 10), check);
    }

    #[test]
    fn each_tokeniser_cuts_text_into_the_words_sacrebleu_finds() {
        let cases: Vec<Tokenisation> = load("tokenisation");
        for tokeniser in [Tokeniser::Mteval13a, Tokeniser::International, Tokeniser::Chinese, Tokeniser::Character, Tokeniser::Whitespace] {
            assert!(cases.iter().filter(|case| case.tokeniser == tokeniser).count() > 100);
        }
        for Tokenisation { tokeniser, text, words } in cases {
            assert_eq!(tokeniser.words(&text), words, "{} of {text:?}", tokeniser.name());
        }
    }

    #[test]
    fn corpus_scores_agree_with_sacrebleu() {
        for_each_case(|corpus, case, what| {
            let score = case.options.corpus_score(&corpus.hypotheses, &corpus.references);
            assert_eq!((score.counts, score.totals), (case.counts, case.totals), "{what}");
            assert_eq!((score.sys_len, score.ref_len), (case.sys_len, case.ref_len), "{what}");
            assert_agrees(score.brevity_penalty, case.brevity_penalty, what);
            assert_all_agree(score.precisions, case.precisions, what);
            assert_agrees(score.score, case.score, what);
            assert_eq!(score.to_string(), case.display, "{what}");
        });
    }

    #[test]
    fn sentence_scores_agree_with_sacrebleu() {
        for_each_case(|corpus, case, what| {
            for (hypothesis, references, expected) in corpus.examples(&case.sentence_scores) {
                let score = case.options.sentence_score(hypothesis, references);
                assert_agrees(score.score, *expected, &format!("{what}, {hypothesis:?}"));
            }
        });
    }

    #[test]
    fn signatures_are_those_of_sacrebleu_but_for_the_version() {
        for_each_case(|corpus, case, _| {
            assert_eq!(fields(&case.options.signature(reference_count(&corpus.references))), case.signature);
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        for_each_case(|corpus, case, what| {
            assert_eq!(corpus.score_of_halves(&case.options), case.options.corpus_score(&corpus.hypotheses, &corpus.references), "{what}");
        });
    }

    #[test]
    fn options_refuse_unknown_fields_and_fall_back_to_what_is_commonly_reported() {
        assert_eq!(serde_json::from_str::<Bleu>("{}").unwrap(), Bleu::default());
        assert_eq!(fields(&Bleu::default().signature(Some(1))), "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp");
        assert!(serde_json::from_str::<Bleu>(r#"{"tokenizer": "13a"}"#).is_err());
    }

    #[test]
    #[should_panic(expected = "2 hypotheses, 1 lists")]
    fn a_corpus_with_missing_references_is_refused() {
        Bleu::default().corpus_score(&["a", "b"], &[["a"]]);
    }

    #[test]
    #[should_panic(expected = "smoothing value")]
    fn a_negative_smoothing_value_is_refused() {
        Bleu { smoothing: Smoothing::Floor(-0.1), ..Bleu::default() }.corpus_score(&["a"], &[["a"]]);
    }
}
