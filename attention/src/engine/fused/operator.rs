//! The operator: one attention on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use ::burn::tensor::DType;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::operands::{BIAS, COUNT, Operands, SINK};
#[cfg(feature = "cube")]
use super::operands::{OperandMetadata, OperandsMetadata};
use super::plan::Plan;
use super::tensor_ops;
use crate::engine::custom_gradient::differentiated;
use crate::engine::dropout::DropoutOperator;
use crate::engine::normaliser::{cast, sink_gradient, sunk};
#[cfg(feature = "ndarray")]
use crate::tensors::main_memory::{flex, ndarray};

#[cfg(feature = "cube")]
use crate::engine::extension as burn;
#[cfg(feature = "cube")]
use burn_fusion::custom::TensorSpec;

/// Attention by a softmax, or by weights in closed form, without a matrix of queries and keys.
///
/// `context` and its gradient are `[B, H, Q, D]`, `log_sum_exp` `[B, H, Q, 1]`. The default bodies are composed of tensor operations and run on every backend.
/// Backends in main memory override `fused_forward` and `fused_backward`. CubeCL overrides only `kernel_forward` and `kernel_backward`: with fusion, Burn
/// treats a kernel as one opaque operation and fuses composed operations.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(crate) trait FusedAttention: DropoutOperator {
    /// Context and log-sum-exp of the visible logits of each query. Queries without visible keys have a very large log-sum-exp and context 0. The log-sum-exp
    /// is 0 for weights that are not divided by their sum. For a normaliser with such a division, this computes a softmax without sinks, which
    /// [`fused_attention`](Self::fused_attention) corrects.
    #[fusion(default)]
    fn fused_forward(#[extension_type] operands: Operands<Self>, plan: Plan) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if plan.by_kernels { Self::kernel_forward(operands, plan) } else { tensor_ops::forward::<Self>(operands, &plan) }
    }

    /// Gradients of the operands except sinks, from the result of [`fused_attention`](Self::fused_attention) and the log-sum-exp of its normaliser.
    #[fusion(default)]
    fn fused_backward(
        #[extension_type] operands: Operands<Self>,
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        plan: Plan,
    ) -> Operands<Self> {
        if plan.by_kernels {
            Self::kernel_backward(operands, context, log_sum_exp, gradient, plan)
        } else {
            tensor_ops::backward::<Self>(operands, context, log_sum_exp, gradient, &plan)
        }
    }

    /// [`fused_forward`](Self::fused_forward) of a plan with [`by_kernels`](Plan::by_kernels).
    #[fusion(meta = forward_metadata)]
    fn kernel_forward(#[extension_type] operands: Operands<Self>, plan: Plan) -> (FloatTensor<Self>, FloatTensor<Self>) {
        tensor_ops::forward::<Self>(operands, &plan)
    }

    /// [`fused_backward`](Self::fused_backward) of a plan with [`by_kernels`](Plan::by_kernels).
    #[fusion(meta = |operands, _context, _log_sum_exp, _gradient, plan| backward_metadata(operands, plan))]
    fn kernel_backward(
        #[extension_type] operands: Operands<Self>,
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        plan: Plan,
    ) -> Operands<Self> {
        tensor_ops::backward::<Self>(operands, context, log_sum_exp, gradient, &plan)
    }

    /// The context, in the type of the values, with its gradient under autodiff. Operands may have 16 bits, and different types.
    #[fusion(default)]
    fn fused_attention(#[extension_type] operands: Operands<Self>, plan: Plan) -> FloatTensor<Self> {
        normalised::<Self>(operands, plan).0
    }
}

/// Context and log-sum-exp with the plan's normaliser and sinks.
fn normalised<B: FusedAttention>(operands: Operands<B>, plan: Plan) -> (FloatTensor<B>, FloatTensor<B>) {
    let (normaliser, dtype) = (plan.normaliser, operands.values.dtype());
    let (operands, sink) = summable(operands, &plan).without_sink();
    let (context, log_sum_exp) = B::fused_forward(operands, plan);
    let (context, log_sum_exp) = match sink {
        Some(sink) => sunk::<B>(context, log_sum_exp, sink),
        None => normaliser.corrected_on::<B>(context, log_sum_exp),
    };
    (cast::<B>(context, dtype), log_sum_exp)
}

/// Operands in 32 bits for summation, except for kernels, which read 16 bits and sum in 32. The copies exist only during a forward or backward pass: training
/// saves the operands in their own type.
fn summable<B: Backend>(operands: Operands<B>, plan: &Plan) -> Operands<B> {
    if plan.by_kernels { operands } else { operands.map(|operand| cast::<B>(operand, DType::F32)) }
}

/// Metadata of context and log-sum-exp.
#[cfg(feature = "cube")]
fn forward_metadata(operands: &OperandsMetadata, plan: &Plan) -> (TensorSpec, TensorSpec) {
    let length = |operand: &OperandMetadata| match operand {
        OperandMetadata::Given(tensor) => Some(tensor.shape[2]),
        OperandMetadata::Absent => None,
    };
    let queries = [&operands.queries, &operands.bias, &operands.relative_queries, &operands.left]
        .into_iter()
        .find_map(length)
        .expect("logits have a term with queries");
    let [batch, _, _, value] = operands.values.shape.dims();
    let spec = |width, dtype| TensorSpec::new([batch, plan.heads, queries, width].into(), dtype);
    (spec(value, operands.values.dtype), spec(1, DType::F32))
}

/// Metadata of the operands' gradients.
#[cfg(feature = "cube")]
fn backward_metadata(operands: &OperandsMetadata, plan: &Plan) -> OperandsMetadata {
    let mut gradients = operands.clone();
    if plan.is_bias_fixed {
        (gradients.bias, gradients.bias_scale) = (OperandMetadata::Absent, OperandMetadata::Absent);
    }
    gradients
}

#[cfg(feature = "ndarray")]
impl FusedAttention for burn::backend::NdArray {
    fn fused_forward(operands: Operands<Self>, plan: Plan) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (context, log_sum_exp) = burn::backend::Flex::fused_forward(operands.map(flex), plan);
        (ndarray(context), ndarray(log_sum_exp))
    }

    fn fused_backward(
        operands: Operands<Self>,
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        plan: Plan,
    ) -> Operands<Self> {
        burn::backend::Flex::fused_backward(operands.map(flex), flex(context), flex(log_sum_exp), flex(gradient), plan).map(ndarray)
    }
}

impl<B: FusedAttention, C: CheckpointStrategy> FusedAttention for Autodiff<B, C> {
    fn fused_attention(operands: Operands<Self>, plan: Plan) -> FloatTensor<Self> {
        differentiated::<B, C, _, COUNT>(operands.list(), true, |operands, _has_gradient| {
            let (context, log_sum_exp) = normalised::<B>(Operands::from_list(operands), plan.clone());
            let result = [context.clone(), log_sum_exp];
            (context, move |operands, gradient, wanted| gradients::<B>(operands, result, gradient, plan, wanted))
        })
    }
}

/// Gradients of the operands with recomputed weights, from the operands, context, log-sum-exp, and the gradient of the context.
fn gradients<B: FusedAttention>(
    operands: [Option<FloatTensor<B>>; COUNT],
    [context, log_sum_exp]: [FloatTensor<B>; 2],
    gradient: FloatTensor<B>,
    plan: Plan,
    wanted: [bool; COUNT],
) -> [Option<FloatTensor<B>>; COUNT] {
    let plan = Plan { is_bias_fixed: BIAS.iter().all(|&place| !wanted[place]), ..plan };
    let (operands, sink) = Operands::from_list(operands).without_sink();
    let of_sink =
        sink.filter(|_| wanted[SINK]).map(|sink| sink_gradient::<B>(sink, context.clone(), log_sum_exp.clone(), gradient.clone()));
    let types = operands.types();
    let [context, gradient] = [context, gradient].map(|x| if plan.by_kernels { x } else { cast::<B>(x, DType::F32) });
    let operands = summable(operands, &plan);
    let mut found = B::fused_backward(operands, context, log_sum_exp, gradient, plan).list();
    for (gradient, dtype) in found.iter_mut().zip(types) {
        *gradient = gradient.take().zip(dtype).map(|(gradient, dtype)| cast::<B>(gradient, dtype));
    }
    found[SINK] = of_sink;
    found
}
