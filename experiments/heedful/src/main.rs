//! The program `heedful`.

use std::process::ExitCode;

use peak_alloc::PeakAlloc;

/// What `heedful cost` reads the memory in use from.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    heedful::main()
}
