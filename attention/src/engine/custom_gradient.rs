//! Operators with gradients of their own.
//!
//! A backend has an operator forward and backward. What automatic differentiation needs around both is here: inputs that it keeps or computes again, a place in
//! the graph, and gradients that are registered where they are wanted. What an operator keeps besides its inputs, its gradient owns.

use std::fmt;
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

/// The output of an operator whose gradient reads its operands. `forward` is told whether there will be a gradient, and returns it with the output: what gives
/// the gradients of the operands from these, the gradient of the output, and which of them are wanted.
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

/// The same of an operator whose gradient reads none of its operands, of which none is kept.
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

/// [`recomputed`] of operands of which some may be absent. They have no gradient. Without `keeps`, the gradient is given none of them.
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
    // What is absent stands for the first operand once more: it has a place among the parents and no gradient.
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

/// What the graph holds of an operator.
#[derive(Clone)]
struct State<G, const N: usize> {
    /// Whether each operand is there.
    given: [bool; N],
    kept: [Option<NodeId>; N],
    of_operands: G,
}

impl<G, const N: usize> fmt::Debug for State<G, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("given", &self.given).field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// The step of an operator in the graph.
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
    //! What the tests of such operators share: they compare them with compositions of tensor operations in double precision.

    use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
    use heedful_random::RandomKey;

    use crate::contract::init::Init;

    /// Normal numbers that the name decides.
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

    /// The gradients for a random gradient of an output.
    pub(in crate::engine) fn random_gradients<const D: usize>(output: &Tensor<D>, dtype: DType) -> Gradients {
        (output.clone() * drawn("of outputs", output.dims(), &output.device(), dtype)).sum().backward()
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

    /// The devices that compute in main memory.
    pub(in crate::engine) fn devices() -> Vec<Device> {
        let devices = [
            Device::flex(),
            #[cfg(feature = "ndarray")]
            #[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and its line with it")]
            Device::ndarray(),
        ];
        devices.into()
    }

    /// Asserts that all of them give the same bits.
    pub(in crate::engine) fn assert_same_on_all_devices(compute: impl Fn(&Device) -> Vec<Vec<f64>>) {
        let found: Vec<_> = devices().iter().map(compute).collect();
        assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
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
