//! CIDEr and CIDEr-D, as the evaluation code of COCO's captions defines them.
//!
//! The idea: describe a text by how often it has each n-gram, with less weight for n-grams that the references of many examples have, and
//! compare hypothesis and reference by the cosine between these vectors. The score of an example is the mean over the orders `n` = 1 to 4 and over
//! its references, times ten; the score of a corpus is the mean over its examples:
//!
//! `CIDErₙ = g(h) · g(r) / (|g(h)| · |g(r)|)`, `gₖ = countₖ · (ln N − ln max(1, dₖ))`, with `N` examples, of which `dₖ` have n-gram `k` in a reference;
//!
//! `CIDEr-Dₙ = exp(−(l(h) − l(r))² / 2σ²) · min(g(h), g(r)) · g(r) / (|g(h)| · |g(r)|)`, with `l` the number of words and `σ = 6`.
//!
//! Sources: Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation" (CVPR 2015), equations 1 to 4; pycocoevalcap 1.2, whose `Cider`
//! computes CIDEr-D and is what papers call CIDEr. As there, and other than in the paper, words are not reduced to their stems.
//!
//! The weights come from the references of the whole corpus: a corpus of one example scores zero, and scores of different corpora do not compare. Not
//! covered: weights from another corpus than the references.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use derive_more::{Add, AddAssign};
use serde::{Deserialize, Serialize};

use super::TextMetric;
use super::bleu::MAX_ORDER;
use super::text_metric::each_example;

/// The standard deviation of CIDEr-D's penalty for another length, in words.
const SIGMA: f64 = 6.0;

/// Which of the two definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CiderVariant {
    /// With clipping and a penalty for another length, against texts that repeat what scores well; the default, and what papers report as CIDEr.
    #[default]
    #[serde(rename = "CIDEr-D")]
    CiderD,
    /// The plain cosine.
    #[serde(rename = "CIDEr")]
    Cider,
}

impl CiderVariant {
    /// The name of the variant, which is also the value of the signature's `type` field.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CiderD => "CIDEr-D",
            Self::Cider => "CIDEr",
        }
    }
}

/// The CIDEr metric with its options. Words are separated by white space.
///
/// # Example
/// ```
/// use heedful_metrics::{Cider, TextMetric};
///
/// let score = Cider::default().corpus_score(&["a dog barks", "two cats sleep"], &[["a dog barks"], ["three cats sleep"]]);
/// assert_eq!(score.to_string(), "CIDEr-D = 5.2083");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cider {
    /// Which of the two definitions.
    pub variant: CiderVariant,
    /// Whether case is ignored. Scores are higher then.
    pub lowercase: bool,
}

impl Cider {
    /// How many examples of a corpus have each n-gram in a reference; `references[i]` holds all references of example `i`.
    pub fn document_frequencies<S: AsRef<[R]>, R: AsRef<str>>(&self, references: &[S]) -> DocumentFrequencies {
        let mut frequencies = HashMap::new();
        for of_example in references {
            let texts: Vec<Vec<String>> = of_example.as_ref().iter().map(|reference| self.words(reference.as_ref())).collect();
            let ngrams: HashSet<&[String]> =
                texts.iter().flat_map(|words| (1..=MAX_ORDER).flat_map(|order| words.windows(order))).collect();
            for ngram in ngrams {
                *frequencies.entry(ngram.to_vec()).or_default() += 1;
            }
        }
        DocumentFrequencies { examples: references.len() as u64, frequencies }
    }

    /// The statistics of one example, with the frequencies of the corpus that it belongs to, taken with the same options.
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R], corpus: &DocumentFrequencies) -> CiderStatistics {
        assert!(!references.is_empty(), "CIDEr needs at least one reference for each example");
        let words = self.words(hypothesis);
        let hypothesis = WeightedNgrams::of(&words, corpus);
        let mut sum = 0.0;
        for reference in references {
            let words = self.words(reference.as_ref());
            sum += self.similarity(&hypothesis, &WeightedNgrams::of(&words, corpus));
        }
        CiderStatistics { examples: 1, score: 10.0 * sum / references.len() as f64 }
    }

    fn words(&self, text: &str) -> Vec<String> {
        let text = if self.lowercase { text.to_lowercase() } else { text.to_owned() };
        super::words(&text).map(str::to_owned).collect()
    }

    /// The mean over the orders, 0 to 1.
    fn similarity(&self, hypothesis: &WeightedNgrams, reference: &WeightedNgrams) -> f64 {
        let mut sum = 0.0;
        for (hypothesis, reference) in hypothesis.orders.iter().zip(&reference.orders) {
            let norms = norm(hypothesis) * norm(reference);
            if norms == 0.0 {
                continue;
            }
            let product = |(ngram, &weight): (_, &f64)| {
                let in_reference = reference.get(ngram).copied().unwrap_or_default();
                match self.variant {
                    CiderVariant::CiderD => weight.min(in_reference) * in_reference,
                    CiderVariant::Cider => weight * in_reference,
                }
            };
            sum += hypothesis.iter().map(product).sum::<f64>() / norms;
        }
        let penalty = match self.variant {
            CiderVariant::CiderD => (-(hypothesis.length - reference.length).powi(2) / (2.0 * SIGMA.powi(2))).exp(),
            CiderVariant::Cider => 1.0,
        };
        penalty * sum / MAX_ORDER as f64
    }
}

impl TextMetric for Cider {
    type Statistics = CiderStatistics;
    type Score = CiderScore;

    /// The frequencies are those of `references`.
    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<CiderStatistics> {
        let corpus = self.document_frequencies(references);
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references, &corpus))
    }

    fn score(&self, statistics: &CiderStatistics) -> CiderScore {
        CiderScore { variant: self.variant, score: super::mean_over_examples(statistics.score, statistics.examples) }
    }

    fn signature(&self, references: Option<usize>) -> String {
        let variant = format!("type:{}|n:{MAX_ORDER}", self.variant.name());
        let sigma = match self.variant {
            CiderVariant::CiderD => format!("sigma:{SIGMA}"),
            CiderVariant::Cider => "sigma:no".to_owned(),
        };
        let case = super::case_field(self.lowercase);
        [&super::reference_field(references), case, "tok:none|df:references", &variant, &sigma, super::VERSION_FIELD].join("|")
    }
}

/// In how many examples of a corpus each n-gram occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentFrequencies {
    examples: u64,
    frequencies: HashMap<Vec<String>, u64>,
}

/// The n-grams of a text with their weights. They are ordered, so that sums over them come out the same each time.
struct WeightedNgrams<'t> {
    orders: [BTreeMap<&'t [String], f64>; MAX_ORDER],
    /// The number of words. That pycocoevalcap counts pairs of words makes no difference: only an empty text is at another
    /// distance then, and that scores zero.
    length: f64,
}

impl<'t> WeightedNgrams<'t> {
    fn of(words: &'t [String], corpus: &DocumentFrequencies) -> Self {
        let orders = std::array::from_fn(|index| {
            let mut weights: BTreeMap<&[String], f64> = BTreeMap::new();
            for ngram in words.windows(index + 1) {
                *weights.entry(ngram).or_default() += 1.0;
            }
            for (ngram, weight) in &mut weights {
                let frequency = corpus.frequencies.get(*ngram).copied().unwrap_or(1);
                *weight *= (corpus.examples as f64).ln() - (frequency as f64).ln();
            }
            weights
        });
        Self { orders, length: words.len() as f64 }
    }
}

fn norm(weights: &BTreeMap<&[String], f64>) -> f64 {
    weights.values().map(|weight| weight * weight).sum::<f64>().sqrt()
}

/// The CIDEr of an example or, summed, of several. Sums of the same examples in another order may differ in the last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Add, AddAssign, Serialize, Deserialize)]
pub struct CiderStatistics {
    /// How many examples were summed.
    pub examples: u64,
    /// Summed scores, each 0 to 10.
    pub score: f64,
}

/// A CIDEr score. `Display` prints it with the name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CiderScore {
    /// Which of the two definitions.
    pub variant: CiderVariant,
    /// The score, 0 to 10; tables often show it times 100.
    pub score: f64,
}

impl fmt::Display for CiderScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} = {:.4}", self.variant.name(), self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_agrees, corpora, fields};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        options: Cider,
        scores: Vec<f64>,
        score: f64,
    }

    fn for_each_case(check: impl FnMut(&Corpus<Case>, &Case, &str)) {
        let corpora = corpora::<Case>("cider", 20);
        for variant in [CiderVariant::CiderD, CiderVariant::Cider] {
            assert!(corpora.iter().all(|corpus| corpus.cases.iter().any(|case| case.options.variant == variant)));
        }
        fixtures::for_each_case(&corpora, check);
    }

    #[test]
    fn each_example_agrees_with_pycocoevalcap_and_the_plain_cosine() {
        for_each_case(|corpus, case, what| {
            let frequencies = case.options.document_frequencies(&corpus.references);
            for (hypothesis, references, expected) in corpus.examples(&case.scores) {
                let statistics = case.options.statistics(hypothesis, references, &frequencies);
                assert_eq!(statistics.examples, 1);
                assert_agrees(statistics.score, *expected, &format!("{what}, {hypothesis:?}"));
            }
        });
    }

    #[test]
    fn corpus_scores_agree_with_pycocoevalcap_and_the_plain_cosine() {
        for_each_case(|corpus, case, what| {
            let score = case.options.corpus_score(&corpus.hypotheses, &corpus.references);
            assert_eq!(score.variant, case.options.variant);
            assert_agrees(score.score, case.score, what);
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        for_each_case(|corpus, case, what| assert_agrees(corpus.score_of_halves(&case.options).score, case.score, what));
    }

    #[test]
    fn scores_are_the_same_each_time_to_the_last_digit() {
        for_each_case(|corpus, case, what| {
            let statistics = || case.options.corpus_statistics(&corpus.hypotheses, &corpus.references);
            assert_eq!(statistics(), statistics(), "{what}");
        });
    }

    #[test]
    fn signatures_name_all_options() {
        let default = Cider::default().signature(Some(5));
        assert_eq!(fields(&default), "nrefs:5|case:mixed|tok:none|df:references|type:CIDEr-D|n:4|sigma:6");
        let plain = Cider { variant: CiderVariant::Cider, lowercase: true }.signature(None);
        assert_eq!(fields(&plain), "nrefs:var|case:lc|tok:none|df:references|type:CIDEr|n:4|sigma:no");
    }
}
