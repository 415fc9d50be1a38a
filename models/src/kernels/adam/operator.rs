//! The operators on one backend.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

#[cfg(feature = "cube")]
use heedful_attention::engine::extension as burn;
#[cfg(feature = "ndarray")]
use heedful_attention::tensors::main_memory::{flex, ndarray};

use super::{AdamStep, tensor_ops};

/// Operations on a parameter and its gradient.
///
/// The default bodies are composed of tensor operations and run on every backend; backends override them with kernels.
#[backend_extension(Flex, NdArray: cfg(feature = "ndarray"), Cube: cfg(feature = "cube"), Fusion: cfg(feature = "cube"))]
pub(crate) trait ParameterUpdate: Backend {
    /// Parameter, first and second moment after a step.
    #[fusion(meta = |parameter, _gradient, first, second, _step| (parameter.clone(), first.clone(), second.clone()))]
    fn adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        step: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        tensor_ops::adam::<Self>(parameter, gradient, first, second, step)
    }

    /// Sum of squares, `[1]`.
    #[fusion(default)]
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor_ops::sum_of_squares::<Self>(x)
    }
}

#[cfg(feature = "ndarray")]
impl ParameterUpdate for burn::backend::NdArray {
    fn adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        step: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (parameter, first, second) = burn::backend::Flex::adam(flex(parameter), flex(gradient), flex(first), flex(second), step);
        (ndarray(parameter), ndarray(first), ndarray(second))
    }

    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        ndarray(burn::backend::Flex::sum_of_squares(flex(x)))
    }
}
