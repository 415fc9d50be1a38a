//! The operator: matrix products, also with gradients.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use std::ops::Range;
use std::sync::Arc;

use ::burn::tensor::Shape;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::tensor_ops;
use crate::engine::custom_gradient::{passed, recomputed};
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// Row ranges of a matrix, in ascending order.
pub type Rows = Arc<[Range<usize>]>;

/// Products of matrices.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub trait Products: Backend {
    /// `a b` of matrices `[N, C]` and `[C, F]`, `[N, F]`.
    #[fusion(default)]
    fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(a, b)
    }

    /// [`product`](Self::product) of rows and a weight, with gradients under autodiff.
    #[fusion(default)]
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::product(x, weight)
    }

    /// The same for some of the rows, with 0 at the others.
    #[fusion(default)]
    fn some_rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        tensor_ops::some_rows_mapped::<Self>(x, weight, rows)
    }

    /// `a^T b` of some of the rows of matrices `[N, C]` and `[N, F]`, `[C, F]`.
    #[fusion(default)]
    fn product_of_rows(a: FloatTensor<Self>, b: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        tensor_ops::product_of_rows::<Self>(a, b, rows)
    }

    /// The sum `[C]` of rows `[N, C]`.
    #[fusion(dtype = x, shape = Shape::new([x[1]]))]
    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor_ops::column_sums::<Self>(x)
    }

    /// `x + shift` of rows `[N, C]`, with gradients under autodiff.
    #[fusion(default)]
    fn shifted(x: FloatTensor<Self>, shift: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = Shape::new([1, x.shape()[1]]);
        Self::float_add(x, Self::float_reshape(shift, shape))
    }
}

#[cfg(feature = "ndarray")]
impl Products for burn::backend::NdArray {}

impl<B: Products, C: CheckpointStrategy> Products for Autodiff<B, C> {
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        recomputed::<B, C, _, 2>([x, weight], |[x, weight], _has_gradient| {
            (B::rows_mapped(x, weight), |[x, weight], gradient, [of_x, of_weight]| {
                [
                    of_x.then(|| B::product(gradient.clone(), B::float_swap_dims(weight, 0, 1))),
                    of_weight.then(|| B::product(B::float_swap_dims(x, 0, 1), gradient)),
                ]
            })
        })
    }

    fn some_rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        recomputed::<B, C, _, 2>([x, weight], |[x, weight], _has_gradient| {
            (B::some_rows_mapped(x, weight, rows.clone()), |[x, weight], gradient, [of_x, of_weight]| {
                [
                    of_x.then(|| B::some_rows_mapped(gradient.clone(), B::float_swap_dims(weight, 0, 1), rows.clone())),
                    of_weight.then(|| B::product_of_rows(x, gradient, rows)),
                ]
            })
        })
    }

    fn shifted(x: FloatTensor<Self>, shift: FloatTensor<Self>) -> FloatTensor<Self> {
        passed::<B, C, _, 2>([x, shift], |[x, shift], _has_gradient| {
            let of_operands = |gradient: FloatTensor<B>, [_, of_shift]: [bool; 2]| {
                let sums = of_shift.then(|| B::column_sums(gradient.clone()));
                [Some(gradient), sums]
            };
            (B::shifted(x, shift), of_operands)
        })
    }
}
