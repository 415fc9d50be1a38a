//! METEOR, as NLTK's `meteor_score` defines it.
//!
//! The idea: align the words of hypothesis and reference one to one, equal words first, then words of the same stem, then synonyms, and combine
//! precision and recall, of which recall weighs more. What is aligned out of order costs up to half of the score:
//!
//! `METEOR = F · (1 − γ · (chunks / matches)^β)`, `F = P · R / (α · P + (1 − α) · R)`, `P = matches / hypothesis`, `R = matches / reference`,
//!
//! with `α = 0.9`, `β = 3` and `γ = 0.5`. A chunk is a run of words that follow each other in both texts.
//!
//! Sources: Banerjee and Lavie, "METEOR: An Automatic Metric for MT Evaluation with Improved Correlation with Human Judgments" (2005), section 2.2, whose
//! formula this is in the notation of Lavie and Agarwal (2007); NLTK 3.10.4 for the alignment. The paper wants the alignment with the fewest crossings.
//! NLTK goes through the words of the hypothesis from the last to the first and gives each the last word of the reference that is left, which is not
//! always that alignment. Of several references the best score counts. The value of a corpus is the mean over its examples.
//!
//! Stems are those of Porter's algorithm with NLTK's additions, so that the metric is for English. NLTK takes synonyms from WordNet; here they are the
//! sets of a file ([`Synonyms`]), and the third stage is left out without one. As in NLTK, this stage sees the stems of words: `cats` has the synonyms of
//! `cat`, and `happily` those of `happili`, which a file has to list if they are to be found. Scores with and without the stage do not compare. Not
//! covered: WordNet itself, and the weights of words and stages and the paraphrases of later versions (Denkowski and Lavie 2014).

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use derive_more::{Add, AddAssign};
use serde::{Deserialize, Serialize};

use super::text_metric::each_example;
use super::{TextMetric, Tokeniser, porter};

/// The weight of precision's part in the harmonic mean.
const ALPHA: f64 = 0.9;
/// The exponent of the fragmentation.
const BETA: f64 = 3.0;
/// The share of the score that is lost if no two matches follow each other.
const GAMMA: f64 = 0.5;

/// Sets of words that mean the same, under the name of their file. A word may be in several sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonyms {
    name: String,
    sets: Vec<Vec<String>>,
    /// The sets that a word is in.
    places: HashMap<String, Vec<usize>>,
}

impl Synonyms {
    /// Sets of words, in which case is ignored.
    pub fn new<S: IntoIterator<Item = W>, W: AsRef<str>>(name: &str, sets: impl IntoIterator<Item = S>) -> Self {
        let sets: Vec<Vec<String>> =
            sets.into_iter().map(|set| set.into_iter().map(|word| word.as_ref().to_lowercase()).collect()).collect();
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, set) in sets.iter().enumerate() {
            for word in set {
                places.entry(word.clone()).or_default().push(place);
            }
        }
        Self { name: name.to_owned(), sets, places }
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is no set.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// All words of the sets that `word`, in lower case, is in.
    fn of(&self, word: &str) -> impl Iterator<Item = &str> {
        self.places.get(word).into_iter().flatten().flat_map(|&place| &self.sets[place]).map(String::as_str)
    }
}

/// The METEOR metric with its options. Case is ignored.
///
/// # Example
/// ```
/// use heedful_metrics::{Meteor, Synonyms, TextMetric};
///
/// let score = |meteor: &Meteor| meteor.corpus_score(&["The cats sat down."], &[["The cat sat."]]).to_string();
/// assert_eq!(score(&Meteor::default()), "METEOR = 0.9146");
///
/// let synonyms = Synonyms::new("toy", [["big", "vast"]]);
/// let meteor = Meteor { synonyms: Some(&synonyms), ..Meteor::default() };
/// assert_eq!(meteor.corpus_score(&["a vast cat"], &[["a big cat"]]).to_string(), "METEOR = 0.9815");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Meteor<'s> {
    /// How hypotheses and references are cut into words; NLTK leaves it to its caller.
    pub tokeniser: Tokeniser,
    /// What the third stage knows; without it there are two.
    pub synonyms: Option<&'s Synonyms>,
}

impl Meteor<'_> {
    /// The statistics of one example, taken with the reference that gives it the best score.
    ///
    /// # Panics
    /// If `references` is empty.
    pub fn statistics<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> MeteorStatistics {
        let hypothesis = self.words(hypothesis);
        let scores = references.iter().map(|reference| self.compare(&hypothesis, &self.words(reference.as_ref())));
        let score = scores.reduce(f64::max).expect("METEOR needs at least one reference for each example");
        MeteorStatistics { examples: 1, score }
    }

    fn words(&self, text: &str) -> Vec<String> {
        self.tokeniser.words(text).into_iter().map(|word| word.to_lowercase()).collect()
    }

    fn compare(&self, hypothesis: &[String], reference: &[String]) -> f64 {
        let pairs = self.alignment(hypothesis, reference);
        if pairs.is_empty() {
            return 0.0;
        }
        let matches = pairs.len() as f64;
        let (precision, recall) = (matches / hypothesis.len() as f64, matches / reference.len() as f64);
        let mean = precision * recall / (ALPHA * precision + (1.0 - ALPHA) * recall);
        let follows = |pair: &&[(usize, usize)]| pair[1] == (pair[0].0 + 1, pair[0].1 + 1);
        let chunks = matches - pairs.windows(2).filter(follows).count() as f64;
        mean * (1.0 - GAMMA * (chunks / matches).powf(BETA))
    }

    /// The places of aligned words in hypothesis and reference, in the order of the hypothesis.
    fn alignment(&self, hypothesis: &[String], reference: &[String]) -> Vec<(usize, usize)> {
        let mut alignment =
            Alignment { hypothesis, reference, partners: vec![None; hypothesis.len()], taken: vec![false; reference.len()] };
        alignment.add(|word| word, |word| vec![word]);
        alignment.add(porter::stem, |word| vec![porter::stem(word)]);
        if let Some(synonyms) = self.synonyms {
            alignment.add(porter::stem, |word| synonyms.of(&porter::stem(word)).map(str::to_owned).collect());
        }
        alignment.partners.into_iter().enumerate().filter_map(|(place, partner)| Some((place, partner?))).collect()
    }
}

impl TextMetric for Meteor<'_> {
    type Statistics = MeteorStatistics;
    type Score = MeteorScore;

    fn corpus_statistics<H: AsRef<str>, S: AsRef<[R]>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[S]) -> Vec<MeteorStatistics> {
        each_example(hypotheses, references, |hypothesis, references| self.statistics(hypothesis, references))
    }

    fn score(&self, statistics: &MeteorStatistics) -> MeteorScore {
        MeteorScore { score: super::mean_over_examples(statistics.score, statistics.examples) }
    }

    /// Synonyms are named by their file.
    fn signature(&self, references: Option<usize>) -> String {
        let tokeniser = format!("tok:{}", self.tokeniser.name());
        let stages = match self.synonyms {
            Some(synonyms) => format!("stages:exact+stem+synonyms|synonyms:{}", synonyms.name),
            None => "stages:exact+stem".to_owned(),
        };
        let parameters = format!("stem:porter-nltk|alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}");
        [&super::reference_field(references), super::case_field(true), &tokeniser, &stages, &parameters, super::VERSION_FIELD].join("|")
    }
}

/// An alignment that stages add matches to.
struct Alignment<'t> {
    hypothesis: &'t [String],
    reference: &'t [String],
    /// For each word of the hypothesis the place of its match in the reference.
    partners: Vec<Option<usize>>,
    /// Whether a word of the reference has a match.
    taken: Vec<bool>,
}

impl<'t> Alignment<'t> {
    /// Matches words of the hypothesis with words of the reference whose key is one of their candidates. Both sides are used up from their ends.
    fn add<K: Eq + Hash>(&mut self, key: impl Fn(&'t str) -> K, candidates: impl Fn(&'t str) -> Vec<K>) {
        let mut places: HashMap<K, Vec<usize>> = HashMap::new();
        for (place, word) in self.reference.iter().enumerate().filter(|(place, _)| !self.taken[*place]) {
            places.entry(key(word)).or_default().push(place);
        }
        for (word, partner) in self.hypothesis.iter().zip(&mut self.partners).rev().filter(|(_, partner)| partner.is_none()) {
            let last = |candidate: K| places.get(&candidate).and_then(|places| places.last()).map(|&place| (place, candidate));
            if let Some((place, candidate)) = candidates(word).into_iter().filter_map(last).max_by_key(|(place, _)| *place) {
                places.entry(candidate).and_modify(|places| _ = places.pop());
                *partner = Some(place);
                self.taken[place] = true;
            }
        }
    }
}

/// The METEOR of an example or, summed, of several. Sums of the same examples in another order may differ in the last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Add, AddAssign, Serialize, Deserialize)]
pub struct MeteorStatistics {
    /// How many examples were summed.
    pub examples: u64,
    /// Summed scores, each 0 to 1.
    pub score: f64,
}

/// A METEOR score. `Display` prints it with four decimals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeteorScore {
    /// The score, 0 to 1; tables often show it times 100. Equal texts of `m` words have `1 − 0.5 / m³`.
    pub score: f64,
}

impl fmt::Display for MeteorScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "METEOR = {:.4}", self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, Corpus, assert_agrees, corpora, fields};
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        /// The sets of synonyms, if the third stage is on.
        synonyms: Option<Vec<Vec<String>>>,
        scores: Vec<f64>,
        score: f64,
    }

    fn for_each_case(mut check: impl FnMut(&Corpus<Case>, &Case, Meteor, &str)) {
        let corpora = corpora::<Case>("meteor", 20);
        let with_synonyms = |corpus: &Corpus<Case>| corpus.cases.iter().filter(|case| case.synonyms.is_some()).count();
        assert!(corpora.iter().all(|corpus| with_synonyms(corpus) == 1));
        fixtures::for_each_case(&corpora, |corpus, case, what| {
            let synonyms = case.synonyms.as_ref().map(|sets| Synonyms::new("fixture", sets));
            check(corpus, case, Meteor { tokeniser: Tokeniser::Whitespace, synonyms: synonyms.as_ref() }, what);
        });
    }

    #[test]
    fn each_example_agrees_with_nltk() {
        let mut with_other_scores = 0;
        for_each_case(|corpus, case, meteor, what| {
            for (hypothesis, references, expected) in corpus.examples(&case.scores) {
                let statistics = meteor.statistics(hypothesis, references);
                assert_eq!(statistics.examples, 1);
                assert_agrees(statistics.score, *expected, &format!("{what}, {hypothesis:?}"));
                let two_stages = Meteor { synonyms: None, ..meteor }.statistics(hypothesis, references);
                with_other_scores += usize::from(two_stages != statistics);
            }
        });
        assert!(with_other_scores > 20, "synonyms changed {with_other_scores} scores");
    }

    #[test]
    fn corpus_scores_are_the_means_of_what_nltk_gives_each_example() {
        for_each_case(|corpus, case, meteor, what| {
            assert_agrees(meteor.corpus_score(&corpus.hypotheses, &corpus.references).score, case.score, what);
        });
    }

    #[test]
    fn summed_statistics_of_two_halves_give_the_score_of_the_whole() {
        for_each_case(|corpus, case, meteor, what| assert_agrees(corpus.score_of_halves(&meteor).score, case.score, what));
    }

    #[test]
    fn words_are_aligned_from_the_end_in_stages() {
        let aligned = |meteor: Meteor, hypothesis: &str, reference: &str| {
            let [hypothesis, reference] = [hypothesis, reference].map(|text| meteor.words(text));
            meteor.alignment(&hypothesis, &reference)
        };
        let plain = Meteor::default();
        assert_eq!(aligned(plain, "a a", "a b a a"), [(0, 2), (1, 3)]);
        // The equal word goes first, whatever is nearer to the end.
        assert_eq!(aligned(plain, "cats", "cats cat"), [(0, 0)]);
        assert_eq!(aligned(plain, "running big", "vast runs"), [(0, 1)]);
        let synonyms = Synonyms::new("toy", [vec!["Big", "vast"], vec!["vast", "long", "broad", "happily"]]);
        let with_synonyms = Meteor { synonyms: Some(&synonyms), ..plain };
        assert_eq!(aligned(with_synonyms, "running big", "vast runs"), [(0, 1), (1, 0)]);
        assert_eq!(aligned(with_synonyms, "big", "long broad"), [], "words of two sets are no synonyms");
        assert_eq!(aligned(with_synonyms, "vast", "big long"), [(0, 1)]);
        assert_eq!(aligned(with_synonyms, "bigs", "vasts"), [(0, 0)], "the stage sees stems");
        assert_eq!(aligned(with_synonyms, "happily", "broad"), [], "the stem of this word is in no set");
    }

    #[test]
    fn signatures_name_tokeniser_stages_and_parameters() {
        let parameters = "stem:porter-nltk|alpha:0.9|beta:3|gamma:0.5";
        assert_eq!(fields(&Meteor::default().signature(Some(1))), format!("nrefs:1|case:lc|tok:13a|stages:exact+stem|{parameters}"));
        let synonyms = Synonyms::new("wordnet.txt", [["a", "b"]]);
        let meteor = Meteor { tokeniser: Tokeniser::Whitespace, synonyms: Some(&synonyms) };
        let expected = format!("nrefs:var|case:lc|tok:none|stages:exact+stem+synonyms|synonyms:wordnet.txt|{parameters}");
        assert_eq!(fields(&meteor.signature(None)), expected);
    }
}
