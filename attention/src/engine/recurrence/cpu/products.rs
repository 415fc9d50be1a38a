//! Matrix products and transposes.

use pulp::{Simd, WithSimd};

pub(super) use crate::engine::exponential::add_products;
use crate::engine::exponential::{LANES, sum_of_lanes};
use crate::engine::fused::cpu::kernel::{Left, Matrix, Sparsity, add_product, product};

/// One product as a separate function: a chunk has many, and a single kernel stays in the instruction cache.
struct Product<'a, L> {
    sizes: [usize; 3],
    sparsity: Sparsity,
    left: L,
    right: Matrix<'a>,
    result: &'a mut [f32],
    adds: bool,
}

impl<L: Left> WithSimd for Product<'_, L> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, sparsity, left, right, result, adds } = self;
        if adds {
            add_product(simd, sizes, sparsity, left, right, result);
        } else {
            product(simd, sizes, sparsity, left, right, result);
        }
    }
}

/// `result = left right` with the sizes `[rows, columns, inner]`, as [`product`].
#[inline(always)]
pub(super) fn multiply<S: Simd, L: Left>(simd: S, sizes: [usize; 3], sparsity: Sparsity, left: L, right: Matrix, result: &mut [f32]) {
    simd.vectorize(Product { sizes, sparsity, left, right, result, adds: false });
}

/// `sum += left right`, as [`add_product`].
#[inline(always)]
pub(super) fn add_multiplied<S: Simd, L: Left>(simd: S, sizes: [usize; 3], sparsity: Sparsity, left: L, right: Matrix, sum: &mut [f32]) {
    simd.vectorize(Product { sizes, sparsity, left, right, result: sum, adds: true });
}

/// The matrix with rows of `stride` numbers.
#[inline(always)]
pub(super) fn matrix(numbers: &[f32], stride: usize) -> Matrix<'_> {
    Matrix { numbers, stride }
}

/// Rows and columns transposed at once.
const BLOCK: usize = 8;

/// Writes the transpose of `count` rows, of `width` numbers each, to rows of `columns` numbers. Both matrices have room for whole blocks, whose padding is also
/// written.
#[inline(always)]
pub(super) fn transpose(rows: Matrix, [count, width]: [usize; 2], transposed: &mut [f32], columns: usize) {
    for row in (0..count).step_by(BLOCK) {
        for column in (0..width).step_by(BLOCK) {
            let mut block = [[0.0; BLOCK]; BLOCK];
            for (at, numbers) in block.iter_mut().enumerate() {
                *numbers = *rows.numbers[(row + at) * rows.stride + column..].first_chunk().expect("rows fill blocks");
            }
            for at in 0..BLOCK {
                let mut turned = [0.0; BLOCK];
                for (number, numbers) in turned.iter_mut().zip(&block) {
                    *number = numbers[at];
                }
                transposed[(column + at) * columns + row..][..BLOCK].copy_from_slice(&turned);
            }
        }
    }
}

/// Sum of products of two rows, whose width is a multiple of [`LANES`], like all widths here.
#[inline(always)]
pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for at in 0..LANES {
            lanes[at] = x[at].mul_add(y[at], lanes[at]);
        }
    }
    sum_of_lanes(lanes)
}

/// The sum of products of three rows.
#[inline(always)]
pub(super) fn dot_of_three(x: &[f32], y: &[f32], z: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let rows = x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0).zip(z.as_chunks::<LANES>().0);
    for ((x, y), z) in rows {
        for at in 0..LANES {
            lanes[at] = (x[at] * y[at]).mul_add(z[at], lanes[at]);
        }
    }
    sum_of_lanes(lanes)
}

/// `result = x * y`.
#[inline(always)]
pub(super) fn times(x: &[f32], y: &[f32], result: &mut [f32]) {
    for ((result, x), y) in result.iter_mut().zip(x).zip(y) {
        *result = x * y;
    }
}

/// `sum += factor * x`.
#[inline(always)]
pub(super) fn add_times(factor: f32, x: &[f32], sum: &mut [f32]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum = factor.mul_add(*x, *sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_turned_over_block_by_block() {
        let rows: Vec<f32> = (0..16 * 32).map(|number| number as f32).collect();
        let mut transposed = vec![-1.0; 24 * 16];
        transpose(matrix(&rows, 32), [13, 17], &mut transposed, 16);
        for (row, column) in (0..13).flat_map(|row| (0..17).map(move |column| (row, column))) {
            assert_eq!(transposed[column * 16 + row], rows[row * 32 + column]);
        }
    }
}
