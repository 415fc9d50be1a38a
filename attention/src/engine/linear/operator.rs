//! The operator: a product of matrices, and one with a gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use ::burn::tensor::Shape;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};
#[cfg(feature = "cube")]
use burn_fusion::custom::TensorSpec;

use super::{Rows, composed};
#[cfg(feature = "cube")]
use crate::engine::extension as burn;
use crate::engine::recomputed::{Gradient, recomputed};

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

    /// [`product`](Self::product) of rows and a weight; with automatic differentiation, with its gradients.
    #[fusion(default)]
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::product(x, weight)
    }

    /// The same of some of the rows, and 0 at the others.
    #[fusion(default)]
    fn some_rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        composed::some_rows_mapped::<Self>(x, weight, rows)
    }

    /// `a^T b` of some of the rows of matrices `[N, C]` and `[N, F]`, `[C, F]`.
    #[fusion(default)]
    fn product_of_rows(a: FloatTensor<Self>, b: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        composed::product_of_rows::<Self>(a, b, rows)
    }

    /// The sum `[C]` of rows `[N, C]`.
    #[fusion(meta = sum)]
    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        composed::column_sums::<Self>(x)
    }

    /// `x + shift` of rows `[N, C]`; with automatic differentiation, with its gradients.
    #[fusion(default)]
    fn shifted(x: FloatTensor<Self>, shift: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = Shape::new([1, x.shape()[1]]);
        Self::float_add(x, Self::float_reshape(shift, shape))
    }
}

#[cfg(feature = "cube")]
fn sum(x: &TensorSpec) -> TensorSpec {
    TensorSpec::new([x.shape[1]].into(), x.dtype)
}

impl<B: Products, C: CheckpointStrategy> Products for Autodiff<B, C> {
    fn rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        recomputed::<B, C, _, 2>([Some(x), Some(weight)], |factors, _has_gradient| {
            let [x, weight] = both(factors);
            (B::rows_mapped(x, weight), Linear)
        })
    }

    fn some_rows_mapped(x: FloatTensor<Self>, weight: FloatTensor<Self>, rows: Rows) -> FloatTensor<Self> {
        recomputed::<B, C, _, 2>([Some(x), Some(weight)], |factors, _has_gradient| {
            let [x, weight] = both(factors);
            (B::some_rows_mapped(x, weight, rows.clone()), LinearOfRows(rows))
        })
    }

    fn shifted(x: FloatTensor<Self>, shift: FloatTensor<Self>) -> FloatTensor<Self> {
        match Shift.prepare::<C>([x.node(), shift.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((), B::shifted(x.into_primitive(), shift.into_primitive())),
            OpsKind::UnTracked(prepared) => prepared.finish(B::shifted(x.into_primitive(), shift.into_primitive())),
        }
    }
}

/// The gradient of rows and their shift.
#[derive(Debug)]
struct Shift;

impl<B: Products> Backward<B, 2> for Shift {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let [of_x, of_shift] = ops.parents;
        if let Some(node) = of_shift {
            gradients.register::<B>(node.id, B::column_sums(gradient.clone()));
        }
        if let Some(node) = of_x {
            gradients.register::<B>(node.id, gradient);
        }
    }
}

fn both<T>(factors: [Option<T>; 2]) -> [T; 2] {
    factors.map(|factor| factor.expect("a product has two factors"))
}

/// The gradient.
#[derive(Clone, Debug)]
struct Linear;

impl<B: Products> Gradient<B, 2> for Linear {
    fn of_operands(
        self,
        factors: [Option<FloatTensor<B>>; 2],
        gradient: FloatTensor<B>,
        [of_x, of_weight]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let [x, weight] = both(factors);
        [
            of_x.then(|| B::product(gradient.clone(), B::float_swap_dims(weight, 0, 1))),
            of_weight.then(|| B::product(B::float_swap_dims(x, 0, 1), gradient)),
        ]
    }
}

/// The gradient of a map of some of the rows.
#[derive(Clone, Debug)]
struct LinearOfRows(Rows);

impl<B: Products> Gradient<B, 2> for LinearOfRows {
    fn of_operands(
        self,
        factors: [Option<FloatTensor<B>>; 2],
        gradient: FloatTensor<B>,
        [of_x, of_weight]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let ([x, weight], Self(rows)) = (both(factors), self);
        [
            of_x.then(|| B::some_rows_mapped(gradient.clone(), B::float_swap_dims(weight, 0, 1), rows.clone())),
            of_weight.then(|| B::product_of_rows(x, gradient, rows)),
        ]
    }
}
