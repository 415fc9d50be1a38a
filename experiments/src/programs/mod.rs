//! The programs of the package, each as a function.
//!
//! A program of a user's own calls one of them after it has made its mechanisms known:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! # mod mine {
//! #     pub use heedful_attention::mechanisms::uniform::UniformConfig as MineConfig;
//! # }
//! fn main() -> ExitCode {
//!     heedful_attention::registry::register::<mine::MineConfig>().expect("no other mechanism has this name");
//!     heedful_experiments::programs::mt::main()
//! }
//! ```

pub mod algorithmic;
mod analyse;
pub mod claims;
pub mod classify;
mod compare;
mod data;
pub mod experiment;
pub mod glue;
pub mod heedful;
pub mod image;
pub mod lm;
mod measure;
pub mod memory_rl;
pub mod mlm;
pub mod mt;
mod parity;
pub mod ponder;
pub mod recall;
mod status;
pub mod swap;
pub mod textgen;
pub mod track;
