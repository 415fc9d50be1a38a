//! Similarity of texts by the vectors of their words: embedding average, greedy matching and vector extrema.
//!
//! The idea: a reply may say the same in other words, which counts of n-grams miss; words with similar meaning have vectors in similar directions.
//! With `cos` the cosine, `0` if a vector is zero, and `v` the vectors of the words:
//!
//! - embedding average: `cos(Σ v(h), Σ v(r))`, the cosine of the mean vectors;
//! - greedy matching: `½ (meanₕ maxᵣ cos(v(h), v(r)) + meanᵣ maxₕ cos(v(h), v(r)))`, each word with the most similar word of the other text;
//! - vector extrema: the cosine of the vectors that have, in each dimension, the value of largest magnitude among the words of the text.
//!
//! Of several references the most similar counts, for each of the three on its own. The value of a corpus is the mean over its examples.
//!
//! Sources: Liu et al., "How NOT To Evaluate Your Dialogue System" (EMNLP 2016), section 3.2; nlg-eval for several references. Words are separated by
//! white space (nlg-eval cuts text into words itself). Words without a vector are left out, as by Liu et al.; nlg-eval puts the mean of all vectors in
//! their place, which a lookup can do as well. A text without any vector is similar to nothing and counts zero; nlg-eval refuses it.
//!
//! Deviation from nlg-eval: in a dimension whose smallest value is exactly zero the extreme value is the largest, not zero.

use std::fmt;

use derive_more::{Add, AddAssign};
use serde::{Deserialize, Serialize};

use super::TextMetric;
use super::text_metric::each_example;

/// The metrics over the word vectors that `lookup` knows, of type `Fn(&str) -> Option<&[f32]>`.
///
/// # Example
/// ```
/// use std::collections::HashMap;
///
/// use heedful_metrics::{EmbeddingSimilarity, TextMetric};
///
/// let vectors = HashMap::from([("cat", vec![1.0, 0.0]), ("dog", vec![0.6, 0.8]), ("sat", vec![0.0, 1.0])]);
/// let similarity = EmbeddingSimilarity::new("toy", |word: &str| vectors.get(word).map(Vec::as_slice));
/// let score = similarity.corpus_score(&["cat"], &[["the dog"]]);
/// assert_eq!(score.to_string(), "average = 0.6000 greedy = 0.6000 extrema = 0.6000");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingSimilarity<'n, L> {
    name: &'n str,
    lookup: L,
}

impl<'n, 'v, L: Fn(&str) -> Option<&'v [f32]>> EmbeddingSimilarity<'n, L> {
    /// Metrics over the vectors called `name`, all of one width, which `lookup` finds for the words that have one.
    pub fn new(name: &'n str, lookup: L) -> Self {
        Self { name, lookup }
    }

    /// The statistics of one example.
    ///
    /// # Panics
    /// If `references` is empty, or if two vectors differ in width.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> EmbeddingStatistics {
        let hypothesis = self.vectors(hypothesis);
        let similarities = references.iter().map(|reference| similarities(&hypothesis, &self.vectors(reference.as_ref())));
        let best = similarities.reduce(|best, other| std::array::from_fn(|index| larger(best[index], other[index])));
        let [average, greedy, extrema] = best.expect("similarity needs at least one reference for each example");
        EmbeddingStatistics { examples: 1, average, greedy, extrema }
    }

    fn vectors(&self, text: &str) -> Vec<Vec<f64>> {
        let known = super::words(text).filter_map(|word| (self.lookup)(word));
        known.map(|vector| vector.iter().copied().map(f64::from).collect()).collect()
    }
}

impl<'v, L: Fn(&str) -> Option<&'v [f32]>> TextMetric for EmbeddingSimilarity<'_, L> {
    type Statistics = EmbeddingStatistics;
    type Score = EmbeddingScore;

    /// # Panics
    /// If two vectors differ in width, besides.
    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[S],
    ) -> Vec<EmbeddingStatistics> {
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references))
    }

    fn score(&self, statistics: &EmbeddingStatistics) -> EmbeddingScore {
        let EmbeddingStatistics { examples, average, greedy, extrema } = *statistics;
        let mean = |sum| super::mean_over_examples(sum, examples);
        EmbeddingScore { average: mean(average), greedy: mean(greedy), extrema: mean(extrema) }
    }

    /// The vectors are named by what [`new`](Self::new) was told.
    fn signature(&self, references: Option<usize>) -> String {
        let vectors = format!("vectors:{}", self.name);
        [&super::reference_field(references), super::case_field(false), "tok:none", &vectors, super::VERSION_FIELD].join("|")
    }
}

/// Average, greedy matching and extrema of two texts, each given as the vectors of its words.
fn similarities(hypothesis: &[Vec<f64>], reference: &[Vec<f64>]) -> [f64; 3] {
    if hypothesis.is_empty() || reference.is_empty() {
        return [0.0; 3];
    }
    let average = cosine(&combine(hypothesis, |sum, value| sum + value), &combine(reference, |sum, value| sum + value));
    let greedy = (mean_of_best(hypothesis, reference) + mean_of_best(reference, hypothesis)) / 2.0;
    [average, greedy, cosine(&extrema(hypothesis), &extrema(reference))]
}

/// The mean, over the words of one text, of the similarity to the most similar word of the other.
fn mean_of_best(words: &[Vec<f64>], others: &[Vec<f64>]) -> f64 {
    let best = |word: &Vec<f64>| others.iter().map(|other| cosine(word, other)).fold(f64::NEG_INFINITY, larger);
    words.iter().map(best).sum::<f64>() / words.len() as f64
}

/// In each dimension the value of largest magnitude; of a value and its opposite the negative one, as in nlg-eval.
fn extrema(vectors: &[Vec<f64>]) -> Vec<f64> {
    let (largest, smallest) = (combine(vectors, f64::max), combine(vectors, f64::min));
    largest.into_iter().zip(smallest).map(|(largest, smallest)| if largest > smallest.abs() { largest } else { smallest }).collect()
}

/// The vectors, of which there is at least one, made into one by `operation` in each dimension.
fn combine(vectors: &[Vec<f64>], operation: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut combined = vectors[0].clone();
    for vector in &vectors[1..] {
        assert_same_width(&combined, vector);
        combined.iter_mut().zip(vector).for_each(|(so_far, &value)| *so_far = operation(*so_far, value));
    }
    combined
}

/// The cosine between two vectors; zero if one of them is zero.
fn cosine(x: &[f64], y: &[f64]) -> f64 {
    assert_same_width(x, y);
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let norms = product(x, x).sqrt() * product(y, y).sqrt();
    if norms == 0.0 { 0.0 } else { product(x, y) / norms }
}

fn assert_same_width(x: &[f64], y: &[f64]) {
    assert_eq!(x.len(), y.len(), "word vectors must have one width, not {} and {}", x.len(), y.len());
}

/// The larger value; not a number if one of them is not, so that a broken vector is not hidden.
fn larger(x: f64, y: f64) -> f64 {
    if x.is_nan() || x > y { x } else { y }
}

/// The similarity of an example or, summed, of several. Sums of the same examples in another order may differ in the last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Add, AddAssign, Serialize, Deserialize)]
pub struct EmbeddingStatistics {
    /// How many examples were summed.
    pub examples: u64,
    /// Summed cosines of the mean vectors, each -1 to 1.
    pub average: f64,
    /// Summed scores of greedy matching, each -1 to 1.
    pub greedy: f64,
    /// Summed cosines of the extrema, each -1 to 1.
    pub extrema: f64,
}

/// The three similarities. `Display` prints all of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingScore {
    /// Mean of the embedding average, -1 to 1.
    pub average: f64,
    /// Mean of greedy matching, -1 to 1.
    pub greedy: f64,
    /// Mean of the vector extrema, -1 to 1.
    pub extrema: f64,
}

impl fmt::Display for EmbeddingScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { average, greedy, extrema } = self;
        write!(formatter, "average = {average:.4} greedy = {greedy:.4} extrema = {extrema:.4}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::fixtures::{assert_agrees, assert_all_agree, fields, load};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        vectors: HashMap<String, Vec<f32>>,
        unknown: Option<Vec<f32>>,
        hypotheses: Vec<String>,
        references: Vec<Vec<String>>,
        scores: Vec<[f64; 3]>,
        score: [f64; 3],
    }

    impl Case {
        fn statistics(&self) -> Vec<EmbeddingStatistics> {
            let lookup = |word: &str| self.vectors.get(word).or(self.unknown.as_ref()).map(Vec::as_slice);
            EmbeddingSimilarity::new("fixture", lookup).corpus_statistics(&self.hypotheses, &self.references)
        }
    }

    fn cases() -> Vec<Case> {
        let cases: Vec<Case> = load("embedding");
        assert!(cases.iter().any(|case| case.unknown.is_none()) && cases.iter().any(|case| case.unknown.is_some()));
        cases
    }

    /// Words of a plane.
    fn toy(word: &str) -> Option<&'static [f32]> {
        Some(match word {
            "east" => &[1.0, 0.0],
            "west" => &[-1.0, 0.0],
            "north" => &[0.0, 1.0],
            "nowhere" => &[0.0, 0.0],
            "broken" => &[f32::NAN, 0.0],
            "wide" => &[1.0, 0.0, 0.0],
            _ => return None,
        })
    }

    fn similarity(hypothesis: &str, references: &[&str]) -> [f64; 3] {
        let EmbeddingStatistics { average, greedy, extrema, .. } = EmbeddingSimilarity::new("toy", toy).statistics(hypothesis, references);
        [average, greedy, extrema]
    }

    fn total(statistics: &[EmbeddingStatistics]) -> EmbeddingStatistics {
        EmbeddingSimilarity::new("toy", toy).total(statistics.iter().copied())
    }

    fn score(statistics: EmbeddingStatistics) -> [f64; 3] {
        let EmbeddingScore { average, greedy, extrema } = EmbeddingSimilarity::new("toy", toy).score(&statistics);
        [average, greedy, extrema]
    }

    #[test]
    fn each_example_agrees_with_the_formulas_of_nlg_eval() {
        for case in cases() {
            let statistics = case.statistics();
            assert_eq!(statistics.len(), case.scores.len());
            for (index, statistics) in statistics.into_iter().enumerate() {
                assert_all_agree(score(statistics), case.scores[index], &format!("{}, {:?}", case.name, case.hypotheses[index]));
            }
        }
    }

    #[test]
    fn corpus_scores_are_means_and_do_not_depend_on_how_examples_are_grouped() {
        for case in cases() {
            let statistics = case.statistics();
            assert_all_agree(score(total(&statistics)), case.score, &case.name);
            let (front, back) = statistics.split_at(statistics.len() / 3);
            let grouped = total(back) + total(front);
            assert_all_agree(score(grouped), case.score, &case.name);
        }
    }

    #[test]
    fn a_text_without_vectors_is_similar_to_nothing() {
        assert_eq!(similarity("", &["east"]), [0.0; 3]);
        assert_eq!(similarity("unheard of", &["east"]), [0.0; 3]);
        assert_eq!(similarity("east", &["unheard of", ""]), [0.0; 3]);
        assert_eq!(similarity("nowhere", &["nowhere"]), [0.0; 3]);
        assert_eq!(similarity("unheard east", &["east"]), [1.0; 3]);
    }

    #[test]
    fn each_similarity_takes_its_own_best_reference() {
        assert_eq!(similarity("east", &["west"]), [-1.0; 3]);
        assert_eq!(similarity("east", &["west", "east", "north"]), [1.0; 3]);
        // The words of the first reference cancel each other in the mean but not in greedy matching.
        assert_eq!(similarity("east", &["east west"]), [0.0, 0.5, -1.0]);
        assert_eq!(similarity("east", &["east west", "north"]), [0.0, 0.5, 0.0]);
    }

    #[test]
    fn the_extreme_of_zero_and_a_positive_value_is_the_positive_value() {
        assert_agrees(similarity("east north", &["east"])[2], 0.5_f64.sqrt(), "extrema");
    }

    #[test]
    fn a_broken_vector_is_not_hidden() {
        for references in [["broken", "east"], ["east", "broken"]] {
            assert!(similarity("east", &references).iter().all(|value| value.is_nan()), "{references:?}");
        }
    }

    #[test]
    fn signatures_name_the_vectors() {
        let signature = EmbeddingSimilarity::new("glove.6B.300d", toy).signature(Some(1));
        assert_eq!(fields(&signature), "nrefs:1|case:mixed|tok:none|vectors:glove.6B.300d");
    }

    #[test]
    #[should_panic(expected = "one width, not 2 and 3")]
    fn vectors_of_different_width_are_refused() {
        similarity("east", &["wide"]);
    }
}
