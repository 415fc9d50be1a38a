//! Built-in data that needs no file: artificial text whose rules are known.
//!
//! The rules separate attention mechanisms within a minute of training: the content of another word at a varying distance decides what a word must be, not its
//! position. The texts are drawn from a [`RandomKey`]; the same key gives the same data on every machine. No sentence occurs in two splits. Validation and test
//! sets have random streams of their own, so that they stay the same when the size of the training set changes. Not covered: any claim about natural language.

use std::collections::HashSet;

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::files::sha256_of_lines;
use super::{DataError, Pair, ParallelCorpus};

pub mod algorithmic;
pub mod dialogue;
pub mod glue;
pub mod images;
pub mod labelled;
pub mod language;
pub mod parallel;
pub mod sequences;
pub mod summary;
pub mod vectors;

pub use algorithmic::exercises;
pub use dialogue::dialogue;
pub use glue::glue;
pub use images::images;
pub use labelled::labelled;
pub use language::language;
pub use parallel::parallel;
pub use summary::summary;

/// How much to generate for each split.
///
/// The unit is the pair for [`parallel()`], [`dialogue()`] and [`summary()`], the text for [`labelled()`], the word for [`language()`], the image for
/// [`images()`] and the example for [`glue()`] and [`exercises()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Size of the training set.
    pub train: usize,
    /// Size of the validation (development) set.
    pub valid: usize,
    /// Size of the test set.
    pub test: usize,
}

impl Sizes {
    /// Usual sizes for [`parallel()`], in pairs.
    pub const PARALLEL: Self = Self { train: 8_000, valid: 200, test: 400 };
    /// Usual sizes for [`language()`], in words.
    pub const LANGUAGE: Self = Self { train: 100_000, valid: 10_000, test: 10_000 };
    /// Usual sizes for [`glue()`], in examples. Results are reported on the development set, so there is no test set.
    pub const GLUE: Self = Self { train: 4_000, valid: 400, test: 0 };
    /// Usual sizes for [`exercises()`], in exercises.
    pub const EXERCISES: Self = Self { train: 20_000, valid: 200, test: 500 };
    /// Usual sizes for [`images()`], in images.
    pub const IMAGES: Self = Self { train: 8_000, valid: 400, test: 400 };
    /// Usual sizes for [`labelled()`], in texts.
    pub const LABELLED: Self = Self { train: 8_000, valid: 400, test: 400 };
    /// Usual sizes for [`dialogue()`] and [`summary()`], in pairs.
    pub const TEXT_PAIRS: Self = Self { train: 8_000, valid: 200, test: 400 };
}

/// So many draws in a row without a new item mean that there are no more.
const PATIENCE: usize = 10_000;

fn pick<'a, T: ?Sized>(rng: &mut ChaCha8Rng, items: &[&'a T]) -> &'a T {
    items[rng.random_range(0..items.len())]
}

/// Texts that were handed out already, so that no two splits share one.
#[derive(Default)]
struct Seen(HashSet<String>);

impl Seen {
    /// `count` drawn items (each with the text that tells it from others, made for its index) none of which was handed out before; `what` names them.
    fn distinct<T>(&mut self, what: &str, count: usize, mut draw: impl FnMut(usize) -> (String, T)) -> Result<Vec<T>, DataError> {
        let mut items = Vec::with_capacity(count);
        let mut repeated = 0;
        while items.len() < count {
            let (text, item) = draw(items.len());
            if self.is_new(&text) {
                items.push(item);
                repeated = 0;
            } else if repeated == PATIENCE {
                return Err(DataError::TooManyWanted { found: items.len(), wanted: count, what: what.to_owned() });
            } else {
                repeated += 1;
            }
        }
        Ok(items)
    }

    fn is_new(&mut self, text: &str) -> bool {
        self.0.insert(text.to_string())
    }
}

/// The corpus of the pairs that `split` makes for the name and the size of each split; `sides` name its two languages.
fn corpus<E>(sides: [&str; 2], sizes: Sizes, mut split: impl FnMut(&str, usize) -> Result<Vec<Pair>, E>) -> Result<ParallelCorpus, E> {
    // The other splits come first, so that they stay the same when the size of the training set changes.
    let test = split("test", sizes.test)?;
    let valid = split("valid", sizes.valid)?;
    let train = split("train", sizes.train)?;
    let lines = [&train, &valid, &test].into_iter().flatten().map(|pair| format!("{}\t{}", pair.source, pair.target));
    let sha256 = sha256_of_lines(lines);
    let [source_language, target_language] = sides.map(str::to_owned);
    Ok(ParallelCorpus {
        source_language,
        target_language,
        train,
        valid,
        tests: vec![("test".to_owned(), test)],
        skipped: Vec::new(),
        sha256,
    })
}

/// The corpus of pairs that `draw` makes, whose sources all differ; `what` names them.
fn distinct_pairs(
    sides: [&str; 2],
    what: &str,
    key: &RandomKey,
    sizes: Sizes,
    draw: impl Fn(&mut ChaCha8Rng) -> Pair,
) -> Result<ParallelCorpus, DataError> {
    let mut seen = Seen::default();
    corpus(sides, sizes, |name, size| {
        let mut rng = key.named(name).rng();
        seen.distinct(&format!("{name} {what}"), size, |_| {
            let pair = draw(&mut rng);
            (pair.source.clone(), pair)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The pairs of all splits.
    pub(super) fn all(corpus: &ParallelCorpus) -> impl Iterator<Item = &Pair> {
        corpus.train.iter().chain(&corpus.valid).chain(&corpus.tests[0].1)
    }

    /// Asserts of a generator that the key alone makes its pairs, all of them different, and that those for evaluation are the same in a smaller set.
    pub(super) fn assert_made_by_the_key(sizes: Sizes, make: impl Fn(&RandomKey, Sizes) -> ParallelCorpus) {
        let made = |seed, sizes| make(&RandomKey::from_seed(seed), sizes);
        let corpus = made(1, sizes);
        assert_eq!(made(1, sizes), corpus);
        assert_ne!(made(2, sizes).sha256, corpus.sha256);
        let small = made(1, Sizes { train: 10, ..sizes });
        assert_eq!((&small.valid, &small.tests), (&corpus.valid, &corpus.tests));
        assert_eq!(all(&corpus).map(|pair| &pair.source).collect::<BTreeSet<_>>().len(), sizes.train + sizes.valid + sizes.test);
    }
}
