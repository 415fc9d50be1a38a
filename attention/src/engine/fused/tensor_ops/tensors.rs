//! Operations on tensors of a backend: slices, signs, sums and shifts.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Slice};

/// 1 for numbers in `[0, 1]`, otherwise 0.
pub(super) fn is_between_0_and_1<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [below, above] = [B::float_neg(x.clone()), B::float_sub_scalar(x, 1.0.into())].map(is_positive::<B>);
    B::float_neg(B::float_sub_scalar(B::float_add(below, above), 1.0.into()))
}

/// 1 for positive numbers, otherwise 0.
pub(super) fn is_positive<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_clamp_min(B::float_sign(x), 0.0.into())
}

pub(super) fn transposed<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(tensor, 2, 3)
}

pub(super) fn part<B: Backend>(tensor: &FloatTensor<B>, dim: usize, range: Range<usize>) -> FloatTensor<B> {
    let mut slices = [Slice::from(..); 4];
    slices[dim] = Slice::from(range);
    B::float_slice(tensor.clone(), &slices)
}

/// Sums over batch rows and heads where the target size is 1.
pub(super) fn summed<B: Backend>(mut tensor: FloatTensor<B>, planes: &[usize]) -> FloatTensor<B> {
    for (dim, &count) in planes.iter().enumerate() {
        if count < tensor.shape()[dim] {
            tensor = B::float_sum_dim(tensor, dim);
        }
    }
    tensor
}

/// Shifts scores by distance `[.., .., Q, Q + K - 1]` to their keys, `[.., .., Q, K]`: [`relative_shift`](crate::engine::relative_shift).
pub(super) fn shifted<B: Backend>(scores: FloatTensor<B>, keys: usize) -> FloatTensor<B> {
    let [rows, heads, queries, columns] = scores.shape().dims();
    let pad = B::float_zeros(Shape::new([rows, heads, queries, 1]), &scores.device(), scores.dtype().into());
    let padded = B::float_reshape(B::float_cat(vec![pad, scores], 3), Shape::new([rows, heads, columns + 1, queries]));
    let moved = part::<B>(&padded, 2, 1..columns + 1);
    part::<B>(&B::float_reshape(moved, Shape::new([rows, heads, queries, columns])), 3, 0..keys)
}

/// Transpose of [`shifted`]: gradients at keys, `[.., .., Q, K]`, to their distances, `[.., .., Q, Q + K - 1]`.
pub(super) fn unshifted<B: Backend>(slopes: FloatTensor<B>) -> FloatTensor<B> {
    let [rows, heads, queries, keys] = slopes.shape().dims();
    let columns = queries + keys - 1;
    let zeros = |shape| B::float_zeros(Shape::new(shape), &slopes.device(), slopes.dtype().into());
    let wide =
        if queries == 1 { slopes.clone() } else { B::float_cat(vec![slopes.clone(), zeros([rows, heads, queries, queries - 1])], 3) };
    let moved = B::float_reshape(wide, Shape::new([rows, heads, columns, queries]));
    let padded = B::float_cat(vec![zeros([rows, heads, 1, queries]), moved], 2);
    part::<B>(&B::float_reshape(padded, Shape::new([rows, heads, queries, columns + 1])), 3, 1..columns + 1)
}
