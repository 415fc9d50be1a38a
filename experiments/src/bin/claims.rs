//! The program `claims`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::claims::main()
}
