//! Why a ledger cannot be used.

use std::io;
use std::path::PathBuf;

use crate::session::error::ExperimentError;

/// A file of the ledger that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A file or folder cannot be read.
    #[error("cannot read `{}`: {source}; give --ledger a folder with claims, blocks and features.toml", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is not TOML, or not of the form that it should have.
    #[error("{file}:{line}: {problem}")]
    Format {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// What a file says does not fit the rest of the ledger, or no program can do it.
    #[error("{file}: {problem}")]
    Content {
        /// The file.
        file: String,
        /// What is wrong, with the remedy.
        problem: String,
    },
    /// A claim or block that the ledger does not have.
    #[error("the ledger has no {what} `{name}`; `heedful claims list` shows all")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
}

impl LedgerError {
    pub(super) fn content(file: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Content { file: file.into(), problem: problem.into() }
    }
}

impl From<LedgerError> for ExperimentError {
    fn from(error: LedgerError) -> Self {
        Self::usage(error)
    }
}
