//! Device failures: a missing driver, a device lost during a computation, or too little memory. Burn and the drivers report them as panics, on any thread.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};

use heedful_host::exit::ProgramError;

use crate::Backend;

/// Runs `run`, which computes on a backend. On an accelerator, a panic becomes one error that names the first panic and the `remedy`.
///
/// Meanwhile, panics on other threads are silent, so that only this error is printed. Do not run two of these calls at the same time.
///
/// # Errors
/// Those of `run`, and a failure for a panic.
pub fn guarded<T, E: From<ProgramError>>(backend: Backend, remedy: &str, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    if !backend.is_accelerator() {
        return run();
    }
    let (outcome, first) = caught(run);
    if let (Some(_), Some(reason)) = (&outcome, &first) {
        tracing::warn!("a thread of the backend {backend} stopped: {reason}");
    }
    outcome.unwrap_or_else(|| {
        let reason = first.unwrap_or_default();
        Err(ProgramError::failure(format!("the device of the backend {backend} failed: {reason}; {remedy}")).into())
    })
}

/// The result of `run`, none if it panicked, and the first panic on any thread, in one line. No panic is printed.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> (Option<T>, Option<String>) {
    let first = Arc::new(Mutex::new(None));
    let seen = first.clone();
    let before = panic::take_hook();
    // What follows from the first panic on other threads only hides it.
    panic::set_hook(Box::new(move |panic| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| reason(panic));
    }));
    let outcome = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(before);
    let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
    (outcome.ok(), first)
}

/// Message and place of a panic, in one line.
fn reason(panic: &PanicHookInfo<'_>) -> String {
    let message = one_line(panic.payload_as_str().unwrap_or("no reason is given"));
    match panic.location() {
        Some(place) => format!("{message} ({}:{})", place.file(), place.line()),
        None => message,
    }
}

/// A message of a driver without its line breaks.
pub(crate) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Set for the process of which a test reads what it prints.
    const ALONE: &str = "HEEDFUL_TEST_DEVICE_FAILS";

    /// What the test of this name prints to both streams in a process of its own; none where this is that process. The hook for panics belongs to the process,
    /// and other tests panic as well.
    pub(crate) fn printed_alone(name: &str) -> Option<[String; 2]> {
        if std::env::var_os(ALONE).is_some() {
            return None;
        }
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
        Some([output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()))
    }

    #[test]
    fn a_device_that_fails_gives_one_error_with_its_first_reason() {
        let Some([text, errors]) = printed_alone("device_failure::tests::a_device_that_fails_gives_one_error_with_its_first_reason") else {
            let failing = || -> Result<(), ProgramError> {
                let _ = std::thread::spawn(|| panic!("the device\n is lost")).join();
                panic!("no answer")
            };
            let error = guarded(Backend::Wgpu, "give a smaller model", failing).unwrap_err();
            println!("exit {}: {error}", error.exit_code());
            return;
        };
        for part in ["exit 1: the device of the backend wgpu failed: the device is lost (", "device_failure.rs:", "); give a smaller model"]
        {
            assert!(text.contains(part), "{text}{errors}");
        }
        assert!(!text.contains("no answer") && !errors.contains("panicked"), "{text}{errors}");
    }

    #[test]
    fn what_does_not_fail_is_handed_on() {
        assert!(guarded::<_, ProgramError>(Backend::Wgpu, "", || Ok(3)).is_ok_and(|number| number == 3));
        let refused = guarded(Backend::Wgpu, "", || Err::<(), _>(ProgramError::usage("no"))).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
    }
}
