//! The program `memory-rl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::memory_rl::main()
}
