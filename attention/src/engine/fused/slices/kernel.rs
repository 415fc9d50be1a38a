//! Products of tiles on the vector unit that the processor has.
//!
//! Everything here is inlined into the functions that [`pulp`] compiles once for each instruction set.

use pulp::Simd;

use crate::visibility::TILE;

/// A matrix whose rows lie `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
}

/// The left factor of a product: gives the numbers that one step along the inner dimension needs.
pub(super) trait Left: Copy {
    type Rows<'b, const M: usize>
    where
        Self: 'b;

    /// Rows `first..first + M`, each of `inner` numbers.
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> Self::Rows<'_, M>;

    /// Column `k` of the rows.
    fn column<const M: usize>(rows: &Self::Rows<'_, M>, k: usize) -> [f32; M];
}

impl Left for Matrix<'_> {
    type Rows<'b, const M: usize>
        = [&'b [f32]; M]
    where
        Self: 'b;

    #[inline(always)]
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> [&[f32]; M] {
        // Not `array::from_fn`: the compiler may leave its closure in a function of its own, here and below.
        let mut rows: [&[f32]; M] = [&[]; M];
        for (row, numbers) in rows.iter_mut().enumerate() {
            *numbers = &self.numbers[(first + row) * self.stride..][..inner];
        }
        rows
    }

    #[inline(always)]
    fn column<const M: usize>(rows: &[&[f32]; M], k: usize) -> [f32; M] {
        let mut column = [0.0; M];
        for (number, row) in column.iter_mut().zip(rows) {
            *number = row[k];
        }
        column
    }
}

/// The transpose of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Transposed<'a>(pub Matrix<'a>);

impl Left for Transposed<'_> {
    type Rows<'b, const M: usize>
        = Matrix<'b>
    where
        Self: 'b;

    #[inline(always)]
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> Matrix<'_> {
        let Matrix { numbers, stride } = self.0;
        Matrix { numbers: &numbers[first..(inner - 1) * stride + first + M], stride }
    }

    #[inline(always)]
    fn column<const M: usize>(rows: &Matrix<'_>, k: usize) -> [f32; M] {
        *rows.numbers[k * rows.stride..].first_chunk().expect("rows end with the last column")
    }
}

/// Width to which the right factors of products are filled with zeros: a multiple of two registers of any instruction set.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(32)
}

/// `sum += left right` with the sizes `[rows, columns, inner]`; `columns` is [`padded`].
#[inline(always)]
pub(super) fn add_product<S: Simd, L: Left>(simd: S, [rows, columns, inner]: [usize; 3], left: L, right: Matrix, sum: &mut [f32]) {
    if inner == 0 {
        return;
    }
    for column in (0..columns).step_by(2 * S::F32_LANES) {
        let right = Matrix { numbers: &right.numbers[column..], stride: right.stride };
        let mut row = 0;
        // Six rows and two registers of columns keep the sums of a block within sixteen registers.
        while row + 6 <= rows {
            add_block::<S, L, 6>(simd, inner, (left, row), right, &mut sum[row * columns + column..], columns);
            row += 6;
        }
        if row + 4 <= rows {
            add_block::<S, L, 4>(simd, inner, (left, row), right, &mut sum[row * columns + column..], columns);
            row += 4;
        }
        if row + 2 <= rows {
            add_block::<S, L, 2>(simd, inner, (left, row), right, &mut sum[row * columns + column..], columns);
            row += 2;
        }
        if row < rows {
            add_block::<S, L, 1>(simd, inner, (left, row), right, &mut sum[row * columns + column..], columns);
        }
    }
}

#[inline(always)]
fn add_block<S: Simd, L: Left, const M: usize>(
    simd: S,
    inner: usize,
    (left, row): (L, usize),
    right: Matrix,
    sum: &mut [f32],
    stride: usize,
) {
    let rows = left.rows::<M>(row, inner);
    let mut low = [simd.splat_f32s(0.0); M];
    let mut high = low;
    for (k, right) in right.numbers.chunks(right.stride).take(inner).enumerate() {
        let right = &S::as_simd_f32s(right).0[..2];
        let column = L::column::<M>(&rows, k);
        for row in 0..M {
            let number = simd.splat_f32s(column[row]);
            low[row] = simd.mul_add_f32s(number, right[0], low[row]);
            high[row] = simd.mul_add_f32s(number, right[1], high[row]);
        }
    }
    for row in 0..M {
        let sum = &mut S::as_mut_simd_f32s(&mut sum[row * stride..]).0[..2];
        sum[0] = simd.add_f32s(sum[0], low[row]);
        sum[1] = simd.add_f32s(sum[1], high[row]);
    }
}

/// The transpose `[width, columns]` of a matrix of at most `columns` rows, filled with zeros.
pub(super) fn transposed(numbers: &[f32], width: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; width * columns];
    for (at, row) in numbers.chunks(width.max(1)).enumerate() {
        for (number, transposed) in row.iter().zip(transposed.chunks_mut(columns)) {
            transposed[at] = *number;
        }
    }
    transposed
}

/// `[tiles, width, TILE]` of a matrix `[rows, width]`, filled with zeros: the right factor of a product with the matrix' transpose, tile by tile of rows.
pub(super) fn transposed_tiles(numbers: &[f32], width: usize) -> Vec<f32> {
    numbers.chunks((TILE * width).max(1)).flat_map(|rows| transposed(rows, width, TILE)).collect()
}

/// `[rows, padded width]` of a matrix `[rows, width]`, filled with zeros.
pub(super) fn widened(numbers: &[f32], width: usize) -> Vec<f32> {
    let columns = padded(width);
    let mut widened = vec![0.0; numbers.len() / width.max(1) * columns];
    for (row, widened) in numbers.chunks(width.max(1)).zip(widened.chunks_mut(columns.max(1))) {
        widened[..width].copy_from_slice(row);
    }
    widened
}

/// `[tiles, TILE, padded width]` of a matrix `[rows, width]`, filled with zeros: the right factor of a product with the matrix, tile by tile of rows.
pub(super) fn widened_tiles(numbers: &[f32], width: usize) -> Vec<f32> {
    let mut widened = widened(numbers, width);
    widened.resize((numbers.len() / width.max(1)).next_multiple_of(TILE) * padded(width), 0.0);
    widened
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, WithSimd};

    use super::*;

    struct Product<'a, L> {
        sizes: [usize; 3],
        left: L,
        right: Matrix<'a>,
    }

    impl<L: Left> WithSimd for Product<'_, L> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
            let mut sum = vec![1.0; self.sizes[0] * self.sizes[1]];
            add_product(simd, self.sizes, self.left, self.right, &mut sum);
            sum
        }
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| (at as f32 * 0.7).sin()).collect()
    }

    #[test]
    fn products_of_all_heights_are_those_of_the_definition() {
        let (columns, inner) = (64, 5);
        let right = numbers(inner * columns);
        for rows in 1..14 {
            let left = numbers(rows * inner);
            let definition = |at: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
                let sum = |row: usize, column: usize| (0..inner).map(|k| at(row, k) * right[k * columns + column]).sum::<f32>();
                (0..rows * columns).map(|index| 1.0 + sum(index / columns, index % columns)).collect()
            };
            let right = Matrix { numbers: &right, stride: columns };
            let sizes = [rows, columns, inner];
            let product = Arch::new().dispatch(Product { sizes, left: Matrix { numbers: &left, stride: inner }, right });
            assert_near(&product, &definition(&|row, k| left[row * inner + k]));
            let product = Arch::new().dispatch(Product { sizes, left: Transposed(Matrix { numbers: &left, stride: rows }), right });
            assert_near(&product, &definition(&|row, k| left[k * rows + row]));
        }
    }

    fn assert_near(found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-5, "{found} is not {wanted}");
        }
    }

    #[test]
    fn tiles_are_filled_with_zeros() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 4), [1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 6.0, 0.0]);
        let numbers: Vec<f32> = (0..65).map(|number| number as f32).collect();
        let transposed = transposed_tiles(&numbers, 1);
        assert_eq!((transposed.len(), transposed[64], transposed[65]), (128, 64.0, 0.0));
        let widened = widened_tiles(&numbers, 1);
        assert_eq!(widened.len(), 128 * 32);
        assert_eq!([widened[32], widened[64 * 32], widened[65 * 32], widened[33]], [1.0, 64.0, 0.0, 0.0]);
    }
}
