//! Experiments that compare attention mechanisms: data, tokenisers, metrics, training, runs and reports, as a library.
//!
//! The binaries `mt`, `lm`, `glue` and `algorithmic` are thin: each is a [`Comparison`](comparison::Comparison) handed to [`comparison::main`]. The
//! binary `parity` runs a single attention for comparison with other code ([`parity`]).

pub mod algorithmic;
pub mod allocator;
pub mod backend;
pub mod batch;
pub mod classification;
pub mod comparison;
pub mod data;
pub mod error;
pub mod language;
pub mod mechanisms;
pub mod metrics;
pub mod model;
pub mod options;
pub mod parity;
pub mod published;
pub mod record;
pub mod report;
pub mod run_folder;
pub mod settings;
pub mod threads;
pub mod tokenise;
pub mod train;
pub mod translation;
