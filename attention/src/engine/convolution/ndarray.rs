//! The operator on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{Flex, NdArray};

use super::operator::{CausalConvolution, Operands};
use crate::engine::fused::ndarray::{flex, ndarray};

impl CausalConvolution for NdArray {
    fn convolved(operands: Operands<Self>) -> NdArrayTensor {
        ndarray(Flex::convolved(operands.map(flex)))
    }

    fn convolved_backward(operands: Operands<Self>, gradient: NdArrayTensor) -> Operands<Self> {
        Flex::convolved_backward(operands.map(flex), flex(gradient)).map(ndarray)
    }
}
