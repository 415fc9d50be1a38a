//! The program `algorithmic`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::algorithmic::main()
}
