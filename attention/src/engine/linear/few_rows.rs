//! Products of few rows and a weight, as in decoding, where the rows are those of the batch.
//!
//! Such products are bound by memory bandwidth for the weight. Threads share its columns, where gemm uses one thread for this size. Blocks of a weight are
//! copied into the first-level cache in whole cache lines. Transposed weights, such as embeddings that also project to logits, are not copied: register lanes
//! are then rows of the left factor, not columns of the weight.
//!
//! Each number of the product sums its terms in gemm's order, so its bits do not depend on the number of rows.

use std::ops::{Range, RangeInclusive};

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::flex_backend::Factor;
use crate::engine::fused::cpu::kernel::{Aligned, Matrix, padded};

/// Row counts for which this is faster than gemm, measured with weights of 256 KiB to 10 MiB in main memory; with more than 32 rows, one transpose of 10 MiB.
const ROWS: RangeInclusive<usize> = 3..=64;

/// Minimum columns and terms: smaller weights stay in the caches.
const FEWEST_COLUMNS: usize = 128;
const FEWEST_TERMS: usize = 64;

/// Columns of a block, and its steps along the inner dimension per copy.
const COLUMNS: usize = 64;
const STEPS: usize = 64;

/// Terms that gemm sums before adding them to the previous sum, for first-level caches of up to 32 KiB.
const TERMS: usize = 512;

/// Minimum multiplications per thread: for fewer, waking a thread takes longer.
pub(super) const FEWEST: usize = 131_072;

/// The product, row after row; `None` for unsupported factors.
pub(super) fn multiplied(left: Factor, right: Factor) -> Option<Vec<f32>> {
    let ([rows, inner], [_, columns]) = (left.sizes, right.sizes);
    if !ROWS.contains(&rows) || columns < FEWEST_COLUMNS || inner < FEWEST_TERMS || left.strides[1] != 1 {
        return None;
    }
    let left = Matrix { numbers: left.numbers, stride: left.strides[0] };
    let right_by = |stride| Matrix { numbers: right.numbers, stride };
    match right.strides {
        [stride, 1] => Some(by_columns(left, right_by(stride), [rows, columns, inner])),
        [1, stride] => Some(by_rows(left, right_by(stride), [rows, columns, inner])),
        _ => None,
    }
}

/// Ranges of terms that are summed separately.
fn parts(inner: usize) -> impl Iterator<Item = Range<usize>> {
    let count = inner.div_ceil(inner.div_ceil(TERMS));
    (0..inner).step_by(count).map(move |first| first..inner.min(first + count))
}

/// Blocks of columns of the output `[rows, columns]`, row by row.
fn blocks(output: &mut [f32], columns: usize) -> Vec<Vec<&mut [f32]>> {
    let mut rows: Vec<_> = output.chunks_exact_mut(columns).map(|row| row.chunks_mut(COLUMNS)).collect();
    (0..columns.div_ceil(COLUMNS)).map(|_| rows.iter_mut().filter_map(Iterator::next).collect()).collect()
}

/// Minimum blocks per thread.
fn fewest_blocks(rows: usize, inner: usize) -> usize {
    FEWEST.div_ceil(rows * inner * COLUMNS)
}

/// `left right`.
fn by_columns(left: Matrix, right: Matrix, [rows, columns, inner]: [usize; 3]) -> Vec<f32> {
    let mut output = vec![0.0; rows * columns];
    let blocks = blocks(&mut output, columns).into_par_iter().enumerate().with_min_len(fewest_blocks(rows, inner));
    let scratch = || [Aligned::zeros(STEPS * COLUMNS), Aligned::zeros(rows * COLUMNS)];
    blocks.for_each_init(scratch, |[copied, sums], (index, output)| {
        Arch::new().dispatch(Columns { left, right, inner, first: index * COLUMNS, copied, sums, output });
    });
    output
}

/// Columns of a product.
struct Columns<'a> {
    left: Matrix<'a>,
    right: Matrix<'a>,
    inner: usize,
    /// The first of the columns.
    first: usize,
    /// `[STEPS, COLUMNS]`.
    copied: &'a mut [f32],
    /// `[rows, COLUMNS]`.
    sums: &'a mut [f32],
    output: Vec<&'a mut [f32]>,
}

impl WithSimd for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { left, right, inner, first, copied, sums, mut output } = self;
        let (rows, width) = (output.len(), output[0].len());
        for terms in parts(inner) {
            for start in terms.clone().step_by(STEPS) {
                let steps = STEPS.min(terms.end - start);
                for (step, copied) in copied.as_chunks_mut::<COLUMNS>().0[..steps].iter_mut().enumerate() {
                    let numbers = &right.numbers[(start + step) * right.stride + first..];
                    match numbers.first_chunk() {
                        // A fixed size avoids a call.
                        Some(numbers) if width == COLUMNS => *copied = *numbers,
                        _ => copied[..width].copy_from_slice(&numbers[..width]),
                    }
                }
                let left = Matrix { numbers: &left.numbers[start..], stride: left.stride };
                for column in (0..padded(width)).step_by(2 * S::F32_LANES) {
                    let right = Matrix { numbers: &copied[column..], stride: COLUMNS };
                    let sums = &mut sums[column..];
                    if start == terms.start {
                        add_up::<S, 2, true>(simd, rows, left, right, steps, sums, COLUMNS);
                    } else {
                        add_up::<S, 2, false>(simd, rows, left, right, steps, sums, COLUMNS);
                    }
                }
            }
            for (output, sums) in output.iter_mut().zip(sums.chunks_exact(COLUMNS)) {
                joined(terms.start == 0, output, sums);
            }
        }
    }
}

/// The first terms' sums are written to the output, later ones added.
#[inline(always)]
fn joined<'a>(are_first: bool, output: &mut [f32], sums: impl IntoIterator<Item = &'a f32>) {
    for (output, sum) in output.iter_mut().zip(sums) {
        *output = if are_first { *sum } else { *output + sum };
    }
}

/// `left right` for a transposed `right`, as the transpose of `right^T left^T`.
fn by_rows(left: Matrix, right: Matrix, [rows, columns, inner]: [usize; 3]) -> Vec<f32> {
    let lanes = Arch::new().dispatch(Lanes);
    let panel = if rows <= lanes { lanes } else { 2 * lanes };
    let mut panels = Aligned::zeros(rows.div_ceil(panel) * inner * panel);
    for row in 0..rows {
        let numbers = panels[row / panel * inner * panel..].iter_mut().skip(row % panel).step_by(panel);
        numbers.zip(left.row(row, inner)).for_each(|(to, number)| *to = *number);
    }
    let mut output = vec![0.0; rows * columns];
    let blocks = blocks(&mut output, columns).into_par_iter().enumerate().with_min_len(fewest_blocks(rows, inner));
    let scratch = || Aligned::zeros(COLUMNS * rows.next_multiple_of(panel));
    blocks.for_each_init(scratch, |sums, (index, output)| {
        Arch::new().dispatch(Rows { left: right.rows_from(index * COLUMNS), panels: &panels, panel, inner, sums, output });
    });
    output
}

/// Numbers per register.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

/// Rows of a product, which are columns of the output.
struct Rows<'a> {
    left: Matrix<'a>,
    /// The right factor in panels of columns, one or two registers wide, each `[inner, panel]` and contiguous, so that it stays in the first-level cache.
    panels: &'a [f32],
    panel: usize,
    inner: usize,
    /// `[COLUMNS, width]`.
    sums: &'a mut [f32],
    output: Vec<&'a mut [f32]>,
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Rows that stay in the first-level cache while all columns are computed.
        const AT_A_TIME: usize = 12;
        let Self { left, panels, panel, inner, sums, mut output } = self;
        let (height, width) = (output[0].len(), panels.len() / inner);
        for terms in parts(inner) {
            let left = Matrix { numbers: &left.numbers[terms.start..], stride: left.stride };
            for first in (0..height).step_by(AT_A_TIME) {
                let (rows, left) = (AT_A_TIME.min(height - first), left.rows_from(first));
                for (index, numbers) in panels.chunks_exact(inner * panel).enumerate() {
                    let right = Matrix { numbers: &numbers[terms.start * panel..], stride: panel };
                    let sums = &mut sums[first * width + index * panel..];
                    if panel == S::F32_LANES {
                        add_up::<S, 1, true>(simd, rows, left, right, terms.len(), sums, width);
                    } else {
                        add_up::<S, 2, true>(simd, rows, left, right, terms.len(), sums, width);
                    }
                }
            }
            for (row, output) in output.iter_mut().enumerate() {
                joined(terms.start == 0, output, sums.iter().skip(row).step_by(width));
            }
        }
    }
}

/// Adds the products of these columns of `left` and rows of `right`, of which `N` registers are read, to the sums, or to zeros.
#[inline(always)]
fn add_up<S: Simd, const N: usize, const FROM_ZERO: bool>(
    simd: S,
    rows: usize,
    left: Matrix,
    right: Matrix,
    steps: usize,
    sums: &mut [f32],
    stride: usize,
) {
    let mut row = 0;
    while row < rows {
        // Six rows and two registers of columns keep the sums of a block within sixteen registers.
        let height = (rows - row).div_ceil((rows - row).div_ceil(6));
        let (left, sums) = (Matrix { numbers: &left.numbers[row * left.stride..], stride: left.stride }, &mut sums[row * stride..]);
        match height {
            6 => add_up_block::<S, 6, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
            5 => add_up_block::<S, 5, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
            4 => add_up_block::<S, 4, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
            3 => add_up_block::<S, 3, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
            2 => add_up_block::<S, 2, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
            _ => add_up_block::<S, 1, N, FROM_ZERO>(simd, left, right, steps, sums, stride),
        }
        row += height;
    }
}

/// [`add_up`] of `M` rows.
#[allow(clippy::needless_range_loop, reason = "registers are named by their numbers")]
#[inline(always)]
fn add_up_block<S: Simd, const M: usize, const N: usize, const FROM_ZERO: bool>(
    simd: S,
    left: Matrix,
    right: Matrix,
    steps: usize,
    sums: &mut [f32],
    stride: usize,
) {
    /// Steps per iteration: their addresses are computed and checked once for all.
    const AT_ONCE: usize = 4;
    // Not `array::from_fn`: the compiler may not inline its closure.
    let mut rows: [&[f32]; M] = [&[]; M];
    for (row, numbers) in rows.iter_mut().enumerate() {
        *numbers = left.row(row, steps);
    }
    let mut found = [[simd.splat_f32s(0.0); N]; M];
    if !FROM_ZERO {
        for (row, found) in found.iter_mut().enumerate() {
            found.copy_from_slice(&S::as_simd_f32s(&sums[row * stride..]).0[..N]);
        }
    }
    let whole = steps - steps % AT_ONCE;
    for first in (0..whole).step_by(AT_ONCE) {
        let mut columns = [&[0.0; AT_ONCE]; M];
        for (columns, row) in columns.iter_mut().zip(&rows) {
            *columns = row[first..].first_chunk().expect("rows have so many columns");
        }
        for step in 0..AT_ONCE {
            let right = &S::as_simd_f32s(&right.numbers[(first + step) * right.stride..]).0[..N];
            for row in 0..M {
                let number = simd.splat_f32s(columns[row][step]);
                for at in 0..N {
                    found[row][at] = simd.mul_add_f32s(number, right[at], found[row][at]);
                }
            }
        }
    }
    for step in whole..steps {
        let right = &S::as_simd_f32s(&right.numbers[step * right.stride..]).0[..N];
        for row in 0..M {
            let number = simd.splat_f32s(rows[row][step]);
            for at in 0..N {
                found[row][at] = simd.mul_add_f32s(number, right[at], found[row][at]);
            }
        }
    }
    for (row, found) in found.iter().enumerate() {
        S::as_mut_simd_f32s(&mut sums[row * stride..]).0[..N].copy_from_slice(found);
    }
}

#[cfg(test)]
mod tests {
    use gemm::Parallelism;
    use heedful_random::RandomKey;

    use super::super::flex_backend;
    use super::*;
    use crate::contract::init::Init;
    use crate::engine::custom_gradient::tests::assert_same_for_any_number_of_threads;

    fn drawn(name: &str, count: usize) -> Vec<f32> {
        Init::Normal(1.0).values(count, &RandomKey::from_seed(7).named(name))
    }

    /// A matrix row by row, or column by column.
    fn factor(numbers: &[f32], sizes: [usize; 2], is_transpose: bool) -> Factor<'_> {
        Factor { numbers, sizes, strides: if is_transpose { [1, sizes[0]] } else { [sizes[1], 1] } }
    }

    #[test]
    fn products_of_all_sizes_are_those_of_the_definition() {
        for rows in [3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64] {
            for [inner, columns] in [[64, 128], [65, 129], [131, 191], [513, 200], [1100, 130]] {
                let (left, right) = (drawn("left", rows * inner), drawn("right", inner * columns));
                for is_transpose in [false, true] {
                    let factors = [factor(&left, [rows, inner], false), factor(&right, [inner, columns], is_transpose)];
                    let [_, Factor { strides: [of_step, of_column], .. }] = factors;
                    let found = multiplied(factors[0], factors[1]).expect("this is for few rows");
                    for (at, found) in found.iter().enumerate() {
                        let (row, column) = (at / columns, at % columns);
                        let term =
                            |step: usize| f64::from(left[row * inner + step]) * f64::from(right[step * of_step + column * of_column]);
                        let wanted: f64 = (0..inner).map(term).sum();
                        // Sums are about the root of the number of terms, at most 33, as are their rounding errors in units of 2e-6.
                        let off = (f64::from(*found) - wanted).abs();
                        assert!(off < 5e-4, "{rows} {inner} {columns} {is_transpose} at {row}, {column}: off by {off}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_have_the_bits_that_gemm_gives() {
        for rows in ROWS {
            for [inner, columns] in [[64, 128], [255, 193], [512, 160]] {
                let (left, right) = (drawn("left", rows * inner), drawn("right", inner * columns));
                for is_transpose in [false, true] {
                    let (left, right) = (factor(&left, [rows, inner], false), factor(&right, [inner, columns], is_transpose));
                    let of_gemm = flex_backend::multiplied(left, right, Parallelism::None);
                    assert!(multiplied(left, right) == Some(of_gemm), "{rows} {inner} {columns} {is_transpose}");
                }
            }
        }
    }

    #[test]
    fn other_sizes_and_layouts_are_left_to_gemm() {
        let (left, right) = (drawn("left", 80 * 256), drawn("right", 2 * 256 * 256));
        let is_taken = |[rows, inner, columns]: [usize; 3], left_strides: [usize; 2], right_strides: [usize; 2]| {
            let left = Factor { numbers: &left, sizes: [rows, inner], strides: left_strides };
            multiplied(left, Factor { numbers: &right, sizes: [inner, columns], strides: right_strides }).is_some()
        };
        assert!(is_taken([3, 64, 128], [64, 1], [128, 1]) && is_taken([64, 64, 128], [80, 1], [128, 1]));
        assert!(is_taken([3, 64, 128], [80, 1], [1, 64]) && is_taken([64, 64, 128], [80, 1], [1, 64]));
        for sizes in [[2, 64, 128], [65, 64, 128], [3, 63, 128], [3, 64, 127], [1, 256, 256]] {
            assert!(!is_taken(sizes, [sizes[1], 1], [sizes[2], 1]), "{sizes:?}");
        }
        assert!(!is_taken([4, 64, 128], [1, 4], [128, 1]), "a left factor that is a transpose");
        assert!(!is_taken([4, 64, 128], [64, 1], [256, 2]), "every other column");
        assert!(!is_taken([4, 64, 128], [128, 2], [128, 1]), "every other step");
    }

    #[test]
    fn numbers_that_are_not_finite_stay_in_their_column() {
        let (rows, inner, columns) = (5, 70, 150);
        let left = drawn("left", rows * inner);
        for is_transpose in [false, true] {
            let mut right = drawn("right", inner * columns);
            let [of_step, of_column] = factor(&right, [inner, columns], is_transpose).strides;
            right[13 * of_step + 140 * of_column] = f32::NAN;
            right[69 * of_step + 64 * of_column] = f32::INFINITY;
            let found = multiplied(factor(&left, [rows, inner], false), factor(&right, [inner, columns], is_transpose)).unwrap();
            assert!((0..rows * columns).all(|at| found[at].is_finite() != [64, 140].contains(&(at % columns))), "{is_transpose}");
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let (left, right) = (drawn("left", 9 * 300), drawn("right", 300 * 1000));
        for is_transpose in [false, true] {
            assert_same_for_any_number_of_threads(|| {
                let found = multiplied(factor(&left, [9, 300], false), factor(&right, [300, 1000], is_transpose)).unwrap();
                vec![found.into_iter().map(f64::from).collect()]
            });
        }
    }
}
