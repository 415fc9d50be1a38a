//! What a program knows of the machine it runs on: [backends](backend) by name and how their devices fail ([`device_failure`]), the [threads] that compute,
//! processor and memory ([`machine`]), other processes ([`process`]), files that are never half written ([`whole_files`]), and how a program ends ([`exit`]).
//! [`provenance`] says what a result was computed by, [`rounds`] holds costs that were measured in turn.
//!
//! ```
//! use heedful_host::backend::Backend;
//! use heedful_host::machine::Machine;
//! use heedful_host::provenance::Provenance;
//! use heedful_host::threads::among_workers;
//!
//! let device = "flex".parse::<Backend>()?.device()?;
//! let provenance = among_workers(|| Provenance::built_from("unknown", "unknown"));
//! println!("{device:?} on {}, {} threads", Machine::here().cpu, provenance.threads);
//! # Ok::<(), heedful_host::backend::BackendError>(())
//! ```

#![warn(unreachable_pub)]

pub mod allocator;
pub mod backend;
pub mod checksum;
pub mod command;
pub mod device_failure;
pub mod exit;
pub mod machine;
pub mod names;
pub mod process;
pub mod provenance;
pub mod rounds;
pub mod threads;
pub mod whole_files;
