//! How a program ends, and what the shell is told about it.
//!
//! Errors are of two kinds: *usage* (an invalid command or configuration: exit code 2, as clap itself returns for an unknown option) and *failure* (a valid
//! command that could not be completed: exit code 1). Each is one message. After a signal, a program saves what it needs to resume and ends with 130. A reader
//! that closes standard output early (`| head`) is no error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::whole_files::FileError;

/// Exit code of an invalid command: unknown option, mechanism or field, impossible combination, bad configuration file.
pub const USAGE_EXIT: u8 = 2;
/// Exit code of a run that failed: missing or bad data, unusable checkpoint, full disk, a loss that is not a number.
pub const FAILURE_EXIT: u8 = 1;
/// Exit code of a run stopped by Ctrl-C (128 + SIGINT), SIGTERM or SIGHUP: one code says that `--resume` goes on.
pub const INTERRUPTED_EXIT: u8 = 130;

/// The reason why a program ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The command or its configuration is invalid (exit code 2).
    #[error("{0}")]
    Usage(Box<dyn Error + Send + Sync>),
    /// A valid command could not be completed (exit code 1).
    #[error("{0}")]
    Failure(Box<dyn Error + Send + Sync>),
    /// A cooperating process has reported the error; this one ends with the same exit code and prints nothing.
    #[error("the first rank has reported why")]
    Reported(u8),
    /// The reader of standard output is gone. Nothing is printed and the exit code is 0.
    #[error("standard output was closed")]
    ClosedOutput,
}

impl ProgramError {
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
            Self::Usage(_) => USAGE_EXIT,
            Self::Failure(_) => FAILURE_EXIT,
            Self::Reported(code) => *code,
            Self::ClosedOutput => 0,
        }
    }
}

impl From<FileError> for ProgramError {
    fn from(error: FileError) -> Self {
        Self::failure(error)
    }
}

/// How a program that met no error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Everything asked for was done (exit code 0).
    Finished,
    /// Stopped by a signal after saving what is needed to resume (exit code 130).
    Interrupted,
}

/// Runs a program as the body of `main`: prints an error once, as `error: ...` on standard error, and turns the outcome into the exit code.
///
/// # Example
/// ```no_run
/// use heedful_host::exit::{Completion, main_with};
///
/// fn main() -> std::process::ExitCode {
///     main_with(|| Ok(Completion::Finished))
/// }
/// ```
pub fn main_with(run: impl FnOnce() -> Result<Completion, ProgramError>) -> ExitCode {
    ExitCode::from(conclude(run(), &mut io::stderr()))
}

/// Writes the message of an error to standard error, as [`main_with`] does, and returns an error that has only the exit code. For messages
/// that have to be written before the program ends.
pub fn reported(error: ProgramError) -> ProgramError {
    ProgramError::Reported(conclude(Err(error), &mut io::stderr()))
}

fn conclude(outcome: Result<Completion, ProgramError>, errors: &mut dyn Write) -> u8 {
    match outcome {
        Ok(Completion::Finished) => 0,
        Ok(Completion::Interrupted) => INTERRUPTED_EXIT,
        Err(error) => {
            if !matches!(error, ProgramError::ClosedOutput | ProgramError::Reported(_)) {
                // With standard error closed as well no message can be shown; the exit code still says it.
                let _ = writeln!(errors, "error: {}", visible(&error.to_string()));
            }
            error.exit_code()
        }
    }
}

/// A message in which control characters, which may come from files and names, are written as escapes: a raw carriage return would hide what stands before it.
/// Line ends and tabs are kept.
pub fn visible(message: &str) -> String {
    let is_kept = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    message.chars().fold(String::with_capacity(message.len()), |mut shown, character| {
        if is_kept(character) {
            shown.push(character)
        } else {
            shown.extend(character.escape_default())
        }
        shown
    })
}

/// Writes a line to standard output. Use it in place of `println!`, which panics when the reader has closed the pipe.
///
/// # Errors
/// [`ProgramError::ClosedOutput`] when the reader is gone, a failure when standard output cannot be written for another reason.
pub fn print_line(text: impl Display) -> Result<(), ProgramError> {
    write_line(&mut io::stdout().lock(), text)
}

fn write_line(output: &mut dyn Write, text: impl Display) -> Result<(), ProgramError> {
    of_output(writeln!(output, "{text}").and_then(|()| output.flush()))
}

/// Writes bytes as they are to standard output, for texts that other code makes.
///
/// # Errors
/// As [`print_line`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), ProgramError> {
    let mut output = io::stdout().lock();
    of_output(output.write_all(bytes).and_then(|()| output.flush()))
}

/// Converts the result of writing to standard output.
///
/// # Errors
/// As [`print_line`].
pub fn of_output(written: io::Result<()>) -> Result<(), ProgramError> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ProgramError::ClosedOutput,
        _ => ProgramError::failure(format!("cannot write to standard output: {error}")),
    })
}

/// Ends the process as [`main_with`] does, where only a part of a program has run.
pub fn end_with(outcome: Result<(), ProgramError>) -> ! {
    std::process::exit(conclude(outcome.map(|()| Completion::Finished), &mut io::stderr()).into())
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

    fn concluded(outcome: Result<Completion, ProgramError>) -> (u8, String) {
        let mut errors = Vec::new();
        let code = conclude(outcome, &mut errors);
        (code, String::from_utf8(errors).unwrap())
    }

    #[test]
    fn usage_exits_with_2_and_failure_with_1_and_each_prints_its_message_once() {
        assert_eq!(concluded(Err(ProgramError::usage("no such mechanism"))), (2, "error: no such mechanism\n".into()));
        assert_eq!(concluded(Err(ProgramError::failure("disk full"))), (1, "error: disk full\n".into()));
    }

    #[test]
    fn control_characters_of_a_message_are_escaped() {
        let message = "`a\r\u{1b}[2Kb\u{9b}\u{7f}` is no ü\n\tgive another";
        assert_eq!(concluded(Err(ProgramError::failure(message))).1, "error: `a\\r\\u{1b}[2Kb\\u{9b}\\u{7f}` is no ü\n\tgive another\n");
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
        assert_eq!(ProgramError::failure(cause.clone()).to_string(), cause.to_string());
    }
}
