//! Training utilities: optimisers, weight files, counts of parameters and operations.

#[cfg(feature = "train")]
pub mod learner;
pub mod multiplications;
pub mod optimiser;
pub mod parameter_count;
pub mod weights;
