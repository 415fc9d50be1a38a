//! The operations on the tensors of flex.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;

use super::backward::{BackwardInputs, backward};
use super::forward::forward;
use super::sizes::{CHUNK, Inputs, Sizes};
use super::step::step;
use crate::engine::cpu::{KeepingOperation, Operands, padded};
use crate::engine::fused::cpu::Rows;
use crate::engine::fused::flex_backend::{self, by_heads, shape, with_whole_rows};
use crate::tensors::main_memory::{contiguous, numbers, numbers_mut, owned, tensor};

/// A recurrence over all positions. Letters are those of [`Recurrence`](super::Recurrence).
///
/// Operands are scaled queries and keys `[B, H, N, R]`, values `[B, H, N, D]`, and optionally log decays `[B|1, H, N|1, R|1]`, strengths `[B, H, N, 1]`, and
/// the state before the first position, `[B, H, R, D]`; with division of contexts, `[B, H, R, D + 1]` with the key sums.
///
/// An operation has one output: rows `[B, N + R, H, D]` of contexts and of the final state; with division of contexts `[B, N + R + r, H, D]`, with the key sums
/// in `r` further rows. The rows of contexts are contiguous, so their gradient is copied directly. Gradients also read the states before each chunk of
/// positions, `[B, H, M, R, D]`.
#[derive(Debug)]
pub(super) struct ChunkedRecurrence {
    pub normalised: bool,
}

impl KeepingOperation for ChunkedRecurrence {
    fn results(&self, operands: Operands<FlexTensor>, has_gradient: bool) -> Operands<FlexTensor> {
        let operands = readable(operands);
        let inputs = inputs(&operands, self.normalised);
        let sizes @ Sizes { batch, heads, length, width, value, .. } = inputs.sizes;
        let output = forward(inputs, has_gradient);
        let states = [batch, heads, length.div_ceil(CHUNK), width, sizes.of_state() / width];
        let states = has_gradient.then(|| tensor(output.states, states));
        padded([Some(tensor(output.rows, [batch, sizes.rows(), heads, value])), states])
    }

    fn gradients_of(
        &self,
        operands: Operands<FlexTensor>,
        [given, states, ..]: Operands<FlexTensor>,
        gradient: FlexTensor,
    ) -> Operands<FlexTensor> {
        let operands = readable(operands);
        let given = given.expect("the output was kept");
        let [given, gradient] = [given, gradient].map(|rows| with_whole_rows(rows.transpose(1, 2)));
        let states = contiguous(states.expect("the states were kept"));
        let inputs = inputs(&operands, self.normalised);
        let found = backward(inputs, BackwardInputs { rows: rows(&given), states: numbers(&states), gradient: rows(&gradient) });
        let like = |operand: &Option<FlexTensor>, gradient| operand.as_ref().map(|operand| tensor(gradient, shape(operand)));
        let like_heads = |operand: &Option<FlexTensor>, gradient| operand.as_ref().map(|operand| by_heads(gradient, shape(operand)));
        let [queries, keys, values, log_decay, strengths, state] = &operands;
        let of_decay = log_decay.as_ref().map(|decay| {
            let [rows, heads, length, channels] = shape(decay);
            let gradient = tensor(found.log_decay, [inputs.sizes.batch, heads, length, channels]);
            // The gradient of an input shared by all batch rows is the sum over them.
            if rows == inputs.sizes.batch { gradient } else { Flex::float_sum_dim(gradient, 0) }
        });
        [
            like_heads(queries, found.queries),
            like_heads(keys, found.keys),
            like_heads(values, found.values),
            of_decay,
            like(strengths, found.strengths),
            like(state, found.state),
        ]
    }
}

/// The same for one position, without a gradient: the context `[B, H, 1, D]`, and the next state, in the shape of the previous one.
#[derive(Debug)]
pub(super) struct Step {
    pub normalised: bool,
}

impl KeepingOperation for Step {
    fn results(&self, [operands @ .., state]: Operands<FlexTensor>, _has_gradient: bool) -> Operands<FlexTensor> {
        let operands = readable(padded(operands));
        let inputs = inputs(&operands, self.normalised);
        let sizes @ Sizes { batch, heads, width, value, .. } = inputs.sizes;
        let shape = [batch, heads, width, sizes.of_state() / width];
        let mut state = state.map_or_else(|| tensor(vec![0.0; shape.iter().product()], shape), owned);
        let contexts = step(inputs, numbers_mut(&mut state));
        padded([Some(tensor(contexts, [batch, heads, 1, value])), Some(state)])
    }

    fn gradients_of(&self, _: Operands<FlexTensor>, _: Operands<FlexTensor>, _: FlexTensor) -> Operands<FlexTensor> {
        unreachable!("a step is executed without automatic differentiation")
    }
}

/// Operands in the kernels' layout.
fn readable([rows @ .., state]: Operands<FlexTensor>) -> Operands<FlexTensor> {
    let [queries, keys, values, log_decay, strengths] = rows.map(|rows| rows.map(with_whole_rows));
    [queries, keys, values, log_decay, strengths, state.map(contiguous)]
}

fn inputs([queries, keys, values, log_decay, strengths, state]: &Operands<FlexTensor>, normalised: bool) -> Inputs<'_> {
    let [queries, keys, values] = [queries, keys, values].map(|operand| operand.as_ref().expect("there are queries, keys and values"));
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

/// Rows of a tensor [`with_whole_rows`] without shared heads.
fn rows(tensor: &FlexTensor) -> Rows<'_> {
    flex_backend::rows(tensor, shape(tensor)[1])
}

/// Rows of a tensor [`with_whole_rows`] that batch rows or positions may share.
fn shared_rows(tensor: &FlexTensor) -> Rows<'_> {
    let (own, shape) = (rows(tensor), shape(tensor));
    let mut strides = own.strides;
    for (stride, _) in strides.iter_mut().zip(shape).filter(|(_, count)| *count == 1) {
        *stride = 0;
    }
    Rows { strides, ..own }
}
