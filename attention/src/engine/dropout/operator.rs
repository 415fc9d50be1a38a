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

use super::keep_mask;
use crate::extension as burn;

/// Dropout of elements, whose factors the backend draws itself.
#[backend_extension(Flex, NdArray: cfg(feature = "ndarray"), Cube, Fusion, Autodiff)]
pub(super) trait ElementDropout: Backend {
    /// `x` times the factors of the elements from `first` on of the stream with seed `seed`. Drawn numbers below `threshold` drop an element, of 2^16.
    #[fusion(dtype = x, shape = x)]
    fn dropped(x: FloatTensor<Self>, seed: [u32; 8], first: u64, threshold: u32) -> FloatTensor<Self> {
        dropped_by_host::<Self>(x, seed, first, threshold)
    }
}

impl ElementDropout for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl ElementDropout for burn::backend::NdArray {}

/// [`ElementDropout::dropped`] with factors that the host draws.
pub(super) fn dropped_by_host<B: Backend>(x: FloatTensor<B>, seed: [u32; 8], first: u64, threshold: u32) -> FloatTensor<B> {
    let (shape, first) = (x.shape(), first as usize);
    let mask = keep_mask(first..first + shape.num_elements(), threshold, seed);
    let mask = TensorData::new(mask, shape).convert_dtype(x.dtype());
    let mask = B::float_from_data(mask, &x.device());
    B::float_mul(x, mask)
}

/// Seed, first element and threshold.
type Draws = ([u32; 8], u64, u32);

impl<B: ElementDropout, C: CheckpointStrategy> ElementDropout for Autodiff<B, C> {
    fn dropped(x: FloatTensor<Self>, seed: [u32; 8], first: u64, threshold: u32) -> FloatTensor<Self> {
        let draws = (seed, first, threshold);
        let again = Again::<B> { x: x.id(), draws, backend: PhantomData };
        match Dropout.prepare::<C>([x.node()]).memory_bound().retro_forward(again).parents([&x]).stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(draws, B::dropped(x.into_primitive(), seed, first, threshold)),
            OpsKind::UnTracked(prepared) => prepared.finish(B::dropped(x.into_primitive(), seed, first, threshold)),
        }
    }
}

/// The output once more, for a graph that does not keep it.
#[derive(Debug)]
struct Again<B: Backend> {
    x: NodeId,
    draws: Draws,
    backend: PhantomData<B>,
}

impl<B: ElementDropout> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let (seed, first, threshold) = self.draws;
        let x = states.get_state::<FloatTensor<B>>(&self.x);
        states.save(output, B::dropped(x, seed, first, threshold));
    }
}

/// The gradient: what is dropped has none, and the rest is scaled alike.
#[derive(Debug)]
struct Dropout;

impl<B: ElementDropout> Backward<B, 1> for Dropout {
    type State = Draws;

    fn backward(self, ops: Ops<Draws, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (seed, first, threshold) = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::dropped(gradient, seed, first, threshold));
    }
}
