//! What a program said.

use std::process::Output;

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts the exit code and that each part stands in the one error message, which is the last line of standard error.
#[track_caller]
pub fn refused(output: &Output, code: i32, parts: &[&str]) {
    let errors = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    let message = errors.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("no error message in: {errors}"));
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
}
