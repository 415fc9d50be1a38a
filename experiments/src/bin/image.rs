//! The program `image`.

use std::process::ExitCode;

fn main() -> ExitCode {
    heedful_experiments::programs::image::main()
}
