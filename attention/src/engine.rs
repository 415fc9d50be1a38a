//! The engine: executes the description that mechanisms lower to.
//!
//! Every mechanism is a choice of logits or densities, visibility, normaliser and values. It writes that choice down as an [`AttentionProgram`]; masking,
//! the softmax, rows without a key, dropout and the product with the values exist once, here.
//!
//! [`reference`](mod@reference) executes a program with dense tensors and can be read line by line against the papers. [`fused`] executes it tile by tile
//! and holds no `Q x K` matrix, in training neither. [`blocked`] gathers blocks of queries with the keys that they can see: for given densities, and for
//! patterns on devices without kernels that bring scattered rows together.
//!
//! What is no matrix of pairs at all, a state that each position changes and reads, is a [`recurrence`].

pub mod blocked;
pub(crate) mod convolution;
mod cpu;
#[doc(hidden)]
pub mod custom_gradient;
pub mod dropout;
pub(crate) mod elu;
mod entmax;
#[doc(hidden)]
pub mod exponential;
#[cfg(feature = "cube")]
#[doc(hidden)]
pub mod extension;
pub mod fused;
mod gaussian_weights;
pub mod gelu;
pub(crate) mod glu;
pub mod heads;
pub mod linear;
mod normaliser;
mod per_key;
pub(crate) mod position_kernels;
mod program;
pub mod recurrence;
pub mod reference;
pub(crate) mod rotation;
pub(crate) mod row_norm;
mod soft_cap;
mod softpick;
mod transposed;

pub use gaussian_weights::{GaussianShape, GaussianWeights};
pub use normaliser::Normaliser;
use program::greatest_log_ratio;
pub use program::{AttentionProgram, Bias, Content, Dropout, Kronecker, LogitTerms, Ramp, SoftSpan, Weighting, relative_shift};
pub(crate) use program::{columns_from, least_sum};
pub use soft_cap::SoftCap;
pub(crate) use transposed::transposed;
