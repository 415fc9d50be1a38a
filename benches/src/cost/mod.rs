//! What every mechanism costs, by length, on every backend.
//!
//! [`options`] says what is asked, [`point`] is one thing that is timed, [`sweep`] takes the times, [`memory`] reads how much was allocated.
//! [`outcome`] holds the results, of which [`table`] and [`plot`] show times, exponents and [`crossover`] lengths; [`baseline`] compares them with those of an
//! earlier day.

pub mod baseline;
pub mod crossover;
pub mod memory;
pub mod options;
pub mod outcome;
pub mod plot;
pub mod point;
pub mod sweep;
pub mod table;
