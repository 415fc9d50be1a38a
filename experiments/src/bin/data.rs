//! The program `data`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::data::main()
}
