//! Errors that end an experiment early, and their exit codes.
//!
//! Every error is one message that names the file, the line and the field as far as they exist, and the remedy. [`heedful_host::exit`] says which exit codes
//! there are. A run stopped by Ctrl-C, SIGTERM or SIGHUP saves a checkpoint and ends with 130.

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

use heedful_attention::contract::error::ConfigError;
use heedful_host::exit;
pub use heedful_host::exit::{Completion, FAILURE_EXIT, INTERRUPTED_EXIT, ProgramError, USAGE_EXIT};
use heedful_host::whole_files::FileError;
use heedful_runs::record::RecordError;
use heedful_runs::run_folder::RunFolderError;
use heedful_runs::settings::SettingsError;

use crate::train::{RankError, TrainingError};

/// The result of work that an interrupt may end: `None` if the interrupt was raised.
pub type Interruptible<T> = Result<Option<T>, ExperimentError>;

/// The reason why an experiment ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// An error of programs in general: an invalid command, or a command that could not be completed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A configuration that cannot be read or understood.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// An impossible model configuration.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// A file or folder that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An output folder that cannot be used.
    #[error(transparent)]
    RunFolder(#[from] RunFolderError),
    /// A results file that cannot be used or written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl ExperimentError {
    /// A usage error (exit code 2) from a message or a typed error.
    pub fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        ProgramError::usage(error).into()
    }

    /// A failure (exit code 1) from a message or a typed error.
    pub fn failure(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        ProgramError::failure(error).into()
    }

    /// The process exit code: 2 for usage, 1 for failure, 0 for a closed standard output.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Program(error) => error.exit_code(),
            Self::Model(_) => USAGE_EXIT,
            Self::File(_) | Self::Record(_) => FAILURE_EXIT,
            Self::Settings(error) => exit_code_of(error.is_usage()),
            Self::RunFolder(error) => exit_code_of(error.is_usage()),
        }
    }
}

impl From<RankError> for ExperimentError {
    fn from(error: RankError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failure(error) }
    }
}

impl From<TrainingError> for ExperimentError {
    fn from(error: TrainingError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failure(error) }
    }
}

impl From<ExperimentError> for ProgramError {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Program(error) => error,
            error if error.exit_code() == USAGE_EXIT => Self::usage(error),
            error => Self::failure(error),
        }
    }
}

fn exit_code_of(usage: bool) -> u8 {
    if usage { USAGE_EXIT } else { FAILURE_EXIT }
}

/// Runs an experiment as the body of `main`: prints an error once, as `error: ...` on standard error, and turns the outcome into the exit code.
///
/// # Example
/// ```no_run
/// use heedful_experiments::session::error::{Completion, main_with};
///
/// fn main() -> std::process::ExitCode {
///     main_with(|| Ok(Completion::Finished))
/// }
/// ```
pub fn main_with(run: impl FnOnce() -> Result<Completion, ExperimentError>) -> ExitCode {
    // The error itself is printed at the end; a log file has it too.
    exit::main_with(|| Ok(run().inspect_err(|error| tracing::debug!(%error, "the command failed"))?))
}

/// Writes a line to standard output. Use it in place of `println!`, which panics when the reader has closed the pipe.
///
/// # Errors
/// [`ProgramError::ClosedOutput`] when the reader is gone, a failure when standard output cannot be written for another reason.
pub fn print_line(text: impl Display) -> Result<(), ExperimentError> {
    Ok(exit::print_line(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_words_and_exit_code_on_their_way_to_the_shell() {
        let told = |error: ExperimentError| {
            let code = error.exit_code();
            let error = ProgramError::from(error);
            (code, error.exit_code(), error.to_string())
        };
        assert_eq!(told(ExperimentError::usage("no such mechanism")), (2, 2, "no such mechanism".into()));
        assert_eq!(told(ExperimentError::failure("disk full")), (1, 1, "disk full".into()));
        assert_eq!(told(ProgramError::Reported(7).into()).1, 7);
        let foreign = || RunFolderError::Foreign { path: "runs".into() };
        assert_eq!(told(foreign().into()), (2, 2, foreign().to_string()));
        let unwritable = || FileError::write("runs", std::io::ErrorKind::StorageFull.into());
        assert_eq!(told(unwritable().into()), (1, 1, unwritable().to_string()));
        let unreadable = || RecordError::from(FileError::read("results.json", std::io::ErrorKind::NotFound.into()));
        assert_eq!(told(unreadable().into()), (1, 1, unreadable().to_string()));
        let impossible = || heedful_models::architectures::classifier::ClassifierConfig::new(0, 1).validate().unwrap_err();
        assert_eq!(told(impossible().into()), (2, 2, impossible().to_string()));
    }
}
