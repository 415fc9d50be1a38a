//! chrF and chrF++ of a corpus or a sentence, as sacreBLEU 2 defines them.
//!
//! The idea: compare n-grams of characters instead of words, which rewards partly correct word forms and needs no tokenisation. Precision and recall
//! are averaged over the orders 1 to 6 (chrF++ adds the word orders 1 and 2) and combined:
//!
//! `chrF_β = (1 + β²) · P · R / (β² · P + R)`, with `β = 2`, so that recall weighs more.
//!
//! Sources: Popović, "chrF: character n-gram F-score for automatic MT evaluation" (WMT 2015), equation 1; Popović, "chrF++: words helping character
//! n-grams" (WMT 2017), section 2. White space is not a character here, and only orders that both sides are long enough for enter the averages
//! ("effective order"). Of several references the one with the best sentence score counts. Not covered: the variants with white space and with
//! epsilon smoothing.

use std::fmt;
use std::hash::Hash;
use std::ops::Add;

use derive_more::AddAssign;
use serde::{Deserialize, Serialize};

use super::TextMetric;
use super::clipped::{counts, take};
use super::text_metric::each_example;

/// The chrF metric with its options; the default is chrF2, [`ChrF::plus_plus`] is chrF2++.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChrF {
    /// The longest n-gram of characters; 6 by default.
    pub char_order: usize,
    /// The longest n-gram of words; 0 by default, 2 for chrF++.
    pub word_order: usize,
    /// How much more recall weighs than precision; 2 by default.
    pub beta: u32,
    /// Whether case is ignored. Scores are higher then.
    pub lowercase: bool,
}

impl Default for ChrF {
    fn default() -> Self {
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false }
    }
}

impl ChrF {
    /// chrF2++, with words and pairs of words.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    /// The sufficient statistics of one sentence, taken with the reference that gives it the best score (the first of equals).
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> ChrFStatistics {
        let hypothesis = self.segment(hypothesis);
        let mut best: Option<(f64, ChrFStatistics)> = None;
        for reference in references {
            let statistics = self.overlaps(&hypothesis, &self.segment(reference.as_ref()));
            let score = self.f_score(&statistics);
            if best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, statistics));
            }
        }
        best.expect("chrF needs at least one reference for each sentence").1
    }

    /// The chrF of one sentence.
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn sentence_score<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> ChrFScore {
        self.score(&self.statistics(hypothesis, references))
    }

    fn segment(&self, text: &str) -> Segment {
        let text = if self.lowercase { text.to_lowercase() } else { text.to_owned() };
        let words = if self.word_order > 0 { super::words(&text).flat_map(split_punctuation).collect() } else { Vec::new() };
        Segment { characters: text.chars().filter(|&character| !super::is_space(character)).collect(), words }
    }

    fn overlaps(&self, hypothesis: &Segment, reference: &Segment) -> ChrFStatistics {
        let characters = (1..=self.char_order).map(|order| overlap(&hypothesis.characters, &reference.characters, order));
        let words = (1..=self.word_order).map(|order| overlap(&hypothesis.words, &reference.words, order));
        ChrFStatistics { orders: characters.chain(words).collect() }
    }

    fn f_score(&self, statistics: &ChrFStatistics) -> f64 {
        assert_eq!(statistics.orders.len(), self.char_order + self.word_order, "the statistics come from other orders of chrF");
        let (mut precision, mut recall, mut effective) = (0.0, 0.0, 0.0);
        for &NgramOverlap { hypothesis, reference, matches } in &statistics.orders {
            if hypothesis > 0 && reference > 0 {
                precision += matches as f64 / hypothesis as f64;
                recall += matches as f64 / reference as f64;
                effective += 1.0;
            }
        }
        if precision + recall == 0.0 {
            return 0.0;
        }
        let (precision, recall) = (precision / effective, recall / effective);
        let factor = f64::from(self.beta).powi(2);
        100.0 * ((1.0 + factor) * precision * recall / (factor * precision + recall))
    }
}

impl TextMetric for ChrF {
    type Statistics = ChrFStatistics;
    type Score = ChrFScore;

    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<ChrFStatistics> {
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references))
    }

    /// # Panics
    /// If the statistics hold another number of orders than these options ask for.
    fn score(&self, statistics: &ChrFStatistics) -> ChrFScore {
        ChrFScore { score: self.f_score(statistics), word_order: self.word_order, beta: self.beta }
    }

    fn signature(&self, references: Option<usize>) -> String {
        let orders = format!("eff:yes|nc:{}|nw:{}|space:no", self.char_order, self.word_order);
        [&super::reference_field(references), super::case_field(self.lowercase), &orders, super::VERSION_FIELD].join("|")
    }
}

/// One side of a comparison.
struct Segment {
    characters: Vec<char>,
    words: Vec<String>,
}

/// A word and the ASCII punctuation mark at its end or else at its start, as chrF++ separates them; "(hi)" becomes "(hi" and ")".
fn split_punctuation(word: &str) -> Vec<String> {
    let is_punctuation = |character: char| character.is_ascii_punctuation();
    let cut = match word.char_indices().next_back() {
        Some((0, _)) | None => return vec![word.to_owned()],
        Some((last, _)) if word.ends_with(is_punctuation) => last,
        Some(_) if word.starts_with(is_punctuation) => 1,
        Some(_) => return vec![word.to_owned()],
    };
    let (front, back) = word.split_at(cut);
    vec![front.to_owned(), back.to_owned()]
}

fn overlap<T: Eq + Hash>(hypothesis: &[T], reference: &[T], order: usize) -> NgramOverlap {
    let (ngrams, of_reference) = (hypothesis.windows(order), reference.windows(order));
    // An order that the reference is too short for must not count against the hypothesis once sentences are summed.
    if of_reference.len() == 0 {
        return NgramOverlap::default();
    }
    let (hypothesis, reference) = (ngrams.len() as u64, of_reference.len() as u64);
    let mut available = counts(of_reference);
    NgramOverlap { hypothesis, reference, matches: ngrams.filter(|&ngram| take(&mut available, ngram)).count() as u64 }
}

/// How many n-grams of one order hypothesis and reference have, and have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Serialize, Deserialize)]
pub struct NgramOverlap {
    /// N-grams of the hypotheses; those of sentences whose reference has none of this order are left out.
    pub hypothesis: u64,
    /// N-grams of the references.
    pub reference: u64,
    /// N-grams of the hypotheses that occur in the reference, each as often at most as there.
    pub matches: u64,
}

/// What chrF needs to know of a sentence or, summed, of a corpus. The default is the empty sum, which fits every choice of orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChrFStatistics {
    /// Character orders from one up, then word orders from one up.
    pub orders: Vec<NgramOverlap>,
}

impl Add for ChrFStatistics {
    type Output = Self;

    /// # Panics
    /// If the two sides hold different numbers of orders, unless one is the empty sum.
    fn add(mut self, other: Self) -> Self {
        if self.orders.is_empty() {
            return other;
        }
        assert!(other.orders.is_empty() || self.orders.len() == other.orders.len(), "the statistics come from different orders of chrF");
        self.orders.iter_mut().zip(other.orders).for_each(|(sum, overlap)| *sum += overlap);
        self
    }
}

/// A chrF score. `Display` prints the line that sacreBLEU prints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChrFScore {
    /// The score, 0 to 100.
    pub score: f64,
    /// The longest n-gram of words; one plus sign in the metric's name for each.
    pub word_order: usize,
    /// The weight of recall, the number in the metric's name.
    pub beta: u32,
}

impl fmt::Display for ChrFScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "chrF{}{} = {:.2}", self.beta, "+".repeat(self.word_order), self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_agrees, corpora, fields};
    use super::super::reference_count;
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        options: ChrF,
        score: f64,
        overlaps: Vec<[u64; 3]>,
        display: String,
        signature: String,
        sentence_scores: Vec<f64>,
    }

    fn for_each_case(check: impl FnMut(&Corpus<Case>, &Case, &str)) {
        fixtures::for_each_case(&corpora("chrf", 10), check);
    }

    #[test]
    fn corpus_scores_agree_with_sacrebleu() {
        for_each_case(|corpus, case, what| {
            let statistics = case.options.total(case.options.corpus_statistics(&corpus.hypotheses, &corpus.references));
            let overlaps: Vec<_> = statistics.orders.iter().map(|order| [order.hypothesis, order.reference, order.matches]).collect();
            assert_eq!(overlaps, case.overlaps, "{what}");
            let score = case.options.corpus_score(&corpus.hypotheses, &corpus.references);
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
    fn the_empty_sum_is_neutral_on_both_sides() {
        let statistics = ChrF::default().statistics("a cat", &["the cat"]);
        assert_eq!(statistics.clone() + ChrFStatistics::default(), statistics);
        assert_eq!(ChrFStatistics::default() + statistics.clone(), statistics);
    }

    #[test]
    #[should_panic(expected = "other orders of chrF")]
    fn statistics_of_other_orders_are_refused() {
        ChrF::plus_plus().score(&ChrF::default().statistics("a", &["a"]));
    }
}
