//! BLEU-1 to BLEU-4 of replies and captions, as pycocoevalcap 1.2 (and with it nlg-eval) defines them.
//!
//! The idea: the counts are those of [`Bleu`] on text that is tokenised already; they are made into four scores, one for each longest
//! order `N`, with tiny constants in the place of smoothing:
//!
//! `BLEU-N = BP · (Πₙ₌₁..N (matchesₙ + 10⁻¹⁵) / (totalₙ + 10⁻⁹))^(1/N)`, `BP = min(1, exp(1 − 1 / ratio))`, `ratio = (c + 10⁻¹⁵) / (r + 10⁻⁹)`,
//!
//! with `c` and `r` the summed lengths of hypotheses and closest references.
//!
//! Sources: Papineni et al., "BLEU" (ACL 2002); Chen et al., "Microsoft COCO Captions" (2015), section 3.2, whose evaluation code pycocoevalcap is.
//! An order without a match makes the score tiny but not zero. Scores run from 0 to 1 and depend on the tokenisation, so that they compare neither
//! with those of [`Bleu`] nor with those of text that was tokenised in another way. Not covered: the tokeniser of the Penn Treebank,
//! which captions are evaluated with.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TextMetric;
use super::bleu::{Bleu, BleuStatistics, MAX_ORDER, Tokeniser};

/// Added to matches and to the length of the hypotheses.
const TINY: f64 = 1e-15;
/// Added to totals and to the length of the references.
const SMALL: f64 = 1e-9;

/// The BLEU metric of dialogue and captions. Words are separated by white space.
///
/// # Example
/// ```
/// use heedful_metrics::{DialogueBleu, TextMetric};
///
/// let bleu = DialogueBleu::default();
/// let score = bleu.corpus_score(&["i like cats too ."], &[["i like dogs too ."]]);
/// assert_eq!(score.to_string(), "BLEU-1/2/3/4 = 0.8000/0.6325/0.0000/0.0000");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DialogueBleu {
    /// Whether case is ignored. Scores are higher then.
    pub lowercase: bool,
}

impl DialogueBleu {
    /// The sufficient statistics of one example.
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> BleuStatistics {
        self.counts().statistics(hypothesis, references)
    }

    fn counts(&self) -> Bleu {
        Bleu { tokeniser: Tokeniser::Whitespace, lowercase: self.lowercase, ..Bleu::default() }
    }
}

impl TextMetric for DialogueBleu {
    type Statistics = BleuStatistics;
    type Score = DialogueBleuScore;

    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<BleuStatistics> {
        self.counts().corpus_statistics(hypotheses, references)
    }

    /// The BLEU of an example or of a corpus. The mean over examples is not the BLEU of the corpus.
    fn score(&self, statistics: &BleuStatistics) -> DialogueBleuScore {
        let BleuStatistics { sys_len, ref_len, counts, totals } = *statistics;
        let ratio = (sys_len as f64 + TINY) / (ref_len as f64 + SMALL);
        let brevity_penalty = if ratio < 1.0 { (1.0 - 1.0 / ratio).exp() } else { 1.0 };
        let mut product = 1.0;
        let bleu = std::array::from_fn(|index| {
            product *= (counts[index] as f64 + TINY) / (totals[index] as f64 + SMALL);
            brevity_penalty * f64::powf(product, 1.0 / (index + 1) as f64)
        });
        DialogueBleuScore { bleu }
    }

    fn signature(&self, references: Option<usize>) -> String {
        let case = super::case_field(self.lowercase);
        [&super::reference_field(references), case, "tok:none", "smooth:pycocoevalcap", super::VERSION_FIELD].join("|")
    }
}

/// BLEU-1 to BLEU-4. `Display` prints all four.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DialogueBleuScore {
    /// The scores, 0 to 1; `bleu[N - 1]` is BLEU-N.
    pub bleu: [f64; MAX_ORDER],
}

impl fmt::Display for DialogueBleuScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [b1, b2, b3, b4] = self.bleu;
        write!(formatter, "BLEU-1/2/3/4 = {b1:.4}/{b2:.4}/{b3:.4}/{b4:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_all_agree, corpora, fields};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        options: DialogueBleu,
        bleu: [f64; MAX_ORDER],
        scores: Vec<[f64; MAX_ORDER]>,
    }

    fn for_each_case(check: impl FnMut(&Corpus<Case>, &Case, &str)) {
        let corpora = corpora::<Case>("dialogue_bleu", 20);
        assert!(corpora.iter().all(|corpus| corpus.cases.len() == 2));
        fixtures::for_each_case(&corpora, check);
    }

    #[test]
    fn corpus_scores_agree_with_pycocoevalcap() {
        for_each_case(|corpus, case, what| {
            assert_all_agree(case.options.corpus_score(&corpus.hypotheses, &corpus.references).bleu, case.bleu, what);
        });
    }

    #[test]
    fn the_score_of_each_example_agrees_with_pycocoevalcap() {
        for_each_case(|corpus, case, what| {
            for (hypothesis, references, expected) in corpus.examples(&case.scores) {
                let score = case.options.score(&case.options.statistics(hypothesis, references));
                assert_all_agree(score.bleu, *expected, &format!("{what}, {hypothesis:?}"));
            }
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        for_each_case(|corpus, case, what| {
            assert_eq!(corpus.score_of_halves(&case.options), case.options.corpus_score(&corpus.hypotheses, &corpus.references), "{what}");
        });
    }

    #[test]
    fn signatures_name_all_options() {
        assert_eq!(fields(&DialogueBleu::default().signature(Some(3))), "nrefs:3|case:mixed|tok:none|smooth:pycocoevalcap");
        assert_eq!(fields(&DialogueBleu { lowercase: true }.signature(None)), "nrefs:var|case:lc|tok:none|smooth:pycocoevalcap");
    }
}
