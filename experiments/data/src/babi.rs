//! The question-answering tasks of bAbI, version 1.2 (Weston et al. 2015).
//!
//! A file is a sequence of stories whose lines are numbered from 1. A line is a sentence, or a question with its answer and the numbers of the sentences that
//! support it, separated by tabs. A question is asked about all sentences of its story before it; earlier questions are no part of it. Words are in lower
//! case, full stops and question marks are words of their own, and an answer of several words (`apple,milk`) is several words. The last tenth of the training
//! questions is for validation. Supporting sentences are not used.
//!
//! The tasks are read from the original archive (`tasks_1-20_v1-2.tar.gz`, or a part of it under another name that ends in `.tar.gz` or `.tgz`), or from a
//! folder with the files of one set of it (`en`, `en-10k`, `shuffled` ...). The folder that a file of the archive is in is its set. An archive that has files
//! in no folder is one of a single set.

use std::path::Path;

use super::DataError;
use super::exercise::{Exercise, Exercises};
use super::files::{self, TextFile};
use super::packed;

/// Each question repeats its story, so without a limit a small file could fill the memory. The longest story has 233.
const MOST_SENTENCES: usize = 500;

/// Reads a task. `set` is the folder of the archive that it is taken from.
///
/// # Errors
/// A missing archive, set or file, and a line that is not of the format.
pub fn read(dir: &Path, set: &str, task: u8) -> Result<Exercises, DataError> {
    let listed = files::list(dir, "a folder of bAbI")?;
    let archives = files::fitting(&listed, |name| name.ends_with(".tar") || name.ends_with(".tgz"));
    let (train, test) = match files::only(archives, "the archive of bAbI")? {
        Some(archive) => from_archive(&archive, set, task)?,
        None => {
            let split = |split: &str| {
                let start = format!("qa{task}_");
                let forms = files::fitting(&listed, |name| name.starts_with(&start) && name.ends_with(&format!("_{split}.txt")));
                let path = files::only(forms, &format!("the {split} set of task {task}"))?;
                TextFile::read(&path.ok_or_else(|| missing(dir, set, task, split))?, "bAbI")
            };
            (split("train")?, split("test")?)
        }
    };
    let mut train_exercises = exercises(&train)?;
    let valid = train_exercises.split_off(train_exercises.len() - train_exercises.len() / 10);
    Ok(Exercises {
        train: train_exercises,
        valid,
        test: exercises(&test)?,
        longer: Vec::new(),
        source: format!("{} and {}", train.name, test.name),
        sha256: files::combined_sha256([&train, &test]),
    })
}

fn missing(place: &Path, set: &str, task: u8, split: &str) -> DataError {
    DataError::missing(
        place,
        format!("the {split} set of task {task} in `{set}` (--set data.babi_set=NAME takes another set)"),
        format!("qa{task}_..._{split}.txt"),
    )
}

fn from_archive(path: &Path, set: &str, task: u8) -> Result<(TextFile, TextFile), DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_path_buf(), cause };
    let stored = std::fs::read(path).map_err(unreadable)?;
    let start = format!("qa{task}_");
    let place = |name: &str| {
        let mut parts = name.rsplit('/');
        let (file, folder) = (parts.next()?, parts.next());
        let (_, split) = file.strip_prefix(&start)?.rsplit_once('_')?;
        let inner_name = folder.map_or_else(|| file.to_owned(), |folder| format!("{folder}/{file}"));
        let is_test = [("train.txt", false), ("test.txt", true)].into_iter().find(|(name, _)| *name == split)?.1;
        folder.is_none_or(|folder| folder == set).then_some((is_test, inner_name))
    };
    let found = packed::files(path, &stored, place)?;
    let of_split = |is_test: bool, split: &str| {
        // What is inside has no place of its own on the disk.
        let of_split = || found.iter().filter(|((of_test, _), ..)| *of_test == is_test);
        files::only(of_split().map(|(_, name, _)| path.join(name)).collect(), &format!("the {split} set of task {task}"))?;
        let ((_, inner_name), name, bytes) = of_split().next().ok_or_else(|| missing(path, set, task, split))?;
        TextFile::from_bytes(path.join(name), inner_name.clone(), bytes)
    };
    Ok((of_split(false, "train")?, of_split(true, "test")?))
}

fn exercises(file: &TextFile) -> Result<Vec<Exercise>, DataError> {
    let mut exercises = Vec::new();
    let mut story: Vec<String> = Vec::new();
    let mut last = 0;
    for (index, line) in file.lines.iter().enumerate() {
        let wrong = |field: &str, value: &str, expected: &str| file.wrong(index, field, value, expected);
        let (number, text) = line.split_once(' ').ok_or_else(|| wrong("number", line, "a number and a sentence"))?;
        let number: usize = number.parse().map_err(|_| wrong("number", number, "the number of a sentence"))?;
        if number > MOST_SENTENCES {
            return Err(wrong("number", &number.to_string(), &format!("at most {MOST_SENTENCES} sentences in a story")));
        }
        if number == 1 {
            story.clear();
        } else if number != last + 1 {
            return Err(wrong("number", &number.to_string(), &format!("1 or {}", last + 1)));
        }
        last = number;
        match text.split_once('\t') {
            None => story.extend(words(text)),
            Some((question, rest)) => {
                let answer = rest.split('\t').next().unwrap_or_default().trim();
                if answer.is_empty() {
                    return Err(wrong("answer", rest, "an answer"));
                }
                let question = story.iter().cloned().chain(words(question));
                exercises.push(Exercise::new(question, answer.split(',').map(str::to_lowercase)));
            }
        }
    }
    if exercises.is_empty() {
        return Err(DataError::empty(&file.path, "no question", "restore the original file"));
    }
    Ok(exercises)
}

/// The words of a sentence; marks are words of their own.
fn words(sentence: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in sentence.split_whitespace() {
        let bare = word.trim_end_matches(['.', '?', ',']);
        words.extend((!bare.is_empty()).then(|| bare.to_lowercase()));
        words.extend(word[bare.len()..].chars().map(String::from));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{folder, refused};

    const STORY: &str = "1 Mary got the apple.\n2 What has Mary? \tapple\t1\n3 Mary got the milk.\n4 What has Mary? \tapple,milk\t1 3\n\
                         1 John slept.\n2 Who slept? \tJohn\t1\n";

    fn of(text: &str) -> Result<Vec<Exercise>, DataError> {
        exercises(&TextFile::from_bytes("qa8_test.txt".into(), "qa8_test.txt".into(), text.as_bytes())?)
    }

    #[test]
    fn a_question_is_asked_about_the_sentences_before_it() {
        let found = of(STORY).unwrap();
        assert_eq!(found[0], Exercise::new("mary got the apple . what has mary ?".split(' '), ["apple"]));
        assert_eq!(found[1].question.join(" "), "mary got the apple . mary got the milk . what has mary ?");
        assert_eq!(found[1].answer, ["apple", "milk"]);
        assert_eq!(found[2].question.join(" "), "john slept . who slept ?");
    }

    fn tar(prefix: &str) -> Vec<u8> {
        let train = STORY.repeat(10);
        let files = [
            ("en/._qa8_lists_train.txt", "\u{5}"),
            ("en/qa8_lists_train.txt", &train),
            ("en/qa8_lists_test.txt", STORY),
            ("en/qa8_lists_valid.txt", ""),
            ("en-10k/qa8_x_test.txt", ""),
        ];
        files::tests::tar(files.map(|(name, text)| (format!("{prefix}{name}"), text)))
    }

    #[test]
    fn outer_folders_of_an_archive_do_not_matter() {
        let packed = |name: &str, prefix: &str| read(folder(&[(name, &tar(prefix))]).path(), "en", 8);
        let original = packed("tasks_1-20_v1-2.tar.gz", "tasks_1-20_v1-2/").unwrap();
        for prefix in ["./tasks_1-20_v1-2/", "./", "", "data/./tasks_1-20_v1-2/", "/"] {
            let other = packed("tasks.tar.gz", prefix).unwrap();
            assert_eq!(
                (other.train, other.test, other.sha256),
                (original.train.clone(), original.test.clone(), original.sha256.clone()),
                "{prefix}"
            );
        }
        let tgz = folder(&[("tasks.tar", &tar("./"))]);
        std::fs::rename(tgz.path().join("tasks.tar"), tgz.path().join("tasks.tgz")).unwrap();
        assert_eq!(read(tgz.path(), "en", 8).unwrap().test, original.test);
    }

    #[test]
    fn archives_and_folders_hold_the_same() {
        let archive = folder(&[("tasks_1-20_v1-2_en.tar.gz", &tar("tasks_1-20_v1-2/"))]);
        let packed = read(archive.path(), "en", 8).unwrap();
        assert_eq!([packed.train.len(), packed.valid.len(), packed.test.len()], [27, 3, 3]);
        let unpacked = folder(&[("qa8_lists_train.txt", STORY.repeat(10).as_bytes()), ("qa8_lists_test.txt", STORY.as_bytes())]);
        assert_eq!(read(unpacked.path(), "en", 8).unwrap().test, packed.test);
        for (set, task, part) in [("en", 9, "qa9_"), ("hn", 8, "`hn`"), ("en-10k", 8, "train set")] {
            refused(read(archive.path(), set, task), &[part]);
        }
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (text, parts) in [
            ("1 A b.\n3 C d.\n", ["line 2", "`3` is not 1 or 2"]),
            ("x A b.\n", ["line 1", "`x`"]),
            ("1 A b.\n2 What? \t\t1\n", ["line 2", "answer"]),
            ("1 A b.\n", ["no question", "restore"]),
        ] {
            refused(of(text), &parts);
        }
    }
}
