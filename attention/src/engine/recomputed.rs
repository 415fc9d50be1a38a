//! Operators that compute their gradient from their inputs once more.
//!
//! A backend has an operator forward and backward. What automatic differentiation needs around both is here: inputs that it keeps or computes again, a place in
//! the graph, and gradients that are registered where they are wanted.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

/// The gradient of an operator of `N` operands, with all that it needs besides them.
pub(super) trait Gradient<B: Backend, const N: usize>: Clone + Debug + Send + 'static {
    /// Gradients of the operands from that of the output. Absent operands have none, and those that are not `wanted` need none.
    fn of_operands(self, operands: [Option<FloatTensor<B>>; N], gradient: FloatTensor<B>, wanted: [bool; N])
    -> [Option<FloatTensor<B>>; N];
}

/// The output of an operator, with its gradient. `forward` is told whether there will be a gradient, and returns it with the output.
///
/// # Panics
/// If the first operand is absent.
pub(super) fn recomputed<B: Backend, C: CheckpointStrategy, G: Gradient<B, N>, const N: usize>(
    operands: [Option<FloatTensor<Autodiff<B, C>>>; N],
    forward: impl FnOnce([Option<FloatTensor<B>>; N], bool) -> (FloatTensor<B>, G),
) -> FloatTensor<Autodiff<B, C>> {
    // What is absent stands for the first operand once more: it has a place among the parents and no gradient.
    let first = operands[0].as_ref().expect("there is a first operand");
    let nodes = operands.each_ref().map(|operand| operand.as_ref().unwrap_or(first).node());
    match Recompute::<G>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let inputs = operands.each_ref().map(|operand| operand.as_ref().map(|operand| prepared.checkpoint(operand)));
            let (output, gradient) = forward(operands.map(|operand| operand.map(|operand| operand.into_primitive())), true);
            prepared.finish((inputs, gradient), output)
        }
        OpsKind::UnTracked(prepared) => {
            prepared.finish(forward(operands.map(|operand| operand.map(|operand| operand.into_primitive())), false).0)
        }
    }
}

/// The step of an operator in the graph.
#[derive(Debug)]
struct Recompute<G>(PhantomData<G>);

impl<B: Backend, G: Gradient<B, N>, const N: usize> Backward<B, N> for Recompute<G> {
    type State = ([Option<NodeId>; N], G);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (inputs, own) = ops.state;
        let wanted = std::array::from_fn(|place| inputs[place].is_some() && ops.parents[place].is_some());
        let operands = inputs.map(|node| node.map(|node| checkpointer.retrieve_node_output(node)));
        for (node, gradient) in ops.parents.into_iter().zip(own.of_operands(operands, gradient, wanted)) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! What the tests of such operators share: they compare them with compositions of tensor operations in double precision.

    use burn::tensor::{DType, Device, Tensor, TensorData};
    use heedful_random::RandomKey;

    use crate::contract::init::Init;

    /// Normal numbers that the name decides.
    pub(in crate::engine) fn drawn<const D: usize>(name: &str, shape: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
        let numbers = Init::Normal(1.0).values(shape.iter().product(), &RandomKey::from_seed(7).named(name));
        Tensor::from_data(TensorData::new(numbers, shape).convert_dtype(dtype), (device, dtype))
    }

    /// The largest difference of two results, in the largest number of each part.
    pub(in crate::engine) fn difference(found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
        assert_eq!(found.len(), expected.len());
        let parts = found.iter().zip(expected).map(|(found, expected)| {
            assert_eq!(found.len(), expected.len());
            let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
            let furthest = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
            // Not `max`, which would pass over NaN.
            furthest.fold(0.0, |furthest: f64, distance| if distance <= furthest { furthest } else { distance }) / largest
        });
        parts.fold(0.0, |furthest, distance| if distance <= furthest { furthest } else { distance })
    }

    /// Asserts that computations by pools of several sizes give the same bits.
    pub(in crate::engine) fn assert_same_for_any_number_of_threads(compute: impl Fn() -> Vec<Vec<f64>> + Sync) {
        let by = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&compute);
        let one = by(1);
        for threads in [2, 3, 8] {
            assert!(by(threads) == one, "{threads} threads");
        }
    }
}
