//! The program `heedful`, which knows the mechanism.

// It counts what `heedful cost` reports as memory.
#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

fn main() -> std::process::ExitCode {
    third_party::register();
    heedful::main()
}
