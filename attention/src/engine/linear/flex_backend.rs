//! The operator on flex, which stores its tensors in main memory.

use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use gemm::{Parallelism, gemm};
use rayon::prelude::*;

use super::few_rows;
use super::operator::{Products, Rows};
use super::tensor_ops;
use crate::tensors::main_memory::tensor;

/// Multiplications from which several threads are faster than one.
const PARALLEL: usize = 192 * 192 * 192;

/// Left-factor rows up to which products are bound by memory bandwidth for the right factor.
const FEW_ROWS: usize = 64;

/// [`PARALLEL`] with few rows: two threads reach more memory bandwidth than one.
const PARALLEL_WITH_FEW_ROWS: usize = 8 * few_rows::FEWEST;

/// Number of partial sums of a long and thin product, such as a weight gradient: each thread computes its own without waiting. It does not depend on the number
/// of threads, so neither does the result.
pub const SUMS: usize = 4;

/// Rows of a piece for one thread: enough to read the weight from its cache, and few enough to occupy all threads.
const PIECE: usize = 256;

impl Products for Flex {
    fn product(a: FlexTensor, b: FlexTensor) -> FlexTensor {
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
            added(sums)
        } else if let Some(product) = few_rows::multiplied(a, b) {
            product
        } else {
            let is_parallel = is_large || rows <= FEW_ROWS && multiplications >= PARALLEL_WITH_FEW_ROWS;
            multiplied(a, b, if is_parallel { Parallelism::Rayon(0) } else { Parallelism::None })
        };
        tensor(product, [rows, columns])
    }

    fn some_rows_mapped(x: FlexTensor, weight: FlexTensor, rows: Rows) -> FlexTensor {
        if !is_plain(&x) || !is_plain(&weight) {
            return tensor_ops::some_rows_mapped::<Self>(x, weight, rows);
        }
        let (x, weight) = (Factor::of(&x), Factor::of(&weight));
        let ([count, inner], [given, columns]) = (x.sizes, weight.sizes);
        assert_eq!(inner, given, "factors of a product");
        let mut product = vec![0.0; count * columns];
        let (mut rest, mut at, mut pieces) = (&mut product[..], 0, Vec::new());
        for piece in pieces_of(&rows) {
            let (own, after) = rest[(piece.start - at) * columns..].split_at_mut(piece.len() * columns);
            (rest, at) = (after, piece.end);
            pieces.push((piece, own));
        }
        let map = |(piece, own): (Range<usize>, &mut [f32])| add_product(x.rows(piece.start, piece.len()), weight, own);
        if count_of(&rows) * columns * inner >= PARALLEL {
            pieces.into_par_iter().for_each(map);
        } else {
            pieces.into_iter().for_each(map);
        }
        tensor(product, [count, columns])
    }

    fn product_of_rows(a: FlexTensor, b: FlexTensor, rows: Rows) -> FlexTensor {
        if !is_plain(&a) || !is_plain(&b) {
            return tensor_ops::product_of_rows::<Self>(a, b, rows);
        }
        let (a, b) = (Factor::of(&a), Factor::of(&b));
        let ([count, of_a], [given, of_b]) = (a.sizes, b.sizes);
        assert_eq!(count, given, "factors of a product");
        let (pieces, total) = (pieces_of(&rows), count_of(&rows));
        let mut sums: Vec<(Vec<Range<usize>>, Vec<f32>)> = (0..SUMS).map(|_| (Vec::new(), vec![0.0; of_a * of_b])).collect();
        let mut passed = 0;
        for piece in pieces {
            sums[passed * SUMS / total].0.push(piece.clone());
            passed += piece.len();
        }
        let add = |(pieces, sum): &mut (Vec<Range<usize>>, Vec<f32>)| {
            for piece in pieces {
                let [a, b] = [a, b].map(|matrix| matrix.rows(piece.start, piece.len()));
                add_product(a.transposed(), b, sum);
            }
        };
        if total * of_a * of_b >= PARALLEL {
            sums.par_iter_mut().for_each(add);
        } else {
            sums.iter_mut().for_each(add);
        }
        tensor(added(sums.into_iter().map(|(_, sum)| sum)), [of_a, of_b])
    }
}

/// Adds the others to the first one, in order.
fn added(sums: impl IntoIterator<Item = Vec<f32>>) -> Vec<f32> {
    let mut sums = sums.into_iter();
    let mut all = sums.next().expect("there is a sum");
    sums.for_each(|sum| all.iter_mut().zip(sum).for_each(|(all, number)| *all += number));
    all
}

fn is_plain(matrix: &FlexTensor) -> bool {
    matrix.dtype() == DType::F32 && matrix.layout().strides().iter().all(|&stride| stride >= 0)
}

/// Splits the rows into pieces.
fn pieces_of(rows: &Rows) -> Vec<Range<usize>> {
    let pieces = |rows: &Range<usize>| {
        let end = rows.end;
        rows.clone().step_by(PIECE).map(move |first| first..end.min(first + PIECE))
    };
    rows.iter().flat_map(pieces).collect()
}

fn count_of(rows: &Rows) -> usize {
    rows.iter().map(Range::len).sum()
}

/// A matrix with any strides.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub numbers: &'a [f32],
    pub sizes: [usize; 2],
    /// Strides of rows and columns.
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

    fn transposed(self) -> Self {
        let ([rows, columns], [of_rows, of_columns]) = (self.sizes, self.strides);
        Self { sizes: [columns, rows], strides: [of_columns, of_rows], ..self }
    }

    /// Whether it is not empty, and all its numbers are within the slice.
    fn is_within(&self) -> bool {
        let last = |dim: usize| self.sizes[dim].checked_sub(1).map(|last| last * self.strides[dim]);
        last(0).zip(last(1)).is_some_and(|(row, column)| row + column < self.numbers.len())
    }
}

/// The product, row after row.
pub(super) fn multiplied(a: Factor, b: Factor, parallelism: Parallelism) -> Vec<f32> {
    let (rows, columns) = (a.sizes[0], b.sizes[1]);
    if rows * columns * a.sizes[1] == 0 {
        return vec![0.0; rows * columns];
    }
    let mut product = Vec::with_capacity(rows * columns);
    #[allow(unsafe_code, reason = "gemm has no safe interface, and writes memory that nothing has to clear before")]
    // SAFETY: the product has room for all of its numbers, and each of them is written without having been read.
    unsafe {
        multiply(a, b, product.as_mut_ptr(), false, parallelism);
        product.set_len(rows * columns);
    }
    product
}

/// `sum += a b`, on one thread.
///
/// # Panics
/// If the sum has another size.
fn add_product(a: Factor, b: Factor, sum: &mut [f32]) {
    assert_eq!(sum.len(), a.sizes[0] * b.sizes[1], "numbers of a product");
    if sum.is_empty() || a.sizes[1] == 0 {
        return;
    }
    #[allow(unsafe_code, reason = "gemm has no safe interface")]
    // SAFETY: the sum has as many numbers as the product, as is asserted above, and all of them have been written.
    unsafe {
        multiply(a, b, sum.as_mut_ptr(), true, Parallelism::None);
    }
}

/// Writes the product, row after row, or adds it to the existing numbers.
///
/// # Safety
/// `product` has room for all numbers of the product, and holds them where it is added to.
///
/// # Panics
/// If a factor is empty, or its numbers are not within its slice.
#[allow(unsafe_code, reason = "gemm has no safe interface")]
unsafe fn multiply(a: Factor, b: Factor, product: *mut f32, is_added: bool, parallelism: Parallelism) {
    let ([rows, inner], [given, columns]) = (a.sizes, b.sizes);
    assert!(inner == given && a.is_within() && b.is_within(), "factors lie within their numbers");
    let [[a_rows, a_columns], [b_rows, b_columns]] = [a, b].map(|matrix| matrix.strides.map(|stride| stride as isize));
    // SAFETY: all numbers of the factors lie within their slices, as is asserted above. The caller answers for those of the product, which lie row after row.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            product,
            1,
            columns as isize,
            is_added,
            a.numbers.as_ptr(),
            a_columns,
            a_rows,
            b.numbers.as_ptr(),
            b_columns,
            b_rows,
            if is_added { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
