//! Why run folders cannot be compared.

use std::io;
use std::path::PathBuf;

use heedful_host::whole_files::FileError;

use crate::record::RecordError;

/// A folder or file of a run that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The folder is not there or is none.
    #[error("`{}` is not a folder; give the --out of an experiment", path.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// The folder holds no results.
    #[error("`{}` is not the folder of a run: it holds no results.json; give the --out of an experiment with at least one finished run", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}; mend it or leave the run out", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The results are not an array of records.
    #[error("{}:{}: not the results of an experiment: {source}; mend it or leave the folder out", path.display(), source.line())]
    Results {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// A folder that cannot be listed.
    #[error(transparent)]
    Unusable(RecordError),
    /// The results hold no record.
    #[error("`{}` holds no finished run; wait for one or leave the folder out", path.display())]
    NoResults {
        /// The file.
        path: PathBuf,
    },
    /// A record lacks what a row needs.
    #[error("`{}`: record {number} has no `{field}`; mend it or leave the folder out", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Its place, from 1.
        number: usize,
        /// The field.
        field: &'static str,
    },
    /// Two records are of one run.
    #[error("`{}` holds the run {run} twice; mend it or leave the folder out", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The run.
        run: String,
    },
    /// A line of a log is none.
    #[error("{}:{line}: not a line of a log: {source}; mend it or delete the log, the curve is then left out", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's reason.
        source: serde_json::Error,
    },
}

impl CompareError {
    /// What is wrong with a file of a folder, to a reader of several folders.
    pub(super) fn of_record(error: RecordError) -> Self {
        match error {
            RecordError::File(FileError::Read { path, source }) => Self::Read { path, source },
            RecordError::Format { path, source } => Self::Results { path, source },
            other => Self::Unusable(other),
        }
    }
}
