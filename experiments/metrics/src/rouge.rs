//! ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum, as the Python package rouge-score 0.1.2 defines them.
//!
//! The idea: count what hypothesis and reference have in common (words, pairs of words, or the longest common subsequence of words), divide by the
//! length of the hypothesis and by that of the reference, and combine:
//!
//! `F = 2 · P · R / (P + R)`, `P = matches / hypothesis`, `R = matches / reference`.
//!
//! Sources: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries" (2004), sections 2 for n-grams, 3.1 for the longest common subsequence and
//! 3.2 for its union over sentences; rouge-score for the tokenisation, for matches of ROUGE-Lsum that are clipped to the counts of the words, and for
//! several references, of which the one with the best F counts. The value of a corpus is the mean over its examples; rouge-score reports the median
//! of that mean over random resamples instead, which differs from run to run.
//!
//! Words are runs of the ASCII letters and digits of the lower-case text: text in other scripts has none, and accented letters cut words apart. Not
//! covered: other orders of n-grams, the variants with skips and weights, splitting text into sentences, and the ROUGE-L of COCO's captions, which
//! weighs recall more.

use std::fmt;

use derive_more::{Add, AddAssign};
use serde::{Deserialize, Serialize};

use super::clipped::{counts, take};
use super::text_metric::each_example;
use super::{TextMetric, porter};

/// What hypothesis and reference are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RougeVariant {
    /// Words.
    #[serde(rename = "rouge1")]
    Rouge1,
    /// Pairs of neighbouring words.
    #[serde(rename = "rouge2")]
    Rouge2,
    /// The longest common subsequence of words, over the whole text; the default.
    #[default]
    #[serde(rename = "rougeL")]
    RougeL,
    /// For each sentence of the reference, the words that a longest common subsequence with some sentence of the hypothesis has. Each line is a
    /// sentence.
    #[serde(rename = "rougeLsum")]
    RougeLsum,
}

impl RougeVariant {
    /// The name in rouge-score, which is also the value of the signature's `type` field.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rouge1 => "rouge1",
            Self::Rouge2 => "rouge2",
            Self::RougeL => "rougeL",
            Self::RougeLsum => "rougeLsum",
        }
    }
}

/// The ROUGE metric with its options.
///
/// # Example
/// ```
/// use heedful_metrics::{Rouge, RougeVariant, TextMetric};
///
/// let rouge = Rouge { variant: RougeVariant::Rouge2, ..Rouge::default() };
/// let score = rouge.corpus_score(&["The cat sat on the mat."], &[["The cat sat on a mat."]]);
/// assert_eq!(score.to_string(), "rouge2 = 0.6000 (P = 0.6000 R = 0.6000)");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rouge {
    /// What is compared.
    pub variant: RougeVariant,
    /// Whether words of more than three letters are reduced to their stems. For English only; scores are higher then.
    pub stemmer: bool,
}

impl Rouge {
    /// The statistics of one example, taken with the reference that gives it the best F (the first of equals).
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> RougeStatistics {
        let hypothesis = self.sentences(hypothesis);
        let mut best: Option<RougeStatistics> = None;
        for reference in references {
            let statistics = self.compare(&hypothesis, &self.sentences(reference.as_ref()));
            if best.is_none_or(|best| statistics.f_measure > best.f_measure) {
                best = Some(statistics);
            }
        }
        best.expect("ROUGE needs at least one reference for each example")
    }

    /// The words of each sentence; all text is one sentence unless the variant tells sentences apart.
    fn sentences(&self, text: &str) -> Vec<Vec<String>> {
        match self.variant {
            RougeVariant::RougeLsum => text.split('\n').map(|line| self.words(line)).collect(),
            _ => vec![self.words(text)],
        }
    }

    fn words(&self, text: &str) -> Vec<String> {
        let lowercase = text.to_lowercase();
        let words = lowercase.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.map(|word| if self.stemmer && word.len() > 3 { porter::stem(word) } else { word.to_owned() }).collect()
    }

    fn compare(&self, hypothesis: &[Vec<String>], reference: &[Vec<String>]) -> RougeStatistics {
        let order = if self.variant == RougeVariant::Rouge2 { 2 } else { 1 };
        let matches = match self.variant {
            RougeVariant::Rouge1 | RougeVariant::Rouge2 => matching_ngrams(&hypothesis[0], &reference[0], order),
            RougeVariant::RougeL => common_subsequence(&reference[0], &hypothesis[0]).len(),
            RougeVariant::RougeLsum => matches_in_union(hypothesis, reference),
        };
        // With nothing to count there is no match either, and zero divided by one is as good as any zero.
        let length = |sentences: &[Vec<String>]| sentences.iter().map(|words| words.windows(order).len()).sum::<usize>().max(1) as f64;
        let precision = matches as f64 / length(hypothesis);
        let recall = matches as f64 / length(reference);
        let f_measure = if matches == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
        RougeStatistics { examples: 1, precision, recall, f_measure }
    }
}

impl TextMetric for Rouge {
    type Statistics = RougeStatistics;
    type Score = RougeScore;

    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<RougeStatistics> {
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references))
    }

    fn score(&self, statistics: &RougeStatistics) -> RougeScore {
        let RougeStatistics { examples, precision, recall, f_measure } = *statistics;
        let mean = |sum| super::mean_over_examples(sum, examples);
        RougeScore { variant: self.variant, precision: mean(precision), recall: mean(recall), f_measure: mean(f_measure) }
    }

    fn signature(&self, references: Option<usize>) -> String {
        let stemmer = if self.stemmer { "stem:porter-nltk" } else { "stem:no" };
        let variant = format!("type:{}", self.variant.name());
        [&super::reference_field(references), super::case_field(true), "tok:rouge-score", stemmer, &variant, super::VERSION_FIELD].join("|")
    }
}

/// How many n-grams of the hypothesis occur in the reference, each as often at most as there.
fn matching_ngrams(hypothesis: &[String], reference: &[String], order: usize) -> usize {
    let mut available = counts(reference.windows(order));
    hypothesis.windows(order).filter(|&ngram| take(&mut available, ngram)).count()
}

/// The positions in `reference` of a longest common subsequence, from the last to the first.
///
/// Of several such subsequences it is the one that rouge-score finds; the choice matters once sentences are united.
fn common_subsequence(reference: &[String], hypothesis: &[String]) -> Vec<usize> {
    let width = hypothesis.len() + 1;
    // lengths[i * width + j] is for the first i words of the reference and the first j of the hypothesis.
    let mut lengths = vec![0_u32; (reference.len() + 1) * width];
    for (i, word) in reference.iter().enumerate() {
        for (j, other) in hypothesis.iter().enumerate() {
            let (above, below) = (i * width + j, (i + 1) * width + j);
            lengths[below + 1] = if word == other { lengths[above] + 1 } else { lengths[above + 1].max(lengths[below]) };
        }
    }
    let mut positions = Vec::new();
    let (mut i, mut j) = (reference.len(), hypothesis.len());
    while i > 0 && j > 0 {
        if reference[i - 1] == hypothesis[j - 1] {
            positions.push(i - 1);
            i -= 1;
            j -= 1;
        } else if lengths[i * width + j - 1] > lengths[(i - 1) * width + j] {
            j -= 1;
        } else {
            i -= 1;
        }
    }
    positions
}

/// How many words of the reference lie on common subsequences with some sentence of the hypothesis, each word as often at most as both texts have it.
fn matches_in_union(hypothesis: &[Vec<String>], reference: &[Vec<String>]) -> usize {
    let mut available = counts(reference.iter().flatten());
    for (word, count) in counts(hypothesis.iter().flatten()) {
        available.entry(word).and_modify(|left| *left = (*left).min(count));
    }
    // A word that the hypothesis lacks is in no common subsequence, so that its count cannot matter.
    let mut matches = 0;
    for sentence in reference {
        let mut united = vec![false; sentence.len()];
        for other in hypothesis {
            for position in common_subsequence(sentence, other) {
                united[position] = true;
            }
        }
        matches += sentence.iter().zip(united).filter(|(word, on)| *on && take(&mut available, *word)).count();
    }
    matches
}

/// The ROUGE of an example or, summed, of several. Sums of the same examples in another order may differ in the last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Add, AddAssign, Serialize, Deserialize)]
pub struct RougeStatistics {
    /// How many examples were summed.
    pub examples: u64,
    /// Summed precisions, each 0 to 1.
    pub precision: f64,
    /// Summed recalls, each 0 to 1.
    pub recall: f64,
    /// Summed F-measures, each 0 to 1.
    pub f_measure: f64,
}

/// A ROUGE score. `Display` names the F-measure first, which is what papers report (usually times 100).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RougeScore {
    /// What was compared.
    pub variant: RougeVariant,
    /// Mean precision, 0 to 1.
    pub precision: f64,
    /// Mean recall, 0 to 1.
    pub recall: f64,
    /// Mean F-measure, 0 to 1; not the F-measure of the two means.
    pub f_measure: f64,
}

impl fmt::Display for RougeScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, precision, recall, f_measure } = self;
        write!(formatter, "{} = {f_measure:.4} (P = {precision:.4} R = {recall:.4})", variant.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_all_agree, corpora, fields};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        options: Rouge,
        scores: Vec<[f64; 3]>,
        score: [f64; 3],
    }

    fn for_each_case(check: impl FnMut(&Corpus<Case>, &Case, &str)) {
        let corpora = corpora("rouge", 20);
        assert!(corpora.iter().all(|corpus| corpus.cases.len() == 8));
        fixtures::for_each_case(&corpora, check);
    }

    fn assert_score(score: &RougeScore, expected: [f64; 3], what: &str) {
        assert_all_agree([score.precision, score.recall, score.f_measure], expected, what);
    }

    #[test]
    fn each_example_agrees_with_rouge_score() {
        for_each_case(|corpus, case, what| {
            for (hypothesis, references, expected) in corpus.examples(&case.scores) {
                let statistics = case.options.statistics(hypothesis, references);
                assert_eq!(statistics.examples, 1);
                assert_score(&case.options.score(&statistics), *expected, &format!("{what}, {hypothesis:?}"));
            }
        });
    }

    #[test]
    fn corpus_scores_are_the_means_of_what_rouge_score_gives_each_example() {
        for_each_case(|corpus, case, what| {
            let score = case.options.corpus_score(&corpus.hypotheses, &corpus.references);
            assert_eq!(score.variant, case.options.variant);
            assert_score(&score, case.score, what);
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        for_each_case(|corpus, case, what| assert_score(&corpus.score_of_halves(&case.options), case.score, what));
    }

    #[test]
    fn signatures_name_all_options() {
        assert_eq!(fields(&Rouge::default().signature(Some(1))), "nrefs:1|case:lc|tok:rouge-score|stem:no|type:rougeL");
        let stemmed = Rouge { variant: RougeVariant::RougeLsum, stemmer: true };
        assert_eq!(fields(&stemmed.signature(None)), "nrefs:var|case:lc|tok:rouge-score|stem:porter-nltk|type:rougeLsum");
    }

    #[test]
    fn options_refuse_unknown_fields() {
        assert_eq!(serde_json::from_str::<Rouge>("{}").unwrap(), Rouge::default());
        assert!(serde_json::from_str::<Rouge>(r#"{"use_stemmer": true}"#).is_err());
    }
}
