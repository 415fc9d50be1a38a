//! The program `parity`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::parity::main()
}
