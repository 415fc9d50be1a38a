//! Operations in one pass over memory, numbers of 16 bits, and texts without padding.

pub mod adam;
pub mod fused;
pub mod precision;
pub mod unpadding;
