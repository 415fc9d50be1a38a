//! The program `cost`.

use std::process::ExitCode;

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    heedful_benches::programs::cost::main()
}
