//! The operation on the tensors of flex.

use burn::backend::flex::FlexTensor;

use super::kernel::{Inputs, Sizes, gradient_of_inputs, gradient_of_weights, output};
use crate::engine::fused::flex::{by_heads, rows, shape, with_whole_rows};
use crate::engine::native::{Operands, Operation};
use crate::main_memory::{contiguous, numbers, tensor};

/// Of `x` `[B, N, C]` and weights `[B|1, H, Q|1, t]`: letters of [`Sliding`](super::Sliding).
#[derive(Debug)]
pub(super) struct SlidingKernel {
    /// `Q`.
    pub outputs: usize,
    /// `a`.
    pub first: isize,
}

impl Operation for SlidingKernel {
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor {
        let operands = readable(operands);
        let inputs = self.inputs(&operands);
        let Sizes { batch, outputs, channels, .. } = inputs.sizes;
        tensor(output(inputs), [batch, outputs, channels])
    }

    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let (operands, gradient) = (readable(operands), contiguous(gradient));
        let inputs = self.inputs(&operands);
        let Sizes { batch, length, channels, weights, .. } = inputs.sizes;
        let x = tensor(gradient_of_inputs(inputs, numbers(&gradient)), [batch, length, channels]);
        let weights = by_heads(gradient_of_weights(inputs, numbers(&gradient)), weights);
        [Some(x), Some(weights), None, None]
    }
}

impl SlidingKernel {
    fn inputs<'a>(&self, [x, weights, ..]: &'a Operands<FlexTensor>) -> Inputs<'a> {
        let [x, weights] = [x, weights].map(|operand| operand.as_ref().expect("there are inputs and weights"));
        let [batch, length, channels] = x.layout().shape().dims();
        let of_weights @ [_, heads, _, _] = shape(weights);
        Inputs {
            sizes: Sizes { batch, length, outputs: self.outputs, channels, weights: of_weights, first: self.first },
            x: numbers(x),
            weights: rows(weights, heads),
        }
    }
}

/// Operands as the kernel reads them.
fn readable([x, weights, ..]: Operands<FlexTensor>) -> Operands<FlexTensor> {
    [x.map(contiguous), weights.map(with_whole_rows), None, None]
}
