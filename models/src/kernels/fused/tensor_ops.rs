//! The operators in terms of tensor operations.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, IndexingUpdateOp, Shape, Slice};

use super::operator::FusedLayers;

pub(super) fn norm<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: FloatTensor<B>,
    epsilon: f64,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let (shape, x) = rows::<B>(x);
    let mean = B::float_mean_dim(x.clone(), 1);
    let centred = B::float_sub(x, mean.clone());
    let variance = B::float_mean_dim(B::float_mul(centred.clone(), centred.clone()), 1);
    let inverse = B::float_recip(B::float_sqrt(B::float_add_scalar(variance, epsilon.into())));
    let output = B::float_mul(B::float_mul(centred, inverse.clone()), row::<B>(gamma));
    let output = B::float_reshape(B::float_add(output, row::<B>(beta)), shape);
    (output, B::float_cat(vec![mean, inverse], 1))
}

pub(super) fn norm_backward<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    statistics: FloatTensor<B>,
    gradient: FloatTensor<B>,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let (shape, x) = rows::<B>(x);
    let (_, gradient) = rows::<B>(gradient);
    let column = |at: usize| B::float_slice(statistics.clone(), &[Slice::from(..), Slice::from(at..at + 1)]);
    let (mean, inverse) = (column(0), column(1));
    let normal = B::float_mul(B::float_sub(x, mean), inverse.clone());
    let of_gamma = sum_of_rows::<B>(B::float_mul(gradient.clone(), normal.clone()));
    let of_beta = sum_of_rows::<B>(gradient.clone());
    let slopes = B::float_mul(gradient, row::<B>(gamma));
    let along = B::float_mul(normal.clone(), B::float_mean_dim(B::float_mul(slopes.clone(), normal), 1));
    let across = B::float_sub(slopes.clone(), B::float_mean_dim(slopes, 1));
    let of_x = B::float_mul(B::float_sub(across, along), inverse);
    (B::float_reshape(of_x, shape), of_gamma, of_beta)
}

pub(super) fn biased<B: Backend>(x: FloatTensor<B>, bias: FloatTensor<B>) -> FloatTensor<B> {
    B::float_add(x, row::<B>(bias))
}

pub(super) fn sum_of_rows<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let width = x.shape()[1];
    B::float_reshape(B::float_sum_dim(x, 0), Shape::new([width]))
}

pub(super) fn biased_relu<B: Backend>(x: FloatTensor<B>, bias: FloatTensor<B>) -> FloatTensor<B> {
    B::relu(biased::<B>(x, bias))
}

pub(super) fn cross_entropy<B: Backend>(
    logits: FloatTensor<B>,
    targets: IntTensor<B>,
    weights: FloatTensor<B>,
    label_smoothing: f64,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let [rows, vocabulary] = logits.shape().dims();
    let (device, dtype) = (logits.device(), logits.dtype());
    let targets = B::int_reshape(targets, Shape::new([rows, 1]));
    let weights = B::float_reshape(weights, Shape::new([rows, 1]));
    let top = B::float_max_dim(logits.clone(), 1);
    let shifted = B::float_sub(logits, top);
    let log_sum = B::float_log(B::float_sum_dim(B::float_exp(shifted.clone()), 1));
    let log_probabilities = B::float_sub(shifted, log_sum);
    let total = |of_rows| B::float_neg(B::float_sum(B::float_mul(of_rows, weights.clone())));
    let likelihood = total(B::float_gather(1, log_probabilities.clone(), targets.clone()));
    let even = total(B::float_mean_dim(log_probabilities.clone(), 1));
    let loss = B::float_add(
        B::float_mul_scalar(likelihood.clone(), (1.0 - label_smoothing).into()),
        B::float_mul_scalar(even, label_smoothing.into()),
    );
    let gradient = B::float_sub_scalar(B::float_exp(log_probabilities), (label_smoothing / vocabulary as f64).into());
    let on_target = B::float_full(Shape::new([rows, 1]), (label_smoothing - 1.0).into(), &device, dtype.into());
    let gradient = B::float_scatter(1, gradient, targets, on_target, IndexingUpdateOp::Add);
    (B::float_cat(vec![loss, likelihood], 0), B::float_mul(gradient, weights))
}

pub(super) fn scaled_by_first<B: Backend>(x: FloatTensor<B>, factors: FloatTensor<B>) -> FloatTensor<B> {
    let first = B::float_reshape(B::float_slice(factors, &[Slice::from(0..1)]), Shape::new([1, 1]));
    // A 16-bit factor would distort all gradients equally.
    let dtype = x.dtype();
    cast::<B>(B::float_mul(cast::<B>(x, first.dtype()), first), dtype)
}

/// `x` as numbers of this type.
pub(super) fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::float_cast(x, dtype.into()) }
}

/// First and last (exclusive) row of each part, with at most `limit` logits (or one row) materialised at once.
fn parts(rows: usize, vocabulary: usize, limit: usize) -> impl Iterator<Item = [usize; 2]> {
    let count = (rows * vocabulary).div_ceil(limit).clamp(1, rows.max(1));
    (0..count).map(move |part| [part * rows / count, (part + 1) * rows / count])
}

pub(super) fn projected_cross_entropy<B: FusedLayers>(
    states: FloatTensor<B>,
    matrix: FloatTensor<B>,
    targets: IntTensor<B>,
    weights: FloatTensor<B>,
    label_smoothing: f64,
    limit: usize,
) -> FloatTensor<B> {
    let transposed = B::float_swap_dims(matrix.clone(), 0, 1);
    let sums = parts(states.shape()[0], matrix.shape()[0], limit).map(|part| {
        let (states, targets, weights) = of_part::<B>(&states, &targets, &weights, part);
        B::cross_entropy_forward(B::product(states, transposed.clone()), targets, weights, label_smoothing)
    });
    sums.reduce(B::float_add).expect("there is a part")
}

/// The sums, and the gradients of states and matrix for the first sum. The logits' gradients are also discarded with their part.
pub(super) fn projected_cross_entropy_with_gradients<B: FusedLayers>(
    states: FloatTensor<B>,
    matrix: FloatTensor<B>,
    targets: IntTensor<B>,
    weights: FloatTensor<B>,
    label_smoothing: f64,
    limit: usize,
) -> (FloatTensor<B>, [FloatTensor<B>; 2]) {
    let transposed = |tensor: FloatTensor<B>| B::float_swap_dims(tensor, 0, 1);
    let mut of_states = Vec::new();
    let of_parts = parts(states.shape()[0], matrix.shape()[0], limit).map(|part| {
        let (states, targets, weights) = of_part::<B>(&states, &targets, &weights, part);
        let logits = B::product(states.clone(), transposed(matrix.clone()));
        let (sums, slopes) = B::cross_entropy_with_gradient(logits, targets, weights, label_smoothing);
        of_states.push(B::product(slopes.clone(), matrix.clone()));
        // Parts are added in 32 bits.
        [sums, cast::<B>(B::product(transposed(slopes), states), DType::F32)]
    });
    let sums = of_parts.reduce(|[sums, of_matrix], [own_sums, own]| [B::float_add(sums, own_sums), B::float_add(of_matrix, own)]);
    let [sums, of_matrix] = sums.expect("there is a part");
    (sums, [B::float_cat(of_states, 0), cast::<B>(of_matrix, matrix.dtype())])
}

fn of_part<B: Backend>(
    states: &FloatTensor<B>,
    targets: &IntTensor<B>,
    weights: &FloatTensor<B>,
    [start, end]: [usize; 2],
) -> (FloatTensor<B>, IntTensor<B>, FloatTensor<B>) {
    let rows = Slice::from(start..end);
    (
        B::float_slice(states.clone(), &[rows, Slice::from(..)]),
        B::int_slice(targets.clone(), &[rows]),
        B::float_slice(weights.clone(), &[rows]),
    )
}

/// The shape of `x` `[.., C]`, and `x` as a matrix `[N, C]`.
fn rows<B: Backend>(x: FloatTensor<B>) -> (Shape, FloatTensor<B>) {
    let shape = x.shape();
    let width = shape[shape.num_dims() - 1];
    let rows = shape.num_elements() / width;
    (shape, B::float_reshape(x, Shape::new([rows, width])))
}

/// A vector as a broadcastable row.
fn row<B: Backend>(vector: FloatTensor<B>) -> FloatTensor<B> {
    let width = vector.shape()[0];
    B::float_reshape(vector, Shape::new([1, width]))
}
