//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::Scale;
use super::kernel::{Inputs, Sizes, backward, forward};
use super::operator::{Operands, RowNormalisation};
use crate::engine::fused::Operand;
use crate::engine::fused::flex::{by_heads, rows, shape, with_whole_rows};
use crate::main_memory::{contiguous, numbers, tensor};

impl RowNormalisation for Flex {
    fn rows_normalised(operands: Operands<Self>, scale: Scale) -> FlexTensor {
        let operands = readable(operands);
        by_heads(forward(inputs(&operands, scale)), shape(&operands.x))
    }

    fn rows_normalised_backward(operands: Operands<Self>, gradient: FlexTensor, scale: Scale) -> Operands<Self> {
        let (operands, gradient) = (readable(operands), with_whole_rows(gradient));
        let (shape, found) = (shape(&operands.x), backward(inputs(&operands, scale), rows(&gradient, shape(&gradient)[1])));
        Operands {
            x: by_heads(found.x, shape),
            gain: operands.gain.as_ref().map(|_| tensor(found.gain, [shape[3]])).into(),
            gate: operands.gate.as_ref().map(|_| by_heads(found.gate, shape)).into(),
        }
    }
}

/// Operands as the kernel reads them.
fn readable(Operands { x, gain, gate }: Operands<Flex>) -> Operands<Flex> {
    let with = |operand: Operand<Flex>, made: fn(FlexTensor) -> FlexTensor| operand.given().map(made).into();
    Operands { x: with_whole_rows(x), gain: with(gain, contiguous), gate: with(gate, with_whole_rows) }
}

fn inputs(Operands { x, gain, gate }: &Operands<Flex>, scale: Scale) -> Inputs<'_> {
    let [batch, heads, length, width] = shape(x);
    Inputs {
        sizes: Sizes { batch, heads, length, width },
        scale,
        x: rows(x, heads),
        gain: gain.as_ref().map(numbers),
        gate: gate.as_ref().map(|gate| rows(gate, heads)),
    }
}
