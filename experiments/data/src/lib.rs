//! Data sets: readers for the standard file formats and generators that need no file.
//!
//! A reader turns a folder of text files into sentences and labels; nothing is tokenised here. Every reader takes plain and gzip files alike, refuses
//! what it cannot read exactly (with the file, line and field), never guesses between two candidates, and reports a SHA-256 of what it read so that a
//! result can be traced to its data. [`generate`] makes artificial data of the same types for runs without any download.
//!
//! Covered: parallel text, line by line or as IWSLT has it ([`ParallelCorpus`]), language-model text ([`TextCorpus`]), the GLUE and SuperGLUE benchmarks
//! ([`GlueData`]), and questions with one right answer ([`Exercises`]): algorithmic tasks, ListOps ([`list_ops`]) and bAbI ([`babi`]), texts of a class
//! ([`LabelledTexts`]), and texts that answer others ([`TextPairs`]): dialogues ([`dialogue`]) and summaries ([`summary`]). Images ([`Images`]) are read from
//! binary files.

use std::path::{Path, PathBuf};

use thiserror::Error;

pub mod babi;
mod bounded;
pub mod catalogue;
pub mod columns;
pub mod dialogue;
pub mod exercise;
pub mod files;
pub mod generate;
pub mod glue;
pub mod images;
mod json;
pub mod labelled;
pub mod list_ops;
mod packed;
pub mod parallel;
pub mod summary;
pub mod synonyms;
pub mod text;
pub mod text_pairs;
pub mod tokenise;
pub mod word_vectors;

pub use columns::Columns;
pub use exercise::{Exercise, ExerciseTask, Exercises};
pub use generate::Sizes;
pub use glue::{Example, GlueData, GlueTask, Label, Target, Unlabelled};
pub use images::{ImageSet, Images};
pub use labelled::{LabelledText, LabelledTexts};
pub use parallel::{Pair, ParallelCorpus, SkippedPairs};
pub use text::TextCorpus;
pub use text_pairs::TextPairs;

/// Why a data set could not be read or made.
///
/// Lines are counted from 1 and after decompression.
#[derive(Debug, Error)]
pub enum DataError {
    /// A file or folder does not exist.
    #[error("`{}` does not exist; looked for {looked_for}; check the path or put the file there (plain or as .gz)", path.display())]
    NotFound {
        /// The missing file or folder.
        path: PathBuf,
        /// What it should have held.
        looked_for: String,
    },
    /// The operating system refused to read a file or folder.
    #[error("`{}` cannot be read ({cause}); check that it is a readable file", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        cause: std::io::Error,
    },
    /// A `.gz` file is cut short or damaged.
    #[error("`{}` is not a complete gzip file ({cause}); fetch or compress it again", path.display())]
    Gzip {
        /// The compressed file.
        path: PathBuf,
        /// The decompressor's reason.
        #[source]
        cause: std::io::Error,
    },
    /// More comes out of a compressed file than its size makes plausible.
    #[error(
        "`{}` holds more than {limit} bytes once decompressed, the limit for a file of its size; if that is right, {remedy}",
        path.display()
    )]
    TooLarge {
        /// The compressed file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// An entry of an archive is not an ordinary file.
    #[error("`{}`, entry `{entry}`: it is {what}, which is not read from an archive; {remedy}", path.display())]
    ArchiveEntry {
        /// The archive.
        path: PathBuf,
        /// The entry's name as it stands in the archive.
        entry: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A line is not UTF-8.
    #[error("`{}`, line {line}: byte {byte} of the line is not valid UTF-8; convert the file to UTF-8", path.display())]
    InvalidUtf8 {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// First invalid byte of the line, from 1.
        byte: usize,
    },
    /// Two files fit the same part of a data set.
    #[error("{} all fit {part}; keep one of them in the folder", name_all(files))]
    Ambiguous {
        /// The part in question.
        part: String,
        /// The candidates, in name order.
        files: Vec<PathBuf>,
    },
    /// A folder has no file for a necessary part of the data set.
    #[error("`{}` has no file for {part}; expected {expected} (plain or .gz)", dir.display())]
    MissingPart {
        /// The folder.
        dir: PathBuf,
        /// The part in question.
        part: String,
        /// File names that would have been accepted.
        expected: String,
    },
    /// A folder of parallel text has no file in a language that was asked for.
    #[error(
        "`{}` has no text in language `{language}`; {}",
        dir.display(),
        if found.is_empty() {
            format!("languages found: none; put files such as train.{language} there")
        } else {
            format!("languages found: {}; ask for one of these", found.join(", "))
        }
    )]
    MissingLanguage {
        /// The folder.
        dir: PathBuf,
        /// The language that was asked for.
        language: String,
        /// The languages that are there, in order.
        found: Vec<String>,
    },
    /// The two sides of parallel text are not aligned.
    #[error(
        "`{}` has {source_lines} {unit} but `{}` has {target_lines}; number n of one must translate number n of the other, so restore the original files",
        source_file.display(), target_file.display()
    )]
    LineCounts {
        /// What is counted: lines, lines of text or segments.
        unit: &'static str,
        /// File of the source language.
        source_file: PathBuf,
        /// Its number of them.
        source_lines: usize,
        /// File of the target language.
        target_file: PathBuf,
        /// Its number of them.
        target_lines: usize,
    },
    /// A file or split holds nothing usable.
    #[error("`{}` holds {found}; {remedy}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// The header of a table lacks a column.
    #[error("`{}`, line 1: the header has no column `{column}` (it has: {}); restore the original {task} file", path.display(), found.join(", "))]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The GLUE task.
        task: GlueTask,
        /// The column that is needed.
        column: String,
        /// The columns of the header.
        found: Vec<String>,
    },
    /// A row of a table has too few or too many fields.
    #[error(
        "`{}`, line {line}: {found} tab-separated fields where {expected} belong ({}); field `{field}` is {}; repair or restore the file",
        path.display(), columns.join(", "), if found < expected { "the first one missing" } else { "the last one that fits" }
    )]
    FieldCount {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Number of fields in the row.
        found: usize,
        /// Number of fields in the header.
        expected: usize,
        /// The field at which row and header part ways.
        field: String,
        /// The columns of the header.
        columns: Vec<String>,
    },
    /// A field of a table holds something else than it should.
    #[error("`{}`, line {line}, field `{field}`: `{value}` is not {expected}; repair or restore the file", path.display())]
    FieldValue {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Name of the column.
        field: String,
        /// What the field holds.
        value: String,
        /// What would have been accepted.
        expected: String,
    },
    /// A binary file is not of its format.
    #[error("`{}`, {field}: {found} is not {expected}; restore the original file", path.display())]
    Binary {
        /// The file.
        path: PathBuf,
        /// The part of it.
        field: String,
        /// What is there.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
    /// A file is in a format that is not read.
    #[error("`{}` is {what}, which is not read; {remedy}", path.display())]
    NotRead {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What to do.
        remedy: String,
    },
    /// Images cannot be made or reduced so.
    #[error("the {field} of images, {value}, is not {expected}; choose another")]
    ImageSetting {
        /// What was asked for.
        field: String,
        /// Its value.
        value: usize,
        /// What would have been accepted.
        expected: String,
    },
    /// A line of a JSON lines file is not an object.
    #[error("`{}`, line {line}, column {column}: not a JSON object ({reason}); repair or restore the file", path.display())]
    JsonLine {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Byte of the line at which reading ended, from 1; 0 if the line is of another kind as a whole.
        column: usize,
        /// The parser's reason.
        reason: String,
    },
    /// A file is not readable Parquet.
    #[error("`{}` cannot be read as Parquet ({cause}); restore it, write it with Snappy or without compression, or convert it to JSON lines", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reader's reason.
        cause: String,
    },
    /// A row has no column of the name that is needed.
    #[error("`{}`, row {row}: no column `{column}` (it has: {}); give --columns {role}=NAME", path.display(), found.join(", "))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// Row, from 1.
        row: usize,
        /// What it is needed for.
        role: String,
        /// The name that was looked for.
        column: String,
        /// The columns of the row.
        found: Vec<String>,
    },
    /// Some of the files of a split are missing, or files of another split are among them.
    #[error("{} are not the {count} files 0 to {} of one split; fetch the others, or remove what does not belong to it", name_all(files), count.saturating_sub(1))]
    Shards {
        /// The files, in the order of their numbers.
        files: Vec<PathBuf>,
        /// How many there are by the name of the first.
        count: usize,
    },
    /// Columns were named, and those of the data set have fixed names.
    #[error("`{}` holds a data set in a form whose columns have fixed names; leave --columns out", dir.display())]
    NoNamedColumns {
        /// The folder.
        dir: PathBuf,
    },
    /// A line lacks a field.
    #[error("`{}`, line {line}: no field `{field}`; repair or restore the file", path.display())]
    MissingField {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field, with the path to it.
        field: String,
    },
    /// No GLUE task has this name.
    #[error("`{name}` is not a task of GLUE or SuperGLUE; use one of {}", glue::names(&GlueTask::ALL))]
    UnknownTask {
        /// The name that was given.
        name: String,
    },
    /// No task of exercises has this name.
    #[error("`{name}` is not a task; use one of {} (N from 1 to 20)", exercise::ExerciseTask::NAMES.join(", "))]
    UnknownExercise {
        /// The name that was given.
        name: String,
    },
    /// A task whose examples are in files alone.
    #[error("there is no built-in data for {task}; give --data a folder with its files")]
    NoBuiltIn {
        /// The task that was asked for.
        task: exercise::ExerciseTask,
    },
    /// The task has no built-in generator.
    #[error("there is no built-in data for {task}; it exists for {}; read the real {task} files instead", glue::names(&generate::glue::GENERATED))]
    NotGenerated {
        /// The task that was asked for.
        task: GlueTask,
    },
    /// A generator was asked for more distinct examples than it can find.
    #[error("the generator found only {found} of {wanted} distinct {what}; ask for fewer")]
    TooManyWanted {
        /// Distinct examples found.
        found: usize,
        /// Distinct examples asked for.
        wanted: usize,
        /// What was being generated.
        what: String,
    },
}

impl DataError {
    /// The folder `dir` has no file for `part`, where files called `expected` would have been accepted.
    fn missing(dir: &Path, part: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::MissingPart { dir: dir.to_path_buf(), part: part.into(), expected: expected.into() }
    }

    /// The file `path` holds nothing usable but `found`.
    fn empty(path: &Path, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Empty { path: path.to_path_buf(), found: found.into(), remedy: remedy.into() }
    }
}

fn name_all(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!("`{}`", file.display())).collect::<Vec<_>>().join(" and ")
}
