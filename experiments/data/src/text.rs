//! Running text for language models.
//!
//! A folder holds either the three files of a data set, `ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt` (Penn Treebank, Mikolov preprocessing) or
//! `wiki.train.tokens` and so on (WikiText), or one single file that is cut here: `text8`, `enwik8` or a `.txt` file (such as Tiny Shakespeare's `input.txt`),
//! or the original files of the One Billion Word benchmark (`billion_words.rs`) or of LAMBADA (`lambada.rs`).
//! Lines are kept as they stand, spaces and empty lines included; each line of a corpus ends with a line end, but where text8 or enwik8 is cut within one.
//! Not covered: text that does not fit into memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heedful_host::checksum::sha256_hex;

use super::files::{self, TextFile};
use super::{Columns, DataError, columns};

pub(crate) mod billion_words;
pub(crate) mod lambada;

const LOOKED_FOR: &str = "language-model text";
const SPLITS: [&str; 3] = ["train", "valid", "test"];
const EXPECTED: &str = "SET.train.txt, SET.valid.txt and SET.test.txt, or wiki.train.tokens and so on, or text8, enwik8 or \
                        one single .txt file, or train, validation and test as .jsonl or .parquet, or the files of the One Billion Word benchmark or of LAMBADA";
/// Single files that are cut by bytes, be it in a line: 90, 5 and 5 of their 100 million. An ending `.txt` does not change that.
const CUT_BY_BYTES: [&str; 2] = ["text8", "enwik8"];

/// Text for a language model with its splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCorpus {
    /// Training lines, without their line ends.
    pub train: Vec<String>,
    /// Validation lines.
    pub valid: Vec<String>,
    /// Test lines.
    pub test: Vec<String>,
    /// Whether the last line of the training, validation and test text lacks a line end.
    pub open_ends: [bool; 3],
    /// How the splits came about, in words.
    pub split: String,
    /// Whether each line of the validation and of the test text is a passage whose last word is to be predicted from the rest (LAMBADA).
    pub last_words: bool,
    /// Combined SHA-256 of the files read (see [`files::combined_sha256`]).
    pub sha256: String,
}

impl TextCorpus {
    /// Reads the one data set in the folder `dir`.
    ///
    /// Files are plain or `.gz`. If the folder has the three files of a data set, other texts in it are ignored. Of text8 and enwik8 the last 5 % of the bytes
    /// are the test text and the 5 % before them the validation text, as is published; a character that a cut falls into belongs to the part in which it begins,
    /// and no line end is added where a cut ends a part. Published results of enwik8 count bytes: the tokens of a `bpe` tokeniser of 263. Any other single file
    /// is cut at the line ends that follow 90 % and 95 % of its characters.
    ///
    /// # Errors
    /// [`DataError::Ambiguous`] (several data sets, or a file in two forms), [`DataError::MissingPart`], [`DataError::Empty`] (a split without text),
    /// and those of [`TextFile::read`].
    pub fn read(dir: &Path) -> Result<Self, DataError> {
        Self::read_columns(dir, &Columns::default())
    }

    /// The roles of [`Columns`].
    pub const COLUMNS: &[&str] = &["text"];

    /// The same, from a column of another name, whose role is in [`COLUMNS`](Self::COLUMNS). The text of a row may have several lines.
    ///
    /// # Errors
    /// Those of [`read`](Self::read); [`DataError::NoColumn`], [`DataError::Shards`], [`DataError::Parquet`], and [`DataError::NoNamedColumns`] where the files have no
    /// columns.
    pub fn read_columns(dir: &Path, columns: &Columns) -> Result<Self, DataError> {
        let listed = files::list(dir, "a folder of language-model text")?;
        let has_columns = columns::is_in(&listed);
        if !has_columns {
            columns.refuse_without_columns(dir)?;
        }
        // The three files of a set are one candidate under the set's name and extension.
        let mut sets: BTreeMap<(String, String), BTreeMap<&str, Vec<PathBuf>>> = BTreeMap::new();
        let mut single_files = Vec::new();
        let has_billion_words = billion_words::is_in(dir);
        let passages = listed.iter().find(|(name, _)| lambada::is_part(name)).and_then(|(_, forms)| forms.first().cloned());
        for (name, forms) in listed.clone() {
            let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
            let named = stem.rsplit_once('.').and_then(|(set, split)| Some((set, *SPLITS.iter().find(|known| **known == split)?)));
            match (named, extension) {
                (Some((set, split)), "txt" | "tokens") => {
                    sets.entry((set.to_string(), extension.to_string())).or_default().insert(split, forms);
                }
                (None, "txt") => single_files.extend(forms),
                (None, "") if CUT_BY_BYTES.contains(&stem) => single_files.extend(forms),
                _ => {}
            }
        }
        if sets.len() + [has_billion_words, passages.is_some(), has_columns].map(usize::from).iter().sum::<usize>() > 1 {
            let in_columns = listed.iter().filter(|(name, _)| columns::is_of_split(name, "train")).flat_map(|(_, forms)| forms.clone());
            let originals = has_billion_words.then(|| dir.join(billion_words::TRAINING)).into_iter().chain(passages);
            let files = sets.into_values().flat_map(BTreeMap::into_values).flatten().chain(originals).chain(in_columns).collect();
            return Err(DataError::Ambiguous { part: "one language-model data set".to_string(), files });
        }
        if has_billion_words {
            return billion_words::read(dir);
        }
        if has_columns {
            return Self::of_columns(dir, &listed, columns);
        }
        if passages.is_some() {
            return lambada::read(dir, &listed);
        }
        match sets.pop_first() {
            Some(((set, extension), files)) => Self::read_set(dir, &set, &extension, files),
            None => match files::only(single_files, "one text to be split")? {
                Some(path) => Self::read_single(&path),
                None => Err(DataError::missing(dir, "a language-model text", EXPECTED)),
            },
        }
    }

    fn of_columns(dir: &Path, listed: &files::Listed, columns: &Columns) -> Result<Self, DataError> {
        let splits = [&["train"][..], &columns::DEVELOPMENT, &["test"]].map(|names| columns::require_split(dir, listed, names));
        let [train, valid, test] = splits;
        let splits = [train?, valid?, test?];
        let lines = |files: &Vec<TextFile>| -> Result<Vec<String>, DataError> {
            let mut lines = Vec::new();
            for row in files.iter().flat_map(columns::rows) {
                let text = row?.text(columns, "text")?;
                lines.extend(text.strip_suffix('\n').unwrap_or(&text).split('\n').map(str::to_owned));
            }
            match lines.iter().all(|line| line.trim().is_empty()) {
                true => Err(DataError::empty(&files[0].path, "no text", "restore it")),
                false => Ok(lines),
            }
        };
        let [train, valid, test] = splits.each_ref().map(lines);
        let names: Vec<&str> = splits.iter().flatten().map(|file| file.name.as_str()).collect();
        Ok(Self {
            train: train?,
            valid: valid?,
            test: test?,
            open_ends: [false; 3],
            split: format!("as distributed: {}", names.join(", ")),
            last_words: false,
            sha256: columns.checksum(files::combined_sha256(splits.iter().flatten())),
        })
    }

    fn read_set(dir: &Path, set: &str, extension: &str, mut forms: BTreeMap<&str, Vec<PathBuf>>) -> Result<Self, DataError> {
        let mut read = Vec::new();
        for split in SPLITS {
            let expected = format!("{set}.{split}.{extension}");
            let path = files::only(forms.remove(split).unwrap_or_default(), &expected)?
                .ok_or_else(|| DataError::missing(dir, format!("the {split} text"), expected))?;
            let file = TextFile::read(&path, LOOKED_FOR)?;
            if file.lines.iter().all(|line| line.trim().is_empty()) {
                return Err(DataError::empty(&path, "no text", "restore it"));
            }
            read.push(file);
        }
        let split = format!("as distributed: {}", read.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", "));
        let sha256 = files::combined_sha256(&read);
        let [train, valid, test] = [0, 1, 2].map(|index| std::mem::take(&mut read[index].lines));
        Ok(Self { train, valid, test, open_ends: [false; 3], split, last_words: false, sha256 })
    }

    fn read_single(path: &Path) -> Result<Self, DataError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        if CUT_BY_BYTES.contains(&stem.strip_suffix(".txt").unwrap_or(stem)) {
            Self::read_by_bytes(path, &name)
        } else {
            Self::read_by_lines(path)
        }
    }

    fn read_by_lines(path: &Path) -> Result<Self, DataError> {
        let file = TextFile::read(path, LOOKED_FOR)?;
        let sha256 = files::combined_sha256([&file]);
        let parts = cut_at_line_ends(file.lines);
        let sizes = parts.each_ref().map(|part| characters(part));
        let parts = parts.map(|lines| (lines, false));
        Self::of_parts(path, parts, sizes, ["characters at line ends", "characters"], sha256)
    }

    fn read_by_bytes(path: &Path, name: &str) -> Result<Self, DataError> {
        let stored = files::stored(path, LOOKED_FOR)?;
        let sha256 = files::combined_sha256([&TextFile {
            path: path.to_path_buf(),
            name: name.to_owned(),
            lines: Vec::new(),
            sha256: sha256_hex(&stored),
        }]);
        let bytes = if name.ends_with(".gz") { files::decompress(path, &stored)? } else { stored };
        let parts = cut_by_bytes(files::text(path, &bytes)?);
        Self::of_parts(path, parts.map(lines_of), parts.map(str::len), ["bytes", "bytes"], sha256)
    }

    /// A text that was cut into parts, each with whether its end is open. `by` says what it was cut by, and what `sizes` count.
    fn of_parts(path: &Path, parts: [(Vec<String>, bool); 3], sizes: [usize; 3], by: [&str; 2], sha256: String) -> Result<Self, DataError> {
        let [by, unit] = by;
        if parts.iter().any(|(lines, _)| lines.iter().all(|line| line.trim().is_empty())) {
            return Err(DataError::empty(
                path,
                format!("too few lines to be cut 90/5/5 ({} {unit})", sizes.iter().sum::<usize>()),
                format!("use a longer text or provide {EXPECTED}"),
            ));
        }
        let name = path.file_name().unwrap_or_default().display();
        let split = format!("{name} cut 90/5/5 by {by}: {} / {} / {} {unit}", sizes[0], sizes[1], sizes[2]);
        let open_ends = parts.each_ref().map(|(_, is_open)| *is_open);
        let [train, valid, test] = parts.map(|(lines, _)| lines);
        Ok(Self { train, valid, test, open_ends, split, last_words: false, sha256 })
    }

    /// The tokens of training, validation and test text: the tokens of each line followed by `end`, except after a last line without a line end.
    pub fn tokens(&self, end: u32, encode: impl Fn(&str) -> Vec<u32>) -> [Vec<u32>; 3] {
        self.parts().map(|(lines, is_open)| {
            let mut tokens: Vec<u32> = lines.iter().flat_map(|line| encode(line).into_iter().chain([end])).collect();
            tokens.truncate(tokens.len() - usize::from(is_open));
            tokens
        })
    }

    /// Training, validation and test text in one piece each, with their line ends.
    pub fn texts(&self) -> [String; 3] {
        self.parts().map(|(lines, is_open)| {
            let mut text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            text.truncate(text.len() - usize::from(is_open));
            text
        })
    }

    /// Bytes of the test text, line ends included.
    pub fn test_bytes(&self) -> usize {
        self.test.iter().map(|line| line.len() + 1).sum::<usize>() - usize::from(self.open_ends[2])
    }

    fn parts(&self) -> [(&[String], bool); 3] {
        let [train, valid, test] = self.open_ends;
        [(&self.train, train), (&self.valid, valid), (&self.test, test)]
    }
}

fn characters(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count() + 1).sum()
}

/// Lines of a text of so many characters, by where they begin.
fn cut_at_line_ends(lines: Vec<String>) -> [Vec<String>; 3] {
    let total = characters(&lines);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    let mut before = 0;
    for line in lines {
        let part = usize::from(before * 100 >= total * 90) + usize::from(before * 100 >= total * 95);
        before += line.chars().count() + 1;
        parts[part].push(line);
    }
    parts
}

/// A text without its last twentieth, the twentieth before that, and the last one, by bytes; a character that is cut belongs to the part in which it begins.
fn cut_by_bytes(text: &str) -> [&str; 3] {
    let part = text.len() / 20;
    let [valid, test] = [2, 1].map(|parts| text.ceil_char_boundary(text.len() - parts * part));
    [&text[..valid], &text[valid..test], &text[test..]]
}

/// The lines of a text, and whether the last one is without a line end.
fn lines_of(text: &str) -> (Vec<String>, bool) {
    let (body, is_open) = text.strip_suffix('\n').map_or((text, true), |body| (body, false));
    (body.split('\n').map(str::to_owned).collect(), is_open)
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::folder;
    use super::*;

    fn message(files: &[(&str, &[u8])]) -> String {
        let dir = folder(files);
        TextCorpus::read(dir.path()).unwrap_err().to_string()
    }

    #[test]
    fn the_three_files_of_a_set_are_read_as_they_stand() {
        for (set, extension) in [("ptb", "txt"), ("wiki", "tokens")] {
            let train = format!("{set}.train.{extension}.gz");
            let valid = format!("{set}.valid.{extension}");
            let test = format!("{set}.test.{extension}");
            let dir = folder(&[(&train, b" a b \n\n c \n"), (&valid, b" v \n"), (&test, b" t \n"), ("README.txt", b"about")]);
            let corpus = TextCorpus::read(dir.path()).unwrap();
            assert_eq!(corpus.train, [" a b ", "", " c "]);
            assert_eq!((corpus.valid, corpus.test), (vec![" v ".to_string()], vec![" t ".to_string()]));
            assert!(corpus.split.contains(&train), "{}", corpus.split);
        }
    }

    #[test]
    fn a_single_file_is_cut_90_5_5_by_characters_without_loss() {
        // 200 lines of ü make bytes differ from characters; the first half of the lines is far longer than the second.
        let lines: Vec<String> = (0..200).map(|n| format!("{n} {}", "ü".repeat(if n < 100 { 40 } else { 4 }))).collect();
        let dir = folder(&[("input.txt.gz", (lines.join("\n") + "\n").as_bytes())]);
        let corpus = TextCorpus::read(dir.path()).unwrap();
        assert_eq!([corpus.train.clone(), corpus.valid.clone(), corpus.test.clone()].concat(), lines);
        let characters = |lines: &[String]| lines.iter().map(|line| line.chars().count() + 1).sum::<usize>() as f64;
        let total = characters(&lines);
        for (part, share) in [(&corpus.train, 0.90), (&corpus.valid, 0.05), (&corpus.test, 0.05)] {
            assert!((characters(part) / total - share).abs() < 0.01, "{} of {total}", characters(part));
        }
        assert!(corpus.split.contains("input.txt.gz cut 90/5/5"), "{}", corpus.split);
    }

    #[test]
    fn text8_is_cut_in_its_one_line_and_has_no_line_end() {
        let text: String = (0..200).map(|n| char::from(b'a' + n as u8 % 26)).collect();
        for name in ["text8", "text8.gz", "text8.txt", "enwik8.txt.gz"] {
            let corpus = TextCorpus::read(folder(&[(name, text.as_bytes())]).path()).unwrap();
            assert_eq!(corpus.texts(), [&text[..180], &text[180..190], &text[190..]]);
            assert_eq!((corpus.open_ends, corpus.test_bytes()), ([true; 3], 10));
            assert!(corpus.split.contains("cut 90/5/5 by bytes: 180 / 10 / 10 bytes"), "{}", corpus.split);
            let tokens = corpus.tokens(7, |line| line.bytes().map(u32::from).collect());
            assert_eq!(tokens.concat(), text.bytes().map(u32::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn enwik8_is_cut_by_bytes_and_keeps_a_character_whole_in_the_part_where_it_begins() {
        // Rows of another number of bytes for a character; what is before the cuts has more bytes for one than what is behind them.
        for (first, rest) in [("ä", "a"), ("a", "ä"), ("漢", "é"), ("𝄞", "z")] {
            for length in 1..40 {
                let line = |sign: &str| sign.repeat(length) + "\r\n";
                let text = line(first).repeat(30) + &line(rest).repeat(25);
                let corpus = TextCorpus::read(folder(&[("enwik8", text.as_bytes())]).path()).unwrap();
                let parts = corpus.texts();
                assert_eq!(parts.concat(), text);
                let twentieth = text.len() / 20;
                for (cut, published) in
                    [(parts[0].len(), text.len() - 2 * twentieth), (text.len() - parts[2].len(), text.len() - twentieth)]
                {
                    assert!((published..published + 4).contains(&cut), "{cut} instead of {published}");
                    assert_eq!(cut, text.ceil_char_boundary(published));
                }
                assert_eq!(corpus.test_bytes(), parts[2].len());
                assert_eq!(corpus.open_ends, parts.each_ref().map(|part| !part.ends_with('\n')));
            }
        }
        let broken = [b"a line\n".repeat(20), b"x \xff\n".to_vec()].concat();
        assert!(message(&[("enwik8", &broken)]).contains("line 21: byte 3"));
    }

    #[test]
    fn other_texts_end_with_a_line_end() {
        let text = "some words\n".repeat(40);
        let corpus = TextCorpus::read(folder(&[("input.txt", text.trim_end().as_bytes())]).path()).unwrap();
        assert_eq!((corpus.open_ends, corpus.texts().concat()), ([false; 3], text));
    }

    #[test]
    fn two_data_sets_in_one_folder_are_an_error_with_their_files() {
        let message = message(&[("ptb.train.txt", b"a\n"), ("wiki.train.tokens", b"a\n")]);
        assert!(message.contains("ptb.train.txt") && message.contains("wiki.train.tokens"), "{message}");
    }

    #[test]
    fn two_single_texts_and_two_forms_of_one_file_are_errors() {
        let singles = message(&[("input.txt", b"a\n"), ("other.txt", b"a\n")]);
        assert!(singles.contains("input.txt") && singles.contains("other.txt"), "{singles}");
        let forms = message(&[("a.train.txt", b"a\n"), ("a.train.txt.gz", b"a\n"), ("a.valid.txt", b"a\n"), ("a.test.txt", b"a\n")]);
        assert!(forms.contains("a.train.txt` and") && forms.contains("a.train.txt.gz"), "{forms}");
    }

    #[test]
    fn a_missing_split_is_an_error_that_names_the_file_expected() {
        let message = message(&[("ptb.train.txt", b"a\n"), ("ptb.test.txt", b"a\n")]);
        assert!(message.contains("ptb.valid.txt"), "{message}");
    }

    #[test]
    fn a_folder_without_text_is_an_error_that_says_what_was_expected() {
        let message = message(&[("data.csv", b"a\n")]);
        assert!(message.contains("wiki.train.tokens"), "{message}");
    }

    #[test]
    fn empty_or_too_short_text_is_an_error() {
        assert!(message(&[("a.train.txt", b"a\n"), ("a.valid.txt", b"\n"), ("a.test.txt", b"a\n")]).contains("a.valid.txt` holds no text"));
        assert!(message(&[("input.txt", b"one line\n")]).contains("too few lines"));
        assert!(message(&[("input.txt", b"")]).contains("too few lines"));
    }
}
