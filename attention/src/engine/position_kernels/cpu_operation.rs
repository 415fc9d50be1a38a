//! The operation on the tensors of flex.

use burn::backend::flex::FlexTensor;

use super::cpu_kernel::{Inputs, Sizes, gradient_of_inputs, gradient_of_weights, output};
use crate::engine::cpu::{Operands, Operation, padded};
use crate::engine::fused::flex_backend::{by_heads, rows, shape, with_whole_rows};

/// Operates on `x` `[B, H, N, D]` and weights `[B|1, H, Q|1, t]`: letters of [`Sliding`](super::Sliding).
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
        let Sizes { batch, heads, outputs, width, .. } = inputs.sizes;
        by_heads(output(inputs), [batch, heads, outputs, width])
    }

    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let (operands, gradient) = (readable(operands), with_whole_rows(gradient));
        let inputs = self.inputs(&operands);
        let Sizes { batch, heads, length, width, weights: [rows_of_weights, positions, taps], .. } = inputs.sizes;
        let gradient = rows(&gradient, heads);
        let x = by_heads(gradient_of_inputs(inputs, gradient), [batch, heads, length, width]);
        let weights = by_heads(gradient_of_weights(inputs, gradient), [rows_of_weights, heads, positions, taps]);
        padded([Some(x), Some(weights)])
    }
}

impl SlidingKernel {
    fn inputs<'a>(&self, [x, weights, ..]: &'a Operands<FlexTensor>) -> Inputs<'a> {
        let [x, weights] = [x, weights].map(|operand| operand.as_ref().expect("there are inputs and weights"));
        let ([batch, heads, length, width], [of_rows, _, positions, taps]) = (shape(x), shape(weights));
        let (outputs, first) = (self.outputs, self.first);
        Inputs {
            sizes: Sizes { batch, heads, length, outputs, width, weights: [of_rows, positions, taps], first },
            x: rows(x, heads),
            weights: rows(weights, heads),
        }
    }
}

/// Operands in the kernel's layout.
fn readable([x, weights, ..]: Operands<FlexTensor>) -> Operands<FlexTensor> {
    padded([x, weights].map(|operand| operand.map(with_whole_rows)))
}
