//! Features of texts: how often tokens and pairs of neighbours occur, weighted by how few texts they occur in.
//!
//! Weights and norm are those of scikit-learn's `TfidfVectorizer` with `ngram_range=(1, 2)` and its other defaults: a term has its count times
//! `ln((1 + n) / (1 + d)) + 1`, where `d` of `n` texts have it, and each text the length 1.

use std::collections::{HashMap, HashSet};

use super::linear::SparseRows;

/// More tokens than these are not counted: of a larger set of texts, every so many are read.
pub const MOST_TOKENS: usize = 10_000_000;

/// A text, or two of a pair; the second may be empty.
pub type Texts<'t> = [&'t [u32]; 2];

/// The terms of training texts with their weights.
#[derive(Debug)]
pub struct TfIdf {
    /// Column and weight.
    terms: HashMap<u64, (u32, f64)>,
    is_of_pairs: bool,
}

/// The terms of a text: tokens, and pairs of neighbours.
fn terms(text: &[u32]) -> impl Iterator<Item = u64> {
    let one = |&token: &u32| u64::from(token) + 1;
    let pair = move |pair: &[u32]| one(&pair[0]) << 32 | one(&pair[1]);
    text.iter().map(one).chain(text.windows(2).map(pair))
}

impl TfIdf {
    /// Counts the terms of `texts` and keeps those that most of them have, `most` at most. Features are of pairs if any text has a second one.
    pub fn fit(texts: &[Texts<'_>], most: usize) -> Self {
        let is_of_pairs = texts.iter().any(|[_, second]| !second.is_empty());
        let single = texts.iter().flat_map(|texts| &texts[..if is_of_pairs { 2 } else { 1 }]);
        let (mut counts, mut number) = (HashMap::<u64, u32>::new(), 0);
        for text in single {
            number += 1;
            for term in terms(text).collect::<HashSet<_>>() {
                *counts.entry(term).or_default() += 1;
            }
        }
        let mut counts: Vec<(u64, u32)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(term, texts)| (std::cmp::Reverse(texts), term));
        counts.truncate(most);
        let weight = |texts: u32| (f64::from(1 + number) / f64::from(1 + texts)).ln() + 1.0;
        let terms = counts.into_iter().zip(0..).map(|((term, texts), column)| (term, (column, weight(texts)))).collect();
        Self { terms, is_of_pairs }
    }

    /// Whether the features are of pairs.
    pub fn is_of_pairs(&self) -> bool {
        self.is_of_pairs
    }

    /// Number of features: those of each text, and of a pair how much it has in common.
    pub fn width(&self) -> usize {
        if self.is_of_pairs { 2 * self.terms.len() + 2 } else { self.terms.len() }
    }

    /// The features of texts. Of a pair they are those of each text, the share of different tokens that both have (Jaccard's index), and the cosine of the
    /// angle between the two texts.
    pub fn features(&self, texts: &[Texts<'_>]) -> SparseRows {
        let mut rows = SparseRows::new(self.width());
        for [first, second] in texts {
            let mut row = self.of_text(first);
            if self.is_of_pairs {
                let (of_first, of_second) = (row.clone(), self.of_text(second));
                let columns = self.terms.len() as u32;
                row.extend(of_second.iter().map(|(column, value)| (columns + column, *value)));
                let [one, other] = [first, second].map(|text| text.iter().collect::<HashSet<_>>());
                let all = one.union(&other).count().max(1);
                row.push((2 * columns, one.intersection(&other).count() as f64 / all as f64));
                row.push((2 * columns + 1, product(&of_first, &of_second)));
            }
            rows.push(&row);
        }
        rows
    }

    /// Columns, ascending, and their values.
    fn of_text(&self, text: &[u32]) -> Vec<(u32, f64)> {
        let mut row: Vec<(u32, f64)> = terms(text).filter_map(|term| self.terms.get(&term).copied()).collect();
        row.sort_unstable_by_key(|(column, _)| *column);
        row.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        let length = row.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
        row.iter_mut().for_each(|(_, value)| *value /= length);
        row
    }
}

fn product(one: &[(u32, f64)], other: &[(u32, f64)]) -> f64 {
    let value = |column: &u32| other.binary_search_by_key(column, |(column, _)| *column).map_or(0.0, |place| other[place].1);
    one.iter().map(|(column, own)| own * value(column)).sum()
}

/// As many examples of a training set, evenly from all over it, as have [`MOST_TOKENS`].
pub fn bounded<T>(examples: &[T], tokens: impl Fn(&T) -> usize) -> Vec<&T> {
    let all: usize = examples.iter().map(tokens).sum();
    examples.iter().step_by(all.div_ceil(MOST_TOKENS).max(1)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Pseudo-random texts of some ten tokens, and a class of three for each, which some tokens tell.
    pub(crate) fn texts(count: usize) -> (Vec<Vec<u32>>, Vec<usize>) {
        let mut state = 7_u32;
        let mut draw = |most: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % most
        };
        let mut text = |class: u32| -> Vec<u32> {
            let length = 5 + draw(10);
            (0..length).map(|_| if draw(4) == 0 { 20 + class } else { draw(20) }).collect()
        };
        let classes: Vec<usize> = (0..count).map(|number| number % 3).collect();
        (classes.iter().map(|class| text(*class as u32)).collect(), classes)
    }

    #[test]
    fn features_are_those_of_scikit_learn() {
        let (texts, _) = texts(60);
        let texts: Vec<Texts> = texts.iter().map(|text| [&text[..], &[]]).collect();
        let model = TfIdf::fit(&texts, 10_000);
        assert_eq!(model.width(), 299);
        let row = model.of_text(texts[7][0]);
        let largest = row.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let sum: f64 = row.iter().map(|(_, value)| *value).sum();
        assert!((largest - 0.3842356896383336).abs() < 1e-12 && (sum - 3.3317651512110293).abs() < 1e-12, "{largest} {sum}");
        assert_eq!(row.len(), 12);
    }

    #[test]
    fn a_pair_has_features_of_each_text_and_of_what_they_share() {
        let pairs: [Texts; 2] = [[&[1, 2, 3], &[3, 4]], [&[5], &[5]]];
        let model = TfIdf::fit(&pairs, 100);
        // Tokens 1 to 5, and the neighbours 1 2, 2 3, 3 4.
        assert_eq!(model.width(), 2 * 8 + 2);
        let rows = model.features(&pairs);
        let row = |number: usize| rows.row(number).collect::<Vec<_>>();
        let common = |number: usize| [16, 17].map(|column| row(number).into_iter().find(|(at, _)| *at == column).unwrap().1);
        assert!((common(0)[0] - 0.25).abs() < 1e-7 && common(0)[1] > 0.0 && common(0)[1] < 0.5);
        assert!((common(1)[0] - 1.0).abs() < 1e-7 && (common(1)[1] - 1.0).abs() < 1e-6);
        assert_eq!(row(1).len(), 4, "a token in each text");
    }

    #[test]
    fn rare_terms_and_terms_that_are_not_known_have_no_columns() {
        let texts: [Texts; 3] = [[&[1, 2], &[]], [&[1, 3], &[]], [&[1], &[]]];
        let model = TfIdf::fit(&texts, 1);
        assert_eq!(model.of_text(&[1, 2, 9]), [(0, 1.0)]);
        assert!(model.of_text(&[9]).is_empty());
    }
}
