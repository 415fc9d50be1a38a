//! The operator on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{Flex, NdArray};

use super::Scale;
use super::operator::{Operands, RowNormalisation};
use crate::engine::fused::ndarray::{flex, ndarray};

impl RowNormalisation for NdArray {
    fn rows_normalised(operands: Operands<Self>, scale: Scale) -> NdArrayTensor {
        ndarray(Flex::rows_normalised(operands.map(flex), scale))
    }

    fn rows_normalised_backward(operands: Operands<Self>, gradient: NdArrayTensor, scale: Scale) -> Operands<Self> {
        Flex::rows_normalised_backward(operands.map(flex), flex(gradient), scale).map(ndarray)
    }
}
