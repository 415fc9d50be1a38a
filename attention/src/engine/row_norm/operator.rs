//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, backend_extension};

use super::Scale;
use crate::engine::fused::Operand;
use crate::engine::recomputed::{Gradient, recomputed};
#[cfg(feature = "cube")]
use crate::extension as burn;

/// What rows are normalised from, on one backend; the same for their gradients. Letters are those of [`RowNorm`](super::RowNorm).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct Operands<B: Backend> {
    /// `[B, H, N, D]`.
    pub x: FloatTensor<B>,
    /// `[D]`.
    #[extension_type]
    pub gain: Operand<B>,
    /// `[B, H, N, D]`.
    #[extension_type]
    pub gate: Operand<B>,
}

/// Number of [`Operands`].
const COUNT: usize = 3;

impl<B: Backend> Operands<B> {
    /// The same of another backend.
    #[cfg(feature = "ndarray")]
    pub(super) fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> Operands<O> {
        Operands::from_list(self.list().map(|operand| operand.map(&map)))
    }

    fn list(self) -> [Option<FloatTensor<B>>; COUNT] {
        let Self { x, gain, gate } = self;
        [Some(x), gain.given(), gate.given()]
    }

    fn from_list([x, gain, gate]: [Option<FloatTensor<B>>; COUNT]) -> Self {
        Self { x: x.expect("there are rows"), gain: gain.into(), gate: gate.into() }
    }
}

/// Normalisations of backends in main memory, which override both. On others [`RowNorm::composed`](super::RowNorm) takes their place, and nothing here is called.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait RowNormalisation: Backend {
    /// `[B, H, N, D]`; with automatic differentiation, with its gradient.
    #[fusion(default)]
    fn rows_normalised(#[extension_type] _operands: Operands<Self>, _scale: Scale) -> FloatTensor<Self> {
        panic!("{ELSEWHERE}")
    }

    /// Gradients of the operands from that of what [`rows_normalised`](Self::rows_normalised) returned.
    #[fusion(default)]
    fn rows_normalised_backward(
        #[extension_type] _operands: Operands<Self>,
        _gradient: FloatTensor<Self>,
        _scale: Scale,
    ) -> Operands<Self> {
        panic!("{ELSEWHERE}")
    }
}

const ELSEWHERE: &str = "normalisations of backends outside of main memory are composed of tensor operations";

impl<B: RowNormalisation, C: CheckpointStrategy> RowNormalisation for Autodiff<B, C> {
    fn rows_normalised(operands: Operands<Self>, scale: Scale) -> FloatTensor<Self> {
        recomputed::<B, C, _, COUNT>(operands.list(), |operands, _has_gradient| {
            (B::rows_normalised(Operands::from_list(operands), scale), OfScale(scale))
        })
    }
}

/// The gradient, for which lengths are computed once more.
#[derive(Clone, Debug)]
struct OfScale(Scale);

impl<B: RowNormalisation> Gradient<B, COUNT> for OfScale {
    fn of_operands(
        self,
        operands: [Option<FloatTensor<B>>; COUNT],
        gradient: FloatTensor<B>,
        _wanted: [bool; COUNT],
    ) -> [Option<FloatTensor<B>>; COUNT] {
        B::rows_normalised_backward(Operands::from_list(operands), gradient, self.0).list()
    }
}
