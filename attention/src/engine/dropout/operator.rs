//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorData, TensorMetadata, backend_extension};

use super::WeightDropout;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// Source of the draws for the elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draws {
    /// Stream with a seed, from element `first` on. An element is dropped if its draw, of 2^16, is below `threshold`.
    #[cfg(feature = "cube")]
    Stream { seed: [u32; 8], first: u64, threshold: u32 },
    /// Places of weights `[B, H, Q, K]` of the queries from `first_query` on.
    Weights { dropout: WeightDropout, first_query: usize },
}

/// Dropout with factors drawn by the backend.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(crate) trait DropoutOperator: Backend {
    /// `x` times the factors drawn for its elements.
    #[fusion(dtype = x, shape = x)]
    fn dropped(x: FloatTensor<Self>, draws: Draws) -> FloatTensor<Self> {
        dropped_by_host::<Self>(x, draws)
    }
}

impl DropoutOperator for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl DropoutOperator for burn::backend::NdArray {}

/// [`DropoutOperator::dropped`] with factors drawn by the host.
pub(super) fn dropped_by_host<B: Backend>(x: FloatTensor<B>, draws: Draws) -> FloatTensor<B> {
    let shape = x.shape();
    let factors = match draws {
        #[cfg(feature = "cube")]
        Draws::Stream { seed, first, threshold } => {
            super::keep_mask(first as usize..first as usize + shape.num_elements(), threshold, seed)
        }
        Draws::Weights { dropout, first_query } => dropout.factors(shape.dims(), first_query),
    };
    let factors = TensorData::new(factors, shape).convert_dtype(x.dtype());
    let factors = B::float_from_data(factors, &x.device());
    B::float_mul(x, factors)
}

impl<B: DropoutOperator, C: CheckpointStrategy> DropoutOperator for Autodiff<B, C> {
    fn dropped(x: FloatTensor<Self>, draws: Draws) -> FloatTensor<Self> {
        let again = Again::<B> { x: x.id(), draws, backend: PhantomData };
        match Dropout.prepare::<C>([x.node()]).memory_bound().retro_forward(again).parents([&x]).stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(draws, B::dropped(x.into_primitive(), draws)),
            OpsKind::UnTracked(prepared) => prepared.finish(B::dropped(x.into_primitive(), draws)),
        }
    }
}

/// Recomputes the output for a graph that does not save it.
#[derive(Debug)]
struct Again<B: Backend> {
    x: NodeId,
    draws: Draws,
    backend: PhantomData<B>,
}

impl<B: DropoutOperator> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.x);
        states.save(output, B::dropped(x, self.draws));
    }
}

/// The gradient: 0 for dropped elements, the same scale for the rest.
#[derive(Debug)]
struct Dropout;

impl<B: DropoutOperator> Backward<B, 1> for Dropout {
    type State = Draws;

    fn backward(self, ops: Ops<Draws, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::dropped(gradient, ops.state));
    }
}
