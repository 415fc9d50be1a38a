//! Parts of a layer, and what stands before the first and after the last.

pub mod adaptive;
pub mod depthwise;
pub mod embedding;
pub mod feed_forward;
pub mod gate;
pub mod loss;
pub mod norm;
pub mod position;
pub mod residual;
