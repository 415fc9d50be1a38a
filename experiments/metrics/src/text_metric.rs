//! What scores of texts against references have in common.

use std::ops::Add;

/// A score of texts against their references, computed from statistics that are summed over examples.
pub trait TextMetric {
    /// What the score needs to know of an example or, summed, of several; the default is the sum over none.
    type Statistics: Clone + Default + Add<Output = Self::Statistics>;
    /// The score.
    type Score;

    /// The statistics of each example of a corpus; `references[i]` holds all references of `hypotheses[i]`.
    ///
    /// Note that sacreBLEU wants the references the other way round, as one list of sentences per reference.
    ///
    /// # Panics
    /// If there are no hypotheses, if the two slices differ in length, or if an example has no reference.
    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<Self::Statistics>;

    /// The score that summed statistics amount to. The statistics must come from the same options.
    ///
    /// # Panics
    /// If the score is a mean over examples and the sum is over none.
    fn score(&self, statistics: &Self::Statistics) -> Self::Score;

    /// All that another needs to know to compute a comparable score, in sacreBLEU's format with a version field of our own.
    ///
    /// `references` is the number of references per example, `None` if it varies (see [`reference_count`](crate::reference_count)).
    fn signature(&self, references: Option<usize>) -> String;

    /// The score of a corpus; `references[i]` holds all references of `hypotheses[i]`.
    ///
    /// # Panics
    /// As [`corpus_statistics`](Self::corpus_statistics) and [`score`](Self::score).
    fn corpus_score<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Self::Score {
        self.score(&self.total(self.corpus_statistics(hypotheses, references)))
    }

    /// The sum of the statistics of several examples, in their order.
    fn total(&self, statistics: impl IntoIterator<Item = Self::Statistics>) -> Self::Statistics {
        statistics.into_iter().fold(Self::Statistics::default(), Add::add)
    }
}

/// What `statistics` gives for each hypothesis and its references.
pub(super) fn each_example<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>, T>(
    hypotheses: &[H],
    references: &[S],
    statistics: impl Fn(&str, &[R]) -> T,
) -> Vec<T> {
    let (texts, lists) = (hypotheses.len(), references.len());
    assert!(texts > 0, "a corpus score needs at least one sentence");
    assert_eq!(texts, lists, "each hypothesis needs its own list of references: {texts} hypotheses, {lists} lists");
    hypotheses.iter().zip(references).map(|(hypothesis, of_example)| statistics(hypothesis.as_ref(), of_example.as_ref())).collect()
}
