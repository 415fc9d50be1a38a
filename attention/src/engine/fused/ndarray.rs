//! The operator on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::flex::FlexTensor;
use burn::backend::ndarray::NdArrayTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, NdArray};
use burn::tensor::read_sync;

use super::operands::Operands;
use super::operator::FusedAttention;
use super::plan::Plan;

impl FusedAttention for NdArray {
    fn fused_forward(operands: Operands<Self>, plan: Plan) -> (NdArrayTensor, NdArrayTensor) {
        let (context, log_sum_exp) = Flex::fused_forward(operands.map(flex), plan);
        (ndarray(context), ndarray(log_sum_exp))
    }

    fn fused_backward(
        operands: Operands<Self>,
        context: NdArrayTensor,
        log_sum_exp: NdArrayTensor,
        gradient: NdArrayTensor,
        plan: Plan,
    ) -> Operands<Self> {
        Flex::fused_backward(operands.map(flex), flex(context), flex(log_sum_exp), flex(gradient), plan).map(ndarray)
    }
}

pub(in crate::engine) fn flex(tensor: NdArrayTensor) -> FlexTensor {
    FlexTensor::from_data(read_sync(NdArray::float_into_data(tensor)).expect("the numbers are in main memory"))
}

pub(in crate::engine) fn ndarray(tensor: FlexTensor) -> NdArrayTensor {
    NdArrayTensor::from_data(tensor.into_data())
}
