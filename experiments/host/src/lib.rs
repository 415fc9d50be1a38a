//! The machine under a program: [threads] that compute, processor and memory ([`machine`]), other processes ([`process`]), files that are never half written
//! ([`whole_files`]), signals ([`interrupt`]), [progress bars](progress), and how a program ends ([`exit`]). [`provenance`] records what computed a result;
//! [`rounds`] stores costs that were measured in turn.
//!
//! ```
//! use heedful_host::machine::Machine;
//! use heedful_host::provenance::Provenance;
//! use heedful_host::threads::among_workers;
//!
//! let provenance = among_workers(|| Provenance::built_from("unknown", "unknown", Vec::new()));
//! println!("{}, {} threads", Machine::here().cpu, provenance.threads);
//! ```

#![warn(unreachable_pub)]

pub mod allocator;
pub mod checksum;
pub mod command;
pub mod display;
pub mod exit;
pub mod interrupt;
pub mod machine;
pub mod names;
pub mod process;
pub mod progress;
pub mod provenance;
pub mod rounds;
pub mod threads;
pub mod whole_files;
