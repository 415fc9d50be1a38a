//! Why a data set could not be fetched.

use std::path::PathBuf;

use heedful_host::whole_files::FileError;
use thiserror::Error;

use crate::catalogue::archive::ArchiveError;
use crate::catalogue::download::DownloadError;

/// Why a data set could not be fetched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// A file could not be downloaded.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// An archive could not be unpacked.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A folder or record could not be written.
    #[error(transparent)]
    Folder(#[from] FileError),
    /// A file of the data set is not of the form that another is made from.
    #[error("`{}`, line {line}: {found}; fetch it again with --force", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        found: String,
    },
    /// A file already exists with other content, or with content that no record names.
    #[error("`{}` exists and is not recorded as the file to fetch; move it away, or replace it with --force", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
    },
    /// The record of an earlier download cannot be understood.
    #[error("`{}` cannot be understood ({cause}); remove it, or fetch again with --force", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
}

impl FetchError {
    /// Whether the user stopped it.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Download(DownloadError::Interrupted { .. }) | Self::Archive(ArchiveError::Interrupted { .. }))
    }
}
