//! A wish to stop, raised by Ctrl-C and obeyed by the training loop between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag shared between whoever asks a run to stop and the run, which then saves a checkpoint and returns.
///
/// Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag raised by Ctrl-C (SIGINT). A second Ctrl-C ends the process at once with exit code 130.
    ///
    /// # Errors
    /// If the process has a handler already: call this once, at its start.
    pub fn on_ctrl_c() -> Result<Self, ctrlc::Error> {
        let interrupt = Self::new();
        let flag = interrupt.clone();
        ctrlc::set_handler(move || {
            if flag.0.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })?;
        Ok(interrupt)
    }

    /// Asks the run to stop.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the run was asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_flag() {
        let interrupt = Interrupt::new();
        let clone = interrupt.clone();
        assert!(!clone.is_raised());
        interrupt.raise();
        assert!(clone.is_raised());
    }
}
