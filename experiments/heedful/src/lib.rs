//! The program `heedful` as a function, for your own program with further mechanisms:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! // What `heedful cost` reads the memory in use from.
//! #[global_allocator]
//! static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;
//!
//! # mod mine {
//! #     pub use heedful_attention::mechanisms::uniform::UniformConfig as MineConfig;
//! # }
//! fn main() -> ExitCode {
//!     heedful_attention::registry::register::<mine::MineConfig>().expect("no other mechanism has this name");
//!     heedful::main()
//! }
//! ```

use std::process::ExitCode;

use heedful_benches::programs::{backends, cost};
use heedful_experiments::programs::heedful::{self, FurtherTool};

/// Reads the options from the command line and runs.
pub fn main() -> ExitCode {
    main_with_tools(&[])
}

/// The same with further tools.
pub fn main_with_tools(further: &[FurtherTool]) -> ExitCode {
    let of_benches =
        [FurtherTool { command: backends::command, run: backends::main }, FurtherTool { command: cost::command, run: cost::main }];
    heedful::main(&[&of_benches, further].concat())
}
