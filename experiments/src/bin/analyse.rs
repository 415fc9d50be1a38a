//! The program `analyse`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::analyse::main()
}
