//! Decays of pairs of positions within a chunk.
//!
//! A pair decays by `exp(b_i - b_j)` with the sums `b` of logarithms from the start of the chunk. Sums and differences are in double precision, so that weak
//! decays are not lost beside strong ones. All used exponents are at most 0: nothing overflows, and underflow yields 0.
//!
//! For one decay per head, the products of all pairs are multiplied by a matrix of decays. For channel-wise decays, pairs are split recursively: a pair whose
//! positions are in different halves of a block decays from the key to the middle, then to the query. Both factors are at most 1, and the pairs of two halves
//! are a matrix product (Yang et al. 2024, section 4.3, with blocks of two sizes). Pairs of neighbours are summed individually.

use pulp::Simd;

use super::products::{add_multiplied, add_products, dot, dot_of_three, matrix, multiply, times, transpose};
use super::sizes::{CHUNK, Sizes};
use crate::engine::exponential::exp;
use crate::engine::fused::cpu::kernel::{Aligned, Matrix, Sparsity, Transposed, padded};

/// Lower bound of logarithms: the decay is 0 below it anyway, and sums with others keep their digits.
const LEAST: f32 = -1000.0;

/// Sizes of halves whose pairs are matrix products.
const HALVES: [usize; 3] = [CHUNK / 2, CHUNK / 4, CHUNK / 8];

/// Positions of a block of neighbours.
const NEAR: usize = HALVES[2];

/// Pairs of different neighbours in a block.
const NEAR_PAIRS: usize = NEAR * (NEAR - 1) / 2;

/// Decays of the positions of a chunk.
pub(super) struct Decays {
    width: usize,
    columns: usize,
    /// `[C, 0|1|R]`.
    sums: Vec<f64>,
    /// Decay from the start of the chunk to each position, `[C, R]`.
    pub kept: Aligned,
    /// Decay from each position to the end of the chunk, `[C, R]`.
    pub behind: Aligned,
    /// Decay over the whole chunk, `[R]`.
    pub whole: Aligned,
    between: Between,
}

/// Decays between positions.
enum Between {
    Nothing,
    /// `[C, C]`.
    OfHeads(Aligned),
    OfChannels(Channels),
}

/// Channel-wise decays between positions.
struct Channels {
    /// Between a position and the middle of its block, `[3, C, R]`.
    levels: Aligned,
    /// Between neighbours, `[C / 8, 28, R]`.
    near: Aligned,
    /// Rows of two halves, decayed, `[C / 2, R]`.
    queries: Aligned,
    keys: Aligned,
    transposed: Aligned,
    product: Aligned,
}

/// The rows of a block's halves.
#[derive(Clone, Copy)]
struct Halves {
    level: usize,
    /// First positions of the two halves.
    first: usize,
    middle: usize,
    /// Positions of the second half.
    rows: usize,
}

impl Decays {
    pub(super) fn new(Sizes { width, channels, .. }: Sizes) -> Self {
        let columns = padded(width);
        let ones = |count: usize| {
            let mut ones = Aligned::zeros(count);
            ones.fill(1.0);
            ones
        };
        let zeros = Aligned::zeros;
        Self {
            width,
            columns,
            sums: vec![0.0; CHUNK * channels],
            kept: ones(CHUNK * columns),
            behind: ones(CHUNK * columns),
            whole: ones(columns),
            between: match channels {
                0 => Between::Nothing,
                1 => Between::OfHeads(zeros(CHUNK * CHUNK)),
                _ => Between::OfChannels(Channels {
                    levels: zeros(HALVES.len() * CHUNK * columns),
                    near: zeros(CHUNK / NEAR * NEAR_PAIRS * columns),
                    queries: zeros(CHUNK / 2 * columns),
                    keys: zeros(CHUNK / 2 * columns),
                    transposed: zeros(columns * padded(CHUNK / 2)),
                    product: zeros(CHUNK / 2 * columns.max(padded(CHUNK / 2))),
                }),
            },
        }
    }

    /// Computes the decays from `count` rows of logarithms `[C, 1|R]`.
    #[inline(always)]
    pub(super) fn set(&mut self, log_decay: Matrix, count: usize) {
        let Self { width, columns, sums, kept, behind, whole, between } = self;
        let (width, columns) = (*width, *columns);
        let channels = sums.len() / CHUNK;
        for at in 0..count {
            for (channel, &number) in log_decay.row(at, channels).iter().enumerate() {
                let number = f64::from(if number < LEAST { LEAST } else { number });
                sums[at * channels + channel] = number + if at == 0 { 0.0 } else { sums[(at - 1) * channels + channel] };
            }
        }
        let last = &sums[(count - 1) * channels..][..channels];
        let rows = sums.chunks(channels).zip(kept.chunks_mut(columns)).zip(behind.chunks_mut(columns));
        for ((sums, kept), behind) in rows.take(count) {
            let (kept, behind) = (&mut kept[..width], &mut behind[..width]);
            if channels == 1 {
                kept.fill(exp(sums[0] as f32));
                behind.fill(exp((last[0] - sums[0]) as f32));
            } else {
                between_sums(sums, None, kept);
                between_sums(last, Some(sums), behind);
            }
        }
        whole.copy_from_slice(&kept[(count - 1) * columns..][..columns]);
        match between {
            Between::Nothing => {}
            Between::OfHeads(between) => {
                for (at, row) in between.chunks_mut(CHUNK).take(count).enumerate() {
                    for (number, &sum) in row[..=at].iter_mut().zip(&*sums) {
                        *number = exp((sums[at] - sum) as f32);
                    }
                }
            }
            Between::OfChannels(between) => between.set(sums, count, width, columns),
        }
    }

    /// `pairs[i, j] = sum_r x[i, r] y[j, r] exp(b[i, r] - b[j, r])` for `j <= i`, and 0 above, of rows `[C, R]`; `transposed` are those of `y`, `[R, C]`.
    #[inline(always)]
    pub(super) fn pairs<S: Simd>(&mut self, simd: S, count: usize, x: &[f32], y: &[f32], transposed: &[f32], pairs: &mut [f32]) {
        let (width, columns) = (self.width, self.columns);
        if let Between::OfChannels(channels) = &mut self.between {
            channels.pairs(simd, [count, width, columns], x, y, pairs);
            return;
        }
        multiply(simd, [count, CHUNK, width], Sparsity::TriangleOfResult, matrix(x, columns), matrix(transposed, CHUNK), pairs);
        for (at, row) in pairs.chunks_mut(CHUNK).take(count).enumerate() {
            row[at + 1..].fill(0.0);
        }
        self.decay_pairs(count, pairs);
    }

    /// Adds the effect of pair gradients to the gradients of rows `x` and `y`, excluding pairs of a position with itself. The pair gradients are 0 on the
    /// diagonal and above, and their memory is reused.
    #[inline(always)]
    pub(super) fn add_slopes<S: Simd>(
        &mut self,
        simd: S,
        count: usize,
        slopes: &mut [f32],
        (x, of_x): (&[f32], &mut [f32]),
        (y, of_y): (&[f32], &mut [f32]),
    ) {
        let columns = self.columns;
        if let Between::OfChannels(channels) = &mut self.between {
            channels.add_slopes(simd, [count, columns], slopes, (x, of_x), (y, of_y));
            return;
        }
        self.decay_pairs(count, slopes);
        let (sizes, slopes) = ([count, columns, count], matrix(slopes, CHUNK));
        add_multiplied(simd, sizes, Sparsity::TriangleOfLeft, slopes, matrix(y, columns), of_x);
        add_multiplied(simd, sizes, Sparsity::TriangleOfTransposedLeft, Transposed(slopes), matrix(x, columns), of_y);
    }

    /// Multiplies pairs of heads, which are 0 above the diagonal, by their decays.
    #[inline(always)]
    fn decay_pairs(&self, count: usize, pairs: &mut [f32]) {
        if let Between::OfHeads(between) = &self.between {
            for (pair, decay) in pairs[..count * CHUNK].iter_mut().zip(&**between) {
                *pair *= decay;
            }
        }
    }
}

/// `exp(sums - before)`.
#[inline(always)]
fn between_sums(sums: &[f64], before: Option<&[f64]>, decays: &mut [f32]) {
    match before {
        Some(before) => {
            for ((decay, sum), before) in decays.iter_mut().zip(sums).zip(before) {
                *decay = exp((sum - before) as f32);
            }
        }
        None => {
            for (decay, sum) in decays.iter_mut().zip(sums) {
                *decay = exp(*sum as f32);
            }
        }
    }
}

/// Index of the decay between the neighbours `j < i` of a block.
#[inline(always)]
fn near_pair(block: usize, i: usize, j: usize) -> usize {
    block * NEAR_PAIRS + i * (i - 1) / 2 + j
}

impl Channels {
    #[inline(always)]
    fn set(&mut self, sums: &[f64], count: usize, width: usize, columns: usize) {
        let sums = |at: usize| &sums[at * width..][..width];
        for halves in halves(count) {
            let Halves { level, first, middle, rows } = halves;
            for at in first..middle + rows {
                let (from, to) = if at < middle { (at, middle - 1) } else { (middle - 1, at) };
                between_sums(sums(to), Some(sums(from)), &mut self.levels[(level * CHUNK + at) * columns..][..width]);
            }
        }
        for (i, j) in neighbours(count) {
            let pair = near_pair(i / NEAR, i % NEAR, j % NEAR);
            between_sums(sums(i), Some(sums(j)), &mut self.near[pair * columns..][..width]);
        }
    }

    #[inline(always)]
    fn pairs<S: Simd>(&mut self, simd: S, [count, width, columns]: [usize; 3], x: &[f32], y: &[f32], pairs: &mut [f32]) {
        let side = padded(CHUNK / 2);
        pairs[..count * CHUNK].fill(0.0);
        for halves in halves(count) {
            let Halves { first, middle, rows, .. } = halves;
            self.take(halves, columns, x, y);
            transpose(matrix(&self.keys, columns), [middle - first, width], &mut self.transposed, side);
            let (queries, keys) = (matrix(&self.queries, columns), matrix(&self.transposed, side));
            multiply(simd, [rows, side, width], Sparsity::None, queries, keys, &mut self.product);
            for at in 0..rows {
                let found = &self.product[at * side..][..middle - first];
                pairs[(middle + at) * CHUNK + first..][..middle - first].copy_from_slice(found);
            }
        }
        for at in 0..count {
            pairs[at * CHUNK + at] = dot(&x[at * columns..][..columns], &y[at * columns..][..columns]);
        }
        for (i, j) in neighbours(count) {
            let decays = &self.near[near_pair(i / NEAR, i % NEAR, j % NEAR) * columns..][..columns];
            pairs[i * CHUNK + j] = dot_of_three(&x[i * columns..][..columns], &y[j * columns..][..columns], decays);
        }
    }

    #[inline(always)]
    fn add_slopes<S: Simd>(
        &mut self,
        simd: S,
        [count, columns]: [usize; 2],
        slopes: &[f32],
        (x, of_x): (&[f32], &mut [f32]),
        (y, of_y): (&[f32], &mut [f32]),
    ) {
        for halves in halves(count) {
            let Halves { level, first, middle, rows } = halves;
            self.take(halves, columns, x, y);
            let slopes = matrix(&slopes[middle * CHUNK + first..], CHUNK);
            let decays = &self.levels[level * CHUNK * columns..][..CHUNK * columns];
            multiply(simd, [rows, columns, middle - first], Sparsity::None, slopes, matrix(&self.keys, columns), &mut self.product);
            let second = middle * columns..(middle + rows) * columns;
            add_products(&decays[second.clone()], &self.product, &mut of_x[second]);
            let queries = matrix(&self.queries, columns);
            multiply(simd, [middle - first, columns, rows], Sparsity::None, Transposed(slopes), queries, &mut self.product);
            let own = first * columns..middle * columns;
            add_products(&decays[own.clone()], &self.product, &mut of_y[own]);
        }
        for (i, j) in neighbours(count) {
            let slope = slopes[i * CHUNK + j];
            let decays = &self.near[near_pair(i / NEAR, i % NEAR, j % NEAR) * columns..][..columns];
            let (own, other) = (i * columns..(i + 1) * columns, j * columns..(j + 1) * columns);
            for (channel, decay) in decays.iter().enumerate() {
                let factor = slope * decay;
                let (row, column) = (own.start + channel, other.start + channel);
                of_x[row] = factor.mul_add(y[column], of_x[row]);
                of_y[column] = factor.mul_add(x[row], of_y[column]);
            }
        }
    }

    /// Decays the rows of two halves to their middle.
    #[inline(always)]
    fn take(&mut self, Halves { level, first, middle, rows }: Halves, columns: usize, x: &[f32], y: &[f32]) {
        let decays = &self.levels[level * CHUNK * columns..][..CHUNK * columns];
        let (second, own) = (middle * columns..(middle + rows) * columns, first * columns..middle * columns);
        times(&x[second.clone()], &decays[second], &mut self.queries);
        times(&y[own.clone()], &decays[own], &mut self.keys);
    }
}

/// All blocks of a chunk whose second half is not empty.
#[inline(always)]
fn halves(count: usize) -> impl Iterator<Item = Halves> {
    HALVES.into_iter().enumerate().flat_map(move |(level, half)| {
        let middles = (half..count).step_by(2 * half);
        middles.map(move |middle| Halves { level, first: middle - half, middle, rows: half.min(count - middle) })
    })
}

/// All pairs `j < i` of neighbours.
#[inline(always)]
fn neighbours(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(|i| (i / NEAR * NEAR..i).map(move |j| (i, j)))
}
