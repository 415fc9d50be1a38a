//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, backend_extension};

use crate::engine::fused::Operand;
use crate::engine::recomputed::{Gradient, recomputed};
#[cfg(feature = "cube")]
use crate::extension as burn;

/// What a convolution is computed from, on one backend; the same for their gradients. Letters are those of [`Convolution`](super::Convolution).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct Operands<B: Backend> {
    /// `[B, N, C]`.
    pub x: FloatTensor<B>,
    /// `[w, C]`.
    pub weight: FloatTensor<B>,
    /// `[C]`.
    #[extension_type]
    pub bias: Operand<B>,
    /// `[B, w - 1, C]`.
    #[extension_type]
    pub before: Operand<B>,
}

/// Number of [`Operands`].
const COUNT: usize = 4;

impl<B: Backend> Operands<B> {
    /// The same of another backend, or made anew.
    pub(super) fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> Operands<O> {
        Operands::from_list(self.list().map(|operand| operand.map(&map)))
    }

    fn list(self) -> [Option<FloatTensor<B>>; COUNT] {
        let Self { x, weight, bias, before } = self;
        [Some(x), Some(weight), bias.given(), before.given()]
    }

    fn from_list([x, weight, bias, before]: [Option<FloatTensor<B>>; COUNT]) -> Self {
        let given = |x: Option<FloatTensor<B>>| x.expect("there are inputs and weights");
        Self { x: given(x), weight: given(weight), bias: bias.into(), before: before.into() }
    }
}

/// Convolutions of backends in main memory, which override both. On others [`Convolution::composed`](super::Convolution) takes their place, and nothing here is
/// called.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait CausalConvolution: Backend {
    /// `[B, N, C]`; with automatic differentiation, with its gradient.
    #[fusion(default)]
    fn convolved(#[extension_type] _operands: Operands<Self>) -> FloatTensor<Self> {
        panic!("{ELSEWHERE}")
    }

    /// Gradients of the operands from that of what [`convolved`](Self::convolved) returned.
    #[fusion(default)]
    fn convolved_backward(#[extension_type] _operands: Operands<Self>, _gradient: FloatTensor<Self>) -> Operands<Self> {
        panic!("{ELSEWHERE}")
    }
}

const ELSEWHERE: &str = "convolutions of backends outside of main memory are composed of tensor operations";

impl<B: CausalConvolution, C: CheckpointStrategy> CausalConvolution for Autodiff<B, C> {
    fn convolved(operands: Operands<Self>) -> FloatTensor<Self> {
        recomputed::<B, C, _, COUNT>(operands.list(), |operands, _has_gradient| (B::convolved(Operands::from_list(operands)), OfInputs))
    }
}

/// The gradient, for which sums over taps are computed once more.
#[derive(Clone, Debug)]
struct OfInputs;

impl<B: CausalConvolution> Gradient<B, COUNT> for OfInputs {
    fn of_operands(
        self,
        operands: [Option<FloatTensor<B>>; COUNT],
        gradient: FloatTensor<B>,
        _wanted: [bool; COUNT],
    ) -> [Option<FloatTensor<B>>; COUNT] {
        B::convolved_backward(Operands::from_list(operands), gradient).list()
    }
}
