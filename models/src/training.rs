//! What training needs beside a model: optimisers, weights in files, counts of parameters and operations.

pub mod arithmetic;
#[cfg(feature = "train")]
pub mod learner;
pub mod optimiser;
pub mod parameters;
pub mod weights;
