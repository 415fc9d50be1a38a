//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;

use super::backward::{Given, backward};
use super::forward::forward;
use super::operator::{LinearRecurrence, Operands};
use super::step::step;
use super::{CHUNK, Inputs, Sizes};
use crate::engine::fused::Operand;
use crate::engine::fused::flex::{self, by_heads, shape, with_whole_rows};
use crate::engine::fused::slices::Rows;
use crate::tensors::main_memory::{contiguous, numbers, numbers_mut, owned, tensor};

impl LinearRecurrence for Flex {
    fn recurrence_forward(operands: Operands<Self>, normalised: bool, keeps_states: bool) -> (FlexTensor, FlexTensor) {
        let operands = readable(operands);
        let inputs = inputs(&operands, normalised);
        let sizes @ Sizes { batch, heads, length, width, value, .. } = inputs.sizes;
        let output = forward(inputs, keeps_states);
        let states = [batch, heads, if keeps_states { length.div_ceil(CHUNK) } else { 0 }, width, sizes.of_state() / width];
        (tensor(output.rows, [batch, sizes.rows(), heads, value]), tensor(output.states, states))
    }

    fn recurrence_step(operands: Operands<Self>, normalised: bool) -> (FlexTensor, FlexTensor) {
        let Operands { queries, keys, values, log_decay, strengths, state } = operands;
        let operands = readable(Operands { queries, keys, values, log_decay, strengths, state: None.into() });
        let inputs = inputs(&operands, normalised);
        let sizes @ Sizes { batch, heads, width, value, .. } = inputs.sizes;
        let shape = [batch, heads, width, sizes.of_state() / width];
        let mut state = state.given().map_or_else(|| tensor(vec![0.0; shape.iter().product()], shape), owned);
        let contexts = step(inputs, numbers_mut(&mut state));
        (tensor(contexts, [batch, heads, 1, value]), state)
    }

    fn recurrence_backward(
        operands: Operands<Self>,
        given: FlexTensor,
        states: FlexTensor,
        gradient: FlexTensor,
        normalised: bool,
    ) -> Operands<Self> {
        let operands = readable(operands);
        let [given, gradient] = [given, gradient].map(|rows| with_whole_rows(rows.transpose(1, 2)));
        let states = contiguous(states);
        let inputs = inputs(&operands, normalised);
        let found = backward(inputs, Given { rows: rows(&given), states: numbers(&states), gradient: rows(&gradient) });
        let like = |operand: &Operand<Self>, gradient| operand.as_ref().map(|operand| tensor(gradient, shape(operand))).into();
        let of_decay = operands.log_decay.as_ref().map(|decay| {
            let [rows, heads, length, channels] = shape(decay);
            let gradient = tensor(found.log_decay, [inputs.sizes.batch, heads, length, channels]);
            // What all batch rows share has the sum of what theirs would have.
            if rows == inputs.sizes.batch { gradient } else { Flex::float_sum_dim(gradient, 0) }
        });
        Operands {
            queries: by_heads(found.queries, shape(&operands.queries)),
            keys: by_heads(found.keys, shape(&operands.keys)),
            values: by_heads(found.values, shape(&operands.values)),
            log_decay: of_decay.into(),
            strengths: like(&operands.strengths, found.strengths),
            state: like(&operands.state, found.state),
        }
    }
}

/// Operands as the kernel reads them.
fn readable(operands: Operands<Flex>) -> Operands<Flex> {
    let Operands { queries, keys, values, log_decay, strengths, state } = operands;
    let with = |operand: Operand<Flex>, made: fn(FlexTensor) -> FlexTensor| operand.given().map(made).into();
    Operands {
        queries: with_whole_rows(queries),
        keys: with_whole_rows(keys),
        values: with_whole_rows(values),
        log_decay: with(log_decay, with_whole_rows),
        strengths: with(strengths, with_whole_rows),
        state: with(state, contiguous),
    }
}

fn inputs(operands: &Operands<Flex>, normalised: bool) -> Inputs<'_> {
    let Operands { queries, keys, values, log_decay, strengths, state } = operands;
    let [batch, heads, length, width] = shape(keys);
    Inputs {
        sizes: Sizes {
            batch,
            heads,
            length,
            width,
            value: shape(values)[3],
            channels: log_decay.as_ref().map_or(0, |decay| shape(decay)[3]),
            normalised,
        },
        queries: rows(queries),
        keys: rows(keys),
        values: rows(values),
        log_decay: log_decay.as_ref().map(shared_rows),
        strengths: strengths.as_ref().map(rows),
        state: state.as_ref().map(numbers),
    }
}

/// The rows of a tensor [`with_whole_rows`], of whose heads none is shared.
fn rows(tensor: &FlexTensor) -> Rows<'_> {
    flex::rows(tensor, shape(tensor)[1])
}

/// The rows of a tensor [`with_whole_rows`] that batch rows or positions may share.
fn shared_rows(tensor: &FlexTensor) -> Rows<'_> {
    let (own, shape) = (rows(tensor), shape(tensor));
    let mut strides = own.strides;
    for (stride, _) in strides.iter_mut().zip(shape).filter(|(_, count)| *count == 1) {
        *stride = 0;
    }
    Rows { strides, ..own }
}
