//! The operators on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::flex::FlexTensor;
use burn::backend::ndarray::NdArrayTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, NdArray};
use burn::tensor::read_sync;

use super::AdamStep;
use super::operator::ParameterUpdate;

impl ParameterUpdate for NdArray {
    fn adam(
        parameter: NdArrayTensor,
        gradient: NdArrayTensor,
        first: NdArrayTensor,
        second: NdArrayTensor,
        step: AdamStep,
    ) -> (NdArrayTensor, NdArrayTensor, NdArrayTensor) {
        let (parameter, first, second) = Flex::adam(flex(parameter), flex(gradient), flex(first), flex(second), step);
        (ndarray(parameter), ndarray(first), ndarray(second))
    }

    fn sum_of_squares(x: NdArrayTensor) -> NdArrayTensor {
        ndarray(Flex::sum_of_squares(flex(x)))
    }
}

fn flex(tensor: NdArrayTensor) -> FlexTensor {
    FlexTensor::from_data(read_sync(NdArray::float_into_data(tensor)).expect("the numbers are in main memory"))
}

fn ndarray(tensor: FlexTensor) -> NdArrayTensor {
    NdArrayTensor::from_data(tensor.into_data())
}
