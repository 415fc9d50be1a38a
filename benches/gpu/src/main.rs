//! The program `heedful` for a machine with a GPU and nothing else, with commands that tell what the GPU can do.

mod devices;
mod kernels;
mod products;

use std::process::ExitCode;

use heedful_experiments::programs::heedful::FurtherTool;
use peak_alloc::PeakAlloc;

/// What `cost` reads the memory in use from.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    heedful::main_with_tools(&[
        FurtherTool { command: devices::command, run: devices::main },
        FurtherTool { command: kernels::command, run: kernels::main },
        FurtherTool { command: products::command, run: products::main },
    ])
}
