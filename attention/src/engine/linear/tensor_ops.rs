//! The operators as tensor operations. For maps of some rows, the rows are gathered and the results scattered.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{IndexingUpdateOp, Shape, TensorData};

use super::operator::{Products, Rows};

pub(super) fn some_rows_mapped<B: Products>(x: FloatTensor<B>, weight: FloatTensor<B>, rows: Rows) -> FloatTensor<B> {
    let (count, units) = (x.shape()[0], weight.shape()[1]);
    let indices = indices::<B>(&x, &rows);
    let zeros = B::float_zeros(Shape::new([count, units]), &x.device(), x.dtype().into());
    let mapped = B::product(B::float_select(x, 0, indices.clone()), weight);
    B::float_select_assign(zeros, 0, indices, mapped, IndexingUpdateOp::Add)
}

pub(super) fn product_of_rows<B: Products>(a: FloatTensor<B>, b: FloatTensor<B>, rows: Rows) -> FloatTensor<B> {
    let indices = indices::<B>(&a, &rows);
    let [a, b] = [a, b].map(|matrix| B::float_select(matrix, 0, indices.clone()));
    B::product(B::float_swap_dims(a, 0, 1), b)
}

/// The sum `[C]` of rows `[N, C]`.
pub(super) fn column_sums<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let width = x.shape()[1];
    B::float_reshape(B::float_sum_dim(x, 0), Shape::new([width]))
}

fn indices<B: Products>(x: &FloatTensor<B>, rows: &Rows) -> IntTensor<B> {
    let indices: Vec<i32> = rows.iter().flat_map(|rows| rows.clone().map(|row| row as i32)).collect();
    let count = indices.len();
    B::int_from_data(TensorData::new(indices, [count]), &x.device())
}
