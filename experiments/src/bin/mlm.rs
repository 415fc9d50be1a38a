//! The program `mlm`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::mlm::main()
}
