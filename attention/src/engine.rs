//! The engine executes the descriptions to which mechanisms lower.
//!
//! A mechanism selects logits or densities, visibility, normaliser and values, and lowers the selection to an [`AttentionProgram`]. Masking, the softmax, empty
//! rows, dropout and the product with the values are implemented once, here.
//!
//! [`reference`](mod@reference) executes a program with dense tensors, for line-by-line comparison with the papers. [`fused`] executes it tile by tile and
//! never materialises a `Q x K` matrix, not even in training. [`blocked`] gathers blocks of queries with their visible keys: for given densities, and for
//! patterns on devices without kernels that gather scattered rows.
//!
//! A mechanism without a matrix of pairs, whose positions read and update a state, is a [`recurrence`].

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
