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

use super::bleu::{Bleu, BleuStatistics, MAX_ORDER, Tokeniser};

/// Added to matches and to the length of the hypotheses.
const TINY: f64 = 1e-15;
/// Added to totals and to the length of the references.
const SMALL: f64 = 1e-9;

/// The BLEU metric of dialogue and captions. Words are separated by white space.
///
/// # Example
/// ```
/// use heedful_metrics::DialogueBleu;
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

    /// The sufficient statistics of each example of a corpus; `references[i]` holds all references of `hypotheses[i]`.
    ///
    /// # Panics
    /// If there are no hypotheses, if the two slices differ in length, or if an example has no reference.
    pub fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[S],
    ) -> Vec<BleuStatistics> {
        self.counts().corpus_statistics(hypotheses, references)
    }

    /// The BLEU of a corpus; `references[i]` holds all references of `hypotheses[i]`.
    ///
    /// # Panics
    /// As [`corpus_statistics`](Self::corpus_statistics).
    pub fn corpus_score<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> DialogueBleuScore {
        self.score(&self.corpus_statistics(hypotheses, references).into_iter().sum())
    }

    /// The BLEU that the statistics of an example or of a corpus, summed, amount to. The mean over examples is not the BLEU of the corpus.
    pub fn score(&self, statistics: &BleuStatistics) -> DialogueBleuScore {
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

    /// All that another needs to know to compute a comparable score, in sacreBLEU's format.
    ///
    /// `references` is the number of references per example, `None` if it varies (see [`reference_count`](super::reference_count)).
    pub fn signature(&self, references: Option<usize>) -> String {
        let case = super::case_field(self.lowercase);
        [&super::reference_field(references), case, "tok:none", "smooth:pycocoevalcap", super::VERSION_FIELD].join("|")
    }

    fn counts(&self) -> Bleu {
        Bleu { tokeniser: Tokeniser::Whitespace, lowercase: self.lowercase, ..Bleu::default() }
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
    use super::super::fixtures::{assert_agrees, load};
    use super::*;

    #[derive(Deserialize)]
    struct Corpus {
        name: String,
        hypotheses: Vec<String>,
        references: Vec<Vec<String>>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        options: DialogueBleu,
        bleu: [f64; MAX_ORDER],
        scores: Vec<[f64; MAX_ORDER]>,
    }

    fn each_case(mut check: impl FnMut(&Corpus, &Case, &str)) {
        let corpora: Vec<Corpus> = load("dialogue_bleu");
        assert!(corpora.len() > 20);
        for corpus in &corpora {
            assert_eq!(corpus.cases.len(), 2);
            for case in &corpus.cases {
                check(corpus, case, &format!("{}, {:?}", corpus.name, case.options));
            }
        }
    }

    fn assert_score(score: &DialogueBleuScore, expected: [f64; MAX_ORDER], what: &str) {
        for (actual, expected) in score.bleu.into_iter().zip(expected) {
            assert_agrees(actual, expected, what);
        }
    }

    #[test]
    fn corpus_scores_agree_with_pycocoevalcap() {
        each_case(|corpus, case, what| assert_score(&case.options.corpus_score(&corpus.hypotheses, &corpus.references), case.bleu, what));
    }

    #[test]
    fn the_score_of_each_example_agrees_with_pycocoevalcap() {
        each_case(|corpus, case, what| {
            assert_eq!(corpus.hypotheses.len(), case.scores.len());
            for (index, hypothesis) in corpus.hypotheses.iter().enumerate() {
                let statistics = case.options.statistics(hypothesis, &corpus.references[index]);
                assert_score(&case.options.score(&statistics), case.scores[index], &format!("{what}, {hypothesis:?}"));
            }
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        each_case(|corpus, case, what| {
            let statistics = case.options.corpus_statistics(&corpus.hypotheses, &corpus.references);
            let (front, back) = statistics.split_at(statistics.len() / 2);
            let sum = back.iter().copied().sum::<BleuStatistics>() + front.iter().copied().sum();
            assert_eq!(case.options.score(&sum), case.options.corpus_score(&corpus.hypotheses, &corpus.references), "{what}");
        });
    }

    #[test]
    fn signatures_name_all_options() {
        let version = concat!("|version:heedful-", env!("CARGO_PKG_VERSION"));
        assert_eq!(DialogueBleu::default().signature(Some(3)), format!("nrefs:3|case:mixed|tok:none|smooth:pycocoevalcap{version}"));
        assert_eq!(DialogueBleu { lowercase: true }.signature(None), format!("nrefs:var|case:lc|tok:none|smooth:pycocoevalcap{version}"));
    }
}
