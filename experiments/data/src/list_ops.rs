//! ListOps (Nangia and Bowman 2018): `[MAX 2 9 [MIN 4 7 ] 0 ]` is 9.
//!
//! A line of the original files is the answer, a tab, and the expression as a binary tree. Its parentheses show the tree to models that read trees and are
//! left out here, as sequence models leave them out. The operations are the least, the greatest and the median (rounded down) of their arguments, and their
//! sum modulo 10. A folder holds the test file (`test_d20s.tsv`, plain or `.gz`) and may hold the training file (`train_d20s.tsv`); training examples are
//! made by the rules of the original generator where it does not.
//!
//! The files of the Long Range Arena (Tay et al. 2020; `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`) have the heading `Source`, tab, `Target`, and the
//! expression before its answer.

use std::path::{Path, PathBuf};

use super::DataError;
use super::exercise::Exercise;
use super::files::{self, TextFile};

/// The words before the closing bracket of an expression.
pub const OPERATIONS: [&str; 4] = ["[MIN", "[MAX", "[MED", "[SM"];
/// What closes an expression.
pub const CLOSE: &str = "]";
/// The first line of files of the Long Range Arena.
const HEADING: &str = "Source\tTarget";
/// What stands between an expression and its value.
pub const EQUALS: &str = "=";

/// The examples of a folder.
#[derive(Clone, Debug)]
pub struct ListOpsFiles {
    /// Of the training file, if there is one.
    pub train: Option<Vec<Exercise>>,
    /// Of the validation file, if there is one: the original has none.
    pub valid: Option<Vec<Exercise>>,
    /// Of the test file.
    pub test: Vec<Exercise>,
    /// Combined SHA-256 of the files read.
    pub sha256: String,
}

/// Reads a folder.
///
/// # Errors
/// A missing or ambiguous file, a line without a tab, and an answer that is not the value of its expression.
pub fn read(dir: &Path) -> Result<ListOpsFiles, DataError> {
    let mut listed = files::list(dir, "a folder of ListOps")?;
    let mut file = |split: &str| {
        let is_of_split = |name: &str| name.trim_start_matches("basic_").starts_with(split) && name.ends_with(".tsv");
        let named = listed.keys().filter(|name| is_of_split(name)).cloned().collect::<Vec<_>>();
        let forms = named.iter().flat_map(|name| listed.remove(name).unwrap_or_default()).collect();
        files::only(forms, &format!("the {split} set of ListOps"))
    };
    let (train, valid, test) = (file("train")?, file("val")?, file("test")?);
    let test = test.ok_or_else(|| DataError::missing(dir, "the test set of ListOps", "test_d20s.tsv or basic_test.tsv"))?;
    let read = |path: PathBuf| TextFile::read(&path, "ListOps");
    let (train, valid, test) = (train.map(read).transpose()?, valid.map(read).transpose()?, read(test)?);
    let sha256 = files::combined_sha256(train.iter().chain(&valid).chain([&test]));
    let [train, valid] = [train, valid].map(|file| file.as_ref().map(exercises).transpose());
    Ok(ListOpsFiles { train: train?, valid: valid?, test: exercises(&test)?, sha256 })
}

fn exercises(file: &TextFile) -> Result<Vec<Exercise>, DataError> {
    let answer_is_last = file.lines.first().is_some_and(|line| line == HEADING);
    let exercise = |(index, line): (usize, &String)| {
        let wrong = |field: &str, value: &str, expected: &str| file.wrong(index, field, value, expected);
        let (first, last) = line.split_once('\t').ok_or_else(|| wrong("answer", line, "an answer, a tab and an expression"))?;
        let (answer, tree) = if answer_is_last { (last, first) } else { (first, last) };
        let words: Vec<&str> = tree.split_whitespace().filter(|word| !["(", ")"].contains(word)).collect();
        let value = value(&words).ok_or_else(|| wrong("expression", tree, "an expression of digits and [MIN, [MAX, [MED, [SM"))?;
        if answer != value.to_string() {
            return Err(wrong("answer", answer, &format!("the value of its expression, {value}")));
        }
        Ok(exercise(&words, value))
    };
    file.lines.iter().enumerate().skip(usize::from(answer_is_last)).map(exercise).collect()
}

/// The exercise of an expression and its value.
pub(super) fn exercise(words: &[&str], value: u32) -> Exercise {
    Exercise::new(words.iter().copied().chain([EQUALS]), [value.to_string()])
}

/// What an expression is, if it is one.
pub(super) fn value(words: &[&str]) -> Option<u32> {
    // Arguments of the expressions that are open, with their operations.
    let mut open: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut result = None;
    for &word in words {
        let value = match (word, word.parse::<u32>()) {
            (CLOSE, _) => {
                let (operation, arguments) = open.pop()?;
                apply(operation, arguments)?
            }
            (_, Ok(digit @ 0..=9)) => digit,
            _ if OPERATIONS.contains(&word) => {
                open.push((word, Vec::new()));
                continue;
            }
            _ => return None,
        };
        match open.last_mut() {
            Some((_, arguments)) => arguments.push(value),
            None if result.is_none() => result = Some(value),
            None => return None,
        }
    }
    result.filter(|_| open.is_empty())
}

fn apply(operation: &str, mut arguments: Vec<u32>) -> Option<u32> {
    arguments.sort_unstable();
    let (least, greatest) = (*arguments.first()?, *arguments.last()?);
    let middle = arguments.len() / 2;
    Some(match operation {
        "[MIN" => least,
        "[MAX" => greatest,
        "[MED" if arguments.len().is_multiple_of(2) => (arguments[middle - 1] + arguments[middle]) / 2,
        "[MED" => arguments[middle],
        _ => arguments.iter().sum::<u32>() % 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{folder, refused};

    fn of(text: &str) -> Option<u32> {
        value(&text.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn expressions_have_their_values() {
        assert_eq!(of("[MAX 2 9 [MIN 4 7 ] 0 ]"), Some(9));
        assert_eq!(of("[SM 6 5 9 0 ]"), Some(0));
        assert_eq!(of("[MED 1 4 ]"), Some(2), "rounded down");
        assert_eq!(of("[MED 8 1 [SM 7 7 ] ]"), Some(4));
        assert_eq!(of("7"), Some(7));
        for broken in ["[MAX 1", "1 2", "]", "[MAX ]", "[MAX 1 x ]", "[MAX 10 ]"] {
            assert_eq!(of(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_folder_is_read_with_and_without_training_file() {
        let test: &[u8] = b"0\t( ( ( ( ( [SM 6 ) 5 ) 9 ) 0 ) ] )\n9\t( ( ( [MAX 9 ) 1 ) ] )\n";
        let data = folder(&[("test_d20s.tsv.gz", test)]);
        let read_data = read(data.path()).unwrap();
        assert!(read_data.train.is_none());
        assert_eq!(read_data.test[0], Exercise::new("[SM 6 5 9 0 ] =".split(' '), ["0"]));
        let data = folder(&[("test_d20s.tsv", test), ("train_d20s.tsv", b"3\t3\n")]);
        assert_eq!(read(data.path()).unwrap().train.unwrap().len(), 1);
    }

    #[test]
    fn the_files_of_the_long_range_arena_are_read() {
        let data = folder(&[
            ("basic_train.tsv", b"Source\tTarget\n( ( ( [MAX 9 ) 1 ) ] )\t9\n3\t3\n"),
            ("basic_val.tsv", b"Source\tTarget\n4\t4\n"),
            ("basic_test.tsv", b"Source\tTarget\n( ( ( [SM 6 ) 5 ) ] )\t1\n"),
        ]);
        let read = read(data.path()).unwrap();
        assert_eq!(read.train.unwrap(), [Exercise::new("[MAX 9 1 ] =".split(' '), ["9"]), Exercise::new(["3", "="], ["3"])]);
        assert_eq!(read.valid.unwrap(), [Exercise::new(["4", "="], ["4"])]);
        assert_eq!(read.test, [Exercise::new("[SM 6 5 ] =".split(' '), ["1"])]);
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (text, parts) in [
            ("1\t1\n0 1\n", ["line 2", "tab"]),
            ("1\t1\n8\t( ( [MAX 9 ) ] )\n", ["line 2", "`8` is not the value of its expression, 9"]),
            ("1\t( ( [TOP 9 ) ] )\n", ["line 1", "expression"]),
        ] {
            let data = folder(&[("test_d20s.tsv", text.as_bytes())]);
            refused(read(data.path()), &parts);
        }
        assert!(read(folder(&[("other.tsv", b"1\t1\n")]).path()).unwrap_err().to_string().contains("test_d20s.tsv"));
    }
}
