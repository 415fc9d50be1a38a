//! Systems of equations of the delta rule: `u_i = y_i + sum_(j < i) m_ij u_j`, and their transposes.
//!
//! They are solved row by row. An inverse would cost more, and an inverse by matrix powers is wrong by orders of magnitude if keys repeat.

use pulp::Simd;

use super::products::{add_multiplied, add_times, matrix};
use super::sizes::CHUNK;
use crate::engine::fused::cpu::kernel::{Sparsity, Transposed};

/// Rows solved one by one before their effect on all others is a matrix product: the block size of that product.
const ROWS: usize = 6;

/// Replaces `y` `[C, columns]` by the solution `u` of `u = y + m u` for a matrix `[C, C]` below its diagonal.
#[inline(always)]
pub(super) fn solve<S: Simd>(simd: S, count: usize, m: &[f32], y: &mut [f32], columns: usize) {
    for first in (0..count).step_by(ROWS) {
        let rows = ROWS.min(count - first);
        let (before, own) = y.split_at_mut(first * columns);
        add_multiplied(simd, [rows, columns, first], Sparsity::None, matrix(&m[first * CHUNK..], CHUNK), matrix(before, columns), own);
        for i in 1..rows {
            let (earlier, row) = own.split_at_mut(i * columns);
            for (j, earlier) in earlier.chunks(columns).enumerate() {
                add_times(m[(first + i) * CHUNK + first + j], earlier, &mut row[..columns]);
            }
        }
    }
}

/// The same for `u = y + m^T u`.
#[inline(always)]
pub(super) fn solve_transposed<S: Simd>(simd: S, count: usize, m: &[f32], y: &mut [f32], columns: usize) {
    for first in (0..count).step_by(ROWS).rev() {
        let rows = ROWS.min(count - first);
        let behind = first + rows;
        let (own, after) = y.split_at_mut(behind * columns);
        let own = &mut own[first * columns..];
        if behind < count {
            let m = Transposed(matrix(&m[behind * CHUNK + first..], CHUNK));
            add_multiplied(simd, [rows, columns, count - behind], Sparsity::None, m, matrix(after, columns), own);
        }
        for j in (0..rows - 1).rev() {
            let (row, later) = own[j * columns..].split_at_mut(columns);
            for (i, later) in later.chunks(columns).enumerate() {
                add_times(m[(first + j + 1 + i) * CHUNK + first + j], later, row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, WithSimd};

    use super::*;

    struct Solved<'a> {
        m: &'a [f32],
        y: Vec<f32>,
        count: usize,
        is_transposed: bool,
    }

    impl WithSimd for Solved<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Vec<f32> {
            if self.is_transposed {
                solve_transposed(simd, self.count, self.m, &mut self.y, 32);
            } else {
                solve(simd, self.count, self.m, &mut self.y, 32);
            }
            self.y
        }
    }

    #[test]
    fn solutions_fulfil_their_equations_for_any_number_of_rows() {
        for count in [1, 2, 5, 6, 7, 12, 13, 63, 64] {
            for key in [-1.0f32, -2.0, -0.3] {
                let entry = |i: usize, j: usize| if j < i { key * if (i + j).is_multiple_of(3) { 1.0 } else { 0.4 } } else { 0.0 };
                // Entries on the diagonal or above are not read.
                let m: Vec<f32> =
                    (0..CHUNK * CHUNK).map(|at| if at % CHUNK < at / CHUNK { entry(at / CHUNK, at % CHUNK) } else { f32::NAN }).collect();
                let y: Vec<f32> = (0..CHUNK * 32).map(|at| (at as f32 * 0.7).sin()).collect();
                for is_transposed in [false, true] {
                    let u = Arch::new().dispatch(Solved { m: &m, y: y.clone(), count, is_transposed });
                    for (i, column) in (0..count).flat_map(|i| (0..32).map(move |column| (i, column))) {
                        let entry = |j: usize| f64::from(if is_transposed { entry(j, i) } else { entry(i, j) });
                        let terms = (0..count).map(|j| entry(j) * f64::from(u[j * 32 + column]));
                        let largest = terms.clone().fold(1.0f64, |largest, term| largest.max(term.abs()));
                        let residual = f64::from(u[i * 32 + column]) - f64::from(y[i * 32 + column]) - terms.sum::<f64>();
                        assert!(residual.abs() < 1e-5 * largest, "{residual} of row {i} of {count}, {key}, {is_transposed}");
                    }
                }
            }
        }
    }
}
