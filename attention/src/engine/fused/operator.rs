//! The operator: one attention on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

#[cfg(feature = "cube")]
use ::burn::tensor::DType;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

use super::composed;
use super::operands::{BIAS, COUNT, Operands, SINK};
#[cfg(feature = "cube")]
use super::operands::{OperandMetadata, OperandsMetadata};
use super::plan::Plan;
use crate::dropout::DropoutOperator;
use crate::engine::normaliser::{sink_gradient, sunk};

#[cfg(feature = "cube")]
use crate::extension as burn;
#[cfg(feature = "cube")]
use burn_fusion::custom::TensorSpec;

/// Attention by a softmax, or by weights in closed form, that holds no matrix of queries and keys.
///
/// `context` and its gradient are `[B, H, Q, D]`, `log_sum_exp` `[B, H, Q, 1]`. The bodies here are composed of tensor operations and run on every backend.
/// Backends in main memory override `fused_forward` and `fused_backward`. CubeCL overrides `kernel_forward` and `kernel_backward` alone: where Burn fuses
/// operations, a kernel is one opaque operation, and what is composed is fused.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(crate) trait FusedAttention: DropoutOperator {
    /// The context, and the logarithm of the sum of the exponentials of the logits that each query sees: a very large number for queries that see no key,
    /// whose context is 0. It is 0 for weights that are not divided by their sum. For a
    /// normaliser that divides by a sum it computes a softmax without sinks, which [`fused_attention`](Self::fused_attention) corrects.
    #[fusion(default)]
    fn fused_forward(#[extension_type] operands: Operands<Self>, plan: Plan) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if plan.by_kernels { Self::kernel_forward(operands, plan) } else { composed::forward::<Self>(operands, &plan) }
    }

    /// Gradients of the operands but for sinks, from what [`fused_attention`](Self::fused_attention) returned and the log-sum-exp of its normaliser.
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
            composed::backward::<Self>(operands, context, log_sum_exp, gradient, &plan)
        }
    }

    /// [`fused_forward`](Self::fused_forward) of a plan that says [`by_kernels`](Plan::by_kernels).
    #[fusion(meta = forward_metadata)]
    fn kernel_forward(#[extension_type] operands: Operands<Self>, plan: Plan) -> (FloatTensor<Self>, FloatTensor<Self>) {
        composed::forward::<Self>(operands, &plan)
    }

    /// [`fused_backward`](Self::fused_backward) of a plan that says [`by_kernels`](Plan::by_kernels).
    #[fusion(meta = |operands, _context, _log_sum_exp, _gradient, plan| backward_metadata(operands, plan))]
    fn kernel_backward(
        #[extension_type] operands: Operands<Self>,
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        plan: Plan,
    ) -> Operands<Self> {
        composed::backward::<Self>(operands, context, log_sum_exp, gradient, &plan)
    }

    /// The context alone; with automatic differentiation, with its gradient.
    #[fusion(default)]
    fn fused_attention(#[extension_type] operands: Operands<Self>, plan: Plan) -> FloatTensor<Self> {
        normalised::<Self>(operands, plan).0
    }
}

/// Context and log-sum-exp with the plan's normaliser and with sinks.
fn normalised<B: FusedAttention>(operands: Operands<B>, plan: Plan) -> (FloatTensor<B>, FloatTensor<B>) {
    let normaliser = plan.normaliser;
    let (operands, sink) = operands.without_sink();
    let (context, log_sum_exp) = B::fused_forward(operands, plan);
    match sink {
        Some(sink) => sunk::<B>(context, log_sum_exp, sink),
        None => normaliser.corrected_on::<B>(context, log_sum_exp),
    }
}

/// Of context and log-sum-exp.
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

/// Of the gradients of operands.
#[cfg(feature = "cube")]
fn backward_metadata(operands: &OperandsMetadata, plan: &Plan) -> OperandsMetadata {
    let mut gradients = operands.clone();
    if plan.is_bias_fixed {
        (gradients.bias, gradients.bias_scale) = (OperandMetadata::Absent, OperandMetadata::Absent);
    }
    gradients
}

impl<B: FusedAttention, C: CheckpointStrategy> FusedAttention for Autodiff<B, C> {
    fn fused_attention(operands: Operands<Self>, plan: Plan) -> FloatTensor<Self> {
        let list = operands.list();
        // What is absent stands for the values once more: it has a place among the parents and no gradient.
        let values = list[0].as_ref().expect("there are values");
        let nodes = list.each_ref().map(|operand| operand.as_ref().unwrap_or(values).node());
        match Recompute.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = list.each_ref().map(|operand| operand.as_ref().map(|operand| prepared.checkpoint(operand)));
                let operands = Operands::from_list(list.map(|operand| operand.map(|operand| operand.into_primitive())));
                let (context, log_sum_exp) = normalised::<B>(operands, plan.clone());
                prepared.finish(Saved { inputs, context: context.clone(), log_sum_exp, plan }, context)
            }
            OpsKind::UnTracked(prepared) => {
                let operands = Operands::from_list(list.map(|operand| operand.map(|operand| operand.into_primitive())));
                prepared.finish(B::fused_attention(operands, plan))
            }
        }
    }
}

/// The gradient, for which the weights are computed once more.
#[derive(Debug)]
struct Recompute;

/// What the gradient needs.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    inputs: [Option<NodeId>; COUNT],
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    plan: Plan,
}

impl<B: FusedAttention> Backward<B, COUNT> for Recompute {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Saved<B>, COUNT>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let Saved { inputs, context, log_sum_exp, plan } = ops.state;
        let plan = Plan { is_bias_fixed: BIAS.iter().all(|&place| inputs[place].is_none() || ops.parents[place].is_none()), ..plan };
        let operands = inputs.map(|node| node.map(|node| checkpointer.retrieve_node_output(node)));
        let (operands, sink) = Operands::from_list(operands).without_sink();
        let of_sink = sink
            .filter(|_| ops.parents[SINK].is_some())
            .map(|sink| sink_gradient::<B>(sink, context.clone(), log_sum_exp.clone(), gradient.clone()));
        let mut found = B::fused_backward(operands, context, log_sum_exp, gradient, plan).list();
        found[SINK] = of_sink;
        for (node, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}
