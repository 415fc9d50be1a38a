//! Values computed by other packages; `make_fixtures.py` beside them says how.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::TextMetric;

/// Reads `<name>.json`.
pub(super) fn load<T: DeserializeOwned>(name: &str) -> T {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/metrics/{}.json"), name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Asserts agreement to nine digits, and exactly at zero.
pub(super) fn assert_agrees(actual: f64, expected: f64, what: &str) {
    assert!((actual - expected).abs() <= 1e-9 * expected.abs(), "{what}: {actual} instead of {expected}");
}

/// [`assert_agrees`] for each of several values.
pub(super) fn assert_all_agree<const N: usize>(actual: [f64; N], expected: [f64; N], what: &str) {
    actual.into_iter().zip(expected).for_each(|(actual, expected)| assert_agrees(actual, expected, what));
}

/// Texts with their references, and what is expected of them under several options.
#[derive(Deserialize)]
pub(super) struct Corpus<C> {
    pub(super) name: String,
    pub(super) hypotheses: Vec<String>,
    pub(super) references: Vec<Vec<String>>,
    pub(super) cases: Vec<C>,
}

/// The corpora of `<name>.json`, which are more than `least`.
pub(super) fn corpora<C: DeserializeOwned>(name: &str, least: usize) -> Vec<Corpus<C>> {
    let corpora: Vec<Corpus<C>> = load(name);
    assert!(corpora.len() > least);
    corpora
}

/// Calls `check` with each case of the corpora and what to call it.
pub(super) fn for_each_case<C>(corpora: &[Corpus<C>], mut check: impl FnMut(&Corpus<C>, &C, &str)) {
    for corpus in corpora {
        for (number, case) in corpus.cases.iter().enumerate() {
            check(corpus, case, &format!("{}, case {number}", corpus.name));
        }
    }
}

impl<C> Corpus<C> {
    /// Each hypothesis with its references and what is expected of it.
    pub(super) fn examples<'c, E>(&'c self, expected: &'c [E]) -> impl Iterator<Item = (&'c str, &'c [String], &'c E)> {
        assert_eq!(self.hypotheses.len(), expected.len());
        let texts = self.hypotheses.iter().zip(&self.references).zip(expected);
        texts.map(|((hypothesis, references), expected)| (hypothesis.as_str(), references.as_slice(), expected))
    }

    /// The score of the corpus, from statistics that are summed by halves in another order.
    pub(super) fn score_of_halves<M: TextMetric>(&self, metric: &M) -> M::Score {
        let statistics = metric.corpus_statistics(&self.hypotheses, &self.references);
        let (front, back) = statistics.split_at(statistics.len() / 2);
        metric.score(&(metric.total(back.iter().cloned()) + metric.total(front.iter().cloned())))
    }
}

/// A signature without its version, which is that of this package.
pub(super) fn fields(signature: &str) -> &str {
    let (fields, version) = signature.rsplit_once('|').expect("several fields");
    assert_eq!(version, concat!("version:heedful-", env!("CARGO_PKG_VERSION")));
    fields
}
