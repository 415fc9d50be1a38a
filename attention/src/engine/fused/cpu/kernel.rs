//! Products of tiles on the processor's vector unit.
//!
//! Everything here is inlined into functions that [`pulp`] compiles once per instruction set.

use std::ops::{Deref, DerefMut, Range};

use pulp::Simd;

use crate::contract::visibility::TILE;

/// A matrix with rows `stride` numbers apart.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Matrix<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
}

impl<'a> Matrix<'a> {
    /// The matrix from row `first` on; empty if it is.
    pub(in crate::engine) fn rows_from(self, first: usize) -> Self {
        Self { numbers: self.numbers.get(first * self.stride..).unwrap_or_default(), stride: self.stride }
    }

    /// The first `width` numbers of row `index`.
    pub(in crate::engine) fn row(self, index: usize, width: usize) -> &'a [f32] {
        &self.numbers[index * self.stride..][..width]
    }
}

/// Steps along the inner dimension per iteration: their addresses are computed and checked once for all.
const STEPS: usize = 4;

/// Left factor of a product, which supplies the numbers of steps along the inner dimension.
pub(in crate::engine) trait Left: Copy {
    type Rows<'b, const M: usize>
    where
        Self: 'b;

    /// The numbers of [`STEPS`] columns.
    type Columns<'b, const M: usize>;

    /// Rows `first..first + M`, each of `inner` numbers.
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> Self::Rows<'_, M>;

    /// Columns of the rows from `k` on.
    fn columns<'b, const M: usize>(rows: &'b Self::Rows<'_, M>, k: usize) -> Self::Columns<'b, M>;

    /// A number of such columns.
    fn number<const M: usize>(columns: &Self::Columns<'_, M>, row: usize, step: usize) -> f32;

    /// Column `k` of the rows.
    fn column<const M: usize>(rows: &Self::Rows<'_, M>, k: usize) -> [f32; M];
}

impl Left for Matrix<'_> {
    type Rows<'b, const M: usize>
        = [&'b [f32]; M]
    where
        Self: 'b;

    type Columns<'b, const M: usize> = [&'b [f32; STEPS]; M];

    #[inline(always)]
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> [&[f32]; M] {
        // Not `array::from_fn`: the compiler may not inline its closure, here and below.
        let mut rows: [&[f32]; M] = [&[]; M];
        for (row, numbers) in rows.iter_mut().enumerate() {
            *numbers = &self.numbers[(first + row) * self.stride..][..inner];
        }
        rows
    }

    #[inline(always)]
    fn columns<'b, const M: usize>(rows: &'b [&[f32]; M], k: usize) -> [&'b [f32; STEPS]; M] {
        let mut columns = [&[0.0; STEPS]; M];
        for (columns, row) in columns.iter_mut().zip(rows) {
            *columns = row[k..].first_chunk().expect("rows have so many columns");
        }
        columns
    }

    #[inline(always)]
    fn number<const M: usize>(columns: &[&[f32; STEPS]; M], row: usize, step: usize) -> f32 {
        columns[row][step]
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
pub(in crate::engine) struct Transposed<'a>(pub Matrix<'a>);

impl Left for Transposed<'_> {
    type Rows<'b, const M: usize>
        = Matrix<'b>
    where
        Self: 'b;

    type Columns<'b, const M: usize> = [&'b [f32; M]; STEPS];

    #[inline(always)]
    fn rows<const M: usize>(&self, first: usize, inner: usize) -> Matrix<'_> {
        let Matrix { numbers, stride } = self.0;
        Matrix { numbers: &numbers[first..(inner - 1) * stride + first + M], stride }
    }

    #[inline(always)]
    fn columns<'b, const M: usize>(rows: &'b Matrix<'_>, k: usize) -> [&'b [f32; M]; STEPS] {
        let mut columns = [&[0.0; M]; STEPS];
        for (step, column) in columns.iter_mut().enumerate() {
            *column = rows.numbers[(k + step) * rows.stride..].first_chunk().expect("rows end with the last column");
        }
        columns
    }

    #[inline(always)]
    fn number<const M: usize>(columns: &[&[f32; M]; STEPS], row: usize, step: usize) -> f32 {
        columns[step][row]
    }

    #[inline(always)]
    fn column<const M: usize>(rows: &Matrix<'_>, k: usize) -> [f32; M] {
        *rows.numbers[k * rows.stride..].first_chunk().expect("rows end with the last column")
    }
}

/// Numbers aligned to a cache line, so that no register read from such rows crosses a line.
pub(in crate::engine) struct Aligned {
    numbers: Vec<f32>,
    first: usize,
    count: usize,
}

impl Aligned {
    /// Bytes of a cache line.
    const LINE: usize = 64;

    pub(in crate::engine) fn zeros(count: usize) -> Self {
        let numbers = vec![0.0; count + Self::LINE / size_of::<f32>()];
        let first = numbers.as_ptr().align_offset(Self::LINE).min(Self::LINE / size_of::<f32>());
        Self { numbers, first, count }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.first..][..self.count]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[self.first..][..self.count]
    }
}

/// Padded width of right factors: a multiple of two registers of any instruction set.
pub(in crate::engine) fn padded(width: usize) -> usize {
    width.next_multiple_of(32)
}

/// Parts that a product can skip because they are 0 or unused: half of a tile on the causal diagonal, and entries outside a band of scores by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Sparsity {
    /// Everything is needed.
    None,
    /// The result above the diagonal is unused and may stay unchanged.
    TriangleOfResult,
    /// The left factor is 0 above its diagonal.
    TriangleOfLeft,
    /// The left factor is 0 below its diagonal.
    TriangleOfTransposedLeft,
    /// Row `r` of the result is used only within its [`band`]; other entries may stay unchanged. The number is the place of the first result column in the
    /// band.
    BandOfResult(usize),
    /// Row `r` of the left factor is 0 outside of its [`band`].
    BandOfLeft,
    /// Column `r` of the left factor is 0 outside of its [`band`].
    BandOfTransposedLeft,
}

/// Columns of these rows in a band of [`TILE`] columns per row, which starts at `TILE - 1 - r` in row `r`. The same function returns the rows of columns.
#[inline(always)]
fn band(rows: &Range<usize>) -> Range<usize> {
    TILE.saturating_sub(rows.end)..(2 * TILE - 1).saturating_sub(rows.start)
}

impl Sparsity {
    /// Steps along the inner dimension for these rows and columns.
    #[inline(always)]
    fn steps(self, rows: Range<usize>, columns: Range<usize>, inner: usize) -> Option<Range<usize>> {
        match self {
            Self::TriangleOfResult if columns.start >= rows.end => None,
            Self::BandOfResult(first) if columns.start + first >= band(&rows).end || columns.end + first <= band(&rows).start => None,
            Self::None | Self::TriangleOfResult | Self::BandOfResult(_) => Some(0..inner),
            Self::TriangleOfLeft => Some(0..inner.min(rows.end)),
            Self::TriangleOfTransposedLeft => Some(rows.start.min(inner)..inner),
            Self::BandOfLeft | Self::BandOfTransposedLeft => {
                let end = band(&rows).end.min(inner);
                Some(band(&rows).start.min(end)..end)
            }
        }
    }
}

/// `result = left right` with the sizes `[rows, columns, inner]`; `columns` is [`padded`].
#[inline(always)]
pub(in crate::engine) fn product<S: Simd, L: Left>(
    simd: S,
    sizes: [usize; 3],
    sparsity: Sparsity,
    left: L,
    right: Matrix,
    result: &mut [f32],
) {
    let [rows, columns, inner] = sizes;
    if inner == 0 {
        result[..rows * columns].fill(0.0);
        return;
    }
    for_blocks::<S, L, false>(simd, sizes, sparsity, left, right, result);
}

/// `sum += left right` with the sizes `[rows, columns, inner]`; `columns` is [`padded`].
#[inline(always)]
pub(in crate::engine) fn add_product<S: Simd, L: Left>(
    simd: S,
    sizes: [usize; 3],
    sparsity: Sparsity,
    left: L,
    right: Matrix,
    sum: &mut [f32],
) {
    if sizes[2] > 0 {
        for_blocks::<S, L, true>(simd, sizes, sparsity, left, right, sum);
    }
}

#[inline(always)]
fn for_blocks<S: Simd, L: Left, const ADDS: bool>(
    simd: S,
    [rows, columns, inner]: [usize; 3],
    sparsity: Sparsity,
    left: L,
    right: Matrix,
    sum: &mut [f32],
) {
    for column in (0..columns).step_by(2 * S::F32_LANES) {
        let right = Matrix { numbers: &right.numbers[column..], stride: right.stride };
        let mut row = 0;
        // Six rows and two registers of columns keep the sums of a block within sixteen registers.
        while row < rows {
            let height = match rows - row {
                1 => 1,
                2 | 3 => 2,
                4 | 5 => 4,
                _ => 6,
            };
            if let Some(steps) = sparsity.steps(row..row + height, column..column + 2 * S::F32_LANES, inner) {
                let sum = &mut sum[row * columns + column..];
                match height {
                    6 => compute_block::<S, L, 6, ADDS>(simd, steps, inner, (left, row), right, sum, columns),
                    4 => compute_block::<S, L, 4, ADDS>(simd, steps, inner, (left, row), right, sum, columns),
                    2 => compute_block::<S, L, 2, ADDS>(simd, steps, inner, (left, row), right, sum, columns),
                    _ => compute_block::<S, L, 1, ADDS>(simd, steps, inner, (left, row), right, sum, columns),
                }
            }
            row += height;
        }
    }
}

#[inline(always)]
fn compute_block<S: Simd, L: Left, const M: usize, const ADDS: bool>(
    simd: S,
    steps: Range<usize>,
    inner: usize,
    (left, row): (L, usize),
    right: Matrix,
    sum: &mut [f32],
    stride: usize,
) {
    let rows = left.rows::<M>(row, inner);
    let mut low = [simd.splat_f32s(0.0); M];
    let mut high = low;
    let end = steps.end - steps.len() % STEPS;
    for first in (steps.start..end).step_by(STEPS) {
        let columns = L::columns::<M>(&rows, first);
        for step in 0..STEPS {
            let right = &S::as_simd_f32s(&right.numbers[(first + step) * right.stride..]).0[..2];
            for row in 0..M {
                let number = simd.splat_f32s(L::number(&columns, row, step));
                low[row] = simd.mul_add_f32s(number, right[0], low[row]);
                high[row] = simd.mul_add_f32s(number, right[1], high[row]);
            }
        }
    }
    for k in end..steps.end {
        let right = &S::as_simd_f32s(&right.numbers[k * right.stride..]).0[..2];
        let column = L::column::<M>(&rows, k);
        for row in 0..M {
            let number = simd.splat_f32s(column[row]);
            low[row] = simd.mul_add_f32s(number, right[0], low[row]);
            high[row] = simd.mul_add_f32s(number, right[1], high[row]);
        }
    }
    for row in 0..M {
        let sum = &mut S::as_mut_simd_f32s(&mut sum[row * stride..]).0[..2];
        if ADDS {
            low[row] = simd.add_f32s(sum[0], low[row]);
            high[row] = simd.add_f32s(sum[1], high[row]);
        }
        sum[0] = low[row];
        sum[1] = high[row];
    }
}

/// Rows and columns transposed at once, in registers.
const SIDE: usize = 16;

/// `[tiles, width, TILE]` of the first `count` rows of a matrix, zero-padded: the right factor of a product with the matrix' transpose, tile by tile of rows.
pub(super) fn transposed_tiles(matrix: Matrix, count: usize, width: usize) -> Aligned {
    let mut tiles = Aligned::zeros(count.div_ceil(TILE) * TILE * width);
    for (index, tile) in tiles.chunks_mut((TILE * width).max(1)).enumerate() {
        let height = TILE.min(count - index * TILE);
        let row = |at: usize| matrix.row(index * TILE + at, width);
        let [whole_height, whole_width] = [height, width].map(|size| size - size % SIDE);
        for first in (0..whole_height).step_by(SIDE) {
            for column in (0..whole_width).step_by(SIDE) {
                let mut block = [[0.0; SIDE]; SIDE];
                for at in 0..SIDE {
                    let numbers: &[f32; SIDE] = row(first + at)[column..].first_chunk().expect("rows have so many columns");
                    numbers.iter().zip(&mut block).for_each(|(number, column)| column[at] = *number);
                }
                for (at, block) in block.iter().enumerate() {
                    tile[(column + at) * TILE + first..][..SIDE].copy_from_slice(block);
                }
            }
        }
        for at in 0..height {
            let columns = if at < whole_height { whole_width..width } else { 0..width };
            columns.for_each(|column| tile[column * TILE + at] = row(at)[column]);
        }
    }
    tiles
}

/// `[rows, padded width]` of the first `count` rows of a matrix, zero-padded.
pub(super) fn widened(matrix: Matrix, count: usize, width: usize) -> Aligned {
    widened_to(count, matrix, count, width)
}

/// `[tiles, TILE, padded width]` of the first `count` rows of a matrix, zero-padded: the right factor of a product with the matrix, tile by tile of rows.
pub(super) fn widened_tiles(matrix: Matrix, count: usize, width: usize) -> Aligned {
    widened_to(count.next_multiple_of(TILE), matrix, count, width)
}

fn widened_to(rows: usize, matrix: Matrix, count: usize, width: usize) -> Aligned {
    let columns = padded(width);
    let mut widened = Aligned::zeros(rows * columns);
    for (index, widened) in widened.chunks_mut(columns.max(1)).take(count).enumerate() {
        widened[..width].copy_from_slice(matrix.row(index, width));
    }
    widened
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, WithSimd};

    use super::*;

    struct Product<'a, L> {
        sizes: [usize; 3],
        sparsity: Sparsity,
        left: L,
        right: Matrix<'a>,
    }

    impl<L: Left> WithSimd for Product<'_, L> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
            let mut sum = vec![f32::NAN; self.sizes[0] * self.sizes[1]];
            product(simd, self.sizes, self.sparsity, self.left, self.right, &mut sum);
            add_product(simd, self.sizes, self.sparsity, self.left, self.right, &mut sum);
            sum
        }
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| (at as f32 * 0.7).sin()).collect()
    }

    #[test]
    fn products_of_all_heights_are_those_of_the_definition() {
        let (columns, inner) = (64, 11);
        let right = numbers(inner * columns);
        for rows in 1..14 {
            let left = numbers(rows * inner);
            let definition = |at: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
                let sum = |row: usize, column: usize| (0..inner).map(|k| at(row, k) * right[k * columns + column]).sum::<f32>();
                (0..rows * columns).map(|index| 2.0 * sum(index / columns, index % columns)).collect()
            };
            let right = Matrix { numbers: &right, stride: columns };
            let sizes = [rows, columns, inner];
            let product =
                Arch::new().dispatch(Product { sizes, sparsity: Sparsity::None, left: Matrix { numbers: &left, stride: inner }, right });
            assert_near(&product, &definition(&|row, k| left[row * inner + k]));
            let left = Transposed(Matrix { numbers: &left, stride: rows });
            let product = Arch::new().dispatch(Product { sizes, sparsity: Sparsity::None, left, right });
            assert_near(&product, &definition(&|row, k| left.0.numbers[k * rows + row]));
        }
    }

    #[test]
    fn triangles_leave_out_what_is_zero_or_not_needed() {
        let (right, all) = (numbers(64 * 64), numbers(64 * 64));
        let right = Matrix { numbers: &right, stride: 64 };
        let below: Vec<f32> = all.iter().enumerate().map(|(at, &number)| if at % 64 <= at / 64 { number } else { 0.0 }).collect();
        let product = |sparsity, left: &[f32], rows: usize| {
            let left = Matrix { numbers: left, stride: 64 };
            match sparsity {
                Sparsity::TriangleOfTransposedLeft => {
                    Arch::new().dispatch(Product { sizes: [64, 64, rows], sparsity, left: Transposed(left), right })
                }
                _ => Arch::new().dispatch(Product { sizes: [rows, 64, 64], sparsity, left, right }),
            }
        };
        for rows in [64, 50, 7] {
            assert_near(&product(Sparsity::TriangleOfLeft, &below, rows), &product(Sparsity::None, &below, rows));
            let (found, wanted) = (product(Sparsity::TriangleOfResult, &all, rows), product(Sparsity::None, &all, rows));
            let needed = |product: &[f32]| -> Vec<f32> { (0..rows).flat_map(|row| product[row * 64..][..row + 1].to_vec()).collect() };
            assert_near(&needed(&found), &needed(&wanted));
            assert!(found.iter().any(|number| number.is_nan()), "all of the result is computed");
            // Queries are the inner dimension here: there are none after the last one.
            let definition = |key: usize, column: usize| {
                (0..rows).map(|query| below[query * 64 + key] * right.numbers[query * 64 + column]).sum::<f32>()
            };
            let wanted: Vec<f32> = (0..64 * 64).map(|at| 2.0 * definition(at / 64, at % 64)).collect();
            assert_near(&product(Sparsity::TriangleOfTransposedLeft, &below, rows), &wanted);
        }
    }

    #[test]
    fn bands_leave_out_what_is_zero_or_not_needed() {
        let is_within = |row: usize, column: usize| (TILE - 1 - row..2 * TILE - 1 - row).contains(&column);
        let (right, all) = (numbers(2 * TILE * TILE), numbers(TILE * 2 * TILE));
        let right = Matrix { numbers: &right, stride: TILE };
        let within: Vec<f32> =
            all.iter().enumerate().map(|(at, &number)| if is_within(at / 128, at % 128) { number } else { 0.0 }).collect();
        for rows in [64, 50, 7] {
            let product = |sparsity, left| Arch::new().dispatch(Product { sizes: [rows, TILE, 2 * TILE], sparsity, left, right });
            let [left, other] = [&within, &all].map(|numbers| Matrix { numbers, stride: 2 * TILE });
            assert_near(&product(Sparsity::BandOfLeft, left), &product(Sparsity::None, left));
            assert!(product(Sparsity::BandOfLeft, other) != product(Sparsity::None, other), "no steps are left out");
            for first in [0, TILE] {
                let (found, wanted) = (product(Sparsity::BandOfResult(first), other), product(Sparsity::None, other));
                let needed = |product: &[f32]| -> Vec<f32> {
                    (0..rows * TILE).filter(|at| is_within(at / TILE, at % TILE + first)).map(|at| product[at]).collect()
                };
                assert_near(&needed(&found), &needed(&wanted));
                // With few rows every block of later columns is needed.
                let is_all_needed = rows < 16 && first == TILE;
                assert!(is_all_needed || found.iter().any(|number| number.is_nan()), "all of the result is computed");
            }
            let product = |sparsity, numbers: &[f32]| {
                let left = Transposed(Matrix { numbers, stride: 2 * TILE });
                Arch::new().dispatch(Product { sizes: [2 * TILE, TILE, rows], sparsity, left, right })
            };
            assert_near(&product(Sparsity::BandOfTransposedLeft, &within), &product(Sparsity::None, &within));
            assert!(product(Sparsity::BandOfTransposedLeft, &all) != product(Sparsity::None, &all), "no steps are left out");
        }
    }

    fn assert_near(found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-5, "{found} is not {wanted}");
        }
    }

    #[test]
    fn aligned_numbers_begin_with_a_cache_line() {
        for count in [0, 1, 100] {
            let mut numbers = Aligned::zeros(count);
            assert_eq!((numbers.as_ptr().addr() % 64, numbers.len()), (0, count));
            numbers.fill(1.0);
            assert!(numbers.iter().all(|&number| number == 1.0));
        }
    }

    #[test]
    fn tiles_are_filled_with_zeros() {
        let numbers: Vec<f32> = (0..65).map(|number| number as f32).collect();
        let matrix = Matrix { numbers: &numbers, stride: 1 };
        let transposed = transposed_tiles(matrix, 65, 1);
        assert_eq!((transposed.len(), transposed[64], transposed[65]), (128, 64.0, 0.0));
        let widened = widened_tiles(matrix, 65, 1);
        assert_eq!(widened.len(), 128 * 32);
        assert_eq!([widened[32], widened[64 * 32], widened[65 * 32], widened[33]], [1.0, 64.0, 0.0, 0.0]);
    }

    #[test]
    fn transposes_of_all_sizes_are_those_of_the_definition() {
        for (count, width) in [(1, 1), (15, 40), (16, 16), (64, 33), (70, 17), (128, 64), (150, 5)] {
            let stride = width + 3;
            let numbers = numbers(count * stride);
            let tiles = transposed_tiles(Matrix { numbers: &numbers, stride }, count, width);
            assert_eq!(tiles.len(), count.div_ceil(TILE) * TILE * width);
            for (index, &number) in tiles.iter().enumerate() {
                let (row, column) = (index / (TILE * width) * TILE + index % TILE, index / TILE % width);
                assert_eq!(number, if row < count { numbers[row * stride + column] } else { 0.0 }, "{count} x {width} at {index}");
            }
        }
    }

    #[test]
    fn rows_that_lie_apart_are_read_where_they_lie() {
        let numbers: Vec<f32> = (0..11).map(|number| number as f32).collect();
        let matrix = Matrix { numbers: &numbers[1..], stride: 4 };
        assert_eq!(matrix.rows_from(2).row(0, 2), [9.0, 10.0]);
        assert_eq!(
            widened(matrix, 3, 2).chunks(32).flat_map(|row| &row[..2]).copied().collect::<Vec<_>>(),
            [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]
        );
        let transposed = transposed_tiles(matrix, 3, 2);
        assert_eq!((&transposed[..4], &transposed[64..68]), (&[1.0, 5.0, 9.0, 0.0][..], &[2.0, 6.0, 10.0, 0.0][..]));
    }
}
