//! A stop request, raised by Ctrl-C or the system, and obeyed between training steps and during evaluation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Signals this soon after the first are the same wish: `timeout` and schedulers send one to the process and one to its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// A shared flag that asks a run to stop. The run then saves a checkpoint and returns.
///
/// Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag raised by Ctrl-C (SIGINT), by SIGTERM, which schedulers and `docker stop` send, and by SIGHUP, unless that is ignored as under `nohup`.
    /// On Windows it is raised by Ctrl-C, Ctrl-Break, and the end of the console or the session.
    ///
    /// A second signal more than a second after the first ends the process at once with exit code 130.
    ///
    /// # Errors
    /// If the process has a handler already: call this once, at its start.
    pub fn on_signal() -> Result<Self, ctrlc::Error> {
        let interrupt = Self::new();
        let flag = interrupt.clone();
        let mut first: Option<Instant> = None;
        let hangup = Hangup::now();
        ctrlc::set_handler(move || {
            flag.raise();
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_WISH {
                std::process::exit(i32::from(crate::exit::INTERRUPTED_EXIT));
            }
        })?;
        hangup.keep_ignored();
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

/// What SIGHUP did before a handler was set.
struct Hangup {
    is_ignored: bool,
}

impl Hangup {
    #[cfg(unix)]
    fn now() -> Self {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        #[allow(unsafe_code, reason = "sigaction has no safe wrapper among the dependencies")]
        // SAFETY: without a new action sigaction only writes the present one, into memory of that type, for which zeros are valid.
        let (status, action) = unsafe { (libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()), action.assume_init()) };
        Self { is_ignored: status == 0 && action.sa_sigaction == libc::SIG_IGN }
    }

    #[cfg(unix)]
    fn keep_ignored(&self) {
        if self.is_ignored {
            #[allow(unsafe_code, reason = "signal has no safe wrapper among the dependencies")]
            // SAFETY: SIG_IGN is a valid disposition of SIGHUP and runs no code of ours.
            unsafe {
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
            }
        }
    }

    #[cfg(not(unix))]
    fn now() -> Self {
        Self { is_ignored: false }
    }

    #[cfg(not(unix))]
    fn keep_ignored(&self) {}
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
