//! The program `mt`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::mt::main()
}
