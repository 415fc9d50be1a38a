//! The operators on one backend.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

#[cfg(feature = "ndarray")]
use burn::backend::Flex;
use burn::backend::backend_extension;
use burn::backend::tensor::{FloatTensor, IntTensor};
use heedful_attention::engine::linear::Products;
#[cfg(feature = "ndarray")]
use heedful_attention::tensors::main_memory::{flex, ndarray};

#[cfg(feature = "cube")]
use ::burn::tensor::DType;
#[cfg(feature = "cube")]
use burn_fusion::custom::TensorSpec;
#[cfg(feature = "cube")]
use heedful_attention::engine::extension as burn;

use super::tensor_ops;

/// Layers with custom gradients.
///
/// `norm`, `linear_with_bias`, `linear_relu`, `cross_entropy` and `projected_cross_entropy` are differentiable; the others are their components. The default
/// bodies are composed of tensor operations and run on every backend; backends override them with kernels. With fusion, normalisation and cross-entropy are
/// opaque to Burn: when Burn 0.22.1 fused them, the first loss of `examples/third-party` was 2.34 instead of 2.66.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub trait FusedLayers: Products {
    /// Normalised `x` `[.., C]`, with the mean and the inverse deviation of each row, `[N, 2]`.
    #[fusion(meta = |x, _gamma, _beta, _epsilon| (x.clone(), statistics(x)))]
    fn norm_forward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        tensor_ops::norm::<Self>(x, gamma, beta, epsilon)
    }

    /// Gradients of `x`, `gamma` and `beta`.
    #[fusion(meta = |x, gamma, _statistics, _gradient| (x.clone(), gamma.clone(), gamma.clone()))]
    fn norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        tensor_ops::norm_backward::<Self>(x, gamma, statistics, gradient)
    }

    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last dimension.
    #[fusion(default)]
    fn norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, beta: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        Self::norm_forward(x, gamma, beta, epsilon).0
    }

    /// `x + bias` of `x` `[N, F]`.
    #[fusion(default)]
    fn biased(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor_ops::biased::<Self>(x, bias)
    }

    /// The sum `[F]` of the rows of `x` `[N, F]`.
    #[fusion(default)]
    fn sum_of_rows(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::column_sums(x)
    }

    /// `max(0, x + bias)` of `x` `[N, F]`.
    #[fusion(default)]
    fn biased_relu(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor_ops::biased_relu::<Self>(x, bias)
    }

    /// Gradients of `x` and `bias` from [`biased_relu`](Self::biased_relu)'s output and its gradient.
    #[fusion(default)]
    fn biased_relu_backward(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let gradient = Self::relu_backward(output, gradient);
        (gradient.clone(), Self::sum_of_rows(gradient))
    }

    /// `x weight + bias` of `x` `[N, C]`, `[N, F]`.
    #[fusion(default)]
    fn linear_with_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::biased(Self::product(x, weight), bias)
    }

    /// `max(0, x weight + bias)` of `x` `[N, C]`, `[N, F]`.
    #[fusion(default)]
    fn linear_relu(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::biased_relu(Self::product(x, weight), bias)
    }

    /// Sums over the rows of `logits` `[N, V]` of the smoothed loss and of the negative log-likelihood, `[2]`.
    #[fusion(meta = |logits, _targets, _weights, _label_smoothing| sums(logits))]
    fn cross_entropy_forward(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        tensor_ops::cross_entropy::<Self>(logits, targets, weights, label_smoothing).0
    }

    /// [`cross_entropy_forward`](Self::cross_entropy_forward), and the gradient of the first sum.
    #[fusion(meta = |logits, _targets, _weights, _label_smoothing| (sums(logits), logits.clone()))]
    fn cross_entropy_with_gradient(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        tensor_ops::cross_entropy::<Self>(logits, targets, weights, label_smoothing)
    }

    /// `x` times the first element of `factors`.
    #[fusion(default)]
    fn scaled_by_first(x: FloatTensor<Self>, factors: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor_ops::scaled_by_first::<Self>(x, factors)
    }

    /// Sums over the rows of `logits` `[N, V]` of the smoothed loss, with gradient, and of the negative log-likelihood, without gradient, `[2]`. `weights`
    /// `[N]` weight the rows.
    #[fusion(default)]
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        Self::cross_entropy_forward(logits, targets, weights, label_smoothing)
    }

    /// [`cross_entropy`](Self::cross_entropy) of the logits `states matrix^T` of `states` `[N, C]` and `matrix` `[V, C]`, with at most `limit` logits (or one
    /// row) materialised at once.
    #[fusion(default)]
    fn projected_cross_entropy(
        states: FloatTensor<Self>,
        matrix: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
        limit: usize,
    ) -> FloatTensor<Self> {
        tensor_ops::projected_cross_entropy::<Self>(states, matrix, targets, weights, label_smoothing, limit)
    }
}

#[cfg(feature = "ndarray")]
impl FusedLayers for burn::backend::NdArray {
    fn norm_forward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (output, statistics) = Flex::norm_forward(flex(x), flex(gamma), flex(beta), epsilon);
        (ndarray(output), ndarray(statistics))
    }

    fn norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (x, gamma, beta) = Flex::norm_backward(flex(x), flex(gamma), flex(statistics), flex(gradient));
        (ndarray(x), ndarray(gamma), ndarray(beta))
    }

    fn biased(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        ndarray(Flex::biased(flex(x), flex(bias)))
    }

    fn sum_of_rows(x: FloatTensor<Self>) -> FloatTensor<Self> {
        ndarray(Flex::sum_of_rows(flex(x)))
    }

    fn biased_relu(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        ndarray(Flex::biased_relu(flex(x), flex(bias)))
    }

    fn biased_relu_backward(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (x, bias) = Flex::biased_relu_backward(flex(output), flex(gradient));
        (ndarray(x), ndarray(bias))
    }

    fn cross_entropy_forward(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> FloatTensor<Self> {
        ndarray(Flex::cross_entropy_forward(flex(logits), flex(targets), flex(weights), label_smoothing))
    }

    fn cross_entropy_with_gradient(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        weights: FloatTensor<Self>,
        label_smoothing: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (sums, gradient) = Flex::cross_entropy_with_gradient(flex(logits), flex(targets), flex(weights), label_smoothing);
        (ndarray(sums), ndarray(gradient))
    }
}

/// Mean and inverse deviation of each row, `[N, 2]`.
#[cfg(feature = "cube")]
fn statistics(x: &TensorSpec) -> TensorSpec {
    let width = x.shape[x.shape.num_dims() - 1];
    TensorSpec::new([x.shape.num_elements() / width, 2].into(), at_least_32_bits(x.dtype))
}

/// Loss and negative log-likelihood, `[2]`.
#[cfg(feature = "cube")]
fn sums(logits: &TensorSpec) -> TensorSpec {
    TensorSpec::new([2].into(), at_least_32_bits(logits.dtype))
}

/// Type for sums of such numbers.
#[cfg(feature = "cube")]
fn at_least_32_bits(dtype: DType) -> DType {
    if dtype == DType::F64 { dtype } else { DType::F32 }
}
