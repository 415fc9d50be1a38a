//! The program `textgen`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::textgen::main()
}
