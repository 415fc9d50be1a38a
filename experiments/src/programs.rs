//! The program `heedful` and programs of one experiment, as functions.

mod analyse;
mod claims;
mod compare;
mod data;
pub mod experiment;
pub mod heedful;
mod measure;
mod parity;
mod status;
