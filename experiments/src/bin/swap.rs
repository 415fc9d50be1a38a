//! The program `swap`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::swap::main()
}
