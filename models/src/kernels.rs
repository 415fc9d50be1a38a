//! Single-pass kernels, 16-bit numbers, and unpadded batches.

pub mod adam;
pub mod fused;
pub mod precision;
pub mod unpadding;
