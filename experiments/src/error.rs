//! What ends an experiment early, and what the shell is told about it.
//!
//! Every error is one message that names the file, the line and the field as far as they exist, and the remedy. Errors are of two kinds: *usage* (the
//! command or its configuration cannot be meant: exit code 2, as clap itself gives for an unknown option) and *failure* (the command is right but the
//! run could not be done: exit code 1). A run stopped by Ctrl-C, SIGTERM or SIGHUP saves a checkpoint and ends with 130; a reader that closes standard output early
//! (`| head`) is no error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use heedful_models::error::ConfigError;

use crate::record::RecordError;
use crate::run_folder::RunFolderError;
use crate::settings::SettingsError;
use crate::train::RankError;

/// Exit code of a command that cannot be meant: unknown option, mechanism or field, impossible combination, bad configuration file.
pub const USAGE_EXIT: u8 = 2;
/// Exit code of a run that failed: missing or bad data, unusable checkpoint, full disk, a loss that is not a number.
pub const FAILURE_EXIT: u8 = 1;
/// Exit code of a run stopped by Ctrl-C (128 + SIGINT), SIGTERM or SIGHUP: one code says that `--resume` goes on.
pub const INTERRUPTED_EXIT: u8 = 130;

/// The reason why an experiment ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The command or its configuration cannot be meant (exit code 2).
    #[error("{0}")]
    Usage(Box<dyn Error + Send + Sync>),
    /// The run could not be done (exit code 1).
    #[error("{0}")]
    Failure(Box<dyn Error + Send + Sync>),
    /// A configuration that cannot be read or understood.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A model that cannot be as it is configured.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// An output folder that cannot be used or written.
    #[error(transparent)]
    RunFolder(#[from] RunFolderError),
    /// A results file that cannot be used or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another process of those that train together has reported the error, which ends this one with the same exit code. Nothing is printed.
    #[error("the first rank has reported why")]
    Reported(u8),
    /// The reader of standard output is gone. Nothing is printed and the exit code is 0.
    #[error("standard output was closed")]
    ClosedOutput,
}

impl ExperimentError {
    /// A usage error (exit code 2) from a message or a typed error.
    pub fn usage(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Usage(error.into())
    }

    /// A failure (exit code 1) from a message or a typed error.
    pub fn failure(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failure(error.into())
    }

    /// The process exit code: 2 for usage, 1 for failure, 0 for a closed standard output.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Model(_) => USAGE_EXIT,
            Self::Failure(_) | Self::Record(_) => FAILURE_EXIT,
            Self::Settings(error) => exit_code_of(error.is_usage()),
            Self::RunFolder(error) => exit_code_of(error.is_usage()),
            Self::Reported(code) => *code,
            Self::ClosedOutput => 0,
        }
    }
}

impl From<RankError> for ExperimentError {
    fn from(error: RankError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failure(error) }
    }
}

fn exit_code_of(usage: bool) -> u8 {
    if usage { USAGE_EXIT } else { FAILURE_EXIT }
}

/// How an experiment that met no error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Everything asked for was done (exit code 0).
    Finished,
    /// Stopped by a signal after saving what is needed to resume (exit code 130).
    Interrupted,
}

/// Runs an experiment as the body of `main`: prints an error once, as `error: ...` on standard error, and turns the outcome into the exit code.
///
/// # Example
/// ```no_run
/// use heedful_experiments::error::{Completion, main_with};
///
/// fn main() -> std::process::ExitCode {
///     main_with(|| Ok(Completion::Finished))
/// }
/// ```
pub fn main_with(run: impl FnOnce() -> Result<Completion, ExperimentError>) -> ExitCode {
    ExitCode::from(conclude(run(), &mut io::stderr()))
}

fn conclude(outcome: Result<Completion, ExperimentError>, errors: &mut dyn Write) -> u8 {
    match outcome {
        Ok(Completion::Finished) => 0,
        Ok(Completion::Interrupted) => INTERRUPTED_EXIT,
        Err(error) => {
            if !matches!(error, ExperimentError::ClosedOutput | ExperimentError::Reported(_)) {
                // With standard error closed as well no message can be shown; the exit code still says it.
                let _ = writeln!(errors, "error: {error}");
            }
            error.exit_code()
        }
    }
}

/// Writes a line to standard output. Use it in place of `println!`, which panics when the reader has closed the pipe.
///
/// # Errors
/// [`ExperimentError::ClosedOutput`] when the reader is gone, a failure when standard output cannot be written for another reason.
pub fn print_line(text: impl Display) -> Result<(), ExperimentError> {
    write_line(&mut io::stdout().lock(), text)
}

fn write_line(output: &mut dyn Write, text: impl Display) -> Result<(), ExperimentError> {
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ExperimentError::ClosedOutput,
        _ => ExperimentError::failure(format!("cannot write to standard output: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(self.0))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn concluded(outcome: Result<Completion, ExperimentError>) -> (u8, String) {
        let mut errors = Vec::new();
        let code = conclude(outcome, &mut errors);
        (code, String::from_utf8(errors).unwrap())
    }

    #[test]
    fn usage_exits_with_2_and_failure_with_1_and_each_prints_its_message_once() {
        assert_eq!(concluded(Err(ExperimentError::usage("no such mechanism"))), (2, "error: no such mechanism\n".into()));
        assert_eq!(concluded(Err(ExperimentError::failure("disk full"))), (1, "error: disk full\n".into()));
    }

    #[test]
    fn a_finished_run_exits_with_0_and_an_interrupted_one_with_130_without_a_message() {
        assert_eq!(concluded(Ok(Completion::Finished)), (0, String::new()));
        assert_eq!(concluded(Ok(Completion::Interrupted)), (130, String::new()));
    }

    #[test]
    fn a_closed_standard_output_is_not_an_error() {
        let error = write_line(&mut Failing(io::ErrorKind::BrokenPipe), "table").unwrap_err();
        assert_eq!(concluded(Err(error)), (0, String::new()));
    }

    #[test]
    fn a_standard_output_that_cannot_be_written_is_a_failure() {
        let error = write_line(&mut Failing(io::ErrorKind::StorageFull), "table").unwrap_err();
        let (code, message) = concluded(Err(error));
        assert_eq!(code, 1);
        assert!(message.starts_with("error: cannot write to standard output: "), "{message}");
    }

    #[test]
    fn a_typed_error_keeps_its_words_when_wrapped() {
        let cause = "x".parse::<u32>().unwrap_err();
        assert_eq!(ExperimentError::failure(cause.clone()).to_string(), cause.to_string());
    }
}
