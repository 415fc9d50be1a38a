//! The operator: a product of matrices, and one with a gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

#[cfg(feature = "cube")]
use crate::extension as burn;

/// Products of matrices.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub trait Products: Backend {
    /// `a b` of matrices `[N, C]` and `[C, F]`, `[N, F]`.
    #[fusion(default)]
    fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(a, b)
    }

    /// [`product`](Self::product) of rows and a weight; with automatic differentiation, with its gradients.
    #[fusion(default)]
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::product(x, weight)
    }
}

impl<B: Products, C: CheckpointStrategy> Products for Autodiff<B, C> {
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        match Linear.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&x), prepared.checkpoint(&weight)];
                prepared.finish(inputs, B::rows_mapped(x.into_primitive(), weight.into_primitive()))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::rows_mapped(x.into_primitive(), weight.into_primitive())),
        }
    }
}

/// The gradient. Its state are the nodes of input and weight.
#[derive(Debug)]
struct Linear;

impl<B: Products> Backward<B, 2> for Linear {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let [x, weight]: [FloatTensor<B>; 2] = ops.state.map(|node| checkpointer.retrieve_node_output(node));
        let [of_x, of_weight] = ops.parents;
        if let Some(node) = of_x {
            gradients.register::<B>(node.id, B::product(gradient.clone(), B::float_swap_dims(weight, 0, 1)));
        }
        if let Some(node) = of_weight {
            gradients.register::<B>(node.id, B::product(B::float_swap_dims(x, 0, 1), gradient));
        }
    }
}
