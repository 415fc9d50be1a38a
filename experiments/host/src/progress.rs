//! Progress bars of a process, and log lines between them.

use std::io::{self, Write};
use std::sync::OnceLock;

use indicatif::MultiProgress;

/// The place of every progress bar of the process, on standard error; log lines are written between its redraws.
pub fn progress() -> &'static MultiProgress {
    static PROGRESS: OnceLock<MultiProgress> = OnceLock::new();
    PROGRESS.get_or_init(MultiProgress::new)
}

/// Standard error with the progress bars cleared while a log line is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct BesideBars;

impl Write for BesideBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Loggers escape other control characters than this one, behind which a line would begin again.
        let line = String::from_utf8_lossy(bytes).replace('\r', "\\r");
        progress().suspend(|| io::stderr().write_all(line.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
