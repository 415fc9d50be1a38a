//! The operator on flex, which keeps its tensors in main memory.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use gemm::{Parallelism, gemm};
use rayon::prelude::*;

use super::few_rows;
use super::operator::Products;
use crate::main_memory::tensor;

/// Multiplications for which several threads are faster than one.
const PARALLEL: usize = 192 * 192 * 192;

/// Rows of a left factor up to which much of a product's time passes until the right factor has come from main memory.
const FEW_ROWS: usize = 64;

/// [`PARALLEL`] with few rows: two threads get more from main memory than one.
const PARALLEL_WITH_FEW_ROWS: usize = 8 * few_rows::FEWEST;

/// Sums into which a product is divided that is long and thin, as gradients of weights are: each thread has its own and waits for no other. Their number
/// does not depend on that of threads, so that the result does not.
pub const SUMS: usize = 4;

impl Products for Flex {
    fn product(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        let is_plain = |matrix: &FlexTensor| matrix.dtype() == DType::F32 && matrix.layout().strides().iter().all(|&stride| stride >= 0);
        if !is_plain(&a) || !is_plain(&b) {
            return Self::float_matmul(a, b);
        }
        let (a, b) = (Factor::of(&a), Factor::of(&b));
        let ([rows, inner], [given, columns]) = (a.sizes, b.sizes);
        assert_eq!(inner, given, "factors of a product");
        let multiplications = rows * columns * inner;
        let is_large = multiplications >= PARALLEL;
        let product = if is_large && inner >= SUMS * rows.max(columns) {
            let part = |index: usize| index * inner / SUMS..(index + 1) * inner / SUMS;
            let sums: Vec<Vec<f32>> = (0..SUMS)
                .into_par_iter()
                .map(|index| {
                    let part = part(index);
                    multiplied(a.columns(part.start, part.len()), b.rows(part.start, part.len()), Parallelism::None)
                })
                .collect();
            let mut sums = sums.into_iter();
            let mut product = sums.next().expect("there is a sum");
            sums.for_each(|sum| product.iter_mut().zip(sum).for_each(|(product, number)| *product += number));
            product
        } else if let Some(product) = few_rows::multiplied(a, b) {
            product
        } else {
            let is_parallel = is_large || rows <= FEW_ROWS && multiplications >= PARALLEL_WITH_FEW_ROWS;
            multiplied(a, b, if is_parallel { Parallelism::Rayon(0) } else { Parallelism::None })
        };
        tensor(product, [rows, columns])
    }
}

/// A matrix that lies anywhere.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub numbers: &'a [f32],
    pub sizes: [usize; 2],
    /// From one row or column to the next.
    pub strides: [usize; 2],
}

impl<'a> Factor<'a> {
    fn of(tensor: &'a FlexTensor) -> Self {
        let layout = tensor.layout();
        let strides = [0, 1].map(|dim| layout.strides()[dim].unsigned_abs());
        Self { numbers: &tensor.storage()[layout.start_offset()..], sizes: layout.shape().dims(), strides }
    }

    fn rows(self, first: usize, count: usize) -> Self {
        Self { numbers: &self.numbers[first * self.strides[0]..], sizes: [count, self.sizes[1]], ..self }
    }

    fn columns(self, first: usize, count: usize) -> Self {
        Self { numbers: &self.numbers[first * self.strides[1]..], sizes: [self.sizes[0], count], ..self }
    }

    /// Whether it has numbers, all of which lie within the slice.
    fn is_within(&self) -> bool {
        let last = |dim: usize| self.sizes[dim].checked_sub(1).map(|last| last * self.strides[dim]);
        last(0).zip(last(1)).is_some_and(|(row, column)| row + column < self.numbers.len())
    }
}

/// The product, row after row.
pub(super) fn multiplied(a: Factor, b: Factor, parallelism: Parallelism) -> Vec<f32> {
    let ([rows, inner], [given, columns]) = (a.sizes, b.sizes);
    if rows * columns * inner == 0 {
        return vec![0.0; rows * columns];
    }
    assert!(inner == given && a.is_within() && b.is_within(), "factors lie within their numbers");
    let mut product = Vec::with_capacity(rows * columns);
    let [[a_rows, a_columns], [b_rows, b_columns]] = [a, b].map(|matrix| matrix.strides.map(|stride| stride as isize));
    #[allow(unsafe_code, reason = "gemm has no safe interface, and writes memory that nothing has to clear before")]
    // SAFETY: all numbers of the factors lie within their slices, as is asserted above. The product has room for all of its own, row after row, and gemm
    // writes each of them without having read it.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            product.as_mut_ptr(),
            1,
            columns as isize,
            false,
            a.numbers.as_ptr(),
            a_columns,
            a_rows,
            b.numbers.as_ptr(),
            b_columns,
            b_rows,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
        product.set_len(rows * columns);
    }
    product
}
