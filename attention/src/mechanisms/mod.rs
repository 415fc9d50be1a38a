//! The mechanisms, one file each, named as their papers name them.

pub mod dot_product;
pub mod gaussian;
pub mod local_1d;
pub mod local_2d;
pub mod mixture;
pub mod sparse_fixed;
pub mod sparse_strided;
pub mod synthesizer_dense;
pub mod synthesizer_factorized_dense;
pub mod synthesizer_factorized_random;
pub mod synthesizer_random;
pub mod uniform;
