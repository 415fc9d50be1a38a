//! The files of one run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::FileError;
use heedful_metrics::ItemTable;

use super::error::RunFolderError;
use heedful_host::whole_files::{file_name, make_folder, write_atomically};

/// The folder of the learning rates in that of a run.
pub const RATES: &str = "rates";

/// The files of the run of one mechanism and seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPaths {
    pub(super) root: PathBuf,
}

impl RunPaths {
    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The record of the finished run.
    pub fn result(&self) -> PathBuf {
        self.root.join("result.json")
    }

    /// Why the run failed when it was worked on last; there is no such file if it did not.
    pub fn error(&self) -> PathBuf {
        self.root.join("error.txt")
    }

    /// The learning curve, one JSON object per line.
    pub fn log(&self) -> PathBuf {
        self.root.join("log.jsonl")
    }

    /// The folder of the learning rates that are tried, with a folder for each.
    pub fn rates(&self) -> PathBuf {
        self.root.join(RATES)
    }

    /// The files of the training that was worked on last: those of a learning rate while several are tried, else those of the run.
    pub fn trained_last(&self) -> Self {
        let folders = fs::read_dir(self.rates()).into_iter().flatten().flatten().map(|entry| Self { root: entry.path() });
        let of_rates = folders.filter_map(|run| Some((fs::metadata(run.log()).ok()?.modified().ok()?, run)));
        match of_rates.max_by_key(|(time, _)| *time) {
            Some((_, run)) if !self.result().exists() => run,
            _ => self.clone(),
        }
    }

    /// The folder of the checkpoints.
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// The generated text of a test set, one line per test sentence.
    pub fn hypotheses(&self, test_set: &str) -> PathBuf {
        self.root.join("hypotheses").join(format!("{}.txt", file_name(test_set)))
    }

    /// What the generated text of a test set was scored against, one line per test sentence.
    pub fn references(&self, test_set: &str) -> PathBuf {
        self.root.join("hypotheses").join(format!("{}.reference.txt", file_name(test_set)))
    }

    /// What the items of a test set contributed to the scores, one line per item.
    pub fn items(&self, test_set: &str) -> PathBuf {
        self.root.join("items").join(format!("{}.json", file_name(test_set)))
    }

    /// Writes what the items of a test set contributed to the scores.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_items(&self, table: &ItemTable) -> Result<(), RunFolderError> {
        make_folder(&self.root.join("items"))?;
        Ok(write_atomically(&self.items(table.set()), table.to_json().as_bytes())?)
    }

    /// Writes the generated text of a test set, one line per test sentence in test order; line breaks inside a sentence become spaces.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_hypotheses(&self, test_set: &str, sentences: &[String]) -> Result<(), RunFolderError> {
        self.write_sentences(&self.hypotheses(test_set), sentences)
    }

    /// Writes the references of a test set beside its hypotheses, in the same way.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_references<S: AsRef<str>>(&self, test_set: &str, sentences: &[S]) -> Result<(), RunFolderError> {
        self.write_sentences(&self.references(test_set), sentences)
    }

    fn write_sentences<S: AsRef<str>>(&self, path: &Path, sentences: &[S]) -> Result<(), RunFolderError> {
        // Alone, so that a run whose folder disappeared does not come back in part.
        let folder = self.root.join("hypotheses");
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made.map_err(|source| FileError::folder(folder, source))?,
        }
        let mut text = String::new();
        for sentence in sentences {
            text.push_str(&sentence.as_ref().replace(['\n', '\r'], " "));
            text.push('\n');
        }
        Ok(write_atomically(path, text.as_bytes())?)
    }
}
