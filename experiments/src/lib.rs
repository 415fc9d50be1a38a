//! Experiments that compare attention mechanisms: training, comparisons and tools, as a library.
//!
//! Each experiment is an [`Experiment`](experiment::Experiment), and all stand in one [`table`]. [`programs`] has the program of them and of the tools: `analyse` shows
//! the attention of a trained model ([`analyse`]), `claims` tests published claims again ([`claims`]), `measure` measures costs of trained models in rounds
//! ([`measure`]), `parity` runs a single attention for comparison with other code ([`parity`]), and `compare`, `data` and `status` show what
//! [`heedful_runs`] and [`heedful_data`] know.

#![warn(unreachable_pub)]
// Tests of one backend read where they compare.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod algorithmic;
pub mod analyse;
pub mod answers;
mod attention;
pub mod batch;
#[cfg(doctest)]
mod book;
pub mod claims;
pub mod classification;
pub mod comparison;
pub mod error;
pub mod experiment;
mod footprint;
pub mod image;
pub mod jobs;
pub mod language;
pub mod measure;
pub mod mechanisms;
pub mod memory_rl;
pub mod mixture_weights;
pub mod model;
pub mod options;
pub mod parity;
pub mod ponder;
pub mod pre_training;
pub mod prelude;
pub mod presets;
mod pretrained;
pub mod programs;
pub mod provenance;
pub mod recall;
pub mod slurm;
pub mod swap;
pub mod table;
pub mod text_classification;
pub mod text_generation;
pub mod text_to_text;
mod token_losses;
pub mod train;
pub mod translation;
#[cfg(test)]
mod unknown_fields;
