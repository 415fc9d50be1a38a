//! Fused execution: tile by tile, without a matrix of queries and keys.
//!
//! Training saves the context and one number per query; the backward pass recomputes the weights. Forward and backward passes skip tiles without visible pairs:
//! tiles whose keys are all padding, and tiles whose queries are, if their outputs are declared unused ([`Positions::ends`](crate::contract::Positions::ends)).
//! Scattered pairs are gathered first: a [`Part`] defines the order of queries and keys.

pub(super) mod cpu;
pub(super) mod flex_backend;
#[cfg(feature = "cube")]
mod gpu;
mod operands;
mod operator;
mod plan;
mod tensor_ops;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::backend::Dispatch;
#[cfg(feature = "cube")]
use burn::backend::DispatchDevice;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Device, Tensor};

#[doc(hidden)]
pub use self::cpu::GROUPS;
pub(crate) use self::operands::{Operand, Operands};
pub(crate) use self::operator::FusedAttention;
pub(crate) use self::plan::{Cap, Plan};
pub use self::plan::{Order, Part};

use super::heads::repeat_heads;
use super::normaliser::SINKS;
use super::program::for_each_row;
use super::recurrence::in_32_bits;
use super::{AttentionProgram, Bias, Content, Kronecker, LogitTerms, Normaliser, SoftCap, SoftSpan, Weighting};
use crate::contract::engine::Engine;
use crate::contract::visibility::least_visible_logit;
use crate::engine::dropout::WeightDropout;
use crate::tensors::main_memory;

/// Minimum number of queries for which fused execution is faster: in decoding, the keys would be packed at every step.
pub(crate) const FEWEST_QUERIES: usize = 16;

/// Whether fused execution supports a program: scores or a closed form in floats of 16 or 32 bits. Scores with a soft cap must have at most one bias and no
/// soft span. With [`Engine::Auto`], also whether it is faster.
pub fn can_attend(program: &AttentionProgram, engine: Engine) -> bool {
    match &program.weighting {
        Weighting::Density { .. } => return false,
        Weighting::Scores(LogitTerms { bias, cap: Some(cap), .. }, _)
            if program.soft_span.is_some() || bias.is_some() && cap.added.is_some() =>
        {
            return false;
        }
        Weighting::Scores(..) | Weighting::Gaussian(_) => {}
    }
    let is_wanted = match engine {
        Engine::Auto => program.weighting.queries() >= FEWEST_QUERIES,
        Engine::Fused => true,
        Engine::Reference => false,
    };
    is_wanted && matches!(program.values.dtype(), DType::F32 | DType::F16 | DType::BF16)
}

/// Whether a program that satisfies [`can_attend`] can be executed in parts that are not in index order: on a device with kernels that gather scattered rows,
/// without scores by distance.
pub(crate) fn can_attend_in_parts(program: &AttentionProgram) -> bool {
    let Weighting::Scores(terms, _) = &program.weighting else { return false };
    terms.relative.is_none() && main_memory::has_kernels(&program.values.device())
}

/// Whether device kernels execute a program and skip tiles without visible pairs: patterns then need no gathered blocks.
pub(crate) fn has_kernels(program: &AttentionProgram) -> bool {
    let AttentionProgram { weighting: Weighting::Scores(terms, normaliser), mask: None, soft_span, values, .. } = program else {
        return false;
    };
    normaliser.is_softmax() && has_kernels_for(terms, soft_span.is_some(), values)
}

/// Whether the device of these values has kernels for these logits, with or without soft spans, and for their number type.
fn has_kernels_for(terms: &LogitTerms, has_spans: bool, values: &Tensor<4>) -> bool {
    terms.cap.is_none() && has_kernels_on_device(&values.device(), values.dtype(), terms, has_spans)
}

/// Whether a CubeCL device meets the kernels' requirements and supports this number type.
#[cfg(feature = "cube")]
fn has_kernels_on_device(device: &Device, dtype: DType, terms: &LogitTerms, has_spans: bool) -> bool {
    match device.clone().without_autodiff().as_dispatch() {
        DispatchDevice::Cube(device) => gpu::has_room(device, dtype, terms, has_spans),
        _ => false,
    }
}

#[cfg(not(feature = "cube"))]
fn has_kernels_on_device(_: &Device, _: DType, _: &LogitTerms, _: bool) -> bool {
    false
}

/// Executes a program that satisfies [`can_attend`]; returns the context `[B, H, Q, D]`.
///
/// # Panics
/// If the program has another form, or a mask: the parts define the visibility.
pub fn attend(program: AttentionProgram, parts: Arc<[Part]>) -> Tensor<4> {
    let heads = program.heads().max(plan::distinct(&parts)[1]);
    let AttentionProgram { weighting, mask: None, soft_span, values, dropout } = program else {
        panic!("of a fused program the parts say what is hidden")
    };
    let (terms, normaliser, gaussians) = match weighting {
        Weighting::Scores(terms, normaliser) => (terms, normaliser, None),
        Weighting::Gaussian(gaussians) => (LogitTerms::default(), Normaliser::Softmax, Some(gaussians)),
        Weighting::Density { .. } => panic!("a fused program has scores or a closed form"),
    };
    assert!(soft_span.is_none() || normaliser == Normaliser::Softmax && terms.sink.is_none(), "soft spans are those of a softmax");
    assert!(terms.sink.is_none() || normaliser == Normaliser::Softmax, "{SINKS}");
    let _span = tracing::trace_span!("fused attention", values = ?values.dims()).entered();
    let dropout = dropout.and_then(|dropout| WeightDropout::new(dropout.probability, dropout.key));
    let ramp = soft_span.as_ref().map(|span| span.ramp);
    let pairs = terms.kronecker.as_ref().map(|kronecker| kronecker.starts.clone());
    let cap = terms.cap.as_ref().map(|SoftCap { limit, added }| Cap { limit: *limit, is_before_bias: added.is_some() });
    let least_visible = least_visible_logit(values.dtype());
    let plan = Plan { normaliser, dropout, ramp, first_pairs: pairs, gaussians, cap, ..Plan::new(heads, parts, least_visible) };
    let [batch, shared, keys, width] = values.dims();
    if plan.gaussians.is_some() {
        assert!(soft_span.is_none(), "a closed form has no soft spans");
        return run(terms, None, values, plan);
    }
    let rows = terms.rows().max(soft_span.as_ref().map_or(1, |span| span.spans.dims()[0])).max(plan.distinct()[0]);
    if rows == 1 && batch > 1 && plan.dropout.is_none() && main_memory::has_kernels(&values.device()) {
        // All batch rows share the weights: one row's weights apply to the concatenated values of all rows.
        let values = values.swap_dims(0, 1).swap_dims(1, 2).reshape([1, shared, keys, batch * width]);
        let context = run(terms, soft_span, values, plan);
        let queries = context.dims()[2];
        return context.reshape([heads, queries, batch, width]).swap_dims(1, 2).swap_dims(0, 1);
    }
    run(terms, soft_span, values, plan)
}

fn run(terms: LogitTerms, soft_span: Option<SoftSpan>, values: Tensor<4>, plan: Plan) -> Tensor<4> {
    let [batch, shared, _, _] = values.dims();
    let (heads, dtype) = (plan.heads, values.dtype());
    let is_for_kernels = plan.gaussians.is_none() && plan.is_plain() && plan.normaliser.is_softmax();
    let plan = Plan { by_kernels: is_for_kernels && has_kernels_for(&terms, soft_span.is_some(), &values), ..plan };
    let LogitTerms { content, relative, kronecker, bias, cap, sink } = terms;
    let added = cap.and_then(|cap| cap.added);
    assert!(bias.is_none() || added.is_none(), "a fused program has one bias");
    let bias = bias.or(added);
    // For all batch rows and this number of heads. The gradient of a repetition is a sum, which 16 bits would round at every step.
    let repeated = |x: Tensor<4>, heads: usize| {
        let is_repeated = x.dims()[..2] != [batch, heads];
        let x = if is_repeated && !plan.by_kernels { in_32_bits(x) } else { x };
        repeat_heads(for_each_row(x, batch), heads)
    };
    let each = |x: Tensor<4>| repeated(x, heads);
    let (queries, keys) = content.map(|Content { queries, keys }| (each(queries), keys)).unzip();
    // The operator needs equal numbers of key and value heads.
    let shared = keys.as_ref().map_or(shared, |keys| if shared % keys.dims()[1] == 0 { shared } else { heads });
    let (keys, values) = (keys.map(|keys| repeated(keys, shared)), repeated(values, shared));
    let (relative_queries, relative_keys) = relative.map(|Content { queries, keys }| (each(queries), keys)).unzip();
    let (left, right) = kronecker.map(|Kronecker { left, right, .. }| (each(left), each(right))).unzip();
    let (bias, bias_scale) = bias.map_or((None, None), |Bias { numbers, scale }| (Some(numbers), scale));
    let operand = |tensor: Option<Tensor<4>>| -> Operand<Dispatch> {
        tensor.map(|tensor| -> FloatTensor<Dispatch> { tensor.into_dispatch() }).into()
    };
    let operands = Operands {
        values: values.into_dispatch(),
        queries: operand(queries),
        keys: operand(keys),
        bias: operand(bias),
        bias_scale: operand(bias_scale),
        relative_queries: operand(relative_queries),
        relative_keys: operand(relative_keys),
        left: operand(left),
        right: operand(right),
        spans: operand(soft_span.map(|span| span.spans.unsqueeze_dim::<4>(3))),
        sink: operand(sink),
    };
    let context = Tensor::from_dispatch(<Dispatch as FusedAttention>::fused_attention(operands, plan));
    // The gradient of repeated values has 32 bits.
    if context.dtype() == dtype { context } else { context.cast(dtype) }
}
