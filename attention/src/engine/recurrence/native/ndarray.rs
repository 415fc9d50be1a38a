//! The operator on ndarray: the same computation as on flex.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{Flex, NdArray};

use super::operator::{LinearRecurrence, Operands};
use crate::engine::fused::ndarray::{flex, ndarray};

impl LinearRecurrence for NdArray {
    fn recurrence_forward(operands: Operands<Self>, normalised: bool, keeps_states: bool) -> (NdArrayTensor, NdArrayTensor) {
        let (rows, states) = Flex::recurrence_forward(operands.map(flex), normalised, keeps_states);
        (ndarray(rows), ndarray(states))
    }

    fn recurrence_step(operands: Operands<Self>, normalised: bool) -> (NdArrayTensor, NdArrayTensor) {
        let (context, state) = Flex::recurrence_step(operands.map(flex), normalised);
        (ndarray(context), ndarray(state))
    }

    fn recurrence_backward(
        operands: Operands<Self>,
        rows: NdArrayTensor,
        states: NdArrayTensor,
        gradient: NdArrayTensor,
        normalised: bool,
    ) -> Operands<Self> {
        Flex::recurrence_backward(operands.map(flex), flex(rows), flex(states), flex(gradient), normalised).map(ndarray)
    }
}
