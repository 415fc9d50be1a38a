//! The program `classify`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::classify::main()
}
