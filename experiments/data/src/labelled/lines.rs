//! A class and a text on each line.
//!
//! Columns of these names, or of others that are given, likewise (see [`columns`](crate::columns)).
//!
//! `train.tsv` or `train.txt`, and perhaps `test` and `dev`, `valid` or `val` likewise: the class (any word or number), a tab and the text, as SUBJ, MR and their
//! like are often stored; a first line `label<TAB>text` is taken for a header. The classes are those of the training file, in the order of the numbers if all
//! are numbers and else in that of the alphabet.
//!
//! `train_5500.label` and `TREC_10.label` (Li and Roth 2002): `DESC:manner How did serfdom develop ?`. The class is the coarse one before the colon. The
//! original training file is damaged in one place, `sister\xf0city`; this byte is read as a blank.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use heedful_host::checksum::sha256_hex;

use super::{DEVELOPMENT_NAMES, Folder, LabelledText, Parts, names};
use crate::files::{self, TextFile};
use crate::{Columns, DataError, columns};

/// A line, by its index in the file.
struct Line<'a> {
    index: usize,
    class: Cow<'a, str>,
    text: Cow<'a, str>,
}

/// Makes lines of a file.
type Parser<'p> = &'p dyn Fn(&TextFile) -> Result<Vec<Line<'_>>, DataError>;

/// Reads the set whose training file is `train`.
pub(super) fn read(folder: &Folder, train: &Path) -> Result<Parts, DataError> {
    let extensions = ["tsv", "txt"];
    let train = TextFile::read(train, "labelled texts")?;
    let dev = folder.optional(&names(&DEVELOPMENT_NAMES, &extensions))?;
    let test = folder.optional(&names(&["test"], &extensions))?;
    let one = |file: TextFile| vec![file];
    parts(folder.name(), one(train), dev.map(one), test.map(one), "class", &tabbed)
}

/// Reads the set whose files have columns of these names.
pub(super) fn read_columns(folder: &Folder, columns: &Columns) -> Result<Parts, DataError> {
    let train = columns::require_split(folder.dir, &folder.listed, &["train"])?;
    let dev = columns::read_split(&folder.listed, &columns::DEVELOPMENT)?;
    let test = columns::read_split(&folder.listed, &["test"])?;
    for files in [Some(&train), dev.as_ref(), test.as_ref()].into_iter().flatten() {
        if files.iter().all(|file| file.lines.is_empty()) {
            return Err(DataError::empty(&files[0].path, "no row", "restore it"));
        }
    }
    let line = |row: columns::Row<'_>| {
        let text = row.text(columns, "text")?;
        let class = row.field(columns, "label")?.word()?;
        match text.trim().is_empty() || class.is_empty() {
            true => Err(row.field(columns, if class.is_empty() { "label" } else { "text" })?.wrong("a text that is not empty")),
            false => Ok(Line { index: row.index, class: class.into(), text: text.into() }),
        }
    };
    let parts = parts(folder.name(), train, dev, test, columns.name("label"), &|file| columns::rows(file).map(|row| line(row?)).collect())?;
    Ok(Parts { sha256: columns.checksum(parts.sha256), ..parts })
}

/// Reads the questions of TREC whose training file is `train`.
pub(super) fn read_questions(folder: &Folder, train: &Path) -> Result<Parts, DataError> {
    let is_test = |name: &str| (name.starts_with("TREC") || name.starts_with("test")) && name.ends_with(".label");
    let test = files::only(files::fitting(&folder.listed, is_test), "the test set")?
        .ok_or_else(|| DataError::missing(folder.dir, "the test set", "TREC_10.label"))?;
    parts("TREC".to_owned(), vec![questions(train)?], None, Some(vec![questions(&test)?]), "class", &coarse)
}

/// Reads a file of questions, with its one byte that is not text as a blank.
fn questions(path: &Path) -> Result<TextFile, DataError> {
    let file = TextFile::read(path, "questions");
    if !matches!(file, Err(DataError::InvalidUtf8 { .. })) {
        return file;
    }
    let stored = fs::read(path).map_err(|cause| DataError::Unreadable { path: path.to_path_buf(), cause })?;
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
    let mut bytes = if is_compressed { files::decompress(path, &stored)? } else { stored.clone() };
    bytes.iter_mut().filter(|byte| **byte == 0xf0).for_each(|byte| *byte = b' ');
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let repaired = TextFile::from_bytes(path.to_path_buf(), name.trim_end_matches(".gz").to_owned(), &bytes)?;
    Ok(TextFile { sha256: sha256_hex(&stored), name, ..repaired })
}

fn parts(
    name: String,
    train: Vec<TextFile>,
    dev: Option<Vec<TextFile>>,
    test: Option<Vec<TextFile>>,
    field: &str,
    parse: Parser<'_>,
) -> Result<Parts, DataError> {
    let lines: Vec<Line<'_>> = train.iter().map(parse).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let mut classes: Vec<&str> = lines.iter().map(|line| &*line.class).collect::<BTreeSet<_>>().into_iter().collect();
    if classes.iter().all(|class| class.parse::<u64>().is_ok()) {
        classes.sort_by_key(|class| class.parse::<u64>().ok());
    }
    let numbers: HashMap<&str, usize> = (0..).zip(&classes).map(|(number, class)| (*class, number)).collect();
    let texts_of_file = |file: &TextFile| -> Result<Vec<LabelledText>, DataError> {
        let labelled = |line: Line| match numbers.get(&*line.class) {
            Some(&class) => Ok(LabelledText { text: line.text.into_owned(), class }),
            None => Err(file.wrong(line.index, field, &line.class, &format!("a class of {} ({})", train[0].name, classes.join(", ")))),
        };
        parse(file)?.into_iter().map(labelled).collect()
    };
    let texts = |files: &Vec<TextFile>| {
        Ok::<_, DataError>(files.iter().map(texts_of_file).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    let read: Vec<&TextFile> = [Some(&train), dev.as_ref(), test.as_ref()].into_iter().flatten().flatten().collect();
    Ok(Parts {
        name,
        train: texts(&train)?,
        dev: dev.as_ref().map(texts).transpose()?,
        test: test.as_ref().map(texts).transpose()?,
        source: read.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", "),
        sha256: files::combined_sha256(read),
        classes: classes.iter().copied().map(str::to_owned).collect(),
    })
}

fn tabbed(file: &TextFile) -> Result<Vec<Line<'_>>, DataError> {
    let header = usize::from(file.lines.first().is_some_and(|line| line == "label\ttext"));
    let mut lines = Vec::with_capacity(file.lines.len());
    for (index, line) in file.lines.iter().enumerate().skip(header) {
        let fields: Vec<&str> = line.splitn(3, '\t').map(str::trim).collect();
        match fields[..] {
            [class, text] if !class.is_empty() && !text.is_empty() => lines.push(Line { index, class: class.into(), text: text.into() }),
            _ => return Err(file.wrong(index, "text", line, "a class, one tab and a text")),
        }
    }
    Ok(lines)
}

fn coarse(file: &TextFile) -> Result<Vec<Line<'_>>, DataError> {
    let line = |(index, line)| {
        let line: &String = line;
        let (class, text) =
            line.split_once(' ').and_then(|(label, text)| Some((label.split_once(':')?.0, text.trim()))).unwrap_or_default();
        match class.is_empty() || text.is_empty() {
            true => Err(file.wrong(index, "class", line, "a class as in `DESC:manner`, a blank and a question")),
            false => Ok(Line { index, class: class.into(), text: text.into() }),
        }
    };
    file.lines.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{message, read};
    use super::*;
    use crate::files::tests::gzip;
    use crate::text_pairs::tests::survives;

    const QUESTIONS: &str = "DESC:manner How did serfdom develop ?\nENTY:cremat What films featured Popeye Doyle ?\nHUM:ind Who ?\n";

    fn text(text: &str, class: usize) -> LabelledText {
        LabelledText { text: text.to_owned(), class }
    }

    #[test]
    fn classes_are_those_of_training_in_numerical_or_alphabetical_order() {
        for (classes, order) in [(["10", "9"], ["9", "10"]), (["b", "a"], ["a", "b"]), (["10", "9a"], ["10", "9a"])] {
            let train = format!("label\ttext\n{}\tone\n{}\t two \"x\n", classes[0], classes[1]);
            let data =
                read(&[("train.txt", train.as_bytes()), ("valid.txt", &train.as_bytes()[11..]), ("test.txt", train.as_bytes())]).unwrap();
            assert_eq!(data.classes, order);
            let number = |class| order.iter().position(|other| *other == class).unwrap();
            assert_eq!(data.train, [text("one", number(classes[0])), text("two \"x", number(classes[1]))]);
            assert_eq!((&data.dev, &data.test), (&data.train, &data.train));
        }
    }

    #[test]
    fn questions_have_their_coarse_class_and_a_damaged_byte_is_a_blank() {
        let mut train = QUESTIONS.repeat(5).into_bytes();
        train.extend(b"LOC:city What is the sister\xf0city ?\n");
        let plain: [(&str, &[u8]); 2] = [("train_5500.label", &train), ("TREC_10.label", QUESTIONS.as_bytes())];
        let data = read(&plain).unwrap();
        assert_eq!((data.name.as_str(), data.classes.join(" ")), ("TREC", "DESC ENTY HUM LOC".to_owned()));
        assert_eq!(data.test[1], text("What films featured Popeye Doyle ?", 1));
        assert!(data.train.iter().chain(&data.dev).any(|found| *found == text("What is the sister city ?", 3)));
        let packed = read(&[("train_5500.label.gz", &train), plain[1]]).unwrap();
        assert_eq!((&packed.train, &packed.dev), (&data.train, &data.dev));
        // The checksum is that of the stored bytes, the damaged one among them.
        let stored =
            |name: &str, bytes: &[u8]| TextFile { name: name.into(), ..TextFile::from_bytes("a".into(), "a".into(), bytes).unwrap() };
        let sum = |name: &str, bytes: &[u8]| sha256_hex(bytes) + "  " + name + "\n";
        let test = stored("TREC_10.label", QUESTIONS.as_bytes());
        let entries = [sum(&test.name, QUESTIONS.as_bytes()), sum("train_5500.label.gz", &gzip(&train))];
        let mut sorted = entries.to_vec();
        sorted.sort();
        assert_eq!(packed.sha256, sha256_hex(sorted.concat().as_bytes()));
        assert_eq!(test.sha256, sha256_hex(QUESTIONS.as_bytes()));
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for line in ["a", "\ttext", "a\t", "a\tb\tc", "", "a \t "] {
            let train = format!("a\tx\n{line}\na\tx\n");
            let error = message(&[("train.tsv", train.as_bytes()), ("test.tsv", b"a\tx\n")]);
            assert!(error.contains("train.tsv`, line 2") && error.contains("one tab"), "{line}: {error}");
        }
        for line in ["DESC:manner", "DESC How ?", ":x How ?", "DESC:x  ", ""] {
            let train = format!("{QUESTIONS}{line}\n{QUESTIONS}");
            let error = message(&[("train_5500.label", train.as_bytes()), ("TREC_10.label", QUESTIONS.as_bytes())]);
            assert!(error.contains("train_5500.label`, line 4") && error.contains("DESC:manner"), "{line}: {error}");
        }
        let unknown = message(&[("train.tsv", b"a\tx\nb\ty\n"), ("test.tsv", b"a\tx\nc\tz\n")]);
        assert!(unknown.contains("test.tsv`, line 2, field `class`: `c` is not a class of train.tsv (a, b)"), "{unknown}");
        assert!(message(&[("train_5500.label", QUESTIONS.as_bytes())]).contains("TREC_10.label"));
        let invalid = message(&[("train_5500.label", b"A:b x\nA:b \xff\n"), ("TREC_10.label", QUESTIONS.as_bytes())]);
        assert!(invalid.contains("line 2") && invalid.contains("UTF-8"), "{invalid}");
    }

    #[test]
    fn damaged_files_are_read_within_bounds_or_refused() {
        let subjectivity = "0\tthe movie begins in the past\n1\tsmart and alert\n".repeat(4);
        for (original, parse) in [(subjectivity.as_str(), &tabbed as Parser<'_>), (QUESTIONS, &coarse)] {
            survives(original, 1, |file| Ok(parse(file)?.iter().map(|line| line.class.len() + line.text.len()).sum()));
        }
    }
}
