//! Tools beside the experiments.

pub mod claims;
pub mod measure;
pub mod parity;
