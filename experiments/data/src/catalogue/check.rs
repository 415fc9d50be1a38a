//! The content of a folder, read with every reader that fits.
//!
//! The check covers the folder and two levels of folders below it. It tries a reader where file names suggest it. A data set that its reader refuses is
//! *broken*, with the file and line of the message; a data set without a necessary part is *incomplete*. A new reader is one entry of `READERS`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_random::RandomKey;
use serde::Serialize;

use crate::summary::stories;
use crate::text::{billion_words, lambada};
use crate::{
    DataError, Exercise, ExerciseTask, GlueData, GlueTask, Images, LabelledTexts, ParallelCorpus, TextCorpus, TextPairs, babi, dialogue,
    files, images, list_ops, summary,
};

/// Folders below the one that is looked at.
const DEPTH: usize = 2;

/// The content of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Data sets, by folder.
    pub findings: Vec<Finding>,
    /// Folders with files that no reader fits.
    pub unread: Vec<PathBuf>,
}

/// A data set that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is.
    pub holds: String,
    /// The command that can use it.
    pub used_by: String,
    /// Whether it can.
    pub state: State,
    /// What was counted, or what is wrong or missing.
    pub detail: String,
    /// SHA-256 of what was read, as results name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Whether a data set can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was read to its end.
    Usable,
    /// A part is not there.
    Incomplete,
    /// A file cannot be read, or has other content than it should.
    Broken,
}

/// What a reader read.
struct Contents {
    counts: String,
    sha256: Option<String>,
}

/// A folder and the names of its files without `.gz`.
struct Folder {
    path: PathBuf,
    names: BTreeSet<String>,
}

/// A reader of [`crate`].
struct Reader {
    /// The command that can use what it reads; `LABEL` stands for the label.
    used_by: &'static str,
    /// What kind of data it reads.
    kind: &'static str,
    /// What of that kind a folder seems to hold: a language pair, a task, or one empty label.
    labels: fn(&Folder) -> Vec<String>,
    /// Reads what has this label.
    read: fn(&Path, &str) -> Result<Contents, DataError>,
}

/// In this order; the last one is tried only where no other fits, because any text is a text.
const READERS: [Reader; 9] = [
    Reader { kind: "parallel text", used_by: "mt", labels: language_pairs, read: read_parallel },
    Reader { kind: "GLUE", used_by: "glue --task LABEL", labels: glue_task, read: read_glue },
    Reader { kind: "bAbI", used_by: "algorithmic (babi-1 to babi-20)", labels: babi_sets, read: read_babi },
    Reader { kind: "ListOps", used_by: "algorithmic (list-ops)", labels: list_ops_files, read: read_list_ops },
    Reader { kind: "images", used_by: "image, classify --images where they have classes", labels: image_files, read: read_images },
    Reader { kind: "labelled texts", used_by: "classify", labels: labelled_files, read: read_labelled },
    Reader { kind: "dialogues", used_by: "textgen --task dialogue", labels: dialogue_kinds, read: read_dialogue },
    Reader { kind: "documents and summaries", used_by: "textgen --task summary", labels: summary_files, read: read_summary },
    Reader { kind: "text", used_by: "lm, mlm", labels: texts, read: read_text },
];

/// Looks at a folder.
///
/// # Errors
/// [`DataError::NotFound`] or [`DataError::Unreadable`] if the folder itself cannot be listed; all else is in the report.
pub fn check(dir: &Path) -> Result<Report, DataError> {
    files::list(dir, "a folder of data sets")?;
    let mut report = Report::default();
    look(dir, DEPTH, &mut report);
    Ok(report)
}

fn look(dir: &Path, depth: usize, report: &mut Report) {
    let listed = match files::list(dir, "a folder of data sets") {
        Ok(listed) => listed,
        Err(error) => {
            let (folder, holds) = (dir.to_path_buf(), "a folder".to_string());
            report.findings.push(Finding { folder, holds, used_by: "nothing".to_string(), ..Finding::of(Err(error)) });
            return;
        }
    };
    let names: BTreeSet<String> = listed.into_keys().filter(|name| !name.starts_with('.')).collect();
    let folder = Folder { path: dir.to_path_buf(), names };
    let before = report.findings.len();
    for (index, reader) in READERS.iter().enumerate() {
        if index + 1 == READERS.len() && report.findings.len() > before {
            break;
        }
        for label in (reader.labels)(&folder) {
            let outcome = (reader.read)(dir, &label);
            let holds = format!("{} {label}", reader.kind).trim_end().to_string();
            let used_by = reader.used_by.replace("LABEL", &label);
            report.findings.push(Finding { folder: dir.to_path_buf(), holds, used_by, ..Finding::of(outcome) });
        }
    }
    if report.findings.len() == before && folder.names.iter().any(|name| !is_about_data(name)) {
        report.unread.push(dir.to_path_buf());
    }
    if depth > 0 && !folder.is_of_folders() {
        for inner in folders(dir).unwrap_or_default() {
            look(&inner, depth - 1, report);
        }
    }
}

/// The folders in a folder, in name order.
fn folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !is_hidden {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

impl Finding {
    /// State and detail of what a reader says; the rest is empty.
    fn of(outcome: Result<Contents, DataError>) -> Self {
        let (state, detail, sha256) = match outcome {
            Ok(contents) => (State::Usable, contents.counts, contents.sha256),
            Err(error @ (DataError::MissingPart { .. } | DataError::NotFound { .. })) => (State::Incomplete, error.to_string(), None),
            Err(error) => (State::Broken, error.to_string(), None),
        };
        Self { folder: PathBuf::new(), holds: String::new(), used_by: String::new(), state, detail, sha256 }
    }
}

impl Folder {
    /// Whether what it holds is also in the folders in it, which are nothing by themselves.
    fn is_of_folders(&self) -> bool {
        let has_list = self.has(stories::is_list) || self.path.join("url_lists").is_dir();
        let of_images = images::has_folder(&self.path) || self.has(images::is_imagenet_or_celeba);
        billion_words::is_in(&self.path) || self.has(lambada::is_part) || has_list || of_images
    }

    fn has(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.names.iter().any(|name| fits(name))
    }
}

/// Files that describe data and are none.
fn is_about_data(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower == "fetched.json"
        || lower == "sha256sums"
        || ["readme", "license", "licence", "_about"].iter().any(|start| lower.starts_with(start))
}

fn language_pairs(folder: &Folder) -> Vec<String> {
    const SPLITS: [&str; 5] = ["train", "val", "valid", "dev", "test"];
    const OTHER: [&str; 5] = ["txt", "tsv", "csv", "bin", "zip"];
    let language = |name: &String| -> Option<String> {
        let (split, rest) = name.split_once('.')?;
        let language = rest.rsplit('.').next()?;
        let is_language = (2..=3).contains(&language.len()) && language.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_split = SPLITS.contains(&split) || split.starts_with("test_");
        (is_split && is_language && !OTHER.contains(&language)).then(|| language.to_string())
    };
    let languages: Vec<String> = folder.names.iter().filter_map(language).collect::<BTreeSet<_>>().into_iter().collect();
    let pairs = languages
        .iter()
        .enumerate()
        .flat_map(|(index, first)| languages[index + 1..].iter().map(move |second| format!("{first}-{second}")));
    pairs.collect()
}

fn read_parallel(dir: &Path, pair: &str) -> Result<Contents, DataError> {
    let (source, target) = pair.split_once('-').unwrap_or((pair, pair));
    let corpus = ParallelCorpus::read(dir, source, target)?;
    let tests = corpus.tests.iter().map(|(name, pairs)| format!(", {name} {}", pairs.len())).collect::<String>();
    let skipped: usize = corpus.skipped.iter().map(|skipped| skipped.lines.len()).sum();
    let counts =
        format!("train {}, validation {}{tests} pairs; {skipped} with an empty side left out", corpus.train.len(), corpus.valid.len());
    Ok(Contents { counts, sha256: Some(corpus.sha256) })
}

fn glue_task(folder: &Folder) -> Vec<String> {
    let task = folder.path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<GlueTask>().ok());
    task.filter(|_| folder.has(|name| name == "train.tsv" || name.starts_with("dev") || name.ends_with(".jsonl")))
        .map(|task| task.to_string())
        .into_iter()
        .collect()
}

fn read_glue(dir: &Path, task: &str) -> Result<Contents, DataError> {
    let data = GlueData::read(dir, task.parse()?)?;
    let sets = data
        .dev
        .iter()
        .map(|(name, examples)| (name, examples.len()))
        .chain(data.test.iter().map(|(name, examples)| (name, examples.len())));
    let counts =
        format!("train {}{} examples", data.train.len(), sets.map(|(name, count)| format!(", {name} {count}")).collect::<String>());
    Ok(Contents { counts, sha256: Some(data.sha256) })
}

/// The sets of the archive that experiments use, or one empty label for the files of one set.
fn babi_sets(folder: &Folder) -> Vec<String> {
    if folder.has(|name| (name.ends_with(".tar") || name.ends_with(".tgz")) && (name.contains("babi") || name.starts_with("tasks_1-20"))) {
        return ["en", "en-10k"].map(str::to_string).to_vec();
    }
    let is_task = |name: &str| name.starts_with("qa") && name.ends_with("_train.txt");
    if folder.has(is_task) { vec![String::new()] } else { Vec::new() }
}

fn read_babi(dir: &Path, set: &str) -> Result<Contents, DataError> {
    let (mut questions, mut tasks, mut missing, mut first) = (0, 0, String::new(), None);
    for task in 1..=ExerciseTask::BABI_TASKS {
        match babi::read(dir, set, task) {
            Ok(read) => {
                questions += read.train.len() + read.valid.len() + read.test.len();
                tasks += 1;
            }
            Err(error @ DataError::MissingPart { .. }) => {
                missing.push_str(&format!(", without task {task}"));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match first {
        Some(error) if tasks == 0 => Err(error),
        _ => Ok(Contents { counts: format!("{questions} questions of {tasks} tasks{missing}"), sha256: None }),
    }
}

fn list_ops_files(folder: &Folder) -> Vec<String> {
    if folder.has(|name| name.ends_with("_d20s.tsv") || name == "basic_test.tsv") { vec![String::new()] } else { Vec::new() }
}

fn read_list_ops(dir: &Path, _: &str) -> Result<Contents, DataError> {
    let read = list_ops::read(dir)?;
    let count = |split: Option<Vec<Exercise>>| split.map_or_else(|| "no".to_string(), |split| split.len().to_string());
    let counts = format!("{} training, {} validation and {} test expressions", count(read.train), count(read.valid), read.test.len());
    Ok(Contents { counts, sha256: Some(read.sha256) })
}

fn image_files(folder: &Folder) -> Vec<String> {
    let is_image = |name: &str| {
        let is_cifar = name == "test_batch.bin" || name.starts_with("data_batch_");
        is_cifar || name.contains("idx3-ubyte") || images::is_imagenet_or_celeba(name)
    };
    if folder.has(is_image) || images::has_folder(&folder.path) { vec![String::new()] } else { Vec::new() }
}

fn read_images(dir: &Path, _: &str) -> Result<Contents, DataError> {
    let Images { height, width, channels, classes, train, dev, test, sha256, .. } = images::read(dir)?;
    let [train, dev, test] = [train, dev, test].map(|set| set.len());
    let counts = format!("train {train}, dev {dev}, test {test} images of {height}x{width}x{channels} in {classes} classes");
    Ok(Contents { counts, sha256: Some(sha256) })
}

fn labelled_files(folder: &Folder) -> Vec<String> {
    let is_archive = |name: &str| name.to_lowercase().starts_with("aclimdb") && (name.ends_with(".tar") || name.ends_with(".tgz"));
    let is_table = |name: &str| name == "train.csv" || name == "train_subset_description_only.tsv";
    let is_question = |name: &str| name.starts_with("train") && name.ends_with(".label");
    let has_reviews = folder.path.join("train/pos").is_dir();
    let found = has_reviews || folder.has(|name| is_archive(name) || is_table(name) || is_question(name));
    if found { vec![String::new()] } else { Vec::new() }
}

fn read_labelled(dir: &Path, _: &str) -> Result<Contents, DataError> {
    let texts = LabelledTexts::read(dir, &RandomKey::from_seed(0))?;
    let [train, dev, test] = [&texts.train, &texts.dev, &texts.test].map(Vec::len);
    let counts =
        format!("{}: train {train}, dev {dev}, test {test} texts in {} classes ({})", texts.name, texts.classes.len(), texts.split);
    Ok(Contents { counts, sha256: Some(texts.sha256) })
}

/// The kinds of PersonaChat's files.
fn dialogue_kinds(folder: &Folder) -> Vec<String> {
    const KINDS: [&str; 2] = ["self_original", "self_revised"];
    KINDS.into_iter().filter(|kind| folder.has(|name| name.contains(&format!("_{kind}")))).map(str::to_string).collect()
}

fn read_dialogue(dir: &Path, kind: &str) -> Result<Contents, DataError> {
    dialogue::read(dir, kind, 1).map(pairs)
}

fn summary_files(folder: &Folder) -> Vec<String> {
    let is_summary = |name: &str| ["train.source", "train.document"].contains(&name) || name.ends_with(".story") || stories::is_list(name);
    if folder.has(is_summary) || folder.path.join("url_lists").is_dir() { vec![String::new()] } else { Vec::new() }
}

fn read_summary(dir: &Path, _: &str) -> Result<Contents, DataError> {
    summary::read(dir).map(pairs)
}

fn pairs(TextPairs { corpus, split }: TextPairs) -> Contents {
    let tests = corpus.tests.iter().map(|(name, pairs)| format!(", {name} {}", pairs.len())).collect::<String>();
    let counts = format!("train {}, validation {}{tests} pairs ({split})", corpus.train.len(), corpus.valid.len());
    Contents { counts, sha256: Some(corpus.sha256) }
}

fn texts(folder: &Folder) -> Vec<String> {
    let is_split = |name: &str| [".train.txt", ".train.tokens"].iter().any(|end| name.ends_with(end));
    let is_text = |name: &str| name.ends_with(".txt") || ["text8", "enwik8"].contains(&name);
    let is_single =
        folder.names.iter().filter(|name| is_text(name)).count() == 1 && !folder.has(|name| !is_text(name) && !is_about_data(name));
    let is_original = billion_words::is_in(&folder.path) || folder.has(lambada::is_part);
    if folder.has(is_split) || is_single || is_original { vec![String::new()] } else { Vec::new() }
}

fn read_text(dir: &Path, _: &str) -> Result<Contents, DataError> {
    let corpus = TextCorpus::read(dir)?;
    let counts = format!("train {}, valid {}, test {} lines ({})", corpus.train.len(), corpus.valid.len(), corpus.test.len(), corpus.split);
    Ok(Contents { counts, sha256: Some(corpus.sha256) })
}
