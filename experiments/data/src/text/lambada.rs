//! LAMBADA (Paperno et al. 2016) as it is distributed: passages whose last word is to be predicted from all of the passage, and novels to train on.
//!
//! `lambada_development_plain_text.txt` and `lambada_test_plain_text.txt` have a passage on each line, of words that spaces separate. The training text is
//! that of the novels, `train-novels.tar` or the folder `train-novels` that comes out of it, in the order of their names (`GENRE/NOVEL.txt`). The control set
//! and the vocabulary are passed over. Not covered: the passages as OpenAI has them, with the original spelling (`.jsonl`).

use std::fs;
use std::path::{Path, PathBuf};

use super::TextCorpus;
use crate::files::{self, Listed, TextFile};
use crate::{DataError, packed};

const DEVELOPMENT: &str = "lambada_development_plain_text.txt";
const TEST: &str = "lambada_test_plain_text.txt";
const NOVELS: &str = "train-novels";
const ARCHIVE: &str = "train-novels.tar";

/// Whether a file of this name (without `.gz`) belongs to LAMBADA.
pub(crate) fn is_part(name: &str) -> bool {
    [DEVELOPMENT, TEST].contains(&name)
}

/// Reads the folder, whose files are `listed`.
pub(super) fn read(dir: &Path, listed: &Listed) -> Result<TextCorpus, DataError> {
    let [valid, test] = [("validation", DEVELOPMENT), ("test", TEST)].map(|(part, name)| passages(dir, listed, part, name));
    let (valid, test) = (valid?, test?);
    let mut read = novels(dir, listed)?;
    let train: Vec<String> = read.iter_mut().flat_map(|file| std::mem::take(&mut file.lines)).collect();
    if train.iter().all(|line| line.trim().is_empty()) {
        return Err(DataError::empty(&dir.join(NOVELS), "no text", "restore the novels"));
    }
    let split = format!("as distributed: {} novels, {DEVELOPMENT}, {TEST}", read.len());
    let sha256 = files::combined_sha256(read.iter().chain([&valid, &test]));
    Ok(TextCorpus { train, valid: valid.lines, test: test.lines, open_ends: [false; 3], split, last_words: true, sha256 })
}

/// The passages of a split, each of two words or more.
fn passages(dir: &Path, listed: &Listed, part: &str, name: &str) -> Result<TextFile, DataError> {
    let path = files::only(listed.get(name).cloned().unwrap_or_default(), name)?;
    let path = path.ok_or_else(|| DataError::missing(dir, format!("the {part} passages of LAMBADA"), name))?;
    let file = TextFile::read(&path, "passages of LAMBADA")?;
    if let Some(index) = file.lines.iter().position(|line| line.split_whitespace().nth(1).is_none()) {
        return Err(file.wrong(index, "passage", &file.lines[index], "two words or more, of which the last is to be predicted"));
    }
    if file.lines.is_empty() {
        return Err(DataError::empty(&path, "no passage", "restore it"));
    }
    Ok(file)
}

/// The novels in the order of their names.
fn novels(dir: &Path, listed: &Listed) -> Result<Vec<TextFile>, DataError> {
    let (folder, archives) = (dir.join(NOVELS), listed.get(ARCHIVE).cloned().unwrap_or_default());
    let mut found = match (folder.is_dir(), files::only(archives, ARCHIVE)?) {
        (true, Some(archive)) => {
            return Err(DataError::Ambiguous { part: "the training text of LAMBADA".to_owned(), files: vec![folder, archive] });
        }
        (true, None) => {
            let mut found = Vec::new();
            in_folder(&folder, "", &mut found)?;
            found
        }
        (false, Some(archive)) => {
            let stored = fs::read(&archive).map_err(|cause| DataError::Unreadable { path: archive.clone(), cause })?;
            let place = |name: &str| {
                name.rsplit_once(&format!("{NOVELS}/")).map(|(_, inner)| inner.to_owned()).filter(|inner| inner.ends_with(".txt"))
            };
            let novels = packed::files(&archive, &stored, place)?.into_iter();
            novels.map(|(inner, name, bytes)| TextFile::from_bytes(archive.join(name), inner, &bytes)).collect::<Result<Vec<_>, _>>()?
        }
        (false, None) => Vec::new(),
    };
    if found.is_empty() {
        return Err(DataError::missing(dir, "the novels to train on", format!("{ARCHIVE}, or {NOVELS}/GENRE/NOVEL.txt")));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The novels of a folder and of those in it, whose names begin with `prefix`.
fn in_folder(dir: &Path, prefix: &str, found: &mut Vec<TextFile>) -> Result<(), DataError> {
    let unreadable = |cause| DataError::Unreadable { path: dir.to_path_buf(), cause };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let is_added = files::is_added_by_macos(name);
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            in_folder(&path, &format!("{name}/"), found)?;
        } else if name.ends_with(".txt") && !is_added {
            found.push(TextFile { name, ..TextFile::read(&path, "a novel")? });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::folder;

    const DEV_TEXT: &[u8] = b"she saw a dog and called the dog\n";
    const TEST_TEXT: &[u8] = b"he lost his hat and found the hat\nno word but one word\n";

    fn with<'a>(further: &[(&'a str, &'a [u8])]) -> Vec<(&'a str, &'a [u8])> {
        [&[(DEVELOPMENT, DEV_TEXT), (TEST, TEST_TEXT), ("lambada-vocab-2.txt", b"a\t1\n")][..], further].concat()
    }

    #[test]
    fn passages_and_novels_are_read_from_a_folder_and_from_an_archive_alike() {
        let novels: [(&str, &[u8]); 3] =
            [("train-novels/B/z.txt", b"z\n"), ("train-novels/A/b.txt", b"b one\nb two\n"), ("train-novels/A/a.txt", b"a\n")];
        let unpacked = TextCorpus::read(folder(&with(&novels)).path()).unwrap();
        assert_eq!(unpacked.train, ["a", "b one", "b two", "z"]);
        assert_eq!((unpacked.valid.len(), unpacked.test.len(), unpacked.last_words), (1, 2, true));
        assert!(unpacked.split.contains("3 novels"), "{}", unpacked.split);
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in novels.into_iter().chain([("train-novels/README", &b"about"[..])]) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_cksum();
            builder.append_data(&mut header, name, text).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        assert_eq!(TextCorpus::read(folder(&with(&[(ARCHIVE, &archive)])).path()).unwrap(), unpacked);
        let both = TextCorpus::read(folder(&with(&[(ARCHIVE, &archive), novels[0]])).path()).unwrap_err().to_string();
        assert!(both.contains(ARCHIVE) && both.contains("keep one"), "{both}");
    }

    #[test]
    fn what_is_missing_or_no_passage_is_named() {
        let message = |files: &[(&str, &[u8])]| TextCorpus::read(folder(files).path()).unwrap_err().to_string();
        assert!(message(&with(&[])).contains("expected train-novels.tar, or train-novels/GENRE/NOVEL.txt"), "{}", message(&with(&[])));
        let novel: (&str, &[u8]) = ("train-novels/A/a.txt", b"a\n");
        let only_test = message(&[(TEST, TEST_TEXT), novel]);
        assert!(only_test.contains("validation passages") && only_test.contains(DEVELOPMENT), "{only_test}");
        let one_word = message(&[(DEVELOPMENT, DEV_TEXT), (TEST, b"two words\none\n"), novel]);
        assert!(one_word.contains("line 2") && one_word.contains("`one` is not two words"), "{one_word}");
        let empty = message(&[(DEVELOPMENT, DEV_TEXT), (TEST, TEST_TEXT), ("train-novels/A/a.txt", b"\n")]);
        assert!(empty.contains("train-novels` holds no text"), "{empty}");
    }
}
