//! The program `lm`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::lm::main()
}
