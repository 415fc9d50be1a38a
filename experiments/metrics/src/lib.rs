//! Quality metrics, computed from plain Rust values after the model has spoken.
//!
//! Covered: BLEU and chrF for translation ([`bleu`], [`chrf`]), METEOR for texts in English ([`meteor`]), ROUGE for summaries ([`rouge`]), CIDEr, BLEU-1 to
//! BLEU-4 and the similarity of word vectors for dialogue and captions ([`cider`], [`dialogue_bleu`], [`embedding`]), perplexity and bits per unit for language
//! models ([`likelihood`]), accuracy, F1 and Matthews correlation for classification ([`classification`]), choices among candidate answers ([`grouped`]),
//! Pearson and Spearman correlation for graded similarity ([`correlation`]), mean and deviation over seeds ([`spread`]), and tests of differences
//! ([`significance`]).
//!
//! Whatever is estimated over a corpus is a sum of per-example statistics, so that no result depends on how examples were grouped into batches, and
//! so that resampling tests can add up the same statistics in another selection.
//!
//! The definitions are those of sacreBLEU, rouge-score, pycocoevalcap, NLTK, nlg-eval, scikit-learn and SciPy; the unit tests compare with values those
//! packages computed (for nlg-eval, with its formulas in NumPy). Not covered: the tokenisers that sacreBLEU offers for Japanese and Korean, TER,
//! and the METEOR of later versions, which needs tables of paraphrases.

pub mod baselines;
pub mod bleu;
pub mod chrf;
pub mod cider;
pub mod classification;
mod clipped;
mod column;
pub mod correlation;
pub mod dialogue_bleu;
pub mod embedding;
#[cfg(test)]
mod fixtures;
pub mod grouped;
pub mod items;
pub mod likelihood;
pub mod meteor;
mod porter;
pub mod rouge;
pub mod significance;
pub mod spread;
mod text_metric;

pub use bleu::{Bleu, BleuScore, BleuStatistics, Smoothing, Tokeniser};
pub use chrf::{ChrF, ChrFScore, ChrFStatistics, NgramOverlap};
pub use cider::{Cider, CiderScore, CiderStatistics, CiderVariant, DocumentFrequencies};
pub use classification::{BinaryScores, ConfusionMatrix, Matthews};
pub use column::MetricColumn;
pub use correlation::{average_ranks, pearson, spearman};
pub use dialogue_bleu::{DialogueBleu, DialogueBleuScore};
pub use embedding::{EmbeddingScore, EmbeddingSimilarity, EmbeddingStatistics};
pub use grouped::{AnswerScores, Candidate, TextScores, answer_scores, choice_accuracy, text_scores};
pub use items::{Combination, ConfusionScore, CorpusMetric, ItemScore, ItemTable};
pub use likelihood::{LikelihoodTotal, TextUnit};
pub use meteor::{Meteor, MeteorScore, MeteorStatistics, Synonyms};
pub use rouge::{Rouge, RougeScore, RougeStatistics, RougeVariant};
pub use spread::Spread;
pub use text_metric::TextMetric;

/// The last field of every signature.
const VERSION_FIELD: &str = concat!("version:heedful-", env!("CARGO_PKG_VERSION"));

/// The number of references that each sentence has, or `None` if it differs between sentences (or there is no sentence).
///
/// This is the argument that [`TextMetric::signature`] asks for.
pub fn reference_count<S: AsRef<[R]>, R: AsRef<str>>(references: &[S]) -> Option<usize> {
    let first = references.first()?.as_ref().len();
    references.iter().all(|of_sentence| of_sentence.as_ref().len() == first).then_some(first)
}

/// The signature's field for [`reference_count`].
fn reference_field(references: Option<usize>) -> String {
    references.map_or_else(|| "nrefs:var".to_owned(), |count| format!("nrefs:{count}"))
}

/// The signature's field for letter case.
fn case_field(lowercase: bool) -> &'static str {
    if lowercase { "case:lc" } else { "case:mixed" }
}

/// The mean of what was summed over examples.
fn mean_over_examples(sum: f64, examples: u64) -> f64 {
    assert!(examples > 0, "a corpus score needs at least one example");
    sum / examples as f64
}

/// Whether Python's `str.split` separates words at `character`.
///
/// Python counts the four ASCII information separators as white space, the Unicode property does not.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// The words of `text`, as Python's `str.split` separates them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// What a call panics with.
    fn refusal(call: fn()) -> String {
        let payload = catch_unwind(call).expect_err("the call is refused");
        payload.downcast_ref::<String>().cloned().unwrap_or_else(|| payload.downcast_ref::<&str>().expect("a message").to_string())
    }

    #[test]
    fn every_metric_refuses_examples_without_a_reference_and_means_over_none() {
        let without_reference: [fn(); 6] = [
            || _ = Bleu::default().statistics::<&str>("a", &[]),
            || _ = ChrF::default().statistics::<&str>("a", &[]),
            || _ = Rouge::default().statistics::<&str>("a", &[]),
            || _ = Meteor::default().statistics::<&str>("a", &[]),
            || _ = Cider::default().corpus_score::<&str, Vec<&str>, &str>(&["a"], &[vec![]]),
            || _ = EmbeddingSimilarity::new("toy", |_: &str| None).statistics::<&str>("a", &[]),
        ];
        let over_none: [fn(); 2] =
            [|| _ = Rouge::default().score(&RougeStatistics::default()), || _ = Meteor::default().score(&MeteorStatistics::default())];
        without_reference.into_iter().for_each(|call| assert!(refusal(call).contains("at least one reference")));
        over_none.into_iter().for_each(|call| assert!(refusal(call).contains("at least one example")));
    }

    #[test]
    fn reference_count_is_none_when_sentences_differ() {
        assert_eq!(reference_count(&[vec!["a", "b"], vec!["c", "d"]]), Some(2));
        assert_eq!(reference_count(&[vec!["a", "b"], vec!["c"]]), None);
        assert_eq!(reference_count::<Vec<String>, String>(&[]), None);
    }

    #[test]
    fn words_are_separated_by_every_character_python_regards_as_space() {
        let text = " a\u{1c}b\u{1f}c\u{a0}d\u{3000}e\u{85}f\tg\u{200b}h ";
        assert_eq!(words(text).collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f", "g\u{200b}h"]);
    }
}
