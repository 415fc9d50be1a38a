//! The operator on flex, which stores its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;

use super::cpu::{self, BackwardInputs, Context, Inputs, Planes, Rows, Sizes};
use super::operands::{Operand, Operands, ROWS};
use super::operator::FusedAttention;
use super::plan::Plan;
use crate::engine::heads::group_of;
use crate::tensors::main_memory::{contiguous, numbers, tensor};

impl FusedAttention for Flex {
    fn fused_forward(operands: Operands<Self>, plan: Plan) -> (FlexTensor, FlexTensor) {
        let operands = readable(operands);
        let inputs = inputs(&operands, &plan);
        let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
        let Context { context, log_sum_exp } = cpu::forward(inputs);
        (by_heads(context, [batch, heads, queries, value]), tensor(log_sum_exp, [batch, heads, queries, 1]))
    }

    fn fused_backward(
        operands: Operands<Self>,
        context: FlexTensor,
        log_sum_exp: FlexTensor,
        gradient: FlexTensor,
        plan: Plan,
    ) -> Operands<Self> {
        let operands = readable(operands);
        let [context, gradient] = [context, gradient].map(with_whole_rows);
        let log_sum_exp = contiguous(log_sum_exp);
        let of_queries = |tensor| rows(tensor, plan.heads);
        let given = BackwardInputs { context: of_queries(&context), gradient: of_queries(&gradient), log_sum_exp: numbers(&log_sum_exp) };
        let is_bias_fixed = plan.is_bias_fixed;
        let gradients = cpu::backward(inputs(&operands, &plan), given);
        let like = |operand: &Operand<Self>, gradient| operand.as_ref().map(|operand| tensor(gradient, shape(operand))).into();
        let like_heads = |operand: &Operand<Self>, gradient| operand.as_ref().map(|operand| by_heads(gradient, shape(operand))).into();
        Operands {
            values: by_heads(gradients.values, shape(&operands.values)),
            queries: like_heads(&operands.queries, gradients.queries),
            keys: like_heads(&operands.keys, gradients.keys),
            bias: if is_bias_fixed { Operand::Absent } else { like(&operands.bias, gradients.bias) },
            relative_queries: like(&operands.relative_queries, gradients.relative_queries),
            relative_keys: like(&operands.relative_keys, gradients.relative_keys),
            left: like(&operands.left, gradients.left),
            right: like(&operands.right, gradients.right),
            bias_scale: if is_bias_fixed { Operand::Absent } else { scale_gradient(&operands, gradients.bias_scale).into() },
            spans: like(&operands.spans, gradients.spans),
            sink: Operand::Absent,
        }
    }
}

/// Gradient of the bias scale from the kernel's result, by bias plane and key. Sums over queries precede those over keys, as if Burn had multiplied bias and
/// scale.
fn scale_gradient(Operands { bias, bias_scale, .. }: &Operands<Flex>, by_key: Vec<f32>) -> Option<FlexTensor> {
    let (bias, scale) = (shape(bias.as_ref()?), shape(bias_scale.as_ref()?));
    let mut gradient = tensor(by_key, [bias[0], bias[1], 1, bias[3]]);
    for dim in (0..4).filter(|&dim| scale[dim] == 1) {
        gradient = Flex::float_sum_dim(gradient, dim);
    }
    Some(gradient)
}

/// Operands in the kernel's layout.
fn readable(operands: Operands<Flex>) -> Operands<Flex> {
    let mut list = operands.list();
    for (place, operand) in list.iter_mut().enumerate() {
        let made = if ROWS.contains(&place) { with_whole_rows } else { contiguous };
        *operand = operand.take().map(made);
    }
    Operands::from_list(list)
}

/// The tensor with adjacent numbers in its last dimension.
pub(in crate::engine) fn with_whole_rows(tensor: FlexTensor) -> FlexTensor {
    let [.., width] = shape(&tensor);
    let strides = tensor.layout().strides();
    let has_whole_rows = (strides[3] == 1 || width == 1) && strides.iter().all(|&stride| stride >= 0);
    if has_whole_rows { tensor } else { tensor.to_contiguous() }
}

/// Rows of a tensor [`with_whole_rows`], for `heads` heads.
pub(in crate::engine) fn rows(tensor: &FlexTensor, heads: usize) -> Rows<'_> {
    let strides = tensor.layout().strides();
    let stride = |dim: usize| strides[dim].unsigned_abs();
    Rows {
        numbers: &tensor.storage()[tensor.layout().start_offset()..],
        strides: [stride(0), stride(1), stride(2)],
        group: group_of(heads, shape(tensor)[1]),
    }
}

/// The tensor of shape `[B, H, N, D]`, from numbers `[B, N, H, D]`.
pub(in crate::engine) fn by_heads(numbers: Vec<f32>, [batch, heads, length, width]: [usize; 4]) -> FlexTensor {
    tensor(numbers, [batch, length, heads, width]).transpose(1, 2)
}

fn inputs<'a>(operands: &'a Operands<Flex>, plan: &'a Plan) -> Inputs<'a> {
    let Operands { values, queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, spans, sink: _ } = operands;
    let ([batch, shared, remembered, value], heads) = (shape(values), plan.heads);
    let width = |operand: &Operand<Flex>| operand.as_ref().map_or(0, |tensor| shape(tensor)[3]);
    let planes = |operand: &'a Operand<Flex>| {
        operand.as_ref().map(|tensor| Planes { numbers: numbers(tensor), rows: shape(tensor)[0], heads: shape(tensor)[1] })
    };
    let all = |operand: &'a Operand<Flex>| operand.as_ref().map_or(Rows::NONE, |tensor| rows(tensor, heads));
    Inputs {
        sizes: Sizes {
            batch,
            heads,
            shared,
            queries: operands.queries(plan),
            keys: remembered,
            factor: width(queries),
            relative: width(relative_queries),
            pairs: [width(left), width(right)],
            value,
        },
        queries: all(queries),
        keys: all(keys),
        values: rows(values, heads),
        bias: planes(bias),
        bias_scale: planes(bias_scale),
        relative_queries: relative_queries.as_ref().map_or(&[], numbers),
        relative_keys: planes(relative_keys),
        left: left.as_ref().map_or(&[], numbers),
        right: right.as_ref().map_or(&[], numbers),
        spans: planes(spans),
        plan,
    }
}

pub(in crate::engine) fn shape(tensor: &FlexTensor) -> [usize; 4] {
    tensor.layout().shape().dims()
}
