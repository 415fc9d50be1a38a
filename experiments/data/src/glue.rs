//! The benchmarks GLUE (Wang et al. 2019a) and SuperGLUE (Wang et al. 2019b) in the files of their download sites.
//!
//! A task is a folder with training, development and unlabelled test files: tables for GLUE, JSON lines for SuperGLUE. RTE belongs to both benchmarks and may
//! have either form; WiC is also read from the text files of its authors. The tasks of GLUE are also read from named columns (see [`Columns`]): the Parquet of
//! Hugging Face, and JSON lines except for RTE. Covered: the nine tasks of GLUE, the eight of SuperGLUE, and the facts needed to train on them ([`GlueTask`]).
//! Not covered: the diagnostic sets (no labels to train on) and the labelled originals that some distributions add.
//!
//! Every task becomes a classification of single texts or pairs. For SuperGLUE this follows T5 (Raffel et al. 2020, appendix D) and the benchmark's own
//! baselines (jiant). The list writes `|` between the two texts of a pair:
//! - **BoolQ**: question | passage. **CB** and **RTE**: premise | hypothesis.
//! - **COPA**: premise with `What was the cause?` or `What happened as a result?` | choice.
//! - **WiC**: word, `:`, first sentence | second sentence; the word stands between `*` in both.
//! - **WSC**: the text with the noun phrase between `*` and the pronoun between `#`.
//! - **MultiRC**: paragraph | question and answer.
//! - **ReCoRD**: passage, whose highlights become sentences | query with an entity in place of `@placeholder`; entities with the same letters are one.
//!
//! In COPA, MultiRC and ReCoRD every candidate answer is an example of its own, and [`Example::group`] says which belong to one question.

use std::path::Path;
use std::sync::Arc;

use super::files;
use super::{Columns, DataError};

mod folder;
mod hugging_face;
mod marked_spans;
mod super_glue;
mod task;
mod tsv;
mod wic;

use folder::Folder;
pub(super) use task::names;
pub use task::{GlueTask, Target};

/// The right answer of an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// Class number, an index into [`GlueTask::label_names`].
    Class(usize),
    /// Score inside the range of [`Target::Range`].
    Score(f32),
}

/// A labelled text or pair of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The first or only text. Candidate answers to a question share it.
    pub first: Arc<str>,
    /// The second text, for tasks on pairs.
    pub second: Option<String>,
    /// The right answer.
    pub label: Label,
    /// Number of the question to which this is a candidate answer, from 0 in each set; for tasks that [are grouped](GlueTask::is_grouped).
    pub group: Option<usize>,
    /// What ReCoRD is scored by.
    pub entity: Option<Entity>,
}

/// A candidate answer of ReCoRD beside the right ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The entity, as the passage writes it.
    pub text: String,
    /// The right answers to the query, in file order; the examples of a group share them.
    pub answers: Arc<[String]>,
}

/// A text or pair of texts whose label is kept by the benchmark's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlabelled {
    /// The index that a submission repeats: that of the question in COPA and ReCoRD, that of the answer in MultiRC.
    pub index: usize,
    /// The first or only text.
    pub first: Arc<str>,
    /// The second text, for tasks on pairs.
    pub second: Option<String>,
    /// As [`Example::group`].
    pub group: Option<usize>,
    /// The entity that a submission to ReCoRD names.
    pub entity: Option<String>,
}

impl Example {
    /// An example that belongs to no question.
    pub fn new(first: impl Into<Arc<str>>, second: Option<String>, label: Label) -> Self {
        Self { first: first.into(), second, label, group: None, entity: None }
    }
}

impl Unlabelled {
    /// A text or pair that belongs to no question.
    pub fn new(index: usize, first: impl Into<Arc<str>>, second: Option<String>) -> Self {
        Self { index, first: first.into(), second, group: None, entity: None }
    }
}

/// The data of one task.
#[derive(Clone, Debug, PartialEq)]
pub struct GlueData {
    /// The task.
    pub task: GlueTask,
    /// Training examples, in file order.
    pub train: Vec<Example>,
    /// Development sets by name (see [`GlueTask::dev_sets`]).
    pub dev: Vec<(String, Vec<Example>)>,
    /// The labelled test set of the original distribution, where it was read ([`read_with_labelled_test`](Self::read_with_labelled_test)), as `test`.
    pub labelled_test: Option<(String, Vec<Example>)>,
    /// The unlabelled test sets that are there, by name.
    pub test: Vec<(String, Vec<Unlabelled>)>,
    /// Rows left out because their annotators did not agree (MNLI's label `-`), by set; sets without such rows are not listed.
    pub without_gold_label: Vec<(String, usize)>,
    /// Combined SHA-256 of the files read (see [`files::combined_sha256`]).
    pub sha256: String,
}

impl GlueData {
    /// Reads `task` from `dir`, which holds a folder of the task's official name or is that folder. Files are plain or `.gz`.
    ///
    /// # Errors
    /// [`DataError::MissingPart`], [`DataError::Ambiguous`] (also for a set in two forms, such as `train.tsv` and `train.jsonl`),
    /// [`DataError::MissingColumn`], [`DataError::FieldCount`], [`DataError::FieldValue`] (an unknown label, a score that is no number in
    /// range, a span outside its text), [`DataError::JsonLine`], [`DataError::MissingField`], [`DataError::Empty`], and those of
    /// [`files::TextFile::read`].
    pub fn read(dir: &Path, task: GlueTask) -> Result<Self, DataError> {
        Self::read_columns(dir, task, &Columns::default())
    }

    /// The roles of [`Columns`]: the names that Hugging Face gives them.
    pub const COLUMNS: &[&str] =
        &["sentence", "sentence1", "sentence2", "question", "question1", "question2", "premise", "hypothesis", "label"];

    /// The same from columns of other names, whose roles are [`COLUMNS`](Self::COLUMNS).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); [`DataError::NoColumn`], [`DataError::Shards`], [`DataError::Parquet`], and [`DataError::NoNamedColumns`] where the files have no
    /// columns.
    pub fn read_columns(dir: &Path, task: GlueTask, columns: &Columns) -> Result<Self, DataError> {
        Self::read_sets(dir, task, columns, &[])
    }

    /// The same as [`read_columns`](Self::read_columns), with the labelled test set of the task's original distribution, for tasks that have
    /// [one](GlueTask::labelled_test).
    ///
    /// # Errors
    /// Those of [`read`](Self::read); [`DataError::MissingPart`] where it is not in the task's folder.
    pub fn read_with_labelled_test(dir: &Path, task: GlueTask, columns: &Columns) -> Result<Self, DataError> {
        Self::read_sets(dir, task, columns, task.labelled_test().unwrap_or_default())
    }

    fn read_sets(dir: &Path, task: GlueTask, columns: &Columns, labelled_test: &[&str]) -> Result<Self, DataError> {
        let inner = dir.join(task.name());
        let mut folder = Folder::open(if inner.is_dir() { &inner } else { dir }, task, columns)?;
        let train = folder.labelled("train")?;
        let dev = task.dev_sets().iter().map(|set| Ok((set.to_string(), folder.labelled(set)?))).collect::<Result<_, DataError>>()?;
        let labelled_test = match labelled_test {
            [] => None,
            names => Some(("test".to_string(), folder.original_test(names)?)),
        };
        let mut test = Vec::new();
        for set in task.test_sets() {
            if let Some(examples) = folder.unlabelled(set)? {
                test.push((set.to_string(), examples));
            }
        }
        let sha256 = columns.checksum(files::combined_sha256(&folder.read));
        Ok(Self { task, train, dev, labelled_test, test, without_gold_label: folder.without_gold_label, sha256 })
    }
}
