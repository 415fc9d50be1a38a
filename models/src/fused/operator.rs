//! The operators on one backend.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::backend_extension;
use burn::backend::tensor::{FloatTensor, IntTensor};
use heedful_attention::linear::Products;

use super::composed;

/// Layers whose gradients are computed by hand.
///
/// `norm`, `linear_with_bias`, `linear_relu`, `cross_entropy` and `projected_cross_entropy` are differentiable, the others are what they are made of. The bodies here are
/// composed of tensor operations and run on every backend; backends override them with kernels of their own.
#[backend_extension(Flex, NdArray: cfg(feature = "ndarray"), Cube: cfg(any(feature = "wgpu", feature = "cuda")), Autodiff)]
pub trait FusedLayers: Products {
    /// Normalised `x` `[.., C]`, and for each row its mean and the inverse of its deviation, `[N, 2]`.
    fn norm_forward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        composed::norm::<Self>(x, gamma, beta, epsilon)
    }

    /// Gradients of `x`, `gamma` and `beta`.
    fn norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        composed::norm_backward::<Self>(x, gamma, statistics, gradient)
    }

    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last dimension.
    fn norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        Self::norm_forward(x, gamma, beta, epsilon).0
    }

    /// `x + bias` of `x` `[N, F]`.
    fn biased(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        composed::biased::<Self>(x, bias)
    }

    /// The sum `[F]` of the rows of `x` `[N, F]`.
    fn sum_of_rows(x: FloatTensor<Self>) -> FloatTensor<Self> {
        composed::sum_of_rows::<Self>(x)
    }

    /// `max(0, x + bias)` of `x` `[N, F]`.
    fn biased_relu(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        composed::biased_relu::<Self>(x, bias)
    }

    /// Gradients of `x` and `bias` from [`biased_relu`](Self::biased_relu)'s output and its gradient.
    fn biased_relu_backward(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        composed::biased_relu_backward::<Self>(output, gradient)
    }

    /// `x weight + bias` of `x` `[N, C]`, `[N, F]`.
    fn linear_with_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::biased(Self::product(x, weight), bias)
    }

    /// `max(0, x weight + bias)` of `x` `[N, C]`, `[N, F]`.
    fn linear_relu(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::biased_relu(Self::product(x, weight), bias)
    }

    /// Sums over the rows of `logits` `[N, V]` of the smoothed loss and of the negative log-likelihood, `[2]`.
    fn cross_entropy_forward(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        composed::cross_entropy::<Self>(logits, targets, weights, label_smoothing).0
    }

    /// [`cross_entropy_forward`](Self::cross_entropy_forward), and the gradient of the first sum.
    fn cross_entropy_with_gradient(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        composed::cross_entropy::<Self>(logits, targets, weights, label_smoothing)
    }

    /// `x` times the first element of `factors`.
    fn scaled_by_first(x: FloatTensor<Self>, factors: FloatTensor<Self>) -> FloatTensor<Self> {
        composed::scaled_by_first::<Self>(x, factors)
    }

    /// Sums over the rows of `logits` `[N, V]` of the smoothed loss, which has a gradient, and of the negative log-likelihood, which has none, `[2]`. A
    /// row counts as much as `weights` `[N]` say.
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        Self::cross_entropy_forward(logits, targets, weights, label_smoothing)
    }

    /// [`cross_entropy`](Self::cross_entropy) of the logits `states matrix^T` of `states` `[N, C]` and `matrix` `[V, C]`.
    fn projected_cross_entropy(
        states: FloatTensor<Self>,
        matrix: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        composed::projected_cross_entropy::<Self>(states, matrix, targets, weights, label_smoothing, composed::LOGITS)
    }
}
