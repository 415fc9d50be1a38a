//! The program `heedful`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::heedful::main()
}
