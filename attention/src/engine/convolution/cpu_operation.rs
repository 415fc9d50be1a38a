//! The operation on the tensors of flex.

use burn::backend::flex::FlexTensor;

use super::cpu_kernel::{Inputs, Sizes, backward, forward};
use crate::engine::cpu::{Operands, Operation, padded};
use crate::tensors::main_memory::{contiguous, numbers, tensor};

/// Operates on `x` `[B, N, C]`, weights `[w, C]`, bias `[C]`, and earlier inputs `[B, w - 1, C]`: letters of [`Convolution`](super::Convolution).
#[derive(Debug)]
pub(super) struct CausalConvolution;

impl Operation for CausalConvolution {
    fn output(&self, operands: Operands<FlexTensor>) -> FlexTensor {
        let operands = operands.map(|operand| operand.map(contiguous));
        let inputs = inputs(&operands);
        let Sizes { batch, length, channels, .. } = inputs.sizes;
        tensor(forward(inputs), [batch, length, channels])
    }

    fn gradients(&self, operands: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let (operands, gradient) = (operands.map(|operand| operand.map(contiguous)), contiguous(gradient));
        let found = backward(inputs(&operands), numbers(&gradient));
        let like = |operand: &Option<FlexTensor>, gradient: Vec<f32>| {
            operand.as_ref().map(|operand| tensor(gradient, operand.layout().shape().clone()))
        };
        let [x, weight, bias, before, ..] = &operands;
        padded([like(x, found.x), like(weight, found.weight), like(bias, found.bias), like(before, found.before)])
    }
}

/// Inputs from contiguous operands.
fn inputs([x, weight, bias, before, ..]: &Operands<FlexTensor>) -> Inputs<'_> {
    let [x, weight] = [x, weight].map(|operand| operand.as_ref().expect("there are inputs and weights"));
    let [batch, length, channels] = x.layout().shape().dims();
    let [taps, _] = weight.layout().shape().dims();
    Inputs {
        sizes: Sizes { batch, length, channels, taps },
        x: numbers(x),
        weight: numbers(weight),
        bias: bias.as_ref().map(numbers),
        before: before.as_ref().map(numbers),
    }
}
