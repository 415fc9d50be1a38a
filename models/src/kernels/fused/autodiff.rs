//! The gradients.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use heedful_attention::engine::custom_gradient::{passed, recomputed};

use super::operator::FusedLayers;
use super::tensor_ops;

impl<B: FusedLayers, C: CheckpointStrategy> FusedLayers for Autodiff<B, C> {
    fn norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        recomputed::<B, C, _, 3>([x, gamma, beta], |[x, gamma, beta], _has_gradient| {
            let (output, statistics) = B::norm_forward(x, gamma, beta, epsilon);
            let of_operands = move |[x, gamma, _]: [FloatTensor<B>; 3], gradient, _wanted| {
                let (x, gamma, beta) = B::norm_backward(x, gamma, statistics, gradient);
                [x, gamma, beta].map(Some)
            };
            (output, of_operands)
        })
    }

    fn linear_with_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        recomputed::<B, C, _, 3>([x, weight, bias], |[x, weight, bias], _has_gradient| {
            let of_operands = |[x, weight, _]: [FloatTensor<B>; 3], gradient: FloatTensor<B>, _wanted| {
                gradients_of_map::<B>(x, weight, gradient.clone(), B::sum_of_rows(gradient)).map(Some)
            };
            (B::linear_with_bias(x, weight, bias), of_operands)
        })
    }

    fn linear_relu(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        recomputed::<B, C, _, 3>([x, weight, bias], |[x, weight, bias], _has_gradient| {
            let output = B::linear_relu(x, weight, bias);
            let kept = output.clone();
            let of_operands = move |[x, weight, _]: [FloatTensor<B>; 3], gradient, _wanted| {
                let (gradient, bias) = B::biased_relu_backward(kept, gradient);
                gradients_of_map::<B>(x, weight, gradient, bias).map(Some)
            };
            (output, of_operands)
        })
    }

    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        let weights = weights.into_primitive();
        passed::<B, C, _, 1>([logits], |[logits], has_gradient| {
            let (sums, prepared) = if has_gradient {
                let (sums, gradient) = B::cross_entropy_with_gradient(logits, targets, weights, label_smoothing);
                (sums, Some([gradient]))
            } else {
                (B::cross_entropy(logits, targets, weights, label_smoothing), None)
            };
            (sums, move |factors, _wanted| scaled::<B, 1>(prepared, factors))
        })
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
        passed::<B, C, _, 2>([states, matrix], |[states, matrix], has_gradient| {
            let (sums, prepared) = if has_gradient {
                let (sums, gradients) =
                    tensor_ops::projected_cross_entropy_with_gradients::<B>(states, matrix, targets, weights, label_smoothing, limit);
                (sums, Some(gradients))
            } else {
                (B::projected_cross_entropy(states, matrix, targets, weights, label_smoothing, limit), None)
            };
            (sums, move |factors, _wanted| scaled::<B, 2>(prepared, factors))
        })
    }
}

/// Gradients of a linear map, from the gradient of `x weight` and that of the bias.
fn gradients_of_map<B: FusedLayers>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    gradient: FloatTensor<B>,
    bias: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let of_weight = B::product(B::float_swap_dims(x, 0, 1), gradient.clone());
    [B::product(gradient, B::float_swap_dims(weight, 0, 1)), of_weight, bias]
}

/// Scales gradients computed with the output by the first element of the output's gradient.
fn scaled<B: FusedLayers, const N: usize>(prepared: Option<[FloatTensor<B>; N]>, factors: FloatTensor<B>) -> [Option<FloatTensor<B>>; N] {
    let prepared = prepared.expect("gradients are computed where there will be some");
    prepared.map(|gradient| Some(B::scaled_by_first(gradient, factors.clone())))
}
