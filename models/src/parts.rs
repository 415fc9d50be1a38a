//! Parts of a layer, and the modules before the first and after the last layer.

pub mod adaptive_softmax;
pub mod depthwise;
pub mod embedding;
pub mod feed_forward;
pub mod loss;
pub mod norm;
pub mod position;
pub mod residual;
pub mod residual_gate;
