//! What is wrong with an output folder.

use std::path::PathBuf;

use heedful_host::exit::ProgramError;
use heedful_host::whole_files::FileError;

use crate::settings::SettingsError;

/// Why an output folder cannot be used or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFolderError {
    /// A file or folder could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder holds files, but no configuration of a run.
    #[error("`{}` is not empty and holds no config.toml, so it is not the output of a run; choose another --out", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run of another configuration and resuming was not asked for.
    #[error(
        "`{}` holds another configuration ({difference}); choose another --out, or use the same configuration{}",
        path.display(), if *resumable { ", or --resume to add to it" } else { "" }
    )]
    OtherConfiguration {
        /// The folder.
        path: PathBuf,
        /// The first field that differs: `field: value there, value here`.
        difference: String,
        /// Whether --resume would accept the folder: only the choice of runs differs.
        resumable: bool,
    },
    /// A lock that no process has written.
    #[error("`{}` is not the lock of a run: {source}; delete it if no command works on the run", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// The configuration could not be written out or the old one could not be understood.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl RunFolderError {
    /// Whether the remedy is another command (exit code 2) rather than a mended machine (exit code 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::OtherConfiguration { .. } => true,
            Self::Settings(error) => error.is_usage(),
            Self::File(_) | Self::Lock { .. } => false,
        }
    }
}

impl From<RunFolderError> for ProgramError {
    fn from(error: RunFolderError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failure(error) }
    }
}
