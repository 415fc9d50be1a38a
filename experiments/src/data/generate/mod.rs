//! Built-in data that needs no file: artificial text whose rules are known.
//!
//! The rules are chosen so that attention mechanisms can be told apart in a minute of training: what a word must be is decided by the content of another
//! word at a varying distance, not by its position. The texts are drawn from a [`RandomKey`]; the same key gives the same data on every machine. No
//! sentence occurs in two splits. Validation and test sets are drawn from streams of their own, so that they stay the same when the size of the training
//! set changes. Not covered: any claim about natural language.
//!
//! [`RandomKey`]: heedful_attention::random::RandomKey

use std::collections::HashSet;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub mod algorithmic;
pub mod glue;
pub mod language;
pub mod parallel;

pub use algorithmic::exercises;
pub use glue::glue;
pub use language::language;
pub use parallel::parallel;

/// How much to generate for each split.
///
/// The unit is the pair for [`parallel()`], the word for [`language()`] and the example for [`glue()`] and [`exercises()`].
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
}

fn pick<'a, T: ?Sized>(rng: &mut ChaCha8Rng, items: &[&'a T]) -> &'a T {
    items[rng.random_range(0..items.len())]
}

/// Texts that were handed out already, so that no two splits share one.
#[derive(Default)]
struct Seen(HashSet<String>);

impl Seen {
    fn is_new(&mut self, text: &str) -> bool {
        self.0.insert(text.to_string())
    }
}
