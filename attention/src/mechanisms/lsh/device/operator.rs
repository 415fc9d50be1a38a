//! The operator on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, backend_extension};

use super::main_memory;
use super::sort_layout::{Form, Rows};
use crate::engine::custom_gradient::passed;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// Sorting by bucket, and operations on the resulting arrangement. The default bodies compute in main memory and serve as references for the kernels.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(crate) trait ArrangementOperator: Backend {
    /// Arrangement of `buckets` `[B, H, rounds, n]`, in the layout of [`Form`]. `live` `[B, H, n]` is 1 for keys and 0 for other positions; it is ignored
    /// without holes.
    #[fusion(dtype = buckets, shape = form.arrangement_shape())]
    fn arranged(buckets: IntTensor<Self>, live: IntTensor<Self>, form: Form) -> IntTensor<Self> {
        main_memory::arranged::<Self>(buckets, live, &form)
    }

    /// Biases of the group logits, `[P N, m, T]`: for pairs that meet, the log share of this round, and a penalty for a query's own position; a large negative
    /// number elsewhere. The type is that of `pairs` `[B|1, H|1, queries, n]`, which are 0 where visible and otherwise a large negative number; `pairs` is
    /// ignored without pairwise visibility.
    #[fusion(dtype = pairs, shape = form.bias_shape())]
    fn bias(buckets: IntTensor<Self>, arrangement: IntTensor<Self>, pairs: FloatTensor<Self>, form: Form) -> FloatTensor<Self> {
        main_memory::bias::<Self>(buckets, arrangement, pairs, &form)
    }

    /// Gathers rows of `x`; missing rows are 0.
    #[fusion(dtype = x, shape = form.taken_shape(*rows, x[x.num_dims() - 1]))]
    fn taken(x: FloatTensor<Self>, arrangement: IntTensor<Self>, rows: Rows, form: Form) -> FloatTensor<Self> {
        main_memory::taken::<Self>(x, arrangement, rows, &form)
    }

    /// Transpose of [`taken`](Self::taken): sums each source row over its gathered copies.
    #[fusion(dtype = x, shape = form.source_shape(*rows, x[x.num_dims() - 1]))]
    fn returned(x: FloatTensor<Self>, arrangement: IntTensor<Self>, rows: Rows, form: Form) -> FloatTensor<Self> {
        main_memory::returned::<Self>(x, arrangement, rows, &form)
    }
}

impl ArrangementOperator for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl ArrangementOperator for burn::backend::NdArray {}

impl<B: ArrangementOperator, C: CheckpointStrategy> ArrangementOperator for Autodiff<B, C> {
    fn arranged(buckets: IntTensor<Self>, live: IntTensor<Self>, form: Form) -> IntTensor<Self> {
        B::arranged(buckets, live, form)
    }

    fn bias(buckets: IntTensor<Self>, arrangement: IntTensor<Self>, pairs: FloatTensor<Self>, form: Form) -> FloatTensor<Self> {
        <Self as AutodiffBackend>::from_inner(B::bias(buckets, arrangement, pairs.into_primitive(), form))
    }

    fn taken(x: FloatTensor<Self>, arrangement: IntTensor<Self>, rows: Rows, form: Form) -> FloatTensor<Self> {
        passed::<B, C, _, 1>([x], |[x], _has_gradient| {
            let taken = B::taken(x, arrangement.clone(), rows, form);
            (taken, move |gradient, _wanted| [Some(B::returned(gradient, arrangement, rows, form))])
        })
    }

    fn returned(x: FloatTensor<Self>, arrangement: IntTensor<Self>, rows: Rows, form: Form) -> FloatTensor<Self> {
        <Self as AutodiffBackend>::from_inner(B::returned(x.into_primitive(), arrangement, rows, form))
    }
}
