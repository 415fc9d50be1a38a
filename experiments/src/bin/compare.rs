//! The program `compare`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::compare::main()
}
