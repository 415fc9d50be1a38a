//! The program `track`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::track::main()
}
