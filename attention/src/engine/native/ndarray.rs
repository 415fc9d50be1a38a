//! The operator on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use std::sync::Arc;

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{Flex, NdArray};

use super::Operation;
use super::operator::{List, NativeOperator};
use crate::engine::fused::ndarray::{flex, ndarray};

impl NativeOperator for NdArray {
    fn computed(operands: List<Self>, operation: Arc<dyn Operation>) -> NdArrayTensor {
        ndarray(Flex::computed(operands.map(flex), operation))
    }

    fn computed_backward(operands: List<Self>, gradient: NdArrayTensor, operation: Arc<dyn Operation>) -> List<Self> {
        Flex::computed_backward(operands.map(flex), flex(gradient), operation).map(ndarray)
    }
}
