//! An experiment as a program of its own: `heedful mt` without the rest.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::experiment::main::<heedful_experiments::tasks::translation::Translation>()
}
