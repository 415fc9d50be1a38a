//! Model operations in one pass over memory: layer normalisation, linear maps with bias and ReLU, and cross-entropy over a vocabulary, each with a custom
//! gradient.
//!
//! In main memory, numbers other than 32-bit floats use separate operations.

mod autodiff;
mod cpu;
mod flex_backend;
#[cfg(feature = "cube")]
mod gpu;
mod operator;
mod tensor_ops;
#[cfg(test)]
pub(crate) mod tests;

use burn::backend::{Dispatch, DispatchTensor};
use burn::nn::Linear;
use burn::tensor::activation::relu;
use burn::tensor::{DType, Int, Tensor};
use heedful_attention::tensors::read::is_queued;

pub use self::operator::FusedLayers;

/// Default ε of normalisation, as in tensor2tensor.
pub const NORM_EPSILON: f64 = 1e-6;

/// Maximum number of materialised logits: a few rows that fit into caches, or on a GPU enough to keep it busy.
const MOST_LOGITS: [usize; 2] = [1 << 23, 1 << 27];

/// Layer normalisation of floats `[.., C]` with scale and shift `[C]` (Ba et al. 2016); in main memory only of 32-bit floats. Elsewhere 16-bit floats are
/// summed in 32 bits.
///
/// # Panics
/// If the width differs from that of the scale.
pub(crate) fn norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<D> {
    assert_eq!(x.dims()[D - 1], gamma.dims()[0], "the width of what is normalised");
    Tensor::from_dispatch(<Dispatch as FusedLayers>::norm(x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch(), epsilon))
}

/// `x W + b` of `x` `[.., C]`, `[.., F]`.
///
/// # Panics
/// If the width differs from that of the map.
pub fn linear<const D: usize>(x: Tensor<D>, linear: &Linear) -> Tensor<D> {
    if linear.bias.is_none() || !is_for_operators(&x) {
        return heedful_attention::engine::linear::linear(x, linear);
    }
    of_rows(x, linear, <Dispatch as FusedLayers>::linear_with_bias)
}

/// `max(0, x W + b)` of `x` `[.., C]`, `[.., F]`.
///
/// # Panics
/// If the width differs from that of the map.
pub fn linear_relu<const D: usize>(x: Tensor<D>, linear: &Linear) -> Tensor<D> {
    if linear.bias.is_none() || !is_for_operators(&x) {
        return relu(heedful_attention::engine::linear::linear(x, linear));
    }
    of_rows(x, linear, <Dispatch as FusedLayers>::linear_relu)
}

/// In main memory the operators support only 32-bit floats.
fn is_for_operators<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 || is_queued(&x.device())
}

/// A map of rows with the weight and bias of `linear`.
fn of_rows<const D: usize>(
    x: Tensor<D>,
    linear: &Linear,
    map: impl FnOnce(DispatchTensor, DispatchTensor, DispatchTensor) -> DispatchTensor,
) -> Tensor<D> {
    let (weight, bias) = (linear.weight.val(), linear.bias.as_ref().expect("the map has a bias").val());
    let [width, units] = weight.dims();
    let mut shape = x.dims();
    let rows = shape.iter().product::<usize>() / shape[D - 1];
    shape[D - 1] = units;
    let output = map(x.reshape([rows, width]).into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    Tensor::<2>::from_dispatch(output).reshape(shape)
}

/// Sums over rows of the smoothed loss and of `-ln p(target)`, `[2]`, for logits `[N, V]`; the gradient is that of the first. `weights` `[N]` weight the rows.
pub(crate) fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, weights: Tensor<1>, label_smoothing: f64) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as FusedLayers>::cross_entropy(
        logits.into_dispatch(),
        targets.into_dispatch(),
        weights.into_dispatch(),
        label_smoothing,
    ))
}

/// [`cross_entropy`] of the logits `x E^T` of states `x` `[N, C]` and a matrix `E` `[V, C]`; on [queued](is_queued) devices also of 16-bit floats.
pub(crate) fn projected_cross_entropy(
    states: Tensor<2>,
    matrix: Tensor<2>,
    targets: Tensor<1, Int>,
    weights: Tensor<1>,
    label_smoothing: f64,
) -> Tensor<1> {
    let limit = MOST_LOGITS[usize::from(is_queued(&states.device()))];
    Tensor::from_dispatch(<Dispatch as FusedLayers>::projected_cross_entropy(
        states.into_dispatch(),
        matrix.into_dispatch(),
        targets.into_dispatch(),
        weights.into_dispatch(),
        label_smoothing,
        limit,
    ))
}
