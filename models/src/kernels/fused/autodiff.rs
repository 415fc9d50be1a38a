//! The gradients.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend};

use super::composed;
use super::operator::FusedLayers;

impl<B: FusedLayers, C: CheckpointStrategy> FusedLayers for Autodiff<B, C> {
    fn norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        let nodes = [x.node(), gamma.node(), beta.node()];
        match Norm.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&x), prepared.checkpoint(&gamma)];
                let (output, statistics) = B::norm_forward(x.into_primitive(), gamma.into_primitive(), beta.into_primitive(), epsilon);
                prepared.finish((inputs, statistics), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::norm(x.into_primitive(), gamma.into_primitive(), beta.into_primitive(), epsilon))
            }
        }
    }

    fn linear_with_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), bias.node()];
        match Linear.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&x), prepared.checkpoint(&weight)];
                prepared.finish((inputs, None), B::linear_with_bias(x.into_primitive(), weight.into_primitive(), bias.into_primitive()))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::linear_with_bias(x.into_primitive(), weight.into_primitive(), bias.into_primitive()))
            }
        }
    }

    fn linear_relu(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [x.node(), weight.node(), bias.node()];
        match Linear.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&x), prepared.checkpoint(&weight)];
                let output = B::linear_relu(x.into_primitive(), weight.into_primitive(), bias.into_primitive());
                prepared.finish((inputs, Some(output.clone())), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::linear_relu(x.into_primitive(), weight.into_primitive(), bias.into_primitive()))
            }
        }
    }

    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        let weights = weights.into_primitive();
        match Prepared.prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (sums, gradient) = B::cross_entropy_with_gradient(logits.into_primitive(), targets, weights, label_smoothing);
                prepared.finish([gradient], sums)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::cross_entropy(logits.into_primitive(), targets, weights, label_smoothing)),
        }
    }

    fn projected_cross_entropy(
        states: FloatTensor<Self>,
        matrix: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
        limit: usize,
    ) -> FloatTensor<Self> {
        let weights = weights.into_primitive();
        match Prepared.prepare::<C>([states.node(), matrix.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (states, matrix) = (states.into_primitive(), matrix.into_primitive());
                let (sums, gradients) =
                    composed::projected_cross_entropy_with_gradients::<B>(states, matrix, targets, weights, label_smoothing, limit);
                prepared.finish(gradients, sums)
            }
            OpsKind::UnTracked(prepared) => {
                let (states, matrix) = (states.into_primitive(), matrix.into_primitive());
                prepared.finish(B::projected_cross_entropy(states, matrix, targets, weights, label_smoothing, limit))
            }
        }
    }
}

/// The gradient of layer normalisation. Its state are the nodes of input and `gamma`, and the statistics of the rows.
#[derive(Debug)]
struct Norm;

impl<B: FusedLayers> Backward<B, 3> for Norm {
    type State = ([NodeId; 2], FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (inputs, statistics) = ops.state;
        let [x, gamma] = inputs.map(|node| checkpointer.retrieve_node_output(node));
        let (x, gamma, beta) = B::norm_backward(x, gamma, statistics, gradient);
        register::<B, 3>(ops.parents.map(|parent| parent.map(|node| node.id)), [x, gamma, beta], gradients);
    }
}

/// The gradient of a linear map. Its state are the nodes of input and weight, and with ReLU the output.
#[derive(Debug)]
struct Linear;

impl<B: FusedLayers> Backward<B, 3> for Linear {
    type State = ([NodeId; 2], Option<FloatTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (inputs, output) = ops.state;
        let [x, weight]: [FloatTensor<B>; 2] = inputs.map(|node| checkpointer.retrieve_node_output(node));
        let (gradient, bias) = match output {
            Some(output) => B::biased_relu_backward(output, gradient),
            None => (gradient.clone(), B::sum_of_rows(gradient)),
        };
        let of_weight = B::product(B::float_swap_dims(x, 0, 1), gradient.clone());
        let of_x = B::product(gradient, B::float_swap_dims(weight, 0, 1));
        register::<B, 3>(ops.parents.map(|parent| parent.map(|node| node.id)), [of_x, of_weight, bias], gradients);
    }
}

/// Gradients that were computed beside the output, of whose own gradient only the first element counts. They are its state.
#[derive(Debug)]
struct Prepared;

impl<B: FusedLayers, const N: usize> Backward<B, N> for Prepared {
    type State = [FloatTensor<B>; N];

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let factors = gradients.consume::<B>(&ops.node);
        let scaled = ops.state.map(|gradient| B::scaled_by_first(gradient, factors.clone()));
        register::<B, N>(ops.parents.map(|parent| parent.map(|node| node.id)), scaled, gradients);
    }
}

fn register<B: Backend, const N: usize>(parents: [Option<NodeId>; N], of_parents: [FloatTensor<B>; N], gradients: &mut Gradients) {
    for (parent, gradient) in parents.into_iter().zip(of_parents) {
        if let Some(node) = parent {
            gradients.register::<B>(node, gradient);
        }
    }
}
