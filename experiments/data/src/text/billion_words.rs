//! The One Billion Word benchmark (Chelba et al. 2013, "LM1B") as it is distributed: shuffled sentences, tokenised, in folders of files.
//!
//! The training text is `training-monolingual.tokenized.shuffled/news.en-00001-of-00100` to `-00099-of-00100`, as many of them as the folder has. Of the
//! held-out text, `heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050` is the test text, as in most published results, and `-00001-of-00050`
//! the validation text. Not covered: training without all of the text in memory.

use std::path::{Path, PathBuf};

use super::TextCorpus;
use crate::DataError;
use crate::files::{self, TextFile};

pub(super) const TRAINING: &str = "training-monolingual.tokenized.shuffled";
const HELD_OUT: &str = "heldout-monolingual.tokenized.shuffled";
const VALID: &str = "news.en.heldout-00001-of-00050";
const TEST: &str = "news.en.heldout-00000-of-00050";
/// The training files that are distributed.
const TRAINING_FILES: usize = 99;

/// Whether a folder has the benchmark's folders.
pub(crate) fn is_in(dir: &Path) -> bool {
    [TRAINING, HELD_OUT].iter().any(|name| dir.join(name).is_dir())
}

/// Reads the benchmark from the folder that has its two folders.
pub(super) fn read(dir: &Path) -> Result<TextCorpus, DataError> {
    let looked_for = "a folder of the One Billion Word benchmark";
    let held_out = dir.join(HELD_OUT);
    let held_out_files = files::list(&held_out, looked_for)?;
    let mut read = Vec::new();
    let mut lines = |path: PathBuf| -> Result<Vec<String>, DataError> {
        let mut file = TextFile::read(&path, "text of the One Billion Word benchmark")?;
        if file.lines.iter().all(|line| line.trim().is_empty()) {
            return Err(DataError::empty(&path, "no text", "restore it"));
        }
        let lines = std::mem::take(&mut file.lines);
        read.push(file);
        Ok(lines)
    };
    let mut part = |part: &str, expected: &str| {
        let path = files::only(held_out_files.get(expected).cloned().unwrap_or_default(), expected)?;
        lines(path.ok_or_else(|| DataError::missing(&held_out, format!("the {part} text"), expected))?)
    };
    let (valid, test) = (part("validation", VALID)?, part("test", TEST)?);
    let (mut train, mut count) = (Vec::new(), 0);
    for (name, forms) in files::list(&dir.join(TRAINING), looked_for)? {
        if name.starts_with("news.en-")
            && let Some(path) = files::only(forms, "the same training text")?
        {
            train.append(&mut lines(path)?);
            count += 1;
        }
    }
    if count == 0 {
        return Err(DataError::missing(&dir.join(TRAINING), "the training text", "news.en-00001-of-00100 and so on"));
    }
    let split = format!("as distributed: {count} of {TRAINING_FILES} training files, {VALID}, {TEST}");
    let sha256 = files::combined_sha256(&read);
    Ok(TextCorpus { train, valid, test, open_ends: [false; 3], split, last_words: false, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::folder;

    const NAMES: [&str; 4] = [
        "training-monolingual.tokenized.shuffled/news.en-00001-of-00100",
        "training-monolingual.tokenized.shuffled/news.en-00002-of-00100.gz",
        "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050",
        "heldout-monolingual.tokenized.shuffled/news.en.heldout-00001-of-00050",
    ];

    #[test]
    fn the_folders_are_read_with_the_first_held_out_file_as_test_text() {
        let contents: [&[u8]; 4] = [b"a b .\n", b"c .\nd .\n", b"t .\n", b"v .\n"];
        let mut files: Vec<(&str, &[u8])> = NAMES.into_iter().zip(contents).collect();
        files.push(("heldout-monolingual.tokenized.shuffled/news.en.heldout-00002-of-00050", b"x .\n"));
        files.push(("README", b"about"));
        let corpus = TextCorpus::read(folder(&files).path()).unwrap();
        assert_eq!(corpus.train, ["a b .", "c .", "d ."]);
        assert_eq!((corpus.valid, corpus.test, corpus.last_words), (vec!["v .".to_owned()], vec!["t .".to_owned()], false));
        assert!(corpus.split.contains("2 of 99 training files"), "{}", corpus.split);
    }

    #[test]
    fn missing_empty_and_doubled_files_are_named() {
        let text: &[u8] = b"a .\n";
        let all = || NAMES.map(|name| (name, text)).to_vec();
        let message = |files: &[(&str, &[u8])]| TextCorpus::read(folder(files).path()).unwrap_err().to_string();
        for (index, part) in [(2, "news.en.heldout-00000-of-00050"), (3, "news.en.heldout-00001-of-00050")] {
            let mut files = all();
            files.remove(index);
            assert!(message(&files).contains(&format!("expected {part}")), "{}", message(&files));
            files.insert(index, (NAMES[index], b"\n"));
            assert!(message(&files).contains("no text"), "{}", message(&files));
        }
        assert!(message(&all()[2..]).contains("training-monolingual.tokenized.shuffled` does not exist"), "{}", message(&all()[2..]));
        assert!(message(&all()[..2]).contains("heldout-monolingual.tokenized.shuffled` does not exist"), "{}", message(&all()[..2]));
        let mut files = all();
        files.push(("training-monolingual.tokenized.shuffled/news.en-00002-of-00100", text));
        assert!(message(&files).contains("keep one of them"), "{}", message(&files));
        let other = message(&[all(), vec![("a.train.txt", text)]].concat());
        assert!(other.contains("a.train.txt") && other.contains("training-monolingual"), "{other}");
    }
}
