//! The operators on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::flex::FlexTensor;
use burn::backend::ndarray::NdArrayTensor;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::{Flex, NdArray};
use burn::tensor::read_sync;

use super::operator::FusedLayers;

impl FusedLayers for NdArray {
    fn norm_forward(x: NdArrayTensor, gamma: NdArrayTensor, beta: NdArrayTensor, epsilon: f64) -> (NdArrayTensor, NdArrayTensor) {
        let (output, statistics) = Flex::norm_forward(flex(x), flex(gamma), flex(beta), epsilon);
        (ndarray(output), ndarray(statistics))
    }

    fn norm_backward(
        x: NdArrayTensor,
        gamma: NdArrayTensor,
        statistics: NdArrayTensor,
        gradient: NdArrayTensor,
    ) -> (NdArrayTensor, NdArrayTensor, NdArrayTensor) {
        let (x, gamma, beta) = Flex::norm_backward(flex(x), flex(gamma), flex(statistics), flex(gradient));
        (ndarray(x), ndarray(gamma), ndarray(beta))
    }

    fn biased(x: NdArrayTensor, bias: NdArrayTensor) -> NdArrayTensor {
        ndarray(Flex::biased(flex(x), flex(bias)))
    }

    fn sum_of_rows(x: NdArrayTensor) -> NdArrayTensor {
        ndarray(Flex::sum_of_rows(flex(x)))
    }

    fn biased_relu(x: NdArrayTensor, bias: NdArrayTensor) -> NdArrayTensor {
        ndarray(Flex::biased_relu(flex(x), flex(bias)))
    }

    fn biased_relu_backward(output: NdArrayTensor, gradient: NdArrayTensor) -> (NdArrayTensor, NdArrayTensor) {
        let (x, bias) = Flex::biased_relu_backward(flex(output), flex(gradient));
        (ndarray(x), ndarray(bias))
    }

    fn cross_entropy_forward(logits: NdArrayTensor, targets: NdArrayTensor, weights: NdArrayTensor, label_smoothing: f64) -> NdArrayTensor {
        ndarray(Flex::cross_entropy_forward(flex(logits), flex_indices(targets), flex(weights), label_smoothing))
    }

    fn cross_entropy_with_gradient(
        logits: NdArrayTensor,
        targets: NdArrayTensor,
        weights: NdArrayTensor,
        label_smoothing: f64,
    ) -> (NdArrayTensor, NdArrayTensor) {
        let (sums, gradient) = Flex::cross_entropy_with_gradient(flex(logits), flex_indices(targets), flex(weights), label_smoothing);
        (ndarray(sums), ndarray(gradient))
    }
}

fn flex(tensor: NdArrayTensor) -> FlexTensor {
    FlexTensor::from_data(read_sync(NdArray::float_into_data(tensor)).expect("the numbers are in main memory"))
}

fn flex_indices(tensor: NdArrayTensor) -> FlexTensor {
    FlexTensor::from_data(read_sync(NdArray::int_into_data(tensor)).expect("the numbers are in main memory"))
}

fn ndarray(tensor: FlexTensor) -> NdArrayTensor {
    NdArrayTensor::from_data(tensor.into_data())
}
