//! Experiments that compare attention mechanisms: training, comparisons and tools, as a library.
//!
//! Each experiment is an [`Experiment`](session::experiment::Experiment) with a row in the [`table`]. [`programs`] contains the program for the experiments and
//! the tools: `analyse` shows the attention of a trained model ([`analyse`]), `claims` tests published claims again ([`tools::claims`]), `measure` measures
//! costs of trained models in rounds ([`tools::measure`]), `parity` runs a single attention for comparison with other code ([`tools::parity`]), and `compare`,
//! `data` and `status` present results and data sets of [`heedful_runs`] and [`heedful_data`].

#![warn(unreachable_pub)]
// Tests of one backend read where they compare.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod analyse;
#[cfg(doctest)]
mod book;
pub mod model;
pub mod prelude;
pub mod programs;
pub mod session;
pub mod table;
pub mod tasks;
pub mod tools;
pub mod train;
#[cfg(test)]
mod unknown_fields;
