//! Sequences that test recall and the tracking of states, drawn from keys alone.
//!
//! A sequence has tokens and, at some of its positions, target tokens ([`ScoredSequence`]). A target need not be the next token, and need not occur in the
//! sequence at all. A sequence is a function of its key: the same key makes the same sequence, whatever was drawn before.
//!
//! The [`Level`] of a sequence sets its length or its amount of content. Levels longer than those of training are for tests only.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub mod arithmetic;
pub mod copying;
pub mod fuzzy;
pub mod group;
pub mod in_context;
pub mod induction;
pub mod memorise;
pub mod mqar;
pub mod needle;
pub mod words;

pub use arithmetic::ModularArithmeticConfig;
pub use copying::SelectiveCopyConfig;
pub use fuzzy::FuzzyRecallConfig;
pub use in_context::{InContextRecallConfig, NoisyRecallConfig};
pub use induction::InductionConfig;
pub use memorise::{CompressConfig, MemoriseConfig};
pub use mqar::MqarConfig;
pub use needle::NeedleConfig;
pub use words::{ParityConfig, Scored, WordsConfig};

/// The longest sequence that a task may make.
pub const LONGEST: usize = 1 << 20;
/// The largest vocabulary of a task.
pub const MOST_TOKENS: usize = 1 << 20;

/// A sequence with its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredSequence {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Positions in ascending order, at least one, each with its target: the token expected after the tokens up to that position.
    pub targets: Vec<(usize, u32)>,
}

impl ScoredSequence {
    /// A sequence without its last token, of which each token is expected before it is read.
    fn continued(mut tokens: Vec<u32>) -> Self {
        let targets = tokens.iter().copied().enumerate().skip(1).map(|(at, token)| (at - 1, token)).collect();
        tokens.pop();
        Self { tokens, targets }
    }

    /// A sequence without its last token, of which the tokens at these positions are expected before they are read.
    fn continued_at(mut tokens: Vec<u32>, positions: &[usize]) -> Self {
        let targets = positions.iter().map(|&at| (at - 1, tokens[at])).collect();
        tokens.pop();
        Self { tokens, targets }
    }
}

/// The purpose of a sequence. In the recall tasks of MAD, all tokens are training targets, but only predictable ones are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To learn from.
    Training,
    /// To be scored.
    Scoring,
}

/// A kind of sequences of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Name in scores: `N=64`, or `N=64, n=4`.
    pub name: String,
    /// Most tokens of a sequence.
    pub length: usize,
    /// Whether it is for tests only.
    pub longer: bool,
}

impl Level {
    /// A length to be trained on, and those to be tested as well.
    fn lengths(length: usize, longer: &[usize]) -> Vec<Self> {
        let level = |(index, &length): (usize, &usize)| Self { name: format!("N={length}"), length, longer: index > 0 };
        std::iter::once(&length).chain(longer).enumerate().map(level).collect()
    }
}

/// An invalid field of a task's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("task, `{field}`: {reason}")]
pub struct SequenceTaskError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with its value, and which values are allowed.
    pub reason: String,
}

/// Fails with the error of `field` unless `holds`.
fn ensure(holds: bool, field: &'static str, reason: impl FnOnce() -> String) -> Result<(), SequenceTaskError> {
    if holds { Ok(()) } else { Err(SequenceTaskError { field, reason: reason() }) }
}

/// Fails unless a vocabulary has at least so many tokens.
fn ensure_vocabulary(vocabulary: usize, least: usize) -> Result<(), SequenceTaskError> {
    ensure((least..=MOST_TOKENS).contains(&vocabulary), "vocabulary", || {
        format!("{vocabulary} tokens are too few or too many here; give {least} to {MOST_TOKENS}")
    })
}

/// Fails unless sequences have at least so many tokens, and those that are tested as well are longer and ascend.
fn ensure_lengths(length: usize, longer: &[usize], least: usize) -> Result<(), SequenceTaskError> {
    ensure((least..=LONGEST).contains(&length), "length", || {
        format!("sequences of {length} tokens are too short or too long here; give {least} to {LONGEST}")
    })?;
    let ascends = std::iter::once(&length).chain(longer).is_sorted_by(|before, after| before < after);
    ensure(ascends && longer.iter().all(|&length| length <= LONGEST), "longer", || {
        format!("{longer:?} are not lengths above {length} in ascending order, at most {LONGEST}")
    })
}

/// What each task does.
trait Generator {
    fn validate(&self) -> Result<(), SequenceTaskError>;
    /// The vocabulary size, which bounds all tokens and targets, and the levels, those of training first.
    fn extent(&self) -> (usize, Vec<Level>);
    fn draw(&self, level: usize, purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence;
}

/// A task and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SequenceTask {
    /// Pairs of a key and a value, whose keys are then queried.
    Mqar(MqarConfig),
    /// Pairs that recur (MAD).
    InContextRecall(InContextRecallConfig),
    /// The same among noise (MAD).
    NoisyRecall(NoisyRecallConfig),
    /// The same with keys and values of several tokens (MAD).
    FuzzyRecall(FuzzyRecallConfig),
    /// Pairs that are the same in all sequences (MAD).
    Memorise(MemoriseConfig),
    /// All tokens, reconstructed from the state after the last one (MAD).
    Compress(CompressConfig),
    /// Tokens among blanks, to be repeated in their order (MAD).
    SelectiveCopy(SelectiveCopyConfig),
    /// What followed a mark when it was seen before.
    Induction(InductionConfig),
    /// A marked key and its value somewhere in a long text.
    Needle(NeedleConfig),
    /// Whether the number of ones is odd.
    Parity(ParityConfig),
    /// The product of the elements of a group so far.
    Words(WordsConfig),
    /// The value of an expression of residues.
    ModularArithmetic(ModularArithmeticConfig),
}

impl SequenceTask {
    /// Names of the tasks of recall.
    pub const RECALL: [&str; 9] =
        ["mqar", "in-context-recall", "noisy-recall", "fuzzy-recall", "memorise", "compress", "selective-copy", "induction", "needle"];
    /// Names of the tasks of tracking states.
    pub const TRACK: [&str; 3] = ["parity", "words", "modular-arithmetic"];

    fn generator(&self) -> &dyn Generator {
        match self {
            Self::Mqar(config) => config,
            Self::InContextRecall(config) => config,
            Self::NoisyRecall(config) => config,
            Self::FuzzyRecall(config) => config,
            Self::Memorise(config) => config,
            Self::Compress(config) => config,
            Self::SelectiveCopy(config) => config,
            Self::Induction(config) => config,
            Self::Needle(config) => config,
            Self::Parity(config) => config,
            Self::Words(config) => config,
            Self::ModularArithmetic(config) => config,
        }
    }

    /// The name of the task, which is its `kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mqar(_) => "mqar",
            Self::InContextRecall(_) => "in-context-recall",
            Self::NoisyRecall(_) => "noisy-recall",
            Self::FuzzyRecall(_) => "fuzzy-recall",
            Self::Memorise(_) => "memorise",
            Self::Compress(_) => "compress",
            Self::SelectiveCopy(_) => "selective-copy",
            Self::Induction(_) => "induction",
            Self::Needle(_) => "needle",
            Self::Parity(_) => "parity",
            Self::Words(_) => "words",
            Self::ModularArithmetic(_) => "modular-arithmetic",
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), SequenceTaskError> {
        self.generator().validate()
    }

    /// Vocabulary size: all tokens and all targets are below it.
    pub fn vocabulary(&self) -> usize {
        self.generator().extent().0
    }

    /// The kinds of sequences, those of training first. There is at least one of training.
    pub fn levels(&self) -> Vec<Level> {
        self.generator().extent().1
    }

    /// Most tokens of a sequence, those of tests alone included.
    pub fn longest(&self) -> usize {
        self.levels().iter().map(|level| level.length).max().unwrap_or(0)
    }

    /// Whether all targets are predicted from the state after the last token, and not each from the state at its position.
    pub fn is_rebuilt(&self) -> bool {
        matches!(self, Self::Compress(_))
    }

    /// The sequence of a level that `key` makes.
    ///
    /// # Panics
    /// If the options are not valid, or there is no such level.
    pub fn draw(&self, level: usize, purpose: Purpose, key: &RandomKey) -> ScoredSequence {
        self.generator().draw(level, purpose, &mut key.rng())
    }
}

/// One of `count` tokens from `first` on.
fn token(rng: &mut ChaCha8Rng, first: usize, count: usize) -> u32 {
    rng.random_range(first..first + count) as u32
}

/// So many different tokens of the `count` from `first` on, in random order.
fn distinct(rng: &mut ChaCha8Rng, first: usize, count: usize, wanted: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (first..first + count).map(|token| token as u32).collect();
    all.partial_shuffle(rng, wanted).0.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One task of each kind, with little options, and with longer tests where it has any.
    pub(super) fn all() -> Vec<SequenceTask> {
        let longer = vec![48, 96];
        vec![
            SequenceTask::Mqar(MqarConfig { longer: vec![[128, 8]], ..MqarConfig::default() }),
            SequenceTask::Mqar(MqarConfig { random_fillers: true, ..MqarConfig::default() }),
            SequenceTask::InContextRecall(InContextRecallConfig::default()),
            SequenceTask::NoisyRecall(NoisyRecallConfig::default()),
            SequenceTask::FuzzyRecall(FuzzyRecallConfig::default()),
            SequenceTask::Memorise(MemoriseConfig::default()),
            SequenceTask::Compress(CompressConfig::default()),
            SequenceTask::SelectiveCopy(SelectiveCopyConfig { length: 40, longer: longer.clone(), ..SelectiveCopyConfig::default() }),
            SequenceTask::Induction(InductionConfig { length: 32, longer: longer.clone(), ..InductionConfig::default() }),
            SequenceTask::Needle(NeedleConfig { length: 32, longer, ..NeedleConfig::default() }),
            SequenceTask::Parity(ParityConfig::default()),
            SequenceTask::Parity(ParityConfig { scored: Scored::Last, ..ParityConfig::default() }),
            SequenceTask::Words(WordsConfig::default()),
            SequenceTask::ModularArithmetic(ModularArithmeticConfig::default()),
            SequenceTask::ModularArithmetic(ModularArithmeticConfig { brackets: true, ..ModularArithmeticConfig::default() }),
        ]
    }

    #[test]
    fn every_kind_has_a_name_and_is_of_recall_or_of_tracking() {
        let mut names: Vec<_> = all().iter().map(SequenceTask::name).collect();
        names.dedup();
        assert_eq!(names, [&SequenceTask::RECALL[..], &SequenceTask::TRACK].concat());
        for task in all() {
            let text = toml::to_string(&task).unwrap();
            assert!(text.contains(&format!("kind = \"{}\"", task.name())), "{text}");
            assert_eq!(toml::from_str::<SequenceTask>(&text).unwrap(), task);
            let plain = toml::from_str::<SequenceTask>(&format!("kind = \"{}\"", task.name())).unwrap();
            assert_eq!(plain.validate(), Ok(()), "the defaults of {}", task.name());
        }
    }

    #[test]
    fn sequences_follow_from_their_key_and_stay_within_length_and_vocabulary() {
        let key = RandomKey::from_seed(3);
        for task in all() {
            assert_eq!(task.validate(), Ok(()));
            let vocabulary = task.vocabulary() as u32;
            for (index, level) in task.levels().iter().enumerate() {
                let mut seen = std::collections::HashSet::new();
                for number in 0..200 {
                    let draw = |purpose| task.draw(index, purpose, &key.numbered(number));
                    for purpose in [Purpose::Training, Purpose::Scoring] {
                        let drawn = draw(purpose);
                        assert_eq!(drawn, draw(purpose));
                        assert!((1..=level.length).contains(&drawn.tokens.len()), "{}", task.name());
                        assert!(!drawn.targets.is_empty() && drawn.targets.is_sorted_by(|a, b| a.0 < b.0), "{}", task.name());
                        assert!(drawn.targets.iter().all(|&(at, token)| at < drawn.tokens.len() && token < vocabulary));
                        assert!(drawn.tokens.iter().all(|&token| token < vocabulary), "{}: {drawn:?}", task.name());
                    }
                    seen.insert(draw(Purpose::Scoring).tokens);
                }
                assert!(seen.len() > 150, "{}, {}: {} different sequences of 200", task.name(), level.name, seen.len());
            }
        }
    }
}
