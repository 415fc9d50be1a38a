//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

use super::{PairLayout, tensor_ops};
use crate::engine::custom_gradient::passed;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// Rotations of pairs of channels.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(crate) trait Rotations: Backend {
    /// `x` `[B, N, H, D]` rotated by tables `[N, P]`.
    #[fusion(default)]
    fn rotated(x: FloatTensor<Self>, cos: FloatTensor<Self>, sin: FloatTensor<Self>, layout: PairLayout) -> FloatTensor<Self> {
        tensor_ops::rotated::<Self>(x, cos, sin, layout)
    }
}

#[cfg(feature = "ndarray")]
impl Rotations for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl Rotations for burn_cubecl::CubeBackend {}

impl<B: Rotations, C: CheckpointStrategy> Rotations for Autodiff<B, C> {
    fn rotated(x: FloatTensor<Self>, cos: FloatTensor<Self>, sin: FloatTensor<Self>, layout: PairLayout) -> FloatTensor<Self> {
        let (cos, sin) = (cos.into_primitive(), sin.into_primitive());
        passed::<B, C, _, 1>([x], |[x], _has_gradient| {
            let output = B::rotated(x, cos.clone(), sin.clone(), layout);
            // Rotated back, by the same factors.
            (output, move |gradient, _wanted| [Some(B::rotated(gradient, cos, B::float_neg(sin), layout))])
        })
    }
}
