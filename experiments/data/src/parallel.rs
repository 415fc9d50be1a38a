//! Line-aligned parallel text for translation.
//!
//! A folder holds one file per split and language: line n of `train.en` translates line n of `train.de`. A file's split is its name up to the first
//! dot, its language the last extension before `.gz`; anything between (`train.lc.norm.tok.en.gz`) is ignored. Covered: the layouts of Multi30k,
//! small_parallel_enja and the WMT and IWSLT folders that follow this scheme, the original files of IWSLT (`iwslt.rs`), and columns (see
//! [`columns`]): `train`, `validation` and `test*` as JSON lines or Parquet, with columns named by the languages, in the rows or in an object `translation`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::files::{self, Listed, TextFile};
use super::{Columns, DataError, columns};

mod iwslt;

const VALIDATION_NAMES: [&str; 3] = ["val", "valid", "dev"];

/// A sentence and its translation, as they stand in the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Sentence of the source language.
    pub source: String,
    /// Its translation.
    pub target: String,
}

/// Pairs of one split that were left out because a side was empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPairs {
    /// Name of the source file.
    pub source_file: String,
    /// Name of the target file.
    pub target_file: String,
    /// The lines left out, from 1.
    pub lines: Vec<usize>,
}

/// Parallel text with its splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParallelCorpus {
    /// Language of the source side, as in the file names.
    pub source_language: String,
    /// Language of the target side.
    pub target_language: String,
    /// Training pairs; no side is empty.
    pub train: Vec<Pair>,
    /// Validation pairs; no side is empty.
    pub valid: Vec<Pair>,
    /// Test sets by name, in name order. Pair n is line n of the files, empty sides included, because hypotheses are written one line per sentence.
    pub tests: Vec<(String, Vec<Pair>)>,
    /// What was left out of training and validation; one entry for each file pair concerned.
    pub skipped: Vec<SkippedPairs>,
    /// Combined SHA-256 of the files read (see [`files::combined_sha256`]).
    pub sha256: String,
}

impl ParallelCorpus {
    /// Reads the languages `source` and `target` (file name extensions such as `en`) from the folder `dir`.
    ///
    /// Training text is `train.*`, validation text `val.*`, `valid.*` or `dev.*`, and every `test*` that exists in both languages is a test set.
    /// The original files of IWSLT are `train.tags.SRC-TGT.*` and `.xml`: every set `dev*` that exists in both languages is for validation, every other one is
    /// a test set.
    ///
    /// A training or validation pair with an empty side is left out, counted in [`skipped`](Self::skipped) and reported in one warning per file pair.
    ///
    /// # Errors
    /// [`DataError::MissingLanguage`] (with the languages found), [`DataError::MissingPart`], [`DataError::Ambiguous`] (two files for one split),
    /// [`DataError::LineCounts`], [`DataError::Empty`] (no usable pair), and those of [`TextFile::read`].
    pub fn read(dir: &Path, source: &str, target: &str) -> Result<Self, DataError> {
        Self::read_columns(dir, source, target, &Columns::default())
    }

    /// The roles of [`Columns`].
    pub const COLUMNS: &[&str] = &["source", "target"];

    /// The same from columns of other names, whose roles are [`COLUMNS`](Self::COLUMNS).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); [`DataError::NoColumn`], [`DataError::Shards`], [`DataError::Parquet`], and [`DataError::NoNamedColumns`] where the files have no
    /// columns.
    pub fn read_columns(dir: &Path, source: &str, target: &str, columns: &Columns) -> Result<Self, DataError> {
        let listed = files::list(dir, "a folder of parallel text (train.SRC, train.TGT, ...)")?;
        if columns::is_in(&listed) {
            let lines = listed.iter().filter(|(name, _)| name.starts_with("train.") && !columns::is_of_split(name, "train"));
            let lines: Vec<PathBuf> = lines.flat_map(|(_, forms)| forms.clone()).collect();
            if !lines.is_empty() {
                let files = columns::find_split(&listed, &["train"])?.into_iter().chain(lines).collect();
                return Err(DataError::Ambiguous { part: "one training text".to_owned(), files });
            }
            return of_columns(dir, &listed, [source, target], columns);
        }
        columns.refuse_without_columns(dir)?;
        if iwslt::is_in(&listed) {
            return iwslt::read(dir, &listed, source, target);
        }
        let folder = Folder::of(dir, listed);
        for language in [source, target] {
            folder.require_language(language)?;
        }
        let mut read = Vec::new();
        let mut skipped = Vec::new();
        let mut usable = |splits: &[&str]| -> Result<Vec<Pair>, DataError> {
            let files = [source, target].map(|language| folder.required(splits, language));
            let [source_file, target_file] = files;
            let (pairs, files) = aligned(&source_file?, &target_file?)?;
            let pairs = without_empty(pairs, &files, &mut skipped)?;
            read.extend(files);
            Ok(pairs)
        };
        let train = usable(&["train"])?;
        let valid = usable(&VALIDATION_NAMES)?;
        let mut tests = Vec::new();
        for name in folder.test_names() {
            let files = (folder.file(&[name], source)?, folder.file(&[name], target)?);
            if let (Some(source_file), Some(target_file)) = files {
                let (pairs, files) = aligned(&source_file, &target_file)?;
                check_test_pairs(&pairs, &files)?;
                read.extend(files);
                tests.push((name.to_string(), pairs));
            }
        }
        let sha256 = files::combined_sha256(&read);
        Ok(Self { source_language: source.to_string(), target_language: target.to_string(), train, valid, tests, skipped, sha256 })
    }
}

/// Parallel text with a column for each language.
fn of_columns(dir: &Path, listed: &Listed, languages: [&str; 2], columns: &Columns) -> Result<ParallelCorpus, DataError> {
    let of_file = |file: &TextFile| -> Result<Vec<Pair>, DataError> {
        let pair = |row: columns::Row<'_>| {
            let side = |role: &str, language: &str| {
                let within = format!("translation.{language}");
                let usual = if row.has("translation") { &within } else { language };
                let column = columns.given(role).unwrap_or(usual);
                Ok::<_, DataError>(row.field_named(role, column)?.text()?.to_owned())
            };
            Ok(Pair { source: side("source", languages[0])?, target: side("target", languages[1])? })
        };
        columns::rows(file).map(|row| pair(row?)).collect()
    };
    let (mut read, mut skipped) = (Vec::new(), Vec::new());
    let mut usable = |names: &[&str]| -> Result<Vec<Pair>, DataError> {
        let mut pairs = Vec::new();
        for file in columns::require_split(dir, listed, names)? {
            let both = [TextFile { lines: Vec::new(), ..file.clone() }, TextFile { lines: Vec::new(), ..file.clone() }];
            pairs.extend(without_empty(of_file(&file)?, &both, &mut skipped)?);
            read.extend(both);
        }
        Ok(pairs)
    };
    let (train, valid) = (usable(&["train"])?, usable(&columns::DEVELOPMENT)?);
    let mut tests = Vec::new();
    for name in columns::splits(listed, "test") {
        let files = columns::require_split(dir, listed, &[name])?;
        let pairs = files.iter().map(of_file).collect::<Result<Vec<_>, _>>()?.concat();
        check_test_pairs(&pairs, &[files[0].clone(), files[0].clone()])?;
        tests.push((name.to_owned(), pairs));
        read.extend(files);
    }
    let sha256 = columns.checksum(files::combined_sha256(&read));
    let [source_language, target_language] = languages.map(str::to_owned);
    Ok(ParallelCorpus { source_language, target_language, train, valid, tests, skipped, sha256 })
}

/// The files of a folder by split and language.
struct Folder {
    dir: PathBuf,
    files: BTreeMap<(String, String), Vec<PathBuf>>,
}

impl Folder {
    fn of(dir: &Path, listed: Listed) -> Self {
        let mut files: BTreeMap<_, Vec<PathBuf>> = BTreeMap::new();
        for (name, forms) in listed {
            if let Some((split, rest)) = name.split_once('.')
                && (split == "train" || split.starts_with("test") || VALIDATION_NAMES.contains(&split))
            {
                let language = rest.rsplit('.').next().unwrap_or(rest).to_string();
                files.entry((split.to_string(), language)).or_default().extend(forms);
            }
        }
        Self { dir: dir.to_path_buf(), files }
    }

    fn require_language(&self, language: &str) -> Result<(), DataError> {
        let found: BTreeSet<&String> = self.files.keys().map(|(_, language)| language).collect();
        if found.iter().any(|found| *found == language) {
            return Ok(());
        }
        let found = found.into_iter().cloned().collect();
        Err(DataError::MissingLanguage { dir: self.dir.clone(), language: language.to_string(), found })
    }

    fn file(&self, splits: &[&str], language: &str) -> Result<Option<PathBuf>, DataError> {
        let forms = splits.iter().filter_map(|split| self.files.get(&(split.to_string(), language.to_string())));
        files::only(forms.flatten().cloned().collect(), &format!("the {} text in language `{language}`", splits.join("/")))
    }

    fn required(&self, splits: &[&str], language: &str) -> Result<PathBuf, DataError> {
        self.file(splits, language)?.ok_or_else(|| {
            DataError::missing(
                &self.dir,
                format!("the {} text in language `{language}`", splits.join("/")),
                splits.iter().map(|split| format!("{split}.{language}")).collect::<Vec<_>>().join(" or "),
            )
        })
    }

    fn test_names(&self) -> BTreeSet<&str> {
        self.files.keys().map(|(split, _)| split.as_str()).filter(|split| split.starts_with("test")).collect()
    }
}

fn aligned(source_file: &Path, target_file: &Path) -> Result<(Vec<Pair>, [TextFile; 2]), DataError> {
    let source = TextFile::read(source_file, "the source side of parallel text")?;
    let target = TextFile::read(target_file, "the target side of parallel text")?;
    same_number("lines", [&source, &target], source.lines.len(), target.lines.len())?;
    let pairs = source.lines.iter().zip(&target.lines).map(|(source, target)| Pair { source: source.clone(), target: target.clone() });
    Ok((pairs.collect(), [source, target]))
}

/// Fails unless both sides have as many of a unit.
fn same_number(unit: &'static str, [source, target]: [&TextFile; 2], source_lines: usize, target_lines: usize) -> Result<(), DataError> {
    if source_lines == target_lines {
        return Ok(());
    }
    let (source_file, target_file) = (source.path.clone(), target.path.clone());
    Err(DataError::LineCounts { unit, source_file, source_lines, target_file, target_lines })
}

impl Pair {
    pub(super) fn has_empty_side(&self) -> bool {
        self.source.trim().is_empty() || self.target.trim().is_empty()
    }
}

fn without_empty(pairs: Vec<Pair>, [source, target]: &[TextFile; 2], skipped: &mut Vec<SkippedPairs>) -> Result<Vec<Pair>, DataError> {
    let lines: Vec<usize> = (1..).zip(&pairs).filter(|(_, pair)| pair.has_empty_side()).map(|(line, _)| line).collect();
    let kept: Vec<Pair> = pairs.into_iter().filter(|pair| !pair.has_empty_side()).collect();
    if kept.is_empty() {
        return Err(DataError::empty(&source.path, "no line that has text on both sides", format!("restore it and `{}`", target.name)));
    }
    if let Some(first) = lines.first() {
        tracing::warn!("{} and {}: skipped {} pairs with an empty side, the first in line {first}", source.name, target.name, lines.len());
        skipped.push(SkippedPairs { source_file: source.name.clone(), target_file: target.name.clone(), lines });
    }
    Ok(kept)
}

/// Refuses a test set without pairs, which has no score, and warns of empty sides.
fn check_test_pairs(pairs: &[Pair], [source, target]: &[TextFile; 2]) -> Result<(), DataError> {
    if pairs.is_empty() {
        return Err(DataError::empty(&source.path, "no test pair", "restore it or remove it"));
    }
    let count = pairs.iter().filter(|pair| pair.has_empty_side()).count();
    if count > 0 {
        tracing::warn!("{} and {}: {count} test pairs with an empty side, kept so that line numbers agree", source.name, target.name);
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::files::tests::folder;
    use super::*;

    pub(crate) fn pair(source: &str, target: &str) -> Pair {
        Pair { source: source.to_string(), target: target.to_string() }
    }

    fn message(files: &[(&str, &[u8])]) -> String {
        let dir = folder(files);
        ParallelCorpus::read(dir.path(), "en", "de").unwrap_err().to_string()
    }

    #[test]
    fn plain_compressed_and_infixed_names_are_read() {
        let dir = folder(&[
            ("train.lc.norm.tok.en.gz", b"a\nb\n"),
            ("train.lc.norm.tok.de", b"A\nB\n"),
            ("dev.en", b"c\r\n"),
            ("dev.de.gz", b"C\n"),
            ("test_b.en", b"d\n"),
            ("test_b.de", b"D\n"),
            ("test_a.tok.en", b"e\n"),
            ("test_a.de", b"E\n"),
            ("test_c.en", b"no partner\n"),
            ("test_a.fr", b"other language\n"),
            ("README.md", b"not text\n"),
        ]);
        let corpus = ParallelCorpus::read(dir.path(), "en", "de").unwrap();
        assert_eq!(corpus.train, [pair("a", "A"), pair("b", "B")]);
        assert_eq!(corpus.valid, [pair("c", "C")]);
        let tests = [("test_a".to_string(), vec![pair("e", "E")]), ("test_b".to_string(), vec![pair("d", "D")])];
        assert_eq!(corpus.tests, tests);
        assert_eq!(corpus.skipped, []);
        let reversed = ParallelCorpus::read(dir.path(), "de", "en").unwrap();
        assert_eq!(reversed.train[0], pair("A", "a"));
        assert_eq!(reversed.sha256, corpus.sha256, "the same files were read");
    }

    #[test]
    fn empty_sides_are_skipped_in_training_and_kept_in_tests() {
        let dir = folder(&[
            ("train.en", b"a\n\nc\n \ne\n"),
            ("train.de", b"A\nB\n\n\nE\n"),
            ("val.en", b"v\n"),
            ("val.de", b"V\n"),
            ("test.en", b"a\n\nc\n"),
            ("test.de", b"A\nB\n\n"),
        ]);
        let corpus = ParallelCorpus::read(dir.path(), "en", "de").unwrap();
        assert_eq!(corpus.train, [pair("a", "A"), pair("e", "E")]);
        let skipped = SkippedPairs { source_file: "train.en".to_string(), target_file: "train.de".to_string(), lines: vec![2, 3, 4] };
        assert_eq!(corpus.skipped, [skipped]);
        assert_eq!(corpus.tests[0].1, [pair("a", "A"), pair("", "B"), pair("c", "")]);
    }

    #[test]
    fn a_test_set_without_pairs_is_refused() {
        let base: [(&str, &[u8]); 4] = [("train.en", b"a\n"), ("train.de", b"A\n"), ("val.en", b"v\n"), ("val.de", b"V\n")];
        let message = message(&[&base[..], &[("test.en", b""), ("test.de", b"")]].concat());
        assert!(message.contains("test.en` holds no test pair"), "{message}");
    }

    #[test]
    fn different_line_counts_are_an_error_with_both_files_and_counts() {
        let message = message(&[("train.en", b"a\nb\n"), ("train.de", b"A\n"), ("val.en", b"v\n"), ("val.de", b"V\n")]);
        assert!(message.contains("train.en` has 2 lines") && message.contains("train.de` has 1"), "{message}");
    }

    #[test]
    fn two_files_for_one_split_are_an_error_with_both_names() {
        let base: [(&str, &[u8]); 4] = [("train.en", b"a\n"), ("train.de", b"A\n"), ("val.en", b"v\n"), ("val.de", b"V\n")];
        for second in ["train.tok.en", "train.en.gz"] {
            let message = message(&[&base[..], &[(second, b"a\n")]].concat());
            assert!(message.contains("train.en`") && message.contains(&format!("{second}`")), "{message}");
        }
        let message = message(&[&base[..], &[("dev.en", b"v\n")]].concat());
        assert!(message.contains("dev.en`") && message.contains("val.en`"), "{message}");
    }

    #[test]
    fn a_missing_language_is_an_error_that_lists_those_found() {
        let message = message(&[("train.en", b"a\n"), ("train.tok.fr.gz", b"A\n"), ("notes.txt", b"")]);
        assert!(message.contains("`de`") && message.contains("languages found: en, fr"), "{message}");
    }

    #[test]
    fn a_missing_split_is_an_error_that_names_the_file_expected() {
        let message = message(&[("train.en", b"a\n"), ("train.de", b"A\n"), ("test.en", b"v\n")]);
        assert!(message.contains("val.en or valid.en or dev.en"), "{message}");
    }

    #[test]
    fn training_text_without_any_usable_pair_is_an_error() {
        let message = message(&[("train.en", b"\n"), ("train.de", b"A\n"), ("val.en", b"v\n"), ("val.de", b"V\n")]);
        assert!(message.contains("train.en` holds no line"), "{message}");
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        assert!(matches!(ParallelCorpus::read(Path::new("nowhere"), "en", "de"), Err(DataError::NotFound { .. })));
    }
}
