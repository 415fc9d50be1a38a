//! The program as a function. One of a user's own calls it after it has made its mechanisms known:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! # mod mine {
//! #     pub use heedful_attention::mechanisms::uniform::UniformConfig as MineConfig;
//! # }
//! fn main() -> ExitCode {
//!     heedful_attention::registry::register::<mine::MineConfig>().expect("no other mechanism has this name");
//!     heedful_experiments::programs::heedful::main()
//! }
//! ```

mod analyse;
mod claims;
mod compare;
mod data;
pub mod experiment;
pub mod heedful;
mod measure;
mod parity;
mod status;
