//! The program `recall`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::recall::main()
}
