//! The program `peers`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_benches::programs::peers::main()
}
