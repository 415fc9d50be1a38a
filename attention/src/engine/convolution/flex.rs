//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::kernel::{Inputs, Sizes, backward, forward};
use super::operator::{CausalConvolution, Operands};
use crate::engine::fused::Operand;
use crate::main_memory::{contiguous, numbers, tensor};

impl CausalConvolution for Flex {
    fn convolved(operands: Operands<Self>) -> FlexTensor {
        let operands = operands.map::<Self>(contiguous);
        tensor(forward(inputs(&operands)), operands.x.layout().shape().clone())
    }

    fn convolved_backward(operands: Operands<Self>, gradient: FlexTensor) -> Operands<Self> {
        let (operands, gradient) = (operands.map::<Self>(contiguous), contiguous(gradient));
        let found = backward(inputs(&operands), numbers(&gradient));
        let like = |operand: &FlexTensor, gradient| tensor(gradient, operand.layout().shape().clone());
        let like_given = |operand: &Operand<Self>, gradient| operand.as_ref().map(|operand| like(operand, gradient)).into();
        Operands {
            x: like(&operands.x, found.x),
            weight: like(&operands.weight, found.weight),
            bias: like_given(&operands.bias, found.bias),
            before: like_given(&operands.before, found.before),
        }
    }
}

/// Of contiguous operands.
fn inputs(Operands { x, weight, bias, before }: &Operands<Flex>) -> Inputs<'_> {
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
