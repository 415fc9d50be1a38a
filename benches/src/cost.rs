//! The cost of every mechanism, by length, on every backend.
//!
//! [`options`] holds the options, [`point`] is a single measurement, [`sweep`] takes the times, and [`memory`] reads how much was allocated.
//! [`outcome`] holds the results; [`table`] and [`plot`] show times, exponents and [`crossover`] lengths, [`baseline`] compares them with an earlier run, and
//! [`report`] shows those of a folder again. [`depth`] measures how the memory of whole models grows with their depth, [`halting`] how their time falls as
//! positions halt earlier, [`roofline`] how near kernels come to what the machine can do.

pub mod baseline;
pub mod crossover;
pub mod depth;
pub(crate) mod estimate;
pub mod halting;
pub mod memory;
pub mod options;
pub mod outcome;
pub mod plot;
pub mod point;
pub mod report;
pub mod roofline;
pub mod sweep;
pub mod table;
