//! The program `backends`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_benches::programs::backends::main()
}
