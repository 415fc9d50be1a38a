//! The gradient.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, DispatchKindConversion, DispatchTensor};
use burn::tensor::Tensor;

use super::operator::{Recomputation, Replay};

impl<B: Recomputation, C: CheckpointStrategy> Recomputation for Autodiff<B, C>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn replayed(input: FloatTensor<Self>, parameters: FloatTensor<Self>, output: FloatTensor<Self>, replay: Replay) -> FloatTensor<Self> {
        let output = output.into_primitive();
        match Replayed.prepare::<C>([input.node(), parameters.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(replay, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct Replayed;

impl<B: Recomputation> Backward<B, 2> for Replayed
where
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = Replay;

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (input, parameters) = ops.state.run(Tensor::<1>::from_primitive::<B>(gradient).into_dispatch());
        let expected = "gradients are plain tensors of their backend";
        let input = Tensor::<3>::from_dispatch(input).try_into_primitive::<B>().expect(expected);
        let parameters = Tensor::<1>::from_dispatch(parameters).try_into_primitive::<B>().expect(expected);
        for (parent, gradient) in ops.parents.into_iter().zip([input, parameters]) {
            if let Some(node) = parent {
                gradients.register::<B>(node.id, gradient);
            }
        }
    }
}
