//! Failures of a device in the middle of a run: a driver that loses it, or memory that does not suffice. Burn and the drivers report them by panics, on any
//! thread.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::Backend;
use crate::error::ExperimentError;

/// Runs what computes on a backend. With an accelerator a panic becomes one error, which names the first panic and the remedy.
///
/// # Errors
/// Those of `run`, and a failure for a panic.
pub(crate) fn guarded<T>(backend: Backend, run: impl FnOnce() -> Result<T, ExperimentError>) -> Result<T, ExperimentError> {
    if !backend.is_accelerator() {
        return run();
    }
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
    if let (Ok(_), Some(reason)) = (&outcome, &first) {
        tracing::warn!("a thread of the backend {backend} stopped: {reason}");
    }
    outcome.unwrap_or_else(|_| Err(failed(backend, &first.unwrap_or_default())))
}

fn failed(backend: Backend, reason: &str) -> ExperimentError {
    ExperimentError::failure(format!(
        "the device of the backend {backend} failed: {reason}; if its memory is too small, give smaller batches or a smaller model; the last checkpoint is whole, \
         and --resume goes on from it"
    ))
}

/// Message and place of a panic, in one line.
fn reason(panic: &PanicHookInfo<'_>) -> String {
    let message = panic.payload_as_str().unwrap_or("no reason is given").split_whitespace().collect::<Vec<_>>().join(" ");
    match panic.location() {
        Some(place) => format!("{message} ({}:{})", place.file(), place.line()),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the process of which the test reads the error.
    const ALONE: &str = "HEEDFUL_TEST_DEVICE_FAILS";

    // The hook for panics belongs to the process, and other tests panic as well.
    #[test]
    fn a_device_that_fails_gives_one_error_with_its_first_reason() {
        if std::env::var_os(ALONE).is_some() {
            let failing = || -> Result<(), ExperimentError> {
                let _ = std::thread::spawn(|| panic!("the device\n is lost")).join();
                panic!("no answer")
            };
            let error = guarded(Backend::Wgpu, failing).unwrap_err();
            println!("exit {}: {error}", error.exit_code());
            return;
        }
        let name = "device_failure::tests::a_device_that_fails_gives_one_error_with_its_first_reason";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
        let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        for part in ["exit 1: the device of the backend wgpu failed: the device is lost (", "device_failure.rs:", "--resume", "smaller"] {
            assert!(text.contains(part), "{text}{errors}");
        }
        assert!(!text.contains("no answer") && !errors.contains("panicked"), "{text}{errors}");
    }

    #[test]
    fn what_does_not_fail_is_handed_on() {
        assert!(guarded(Backend::Wgpu, || Ok(3)).is_ok_and(|number| number == 3));
        let refused = guarded(Backend::Wgpu, || Err::<(), _>(ExperimentError::usage("no"))).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
    }
}
