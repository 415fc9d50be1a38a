//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, Flex, backend_extension};

use super::{COUNT, KeepingOperation, Operands};
use crate::engine::custom_gradient::differentiated;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;
use crate::engine::fused::Operand;
#[cfg(feature = "ndarray")]
use crate::tensors::main_memory::{flex, ndarray};

/// [`Operands`] on one backend, their gradients, or results, for conversion between backends.
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct OperandList<B: Backend> {
    #[extension_type]
    first: Operand<B>,
    #[extension_type]
    second: Operand<B>,
    #[extension_type]
    third: Operand<B>,
    #[extension_type]
    fourth: Operand<B>,
    #[extension_type]
    fifth: Operand<B>,
    #[extension_type]
    sixth: Operand<B>,
}

impl<B: Backend> From<Operands<FloatTensor<B>>> for OperandList<B> {
    fn from(operands: Operands<FloatTensor<B>>) -> Self {
        let [first, second, third, fourth, fifth, sixth] = operands.map(Operand::from);
        Self { first, second, third, fourth, fifth, sixth }
    }
}

impl<B: Backend> OperandList<B> {
    pub(super) fn operands(self) -> Operands<FloatTensor<B>> {
        let Self { first, second, third, fourth, fifth, sixth } = self;
        [first, second, third, fourth, fifth, sixth].map(Operand::given)
    }

    /// Converts to another backend.
    #[cfg(feature = "ndarray")]
    fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> OperandList<O> {
        OperandList::from(self.operands().map(|operand| operand.map(&map)))
    }
}

/// Operations of backends in main memory, which override `results` and `gradients`. Other backends use tensor operations and never call this.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait CpuOperator: Backend {
    /// The output and, if gradients follow, the further results that they read.
    #[fusion(default)]
    fn results(
        #[extension_type] _operands: OperandList<Self>,
        _operation: Arc<dyn KeepingOperation>,
        _has_gradient: bool,
    ) -> OperandList<Self> {
        panic!("{ELSEWHERE}")
    }

    /// Gradients of the operands, from the operands, the saved results, and the gradient of the output.
    #[fusion(default)]
    fn gradients(
        #[extension_type] _operands: OperandList<Self>,
        #[extension_type] _results: OperandList<Self>,
        _gradient: FloatTensor<Self>,
        _operation: Arc<dyn KeepingOperation>,
    ) -> OperandList<Self> {
        panic!("{ELSEWHERE}")
    }

    /// The output, with gradients under autodiff.
    #[fusion(default)]
    fn computed(#[extension_type] operands: OperandList<Self>, operation: Arc<dyn KeepingOperation>) -> FloatTensor<Self> {
        Self::results(operands, operation, false).first.given().expect("an operation has an output")
    }
}

const ELSEWHERE: &str = "operations of backends outside of main memory are composed of tensor operations";

impl CpuOperator for Flex {
    fn results(operands: OperandList<Self>, operation: Arc<dyn KeepingOperation>, has_gradient: bool) -> OperandList<Self> {
        operation.results(operands.operands(), has_gradient).into()
    }

    fn gradients(
        operands: OperandList<Self>,
        results: OperandList<Self>,
        gradient: FlexTensor,
        operation: Arc<dyn KeepingOperation>,
    ) -> OperandList<Self> {
        operation.gradients_of(operands.operands(), results.operands(), gradient).into()
    }
}

#[cfg(feature = "ndarray")]
impl CpuOperator for burn::backend::NdArray {
    fn results(operands: OperandList<Self>, operation: Arc<dyn KeepingOperation>, has_gradient: bool) -> OperandList<Self> {
        Flex::results(operands.map(flex), operation, has_gradient).map(ndarray)
    }

    fn gradients(
        operands: OperandList<Self>,
        results: OperandList<Self>,
        gradient: FloatTensor<Self>,
        operation: Arc<dyn KeepingOperation>,
    ) -> OperandList<Self> {
        Flex::gradients(operands.map(flex), results.map(flex), flex(gradient), operation).map(ndarray)
    }
}

#[cfg(feature = "cube")]
impl CpuOperator for burn_cubecl::CubeBackend {}

impl<B: CpuOperator, C: CheckpointStrategy> CpuOperator for Autodiff<B, C> {
    fn computed(operands: OperandList<Self>, operation: Arc<dyn KeepingOperation>) -> FloatTensor<Self> {
        differentiated::<B, C, _, COUNT>(operands.operands(), true, |operands, has_gradient| {
            let mut results = B::results(operands.into(), operation.clone(), has_gradient).operands();
            let output = results[0].take().expect("an operation has an output");
            results[0] = operation.reads_output().then(|| output.clone());
            (output, move |operands, gradient, _wanted| {
                B::gradients(OperandList::from(operands), OperandList::from(results), gradient, operation).operands()
            })
        })
    }
}
