//! Exercises whose answers follow from their questions by a rule: copying, reversal, addition, duplication and ListOps.
//!
//! Questions of `copy` and `reverse` are 1 to `length` random symbols and `=`; of `addition` two numbers of 1 to `length / 2` digits each, most significant
//! first. The longer test set has questions of more than `length` and at most `longer` symbols. A `duplication` is `0 w 0` with the answer `w` of exactly
//! `length` symbols from 1 on: a sequence `0 w 0 w` of which the second half is asked. Expressions of ListOps are drawn as by the original generator (an
//! argument is a list with probability 1/4, of 2 to 5 arguments, at most 20 deep) and kept if they have at most `length` words without the `=`, or more than
//! that and at most `longer`.

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Seen, Sizes};
use crate::DataError;
use crate::exercise::{Exercise, ExerciseTask, Exercises};
use crate::files::sha256_of_lines;
use crate::list_ops::{self, CLOSE, EQUALS, OPERATIONS};

const DEEPEST_LIST: usize = 20;
const MOST_ARGUMENTS: usize = 5;
const LIST: f64 = 0.25;

/// How long questions are, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Most symbols of a question of training, at least 2.
    pub length: usize,
    /// Most symbols of a question of the longer test set. A value of at most `length` disables this set.
    pub longer: usize,
    /// Number of different symbols, at least 2; `addition` and ListOps use the ten digits.
    pub symbols: usize,
}

/// Makes the exercises of a task.
///
/// # Errors
/// [`DataError::TooManyWanted`] if there are not enough different questions, [`DataError::NoBuiltIn`] for bAbI.
pub fn exercises(task: ExerciseTask, key: &RandomKey, shape: Shape, sizes: Sizes) -> Result<Exercises, DataError> {
    let mut seen = Seen::default();
    // The other splits come first, so that they stay the same when the size of the training set changes.
    let mut split = |name: &str, count: usize, lengths: [usize; 2]| {
        let mut rng = key.named(name).rng();
        let mut exercises = Vec::with_capacity(count);
        for _ in 0..100 * count {
            if exercises.len() == count {
                break;
            }
            let exercise = one(task, &mut rng, lengths, shape.symbols)?;
            exercises.extend(exercise.filter(|exercise| seen.is_new(&exercise.text())));
        }
        match exercises.len() {
            found if found < count => Err(DataError::TooManyWanted { found, wanted: count, what: format!("questions of {task}") }),
            _ => Ok(exercises),
        }
    };
    let usual = if task == ExerciseTask::Duplication { [shape.length, shape.length] } else { [1, shape.length] };
    let test = split("test", sizes.test, usual)?;
    let has_longer = shape.longer > shape.length && task != ExerciseTask::Duplication;
    let longer = split("longer", if has_longer { sizes.test } else { 0 }, [shape.length + 1, shape.longer])?;
    let valid = split("valid", sizes.valid, usual)?;
    let train = split("train", sizes.train, usual)?;
    let sha256 = sha256_of_lines([&train, &valid, &test, &longer].into_iter().flatten().map(Exercise::text));
    Ok(Exercises { train, valid, test, longer, source: "built in".into(), sha256 })
}

/// An exercise with so many symbols, if one was found.
fn one(task: ExerciseTask, rng: &mut ChaCha8Rng, lengths: [usize; 2], symbols: usize) -> Result<Option<Exercise>, DataError> {
    let [shortest, longest] = lengths;
    let drawn = |rng: &mut ChaCha8Rng, first: usize| -> Vec<String> {
        let length = rng.random_range(shortest..=longest);
        (0..length).map(|_| rng.random_range(first..first + symbols).to_string()).collect()
    };
    let equals = || std::iter::once(EQUALS.to_owned());
    Ok(Some(match task {
        ExerciseTask::Copy => {
            let word = drawn(rng, 0);
            Exercise::new(word.clone().into_iter().chain(equals()), word)
        }
        ExerciseTask::Reverse => {
            let word = drawn(rng, 0);
            Exercise::new(word.clone().into_iter().chain(equals()), word.into_iter().rev())
        }
        ExerciseTask::Duplication => {
            let word = drawn(rng, 1);
            let mark = || std::iter::once("0".to_owned());
            Exercise::new(mark().chain(word.clone()).chain(mark()), word)
        }
        ExerciseTask::Addition => {
            let digits = |rng: &mut ChaCha8Rng| -> Vec<u8> {
                let length = rng.random_range(shortest.div_ceil(2)..=longest.div_ceil(2));
                (0..length).map(|place| rng.random_range(u8::from(place == 0 && length > 1)..10)).collect()
            };
            let (a, b) = (digits(rng), digits(rng));
            let text = |digits: &[u8]| digits.iter().map(u8::to_string).collect::<Vec<_>>();
            Exercise::new(text(&a).into_iter().chain(["+".to_owned()]).chain(text(&b)).chain(equals()), text(&sum(&a, &b)))
        }
        ExerciseTask::ListOps => {
            let mut words = Vec::new();
            list(rng, 1, longest, &mut words);
            if !(shortest..=longest).contains(&words.len()) {
                return Ok(None);
            }
            let value = list_ops::value(&words).expect("what was made by the rules is an expression");
            list_ops::exercise(&words, value)
        }
        ExerciseTask::Babi(_) => return Err(DataError::NoBuiltIn { task }),
    }))
}

/// The decimal digits of a sum, most significant first.
fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut digits = Vec::new();
    let mut carry = 0;
    for place in 0..a.len().max(b.len()) {
        let digit = |number: &[u8]| number.iter().rev().nth(place).copied().unwrap_or(0);
        let total = digit(a) + digit(b) + carry;
        digits.push(total % 10);
        carry = total / 10;
    }
    digits.extend((carry > 0).then_some(carry));
    digits.reverse();
    digits
}

/// Appends a list, and stops when it is too long to be of use.
fn list(rng: &mut ChaCha8Rng, depth: usize, longest: usize, words: &mut Vec<&'static str>) {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    words.push(OPERATIONS[rng.random_range(0..OPERATIONS.len())]);
    for _ in 0..rng.random_range(2..=MOST_ARGUMENTS) {
        if words.len() > longest {
            return;
        }
        match depth < DEEPEST_LIST && rng.random_bool(LIST) {
            true => list(rng, depth + 1, longest, words),
            false => words.push(DIGITS[rng.random_range(0..10)]),
        }
    }
    words.push(CLOSE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    const SIZES: Sizes = Sizes { train: 200, valid: 20, test: 40 };
    const SHAPE: Shape = Shape { length: 12, longer: 24, symbols: 10 };

    fn made(task: ExerciseTask) -> Exercises {
        exercises(task, &RandomKey::from_seed(1), SHAPE, SIZES).unwrap()
    }

    fn all(exercises: &Exercises) -> impl Iterator<Item = &Exercise> {
        [&exercises.train, &exercises.valid, &exercises.test, &exercises.longer].into_iter().flatten()
    }

    #[test]
    fn answers_follow_from_questions() {
        for Exercise { question, answer } in all(&made(ExerciseTask::Copy)) {
            assert_eq!(question.strip_suffix(&[EQUALS.to_owned()]).unwrap(), answer);
        }
        for Exercise { question, answer } in all(&made(ExerciseTask::Reverse)) {
            let backwards: Vec<_> = answer.iter().rev().cloned().collect();
            assert_eq!(question.strip_suffix(&[EQUALS.to_owned()]).unwrap(), backwards);
        }
        for Exercise { question, answer } in all(&made(ExerciseTask::Duplication)) {
            assert_eq!(question[1..question.len() - 1], answer[..]);
            assert_eq!([question[0].as_str(), question[question.len() - 1].as_str(), &answer.len().to_string()], ["0", "0", "12"]);
            assert!(!answer.contains(&"0".to_owned()));
        }
        for Exercise { question, answer } in all(&made(ExerciseTask::Addition)) {
            let text = question.concat();
            let (a, b) = text.trim_end_matches('=').split_once('+').unwrap();
            assert_eq!(a.parse::<u128>().unwrap() + b.parse::<u128>().unwrap(), answer.concat().parse().unwrap());
        }
        for Exercise { question, answer } in all(&made(ExerciseTask::ListOps)) {
            let words: Vec<_> = question[..question.len() - 1].iter().map(String::as_str).collect();
            assert_eq!([list_ops::value(&words).unwrap().to_string()], answer[..]);
        }
    }

    #[test]
    fn the_longer_set_is_longer_and_no_question_is_in_two_splits() {
        for task in [ExerciseTask::Copy, ExerciseTask::Reverse, ExerciseTask::Addition, ExerciseTask::ListOps] {
            let exercises = made(task);
            let length = |exercise: &Exercise| exercise.question.iter().filter(|word| !["=", "+"].contains(&word.as_str())).count();
            assert!(exercises.train.iter().chain(&exercises.test).all(|exercise| length(exercise) <= 12), "{task}");
            assert!(exercises.longer.iter().all(|exercise| (13..=24).contains(&length(exercise))), "{task}");
            let texts: std::collections::HashSet<_> = all(&exercises).map(Exercise::text).collect();
            assert_eq!(texts.len(), all(&exercises).count(), "{task}");
        }
        assert!(made(ExerciseTask::Duplication).longer.is_empty());
    }

    #[test]
    fn test_sets_do_not_depend_on_the_size_of_the_training_set() {
        let key = RandomKey::from_seed(1);
        let more = exercises(ExerciseTask::Copy, &key, SHAPE, Sizes { train: 300, ..SIZES }).unwrap();
        let fewer = made(ExerciseTask::Copy);
        assert_eq!((&more.test, &more.valid), (&fewer.test, &fewer.valid));
        assert_ne!(more.sha256, fewer.sha256);
    }

    #[test]
    fn more_than_there_are_and_tasks_of_files_are_refused() {
        let shape = Shape { length: 2, longer: 2, symbols: 2 };
        refused(exercises(ExerciseTask::Copy, &RandomKey::from_seed(1), shape, SIZES), &["copy", "fewer"]);
        refused(exercises(ExerciseTask::Babi(3), &RandomKey::from_seed(1), SHAPE, SIZES), &["babi-3", "--data"]);
    }
}
