//! The program `ponder`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::ponder::main()
}
