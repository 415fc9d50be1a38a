//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, Flex, backend_extension};

use super::{COUNT, Operands, Operation};
#[cfg(feature = "cube")]
use crate::engine::extension as burn;
use crate::engine::fused::Operand;
use crate::engine::recomputed::{Gradient, recomputed};

/// [`Operands`] on one backend, or their gradients, as they pass from one backend to another.
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct List<B: Backend> {
    first: FloatTensor<B>,
    #[extension_type]
    second: Operand<B>,
    #[extension_type]
    third: Operand<B>,
    #[extension_type]
    fourth: Operand<B>,
}

impl<B: Backend> From<Operands<FloatTensor<B>>> for List<B> {
    fn from([first, second, third, fourth]: Operands<FloatTensor<B>>) -> Self {
        let first = first.expect("an operation has a first operand");
        Self { first, second: second.into(), third: third.into(), fourth: fourth.into() }
    }
}

impl<B: Backend> List<B> {
    fn operands(self) -> Operands<FloatTensor<B>> {
        let Self { first, second, third, fourth } = self;
        [Some(first), second.given(), third.given(), fourth.given()]
    }

    /// The same of another backend.
    #[cfg(feature = "ndarray")]
    pub(super) fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> List<O> {
        List::from(self.operands().map(|operand| operand.map(&map)))
    }
}

/// Operations of backends in main memory, which override both. On others they are composed of tensor operations, and nothing here is called.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait NativeOperator: Backend {
    /// The output; with automatic differentiation, with its gradients.
    #[fusion(default)]
    fn computed(#[extension_type] _operands: List<Self>, _operation: Arc<dyn Operation>) -> FloatTensor<Self> {
        panic!("{ELSEWHERE}")
    }

    /// Gradients of the operands from that of what [`computed`](Self::computed) returned.
    #[fusion(default)]
    fn computed_backward(
        #[extension_type] _operands: List<Self>,
        _gradient: FloatTensor<Self>,
        _operation: Arc<dyn Operation>,
    ) -> List<Self> {
        panic!("{ELSEWHERE}")
    }
}

const ELSEWHERE: &str = "operations of backends outside of main memory are composed of tensor operations";

impl NativeOperator for Flex {
    fn computed(operands: List<Self>, operation: Arc<dyn Operation>) -> FlexTensor {
        operation.output(operands.operands())
    }

    fn computed_backward(operands: List<Self>, gradient: FlexTensor, operation: Arc<dyn Operation>) -> List<Self> {
        operation.gradients(operands.operands(), gradient).into()
    }
}

impl<B: NativeOperator, C: CheckpointStrategy> NativeOperator for Autodiff<B, C> {
    fn computed(operands: List<Self>, operation: Arc<dyn Operation>) -> FloatTensor<Self> {
        recomputed::<B, C, _, COUNT>(operands.operands(), |operands, _has_gradient| {
            (B::computed(operands.into(), operation.clone()), Gradients(operation))
        })
    }
}

/// The gradients of an operation.
#[derive(Clone, Debug)]
struct Gradients(Arc<dyn Operation>);

impl<B: NativeOperator> Gradient<B, COUNT> for Gradients {
    fn of_operands(self, operands: Operands<FloatTensor<B>>, gradient: FloatTensor<B>, _wanted: [bool; COUNT]) -> Operands<FloatTensor<B>> {
        B::computed_backward(operands.into(), gradient, self.0).operands()
    }
}
