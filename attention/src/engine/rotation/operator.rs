//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

use super::{PairLayout, composed};
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
    /// `x` `[B, N, H, D]` turned by tables `[N, P]`.
    #[fusion(default)]
    fn rotated(x: FloatTensor<Self>, cos: FloatTensor<Self>, sin: FloatTensor<Self>, layout: PairLayout) -> FloatTensor<Self> {
        composed::rotated::<Self>(x, cos, sin, layout)
    }
}

impl<B: Rotations, C: CheckpointStrategy> Rotations for Autodiff<B, C> {
    fn rotated(x: FloatTensor<Self>, cos: FloatTensor<Self>, sin: FloatTensor<Self>, layout: PairLayout) -> FloatTensor<Self> {
        let node = x.node();
        let (x, cos, sin) = (x.into_primitive(), cos.into_primitive(), sin.into_primitive());
        match Rotation.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let output = B::rotated(x, cos.clone(), sin.clone(), layout);
                prepared.finish((cos, sin, layout), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::rotated(x, cos, sin, layout)),
        }
    }
}

/// The gradient: turned back, by the same factors.
#[derive(Debug)]
struct Rotation;

impl<B: Rotations> Backward<B, 1> for Rotation {
    type State = (FloatTensor<B>, FloatTensor<B>, PairLayout);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (cos, sin, layout) = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::rotated(gradient, cos, B::float_neg(sin), layout));
    }
}
