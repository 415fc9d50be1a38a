//! Documents and their summaries.
//!
//! Four layouts are read:
//! - **Line-aligned files**: line n of `train.target` summarises line n of `train.source`, likewise for `val` (`valid`, `dev`) and `test` (CNN/DailyMail and
//!   XSum as prepared for fairseq's BART), or the same with `.document` and `.summary`.
//! - **Tables**: `train.tsv`, `val.tsv` and `test.tsv` with a document, a tab and its summary on each line.
//! - **One table** under any name, cut 80/10/10 in line order.
//! - **Stories** of CNN/DailyMail (`stories.rs`), if there is none of the other layouts.
//!
//! A first line `document<TAB>summary` is the header of a table. Texts are kept unchanged; the experiment shortens documents, in tokens.
//!
//! ROUGE-Lsum (Lin 2004, section 3.2) compares sentence by sentence and expects one sentence per line. Files with a whole text per line mark its sentences:
//! `<t> first . </t> <t> second . </t>`, or `\n` written as two characters between them. [`with_line_ends`] turns both kinds of mark into line ends. Use it on
//! references and on generated texts, since a model learns the marks along with the words.

use std::path::{Path, PathBuf};

use super::DataError;
use super::files::{self, TextFile};
use super::parallel::{Pair, ParallelCorpus};
use super::text_pairs::{self, LinePair, TextPairs};

pub(crate) mod stories;

const SIDES: [[&str; 2]; 2] = [["source", "target"], ["document", "summary"]];
const COLUMNS: [&str; 2] = ["document", "summary"];
const VALIDATION_TABLES: [&str; 3] = ["val.tsv", "valid.tsv", "dev.tsv"];
const EXPECTED: &str = "train.source and train.target, train.document and train.summary, or train.tsv (val and test likewise), or one .tsv file, \
                        or .story files";

/// Reads the one data set in the folder `dir`, plain or `.gz`. A training or validation pair with an empty side is left out and counted.
///
/// # Errors
/// [`DataError::Ambiguous`] (several layouts, or two files for one part), [`DataError::MissingPart`], [`DataError::FieldCount`] (a line of a table that has
/// not two fields), [`DataError::FieldValue`] (a listed story that is not there), [`DataError::Empty`], those of [`ParallelCorpus::read`] and
/// [`TextFile::read`].
pub fn read(dir: &Path) -> Result<TextPairs, DataError> {
    let listed = files::list(dir, "a folder of documents and summaries")?;
    let with_extension = |extension: &str| files::fitting(&listed, |name| name.rsplit_once('.').is_some_and(|(_, last)| last == extension));
    let sides: Vec<[&str; 2]> = SIDES.into_iter().filter(|[source, _]| !with_extension(source).is_empty()).collect();
    let tables = with_extension("tsv");
    match (&sides[..], tables.is_empty()) {
        ([[source, target]], true) => {
            let corpus = ParallelCorpus::read(dir, source, target)?;
            Ok(TextPairs { corpus, split: format!("as distributed: .{source} and .{target} files") })
        }
        ([], false) => Tables { dir, listed: &listed, read: Vec::new() }.pairs(tables),
        ([], true) => stories::read(dir)?.ok_or_else(|| DataError::missing(dir, "documents and summaries", EXPECTED)),
        _ => {
            let files = sides.iter().flat_map(|[source, _]| with_extension(source)).chain(tables).collect();
            Err(DataError::Ambiguous { part: "one set of documents and summaries".to_owned(), files })
        }
    }
}

/// The sentences of a marked text, one on each line, without marks. A text without marks stays one line.
pub fn with_line_ends(text: &str) -> String {
    let text = text.replace("<t>", "\n").replace("</t>", "\n").replace("\\n", "\n");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A folder with tables.
struct Tables<'a> {
    dir: &'a Path,
    listed: &'a files::Listed,
    read: Vec<TextFile>,
}

impl Tables<'_> {
    fn pairs(mut self, tables: Vec<PathBuf>) -> Result<TextPairs, DataError> {
        let mut skipped = Vec::new();
        let (train, valid, tests, split) = if let [path] = &tables[..] {
            let pairs = self.table(path)?;
            let file = &self.read[0];
            let [train, valid, test] = text_pairs::cut(file, "lines", pairs)?;
            let split = format!("{} cut 80/10/10 in file order: {} / {} / {} lines", file.name, train.len(), valid.len(), test.len());
            let train = text_pairs::usable(file, train, &mut skipped)?;
            let valid = text_pairs::usable(file, valid, &mut skipped)?;
            (train, valid, vec![("test".to_owned(), text_pairs::without_lines(test))], split)
        } else {
            let mut usable = |names: &[&str]| {
                let pairs = self.part(names)?;
                text_pairs::usable(&self.read[self.read.len() - 1], pairs, &mut skipped)
            };
            let (train, valid) = (usable(&["train.tsv"])?, usable(&VALIDATION_TABLES)?);
            let mut tests = Vec::new();
            for name in self.listed.keys().filter(|name| name.starts_with("test") && name.ends_with(".tsv")) {
                let pairs = self.part(&[name])?;
                tests.push((name.trim_end_matches(".tsv").to_owned(), text_pairs::without_lines(pairs)));
            }
            let names: Vec<_> = self.read.iter().map(|file| file.name.as_str()).collect();
            (train, valid, tests, format!("as distributed: {}", names.join(", ")))
        };
        let [source_language, target_language] = COLUMNS.map(str::to_owned);
        let sha256 = files::combined_sha256(&self.read);
        Ok(TextPairs { corpus: ParallelCorpus { source_language, target_language, train, valid, tests, skipped, sha256 }, split })
    }

    fn part(&mut self, names: &[&str]) -> Result<Vec<LinePair>, DataError> {
        let expected = names.join(" or ");
        let forms = names.iter().filter_map(|name| self.listed.get(*name)).flatten().cloned().collect();
        match files::only(forms, &expected)? {
            Some(path) => self.table(&path),
            None => Err(DataError::missing(self.dir, "a part of the summaries", expected)),
        }
    }

    fn table(&mut self, path: &Path) -> Result<Vec<LinePair>, DataError> {
        let file = TextFile::read(path, "documents and summaries")?;
        let pairs = table(&file)?;
        self.read.push(file);
        Ok(pairs)
    }
}

fn table(file: &TextFile) -> Result<Vec<LinePair>, DataError> {
    let lines = (1..).zip(&file.lines).skip(usize::from(file.lines.first().is_some_and(|line| *line == COLUMNS.join("\t"))));
    let pair = |(line, text): (usize, &String)| match text.split_once('\t') {
        Some((document, summary)) if !summary.contains('\t') => {
            Ok((line, Pair { source: document.to_owned(), target: summary.to_owned() }))
        }
        _ => Err(DataError::FieldCount {
            path: file.path.clone(),
            line,
            found: text.split('\t').count(),
            expected: COLUMNS.len(),
            field: COLUMNS[1].to_owned(),
            columns: COLUMNS.map(str::to_owned).to_vec(),
        }),
    };
    lines.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::folder;
    use super::super::parallel::tests::pair;
    use super::super::text_pairs::tests::survives;
    use super::*;

    fn message(files: &[(&str, &[u8])]) -> String {
        read(folder(files).path()).unwrap_err().to_string()
    }

    #[test]
    fn aligned_files_are_read_under_both_pairs_of_names() {
        for [source, target] in SIDES {
            let names = |split: &str| [format!("{split}.{source}"), format!("{split}.{target}.gz")];
            let [train, val, test] = ["train", "val", "test"].map(names);
            let dir = folder(&[
                (&train[0], b"a long text .\n"),
                (&train[1], b"text\n"),
                (&val[0], b"b\n"),
                (&val[1], b"B\n"),
                (&test[0], b"c\n\n"),
                (&test[1], b"C\nD\n"),
            ]);
            let data = read(dir.path()).unwrap();
            assert_eq!(data.corpus.train, [pair("a long text .", "text")]);
            assert_eq!(data.corpus.tests, [("test".to_owned(), vec![pair("c", "C"), pair("", "D")])]);
            assert!(data.split.contains(source), "{}", data.split);
        }
    }

    #[test]
    fn three_tables_are_read_with_and_without_header() {
        let dir =
            folder(&[("train.tsv", b"document\tsummary\na \"b\ta\n\tempty\n"), ("dev.tsv.gz", b"c\td\n"), ("test_a.tsv", b"e\tf\n\t\n")]);
        let TextPairs { corpus, split } = read(dir.path()).unwrap();
        assert_eq!((corpus.train, corpus.valid), (vec![pair("a \"b", "a")], vec![pair("c", "d")]));
        assert_eq!(corpus.skipped[0].lines, [3], "lines count from the start of the file");
        assert_eq!(corpus.tests, [("test_a".to_owned(), vec![pair("e", "f"), pair("", "")])]);
        assert_eq!(split, "as distributed: train.tsv, dev.tsv.gz, test_a.tsv");
    }

    #[test]
    fn a_single_table_is_cut_in_file_order() {
        let text: String = (0..20).map(|n| format!("document {n}\tsummary {n}\n")).collect();
        let TextPairs { corpus, split } = read(folder(&[("pairs.tsv.gz", text.as_bytes())]).path()).unwrap();
        assert_eq!([corpus.train.len(), corpus.valid.len(), corpus.tests[0].1.len()], [16, 2, 2]);
        assert_eq!(corpus.valid[0], pair("document 16", "summary 16"));
        assert!(split.contains("pairs.tsv.gz cut 80/10/10") && split.contains("16 / 2 / 2"), "{split}");
    }

    #[test]
    fn marks_of_sentences_become_line_ends() {
        for (text, lines) in [
            ("<t> one . </t> <t> two . </t>", "one .\ntwo ."),
            ("one . \\n two .", "one .\ntwo ."),
            ("one .\ntwo .", "one .\ntwo ."),
            ("<t> one . <t> two", "one .\ntwo"),
            ("one . two .", "one . two ."),
            ("</t> \\n", ""),
        ] {
            assert_eq!(with_line_ends(text), lines, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_file_line_and_field() {
        let good = b"a\tb\n";
        let three: [(&str, &[u8]); 3] = [("train.tsv", good), ("val.tsv", good), ("test.tsv", b"a\tb\nc\n")];
        assert!(message(&three).contains("test.tsv`, line 2: 1 tab-separated fields where 2 belong"), "{}", message(&three));
        let three: [(&str, &[u8]); 2] = [("train.tsv", b"a\tb\tc\n"), ("val.tsv", good)];
        assert!(message(&three).contains("train.tsv`, line 1: 3 tab-separated"), "{}", message(&three));
        assert!(message(&[("train.tsv", good), ("test.tsv", good)]).contains("val.tsv or valid.tsv or dev.tsv"));
        assert!(message(&[("only.tsv", good)]).contains("too few lines"));
        assert!(message(&[("notes.txt", good)]).contains("train.source"));
        let two = message(&[("train.source", good), ("train.tsv", good)]);
        assert!(two.contains("train.source`") && two.contains("train.tsv`"), "{two}");
        let two = message(&[("train.tsv", good), ("val.tsv", good), ("dev.tsv", good)]);
        assert!(two.contains("val.tsv`") && two.contains("dev.tsv`"), "{two}");
    }

    #[test]
    fn damaged_tables_are_read_within_bounds_or_refused() {
        survives(&"a long text .\ta text\nmore of it\tit\n".repeat(4), 1, |file| {
            let pairs = table(file)?;
            pairs.iter().for_each(|(_, pair)| assert!(with_line_ends(&pair.target).len() <= 2 * pair.target.len()));
            Ok(pairs.iter().map(|(_, pair)| pair.source.len() + pair.target.len()).sum())
        });
    }
}
