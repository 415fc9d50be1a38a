//! Gradients of the sums of log decays.
//!
//! A query decayed by `exp(b_i)` adds its product with its gradient to the gradient of `b_i`, and a key decayed by `exp(-b_j)` subtracts its own from that of
//! `b_j` (Yang et al. 2024, appendix C), without division by decays. Both contributions of a pair are one number in double precision: decay gradients are sums
//! over many positions, in which it must cancel.

use super::products::dot;
use super::sizes::CHUNK;

/// Numbers that are summed side by side.
const LANES: usize = 8;

/// The sums of a head, `[C]`, from rows `[C, columns]` of its chunk, before pair gradients are added to row gradients.
pub(super) struct HeadSums<'a> {
    pub sums: &'a mut [f64],
    pub count: usize,
    pub columns: usize,
}

impl HeadSums<'_> {
    /// Initialises with the contribution after the chunk of the state before it, which all positions share.
    pub(super) fn begin(&mut self, behind: &[f32]) {
        self.sums.fill(0.0);
        self.sums[self.count - 1] = behind.iter().copied().map(f64::from).sum();
    }

    /// Rows multiplied with the state before the chunk, and their gradients.
    #[inline(always)]
    pub(super) fn add_before(&mut self, rows: &[f32], of_rows: &[f32]) {
        let rows = rows.chunks(self.columns).zip(of_rows.chunks(self.columns));
        for (sum, (row, of_row)) in self.sums[..self.count].iter_mut().zip(rows) {
            *sum += f64::from(dot(row, of_row));
        }
    }

    /// Keys read after the chunk, and their gradients: a position's write decays by all later logarithms.
    #[inline(always)]
    pub(super) fn add_behind(&mut self, rows: &[f32], of_rows: &[f32]) {
        let (last, earlier) = self.sums[..self.count].split_last_mut().expect("a chunk has a position");
        let rows = rows.chunks(self.columns).zip(of_rows.chunks(self.columns));
        for (sum, (row, of_row)) in earlier.iter_mut().zip(rows) {
            let product = f64::from(dot(row, of_row));
            *sum -= product;
            *last += product;
        }
    }

    /// Pairs `[C, C]` and their gradients, which are 0 on the diagonal and above.
    #[inline(always)]
    pub(super) fn add_pairs(&mut self, pairs: &[f32], slopes: &[f32]) {
        for at in 0..self.count {
            let mut lanes = [0.0; LANES];
            let row = at * CHUNK..(at + 1) * CHUNK;
            let (pairs, slopes) = (pairs[row.clone()].as_chunks::<LANES>().0, slopes[row].as_chunks::<LANES>().0);
            for ((pairs, slopes), sums) in pairs.iter().zip(slopes).zip(self.sums.as_chunks_mut::<LANES>().0) {
                for lane in 0..LANES {
                    let product = f64::from(pairs[lane] * slopes[lane]);
                    lanes[lane] += product;
                    sums[lane] -= product;
                }
            }
            self.sums[at] += lanes.iter().sum::<f64>();
        }
    }
}

/// Channel sums of one position from its query, its key, and their gradients, and from that of the erasing key.
#[inline(always)]
pub(super) fn channel_sums(
    (query, key): (&[f32], &[f32]),
    (of_query, of_key): (&[f32], &[f32]),
    erasing: Option<&[f32]>,
    sums: &mut [f64],
) {
    for (channel, sum) in sums.iter_mut().enumerate() {
        let product = |x: &[f32], of_x: &[f32]| f64::from(x[channel]) * f64::from(of_x[channel]);
        *sum = product(query, of_query) + erasing.map_or(0.0, |erasing| product(key, erasing)) - product(key, of_key);
    }
}
