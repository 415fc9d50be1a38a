//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::operator::{FusedAttention, Operand, Operands};
use super::plan::Plan;
use super::slices::{self, Context, Inputs, Planes, Sizes};
use crate::main_memory::{contiguous, numbers, tensor};

impl FusedAttention for Flex {
    fn fused_forward(operands: Operands<Self>, plan: Plan) -> (FlexTensor, FlexTensor) {
        let operands = operands.map::<Self>(contiguous);
        let inputs = inputs(&operands, &plan);
        let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
        let Context { context, log_sum_exp } = slices::forward(inputs);
        (tensor(context, [batch, heads, queries, value]), tensor(log_sum_exp, [batch, heads, queries, 1]))
    }

    fn fused_backward(
        operands: Operands<Self>,
        context: FlexTensor,
        log_sum_exp: FlexTensor,
        gradient: FlexTensor,
        plan: Plan,
    ) -> Operands<Self> {
        let operands = operands.map::<Self>(contiguous);
        let [context, log_sum_exp, gradient] = [context, log_sum_exp, gradient].map(contiguous);
        let forward = Context { context: numbers(&context), log_sum_exp: numbers(&log_sum_exp) };
        let gradients = slices::backward(inputs(&operands, &plan), forward, numbers(&gradient));
        let like = |operand: &Operand<Self>, gradient| operand.as_ref().map(|operand| tensor(gradient, shape(operand))).into();
        Operands {
            values: tensor(gradients.values, shape(&operands.values)),
            queries: like(&operands.queries, gradients.queries),
            keys: like(&operands.keys, gradients.keys),
            bias: like(&operands.bias, gradients.bias),
            relative_queries: like(&operands.relative_queries, gradients.relative_queries),
            relative_keys: like(&operands.relative_keys, gradients.relative_keys),
            spans: like(&operands.spans, gradients.spans),
        }
    }
}

fn inputs<'a>(operands: &'a Operands<Flex>, plan: &'a Plan) -> Inputs<'a> {
    let Operands { values, queries, keys, bias, relative_queries, relative_keys, spans } = operands;
    let [batch, heads, remembered, value] = shape(values);
    let width = |operand: &Operand<Flex>| operand.as_ref().map_or(0, |tensor| shape(tensor)[3]);
    let length = |operand: &Operand<Flex>| operand.as_ref().map(|tensor| shape(tensor)[2]);
    let planes = |operand: &'a Operand<Flex>| {
        operand.as_ref().map(|tensor| Planes { numbers: numbers(tensor), rows: shape(tensor)[0], heads: shape(tensor)[1] })
    };
    let all = |operand: &'a Operand<Flex>| operand.as_ref().map_or(&[][..], numbers);
    let length = [queries, bias, relative_queries].into_iter().find_map(length).expect("logits have a term with queries");
    Inputs {
        sizes: Sizes { batch, heads, queries: length, keys: remembered, factor: width(queries), relative: width(relative_queries), value },
        queries: all(queries),
        keys: all(keys),
        values: numbers(values),
        bias: planes(bias),
        relative_queries: all(relative_queries),
        relative_keys: planes(relative_keys),
        spans: planes(spans),
        plan,
    }
}

fn shape(tensor: &FlexTensor) -> [usize; 4] {
    tensor.layout().shape().dims()
}
