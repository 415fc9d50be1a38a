//! Texts with one class each.
//!
//! A folder is recognised by its training set:
//! - **CSV** (`train.csv`, `test.csv`, `classes.txt`): AG News and the other sets of Zhang, Zhao and LeCun 2015.
//! - **A part of AG News** (`train_subset_description_only.tsv`, with the official `test.csv` and `classes.txt`), of descriptions without titles.
//! - **Reviews** (`train/pos/0_9.txt` and so on, in the folder, in `aclImdb` inside it, or in a tar archive): IMDB.
//! - **Columns** (`train.jsonl` or `train.parquet`, see [`columns`]): a column with the text and one with its class, a word or a number.
//! - **Lines** (`train.tsv` or `train.txt`): a class, a tab and a text on each line, or **questions** (`train_5500.label`): TREC.
//!
//! Without a development set, a tenth of the training texts, drawn by the key of the data, is held out as one. Lines need no test set, as SUBJ is distributed
//! without one: the development set is then scored, and if that is missing too, a tenth is first held out as test set. White space at the ends of texts is
//! dropped; otherwise texts are kept unchanged unless a format says otherwise. Nothing is tokenised.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use heedful_random::RandomKey;
use rand::seq::SliceRandom;

use super::files::{self, TextFile};
use super::{Columns, DataError, columns};

mod lines;
mod news;
mod reviews;

/// Without a development set, one in this many training texts is held out.
pub const HELD_OUT: usize = 10;

const EXPECTED: &str = "train.csv, train_subset_description_only.tsv, aclImdb/train/pos/*.txt or their .tar.gz, train.tsv, train.txt, train_5500.label, train.jsonl or train.parquet";
const DEVELOPMENT_NAMES: [&str; 3] = ["dev", "valid", "val"];

/// A text and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledText {
    /// The text, never empty.
    pub text: String,
    /// Its class, an index into [`LabelledTexts::classes`].
    pub class: usize,
}

/// A set of labelled texts with its splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledTexts {
    /// Name of the set: `AG News`, `IMDB`, `TREC`, or that of its folder.
    pub name: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Training texts, in file order.
    pub train: Vec<LabelledText>,
    /// Texts for choosing the best checkpoint.
    pub dev: Vec<LabelledText>,
    /// Test texts, in file order; none where the development set is scored.
    pub test: Vec<LabelledText>,
    /// How the splits came about, in words, and how many training texts are in the test set, too.
    pub split: String,
    /// Combined SHA-256 of the files read (see [`files::combined_sha256`]); the same for a folder and an archive of the same files.
    pub sha256: String,
}

impl LabelledTexts {
    /// Reads the one data set in the folder `dir`, or the archive `dir`. Files are plain or `.gz`. `key` decides which texts are held out.
    ///
    /// # Errors
    /// [`DataError::Ambiguous`] (several training sets, or a file in two forms), [`DataError::MissingPart`], [`DataError::FieldCount`],
    /// [`DataError::FieldValue`] (an unknown class, an empty text, a quotation without end), [`DataError::Empty`], [`DataError::Gzip`] (a damaged archive),
    /// and those of [`TextFile::read`].
    pub fn read(dir: &Path, key: &RandomKey) -> Result<Self, DataError> {
        Self::read_columns(dir, key, &Columns::default())
    }

    /// The roles of [`Columns`].
    pub const COLUMNS: &[&str] = &["text", "label"];

    /// The same from columns of other names, whose roles are [`COLUMNS`](Self::COLUMNS).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); [`DataError::NoColumn`], [`DataError::Shards`], [`DataError::Parquet`], and [`DataError::NoNamedColumns`] where the files have no
    /// columns.
    pub fn read_columns(dir: &Path, key: &RandomKey, columns: &Columns) -> Result<Self, DataError> {
        if dir.is_file() {
            columns.refuse_without_columns(dir)?;
            return reviews::from_archive(dir)?.complete(dir, key);
        }
        let folder = Folder { dir, listed: files::list(dir, "a folder of labelled texts")? };
        let mut found: Vec<(PathBuf, Layout)> = Vec::new();
        for (name, forms) in &folder.listed {
            // Further shards of the same split are no other training set.
            let is_known =
                |layout: Layout| matches!(layout, Layout::Columns) && found.iter().any(|(_, known)| matches!(known, Layout::Columns));
            if let Some(layout) = Layout::of(name).filter(|layout| !is_known(*layout)) {
                found.extend(forms.iter().map(|form| (form.clone(), layout)));
            }
        }
        let roots = [dir.to_path_buf(), dir.join("aclImdb")];
        found.extend(roots.into_iter().filter(|root| root.join("train/pos").is_dir()).map(|root| (root, Layout::Reviews)));
        let training_set = files::only(found.iter().map(|(path, _)| path.clone()).collect(), "one training set")?;
        let (Some(path), Some((_, layout))) = (training_set, found.first()) else {
            return Err(DataError::missing(dir, "labelled training texts", EXPECTED));
        };
        if !matches!(layout, Layout::Columns) {
            columns.refuse_without_columns(dir)?;
        }
        let parts = match layout {
            Layout::Columns => lines::read_columns(&folder, columns),
            Layout::Csv => news::read(&folder, &path),
            Layout::Descriptions => news::read_descriptions(&folder, &path),
            Layout::Reviews => reviews::from_folder(&path),
            Layout::Archive => reviews::from_archive(&path),
            Layout::Lines => lines::read(&folder, &path),
            Layout::Questions => lines::read_questions(&folder, &path),
        };
        parts?.complete(dir, key)
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Columns,
    Csv,
    Descriptions,
    Reviews,
    Archive,
    Lines,
    Questions,
}

impl Layout {
    /// The layout of which a file of this name (without `.gz`) is the training set.
    fn of(name: &str) -> Option<Self> {
        match name {
            "train.csv" => Some(Self::Csv),
            "train_subset_description_only.tsv" => Some(Self::Descriptions),
            "train.tsv" | "train.txt" => Some(Self::Lines),
            _ if columns::is_of_split(name, "train") => Some(Self::Columns),
            _ if name.ends_with(".tar") || name.ends_with(".tgz") => Some(Self::Archive),
            _ if name.starts_with("train") && name.ends_with(".label") => Some(Self::Questions),
            _ => None,
        }
    }
}

/// A folder and its files by name.
struct Folder<'a> {
    dir: &'a Path,
    listed: files::Listed,
}

impl Folder<'_> {
    /// The one file with one of these names, if it is there.
    fn optional(&self, names: &[String]) -> Result<Option<TextFile>, DataError> {
        let forms = names.iter().filter_map(|name| self.listed.get(name)).flatten().cloned().collect();
        files::only(forms, &names.join(" or "))?.map(|path| TextFile::read(&path, "labelled texts")).transpose()
    }

    fn required(&self, part: &str, names: &[String]) -> Result<TextFile, DataError> {
        let missing = || DataError::missing(self.dir, part, names.join(" or "));
        self.optional(names)?.ok_or_else(missing)
    }

    /// The name of the folder, for a data set that has no other.
    fn name(&self) -> String {
        self.dir.file_name().map_or_else(|| "labelled texts".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

/// Names such as `dev.csv` and `valid.csv`.
fn names(stems: &[&str], extensions: &[&str]) -> Vec<String> {
    stems.iter().flat_map(|stem| extensions.iter().map(move |extension| format!("{stem}.{extension}"))).collect()
}

/// What a reader found; there may be no development set and no test set.
struct Parts {
    name: String,
    classes: Vec<String>,
    train: Vec<LabelledText>,
    dev: Option<Vec<LabelledText>>,
    test: Option<Vec<LabelledText>>,
    source: String,
    sha256: String,
}

impl Parts {
    fn complete(self, place: &Path, key: &RandomKey) -> Result<LabelledTexts, DataError> {
        let Self { name, classes, mut train, dev, test, source, sha256 } = self;
        let needed = match (&dev, &test) {
            (Some(_), _) => 1,
            (None, Some(_)) => HELD_OUT,
            // What is left after the test texts still has a tenth.
            (None, None) => HELD_OUT + 2,
        };
        let scored = test.as_ref().or(dev.as_ref());
        if train.len() < needed || scored.is_some_and(Vec::is_empty) {
            let (count, set) = (scored.map_or(0, Vec::len), if test.is_some() { "test" } else { "development" });
            let expected = if scored.is_some() { format!("{needed} and 1 belong") } else { format!("{needed} training texts belong") };
            let found = format!("{} training and {count} {set} texts where at least {expected}", train.len());
            return Err(DataError::empty(place, found, "restore the original files"));
        }
        let mut held_out = String::new();
        let mut take = |train: &mut Vec<LabelledText>, key: &RandomKey, set: &str| {
            let all = train.len();
            let taken = hold_out(train, key);
            held_out += &format!("; {} of {all} training texts, drawn by the data seed, held out as {set} set", taken.len());
            taken
        };
        let has_no_test_set = test.is_none();
        let test = match (test, &dev) {
            (Some(test), _) => test,
            (None, Some(_)) => Vec::new(),
            (None, None) => take(&mut train, &key.named("test"), "test"),
        };
        let (scored, set) = match &dev {
            Some(dev) if has_no_test_set => (dev, "development"),
            _ => (&test, "test"),
        };
        let known: HashSet<&str> = scored.iter().map(|text| text.text.as_str()).collect();
        let repeated = train.iter().filter(|text| known.contains(text.text.as_str())).count();
        let mut split = format!("{source}; {repeated} training texts are in the {set} set, too");
        if test.is_empty() {
            split += "; there is no test set: the development set chooses the checkpoint and is scored as well";
        }
        let dev = dev.unwrap_or_else(|| take(&mut train, key, "development"));
        split += &held_out;
        Ok(LabelledTexts { name, classes, train, dev, test, split, sha256 })
    }
}

/// Takes one in [`HELD_OUT`] texts away; both parts keep their order.
fn hold_out(train: &mut Vec<LabelledText>, key: &RandomKey) -> Vec<LabelledText> {
    let mut is_held_out = vec![false; train.len()];
    let count = train.len() / HELD_OUT;
    is_held_out[..count].fill(true);
    is_held_out.shuffle(&mut key.named("held out").rng());
    let (dev, rest): (Vec<_>, Vec<_>) = std::mem::take(train).into_iter().zip(is_held_out).partition(|(_, is_held_out)| *is_held_out);
    let texts = |texts: Vec<(LabelledText, bool)>| texts.into_iter().map(|(text, _)| text).collect();
    *train = texts(rest);
    texts(dev)
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::folder;
    use super::*;

    pub(super) fn read(files: &[(&str, &[u8])]) -> Result<LabelledTexts, DataError> {
        LabelledTexts::read(folder(files).path(), &RandomKey::from_seed(1))
    }

    pub(super) fn message(files: &[(&str, &[u8])]) -> String {
        read(files).unwrap_err().to_string()
    }

    fn numbered(count: usize) -> String {
        (0..count).map(|n| format!("{}\ttext {n}\n", ["no", "yes"][n % 2])).collect()
    }

    #[test]
    fn a_tenth_is_held_out_by_the_key_where_there_is_no_development_set() {
        let text = numbered(200);
        let dir = folder(&[("train.tsv", text.as_bytes()), ("test.tsv", b"yes\tt\n")]);
        let read = |seed| LabelledTexts::read(dir.path(), &RandomKey::from_seed(seed)).unwrap();
        let data = read(1);
        assert_eq!([data.train.len(), data.dev.len(), data.test.len()], [180, 20, 1]);
        assert!(data.split.contains("20 of 200 training texts") && data.split.contains("held out"), "{}", data.split);
        assert_eq!(read(1), data);
        assert_ne!(read(2).dev, data.dev);
        let number = |text: &LabelledText| text.text[5..].parse::<usize>().unwrap();
        for part in [&data.train, &data.dev] {
            assert!(part.windows(2).all(|two| number(&two[0]) < number(&two[1])), "file order is kept");
        }
        let mut all: Vec<usize> = data.train.iter().chain(&data.dev).map(number).collect();
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
        assert!(data.dev.iter().any(|text| number(text) < 100) && data.dev.iter().any(|text| number(text) >= 100));
    }

    #[test]
    fn a_given_development_set_is_used_and_nothing_held_out() {
        for dev in ["dev.tsv", "valid.txt", "val.tsv.gz"] {
            let data = read(&[("train.tsv", b"a\tone\n"), (dev, b"a\ttwo\n"), ("test.txt", b"a\tone\n")]).unwrap();
            assert_eq!([data.train.len(), data.dev.len(), data.test.len()], [1, 1, 1]);
            assert!(!data.split.contains("held out") && data.split.contains(dev), "{}", data.split);
            assert!(data.split.contains("1 training texts are in the test set"), "{}", data.split);
        }
    }

    #[test]
    fn a_folder_without_or_with_two_training_sets_is_an_error_that_names_them() {
        assert!(message(&[("notes.md", b"")]).contains("train_5500.label"));
        let two = message(&[("train.csv", b""), ("aclImdb/train/pos/0_9.txt", b"a"), ("train.txt", b"")]);
        assert!(two.contains("train.csv`") && two.contains("aclImdb`") && two.contains("train.txt`"), "{two}");
        assert!(message(&[("train_1000.label", b""), ("train_5500.label", b"")]).contains("train_1000.label"));
        assert!(matches!(LabelledTexts::read(Path::new("nowhere"), &RandomKey::from_seed(1)), Err(DataError::NotFound { .. })));
    }

    #[test]
    fn lines_without_a_test_set_are_scored_on_what_there_is() {
        let (train, dev) = (numbered(200), numbered(3) + "no\tnew\n");
        let data = read(&[("train.tsv", train.as_bytes()), ("dev.tsv", dev.as_bytes())]).unwrap();
        assert_eq!([data.train.len(), data.dev.len(), data.test.len()], [200, 4, 0]);
        for part in ["train.tsv, dev.tsv", "3 training texts are in the development set", "no test set", "is scored as well"] {
            assert!(data.split.contains(part), "{}", data.split);
        }

        let data = read(&[("train.tsv", train.as_bytes())]).unwrap();
        assert_eq!([data.train.len(), data.dev.len(), data.test.len()], [162, 18, 20]);
        for part in ["20 of 200 training texts, drawn by the data seed, held out as test set", "18 of 180", "as development set"] {
            assert!(data.split.contains(part), "{}", data.split);
        }
        let mut all: Vec<&str> = [&data.train, &data.dev, &data.test].into_iter().flatten().map(|text| text.text.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 200, "each text is in one part");

        let text = numbered(11);
        assert!(message(&[("train.tsv", text.as_bytes())]).contains("11 training and 0 development texts where at least 12"));
        assert!(message(&[("train.tsv", text.as_bytes()), ("dev.tsv", b"")]).contains("0 development texts"));
        // Of sets that are known to have one, it is missing.
        assert!(message(&[("train.csv", b"\"1\",\"a\"\n"), ("classes.txt", b"x\n")]).contains("test.csv"));
    }

    #[test]
    fn a_set_with_too_few_texts_is_an_error() {
        let text = numbered(9);
        let few = message(&[("train.tsv", text.as_bytes()), ("test.tsv", b"no\ta\n")]);
        assert!(few.contains("9 training and 1 test texts where at least 10"), "{few}");
        assert!(message(&[("train.tsv", text.as_bytes()), ("dev.tsv", b"no\ta\n"), ("test.tsv", b"")]).contains("0 test texts"));
    }
}
