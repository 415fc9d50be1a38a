//! Built-in data that needs no file: artificial text whose rules are known.
//!
//! The rules are chosen so that attention mechanisms can be told apart in a minute of training: what a word must be is decided by the content of another
//! word at a varying distance, not by its position. The texts are drawn from a [`RandomKey`]; the same key gives the same data on every machine. No
//! sentence occurs in two splits. Validation and test sets are drawn from streams of their own, so that they stay the same when the size of the training
//! set changes. Not covered: any claim about natural language.
//!
//! [`RandomKey`]: heedful_random::RandomKey

use std::collections::HashSet;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::DataError;

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
