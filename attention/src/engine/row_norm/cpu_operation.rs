//! The operation on the tensors of flex.

use burn::backend::flex::FlexTensor;

use super::Scale;
use super::cpu_kernel::{Inputs, Sizes, backward, forward};
use crate::engine::cpu::{Operands, Operation, padded};
use crate::engine::fused::flex_backend::{by_heads, rows, shape, with_whole_rows};
use crate::tensors::main_memory::{contiguous, numbers, tensor};

/// Operates on rows `[B, H, N, D]`, a gain `[D]`, and gates `[B, H, N, D]`: letters of [`RowNorm`](super::RowNorm).
#[derive(Debug)]
pub(super) struct RowNormalisation(pub Scale);

impl Operation for RowNormalisation {
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor {
        let operands = readable(operands);
        let inputs = inputs(&operands, self.0);
        let Sizes { batch, heads, length, width } = inputs.sizes;
        by_heads(forward(inputs), [batch, heads, length, width])
    }

    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let (operands, gradient) = (readable(operands), with_whole_rows(gradient));
        let inputs = inputs(&operands, self.0);
        let Sizes { batch, heads, length, width } = inputs.sizes;
        let found = backward(inputs, rows(&gradient, heads));
        let like_rows = |numbers| by_heads(numbers, [batch, heads, length, width]);
        let [_, gain, gate, ..] = &operands;
        let (of_gain, of_gate) = (gain.as_ref().map(|_| tensor(found.gain, [width])), gate.as_ref().map(|_| like_rows(found.gate)));
        padded([Some(like_rows(found.x)), of_gain, of_gate])
    }
}

/// Operands in the kernel's layout.
fn readable([x, gain, gate, ..]: Operands<FlexTensor>) -> Operands<FlexTensor> {
    padded([x.map(with_whole_rows), gain.map(contiguous), gate.map(with_whole_rows)])
}

fn inputs([x, gain, gate, ..]: &Operands<FlexTensor>, scale: Scale) -> Inputs<'_> {
    let x = x.as_ref().expect("there are rows");
    let [batch, heads, length, width] = shape(x);
    Inputs {
        sizes: Sizes { batch, heads, length, width },
        scale,
        x: rows(x, heads),
        gain: gain.as_ref().map(numbers),
        gate: gate.as_ref().map(|gate| rows(gate, heads)),
    }
}
