//! Expected panics without output on standard error, so that a passing suite does not look like a failing one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread;

thread_local! {
    /// Whether this thread expects a panic.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `attempt`, which should panic, and captures the message in the result; panics of other threads are printed as usual.
pub(super) fn expected_panic<T>(attempt: impl FnOnce() -> T) -> thread::Result<T> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_EXPECTED.get() {
                shown(panic);
            }
        }));
    });
    let before = IS_EXPECTED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(attempt));
    IS_EXPECTED.set(before);
    result
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn expected_panics_say_nothing_and_others_do() {
        const CHILD: &str = "HEEDFUL_TEST_EXPECTED_PANIC";
        if std::env::var_os(CHILD).is_some() {
            let error = expected_panic(|| panic!("this is expected")).unwrap_err();
            assert_eq!(error.downcast_ref::<&str>(), Some(&"this is expected"));
            assert!(catch_unwind(|| panic!("this is not")).is_err());
            return;
        }
        let name = "conformance::expected_panic::tests::expected_panics_say_nothing_and_others_do";
        let arguments = ["--exact", name, "--nocapture", "--test-threads=1"];
        let output = Command::new(std::env::current_exe().unwrap()).args(arguments).env(CHILD, "").output().unwrap();
        let shown = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("this is not") && !shown.contains("this is expected"), "{shown}");
    }
}
