//! Exercises: questions with one correct answer each, as sequences of words. Algorithmic tasks, ListOps and bAbI have this form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::DataError;

/// A question and its answer. The question ends with a mark (`=` or `?`) that tells a model where the answer begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercise {
    /// Words of the question.
    pub question: Vec<String>,
    /// Words of the answer, at least one.
    pub answer: Vec<String>,
}

impl Exercise {
    /// An exercise of words.
    pub fn new(question: impl IntoIterator<Item = impl Into<String>>, answer: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { question: question.into_iter().map(Into::into).collect(), answer: answer.into_iter().map(Into::into).collect() }
    }

    /// The words of question and answer with blanks between them.
    pub fn text(&self) -> String {
        [self.question.as_slice(), &self.answer].concat().join(" ")
    }
}

/// Exercises of one task, none of which is in two splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercises {
    /// For training.
    pub train: Vec<Exercise>,
    /// For choosing the best checkpoint.
    pub valid: Vec<Exercise>,
    /// For the reported scores.
    pub test: Vec<Exercise>,
    /// Exercises longer than those of training; none if the task has no length.
    pub longer: Vec<Exercise>,
    /// Their source, in words.
    pub source: String,
    /// Combined SHA-256 of the files, or that of the generated text.
    pub sha256: String,
}

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ExerciseTask {
    /// The question again (Dehghani et al. 2018, section 3.3, after Kaiser and Sutskever 2016).
    Copy,
    /// The question backwards (same source).
    Reverse,
    /// The sum of two decimal numbers (same source).
    Addition,
    /// `0 w 0 w` for a random `w`; the second half is the answer (Kitaev et al. 2020, section 5).
    Duplication,
    /// Nested operations on lists of digits (Nangia and Bowman 2018).
    ListOps,
    /// A task of bAbI, 1 to 20 (Weston et al. 2015).
    Babi(u8),
}

impl ExerciseTask {
    /// Number of bAbI's tasks.
    pub const BABI_TASKS: u8 = 20;

    /// Names of all tasks, `babi-1` to `babi-20` as one.
    pub const NAMES: [&str; 6] = ["copy", "reverse", "addition", "duplication", "list-ops", "babi-N"];

    /// Whether a question that is too long can be answered without its beginning: only stories can.
    pub fn can_lose_beginning(self) -> bool {
        matches!(self, Self::Babi(_))
    }
}

impl fmt::Display for ExerciseTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy => f.write_str("copy"),
            Self::Reverse => f.write_str("reverse"),
            Self::Addition => f.write_str("addition"),
            Self::Duplication => f.write_str("duplication"),
            Self::ListOps => f.write_str("list-ops"),
            Self::Babi(number) => write!(f, "babi-{number}"),
        }
    }
}

impl FromStr for ExerciseTask {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let lower = name.to_lowercase();
        let number = lower.strip_prefix("babi-").and_then(|number| number.parse().ok());
        match (lower.as_str(), number) {
            ("copy", _) => Ok(Self::Copy),
            ("reverse", _) => Ok(Self::Reverse),
            ("addition", _) => Ok(Self::Addition),
            ("duplication", _) => Ok(Self::Duplication),
            ("list-ops" | "listops", _) => Ok(Self::ListOps),
            (_, Some(number @ 1..=Self::BABI_TASKS)) => Ok(Self::Babi(number)),
            _ => Err(DataError::UnknownExercise { name: name.to_owned() }),
        }
    }
}

impl TryFrom<String> for ExerciseTask {
    type Error = DataError;

    fn try_from(name: String) -> Result<Self, DataError> {
        name.parse()
    }
}

impl From<ExerciseTask> for String {
    fn from(task: ExerciseTask) -> Self {
        task.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    #[test]
    fn names_are_read_as_they_are_written() {
        let tasks = [ExerciseTask::Copy, ExerciseTask::Reverse, ExerciseTask::Addition, ExerciseTask::Duplication, ExerciseTask::ListOps];
        for task in tasks.into_iter().chain((1..=20).map(ExerciseTask::Babi)) {
            assert_eq!(task.to_string().parse::<ExerciseTask>().unwrap(), task);
        }
        for name in ["babi-0", "babi-21", "babi", "sort"] {
            refused(name.parse::<ExerciseTask>(), &[name, "babi-N"]);
        }
    }
}
