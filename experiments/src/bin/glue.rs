//! The program `glue`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::glue::main()
}
