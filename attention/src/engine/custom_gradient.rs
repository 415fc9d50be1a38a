//! Operators with custom gradients.
//!
//! A backend implements an operator forward and backward. This module adds autodiff around both: saved or recomputed inputs, a node of the graph, and gradients
//! registered on demand. The gradient owns any further saved data of an operator.

use std::fmt;
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

/// Output of an operator whose gradient reads its operands. The argument of `forward` states whether a gradient follows. It returns the output and the gradient
/// function, whose arguments are the operands, the output gradient, and which gradients are needed.
pub fn recomputed<B, C, G, const N: usize>(
    operands: [FloatTensor<Autodiff<B, C>>; N],
    forward: impl FnOnce([FloatTensor<B>; N], bool) -> (FloatTensor<B>, G),
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    G: FnOnce([FloatTensor<B>; N], FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Clone + Send + 'static,
{
    differentiated::<B, C, _, N>(operands.map(Some), true, |operands, has_gradient| {
        let (output, of_operands) = forward(all(operands), has_gradient);
        (output, move |operands, gradient, wanted| of_operands(all(operands), gradient, wanted))
    })
}

/// The same for an operator whose gradient reads no operands, which are then not saved.
pub fn passed<B, C, G, const N: usize>(
    operands: [FloatTensor<Autodiff<B, C>>; N],
    forward: impl FnOnce([FloatTensor<B>; N], bool) -> (FloatTensor<B>, G),
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    G: FnOnce(FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Clone + Send + 'static,
{
    differentiated::<B, C, _, N>(operands.map(Some), false, |operands, has_gradient| {
        let (output, of_operands) = forward(all(operands), has_gradient);
        (output, move |_operands, gradient, wanted| of_operands(gradient, wanted))
    })
}

fn all<T, const N: usize>(operands: [Option<T>; N]) -> [T; N] {
    operands.map(|operand| operand.expect("no operand is absent"))
}

/// [`recomputed`] for optional operands. Absent ones have no gradient. Without `keeps`, the gradient receives no operands.
///
/// # Panics
/// If the first operand is absent.
pub(super) fn differentiated<B, C, G, const N: usize>(
    operands: [Option<FloatTensor<Autodiff<B, C>>>; N],
    keeps: bool,
    forward: impl FnOnce([Option<FloatTensor<B>>; N], bool) -> (FloatTensor<B>, G),
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    G: FnOnce([Option<FloatTensor<B>>; N], FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Clone + Send + 'static,
{
    // The first operand stands in for absent ones: it occupies a parent slot without a gradient.
    let first = operands[0].as_ref().expect("there is a first operand");
    let nodes = operands.each_ref().map(|operand| operand.as_ref().unwrap_or(first).node());
    match Backward::<B, N>::prepare::<C>(Step(PhantomData::<State<G, N>>), nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let given = operands.each_ref().map(Option::is_some);
            let kept = operands.each_ref().map(|operand| operand.as_ref().filter(|_| keeps).map(|operand| prepared.checkpoint(operand)));
            let (output, of_operands) = forward(operands.map(|operand| operand.map(|operand| operand.into_primitive())), true);
            prepared.finish(State { given, kept, of_operands }, output)
        }
        OpsKind::UnTracked(prepared) => {
            prepared.finish(forward(operands.map(|operand| operand.map(|operand| operand.into_primitive())), false).0)
        }
    }
}

/// Saved state of an operator in the graph.
#[derive(Clone)]
struct State<G, const N: usize> {
    /// Whether each operand is present.
    given: [bool; N],
    kept: [Option<NodeId>; N],
    of_operands: G,
}

impl<G, const N: usize> fmt::Debug for State<G, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("given", &self.given).field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// The operator's step in the graph.
#[derive(Debug)]
struct Step<S>(PhantomData<S>);

impl<B: Backend, G, const N: usize> Backward<B, N> for Step<State<G, N>>
where
    G: FnOnce([Option<FloatTensor<B>>; N], FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Clone + Send + 'static,
{
    type State = State<G, N>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let State { given, kept, of_operands } = ops.state;
        let wanted = std::array::from_fn(|place| given[place] && ops.parents[place].is_some());
        let operands = kept.map(|node| node.map(|node| checkpointer.retrieve_node_output(node)));
        for (node, gradient) in ops.parents.into_iter().zip(of_operands(operands, gradient, wanted)) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! Shared test code of such operators: comparisons with compositions of tensor operations in double precision.

    use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
    use heedful_random::RandomKey;

    use crate::contract::init::Init;

    /// Normal numbers determined by the name.
    pub(in crate::engine) fn drawn<const D: usize>(name: &str, shape: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
        let numbers = Init::Normal(1.0).values(shape.iter().product(), &RandomKey::from_seed(7).named(name));
        Tensor::from_data(TensorData::new(numbers, shape).convert_dtype(dtype), (device, dtype))
    }

    pub(in crate::engine) fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
        x.into_data().iter().collect()
    }

    /// The gradient of an input.
    pub(in crate::engine) fn gradient<const D: usize>(x: &Tensor<D>, gradients: &Gradients) -> Vec<f64> {
        numbers(x.grad(gradients).expect("all inputs have a gradient"))
    }

    /// Gradients for a random output gradient.
    pub(in crate::engine) fn random_gradients<const D: usize>(output: &Tensor<D>, dtype: DType) -> Gradients {
        (output.clone() * drawn("of outputs", output.dims(), &output.device(), dtype)).sum().backward()
    }

    /// Maximum difference of two results, relative to the largest number of each part.
    pub(in crate::engine) fn difference(found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
        assert_eq!(found.len(), expected.len());
        let parts = found.iter().zip(expected).map(|(found, expected)| {
            assert_eq!(found.len(), expected.len());
            let largest = expected.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
            let furthest = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
            // Not `max`, which would ignore NaN.
            furthest.fold(0.0, |furthest: f64, distance| if distance <= furthest { furthest } else { distance }) / largest
        });
        parts.fold(0.0, |furthest, distance| if distance <= furthest { furthest } else { distance })
    }

    /// Devices that compute in main memory.
    pub(in crate::engine) fn devices() -> Vec<Device> {
        let devices = [
            Device::flex(),
            #[cfg(feature = "ndarray")]
            #[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and its line with it")]
            Device::ndarray(),
        ];
        devices.into()
    }

    /// Asserts bit-identical results on all devices.
    pub(in crate::engine) fn assert_same_on_all_devices(compute: impl Fn(&Device) -> Vec<Vec<f64>>) {
        let found: Vec<_> = devices().iter().map(compute).collect();
        assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
    }

    /// Asserts bit-identical results with thread pools of several sizes.
    pub(in crate::engine) fn assert_same_for_any_number_of_threads(compute: impl Fn() -> Vec<Vec<f64>> + Sync) {
        let by = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&compute);
        let one = by(1);
        for threads in [2, 3, 8] {
            assert!(by(threads) == one, "{threads} threads");
        }
    }
}
