//! The gradients, chunk by chunk in reverse order.
//!
//! With the gradient `S'` of the state after a chunk, `o'` of contexts and `u'` of writes, `u' = P^T o' + K S'` for pairs `P` and keys `K` decayed to the end
//! of the chunk; the delta rule solves the transposed system for it. The gradient of the state before the chunk is `Q^T o' + exp(b_C) S'`, for the delta rule
//! minus the erased part. Gradients of sums of log decays are products with existing gradients ([`logarithms`](super::logarithms)). A pair of a position with
//! itself does not decay and is excluded from these.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::chunk::{Chunk, Delta, Plane, State, take};
use super::logarithms::{HeadSums, channel_sums};
use super::products::{add_multiplied, add_products, add_times, dot, matrix, multiply, times, transpose};
use super::sizes::{CHUNK, Inputs, Sizes};
use super::solve::solve_transposed;
use crate::engine::fused::cpu::kernel::{Aligned, Matrix, Sparsity, Transposed, padded};
use crate::engine::fused::cpu::{Rows, rows_of_planes};

/// Results of the forward pass, and the gradient of its rows.
#[derive(Clone, Copy)]
pub(super) struct BackwardInputs<'a> {
    pub rows: Rows<'a>,
    pub states: &'a [f32],
    pub gradient: Rows<'a>,
}

/// Gradients of [`Inputs`]; empty for absent inputs.
pub(super) struct Gradients {
    /// `[B, N, H, R]`.
    pub queries: Vec<f32>,
    /// `[B, N, H, R]`.
    pub keys: Vec<f32>,
    /// `[B, N, H, D]`.
    pub values: Vec<f32>,
    /// `[B, H, N|1, R|1]`.
    pub log_decay: Vec<f32>,
    /// `[B, H, N]`.
    pub strengths: Vec<f32>,
    /// `[B, H, R, D (+ 1)]`.
    pub state: Vec<f32>,
}

pub(super) fn backward(inputs: Inputs, given: BackwardInputs) -> Gradients {
    let sizes @ Sizes { batch, heads, length, width, value, channels, .. } = inputs.sizes;
    let planes = batch * heads;
    // The gradient of a decay shared by all positions is the sum over them.
    let decaying = if inputs.log_decay.is_some_and(|decay| decay.strides[2] == 0) { 1 } else { length } * channels;
    let mut gradients = Gradients {
        queries: vec![0.0; planes * length * width],
        keys: vec![0.0; planes * length * width],
        values: vec![0.0; planes * length * value],
        log_decay: vec![0.0; planes * decaying],
        strengths: vec![0.0; if inputs.strengths.is_some() { planes * length } else { 0 }],
        state: vec![0.0; planes * sizes.of_state()],
    };
    let of_state = length.div_ceil(CHUNK) * sizes.of_state();
    let rows = |numbers, width| rows_of_planes(numbers, [batch, heads, width]).into_iter();
    let mut of_decay = gradients.log_decay.chunks_mut(decaying.max(1));
    let mut of_strengths = gradients.strengths.chunks_mut(length.max(1));
    let all = rows(&mut gradients.queries, width).zip(rows(&mut gradients.keys, width)).zip(rows(&mut gradients.values, value));
    let planes: Vec<Backward> = all
        .zip(gradients.state.chunks_mut(sizes.of_state()))
        .enumerate()
        .map(|(index, (((queries, keys), values), state))| Backward {
            plane: inputs.plane(index),
            rows: given.rows.of(index / heads, index % heads),
            gradient: given.gradient.of(index / heads, index % heads),
            states: &given.states[index * of_state..][..of_state],
            queries,
            keys,
            values,
            log_decay: of_decay.next().unwrap_or_default(),
            strengths: of_strengths.next().unwrap_or_default(),
            state,
        })
        .collect();
    planes.into_par_iter().for_each(|plane| Arch::new().dispatch(plane));
    gradients
}

/// One batch row and head, and the destination of its gradients.
struct Backward<'a> {
    plane: Plane<'a>,
    rows: Matrix<'a>,
    gradient: Matrix<'a>,
    states: &'a [f32],
    queries: Vec<&'a mut [f32]>,
    keys: Vec<&'a mut [f32]>,
    values: Vec<&'a mut [f32]>,
    log_decay: &'a mut [f32],
    strengths: &'a mut [f32],
    state: &'a mut [f32],
}

/// Gradients within a chunk, in the shapes of [`Chunk`].
struct Slopes {
    /// Gradient of contexts before division by their totals, `[C, D]`.
    read: Aligned,
    /// Gradient of these totals, `[C]`.
    totals: [f32; CHUNK],
    /// Gradient of pairs, and of those of the delta rule, `[C, C]`.
    pairs: Aligned,
    erased: Aligned,
    /// Gradient of writes, `[C, D]`; then the negative of that of values.
    written: Aligned,
    queries: Aligned,
    keys: Aligned,
    /// Gradient of erasing keys.
    erasing: Aligned,
    /// Gradient of products with the state and its gradient, `[C, R]`.
    product: Aligned,
    /// Transposes of writes, of a state and of its gradient.
    transposed: Aligned,
    /// Gradient of sums of logarithms, `[C, 0|1|R]`.
    sums: Vec<f64>,
    /// Contribution from after the chunk to the sum of all logarithms, `[R]`.
    behind: Aligned,
    /// Contribution from after the chunk to the last key, `[R]`.
    last: Aligned,
    /// Gradient of pairs of a position with itself, `[C]`.
    itself: [f32; CHUNK],
}

impl Slopes {
    fn new(Sizes { width, value, channels, .. }: Sizes) -> Self {
        let (columns, values) = (padded(width), padded(value));
        let zeros = Aligned::zeros;
        Self {
            read: zeros(CHUNK * values),
            totals: [0.0; CHUNK],
            pairs: zeros(CHUNK * CHUNK),
            erased: zeros(CHUNK * CHUNK),
            written: zeros(CHUNK * values),
            queries: zeros(CHUNK * columns),
            keys: zeros(CHUNK * columns),
            erasing: zeros(CHUNK * columns),
            product: zeros(CHUNK * columns),
            transposed: zeros(values * columns.max(CHUNK)),
            sums: vec![0.0; CHUNK * channels],
            behind: zeros(columns),
            last: zeros(columns),
            itself: [0.0; CHUNK],
        }
    }
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let sizes @ Sizes { length, width, value, .. } = self.plane.sizes;
        let mut of_state = self.of_last_state();
        let mut state = State::zeros(sizes);
        let mut chunk = Chunk::new(self.plane);
        let mut slopes = Slopes::new(sizes);
        let mut shared = vec![0.0; sizes.channels];
        for first in (0..length).step_by(CHUNK).rev() {
            state.read(sizes, &self.states[first / CHUNK * sizes.of_state()..][..sizes.of_state()]);
            chunk.set(simd, first, &state);
            self.read_gradient(&chunk, &state, &mut slopes);
            self.differentiate(simd, &chunk, &state, &of_state, &mut slopes);
            self.add_pairs(simd, &mut chunk, &state, &of_state, &mut slopes);
            self.write_decay(&chunk, &slopes, &mut shared);
            go_before(simd, &chunk, &slopes, &mut of_state);
            let (columns, values) = (padded(width), padded(value));
            for at in 0..chunk.count {
                self.queries[first + at].copy_from_slice(&slopes.queries[at * columns..][..width]);
                self.keys[first + at].copy_from_slice(&slopes.keys[at * columns..][..width]);
                for (own, number) in self.values[first + at].iter_mut().zip(&slopes.written[at * values..]) {
                    *own = -number;
                }
            }
        }
        if self.log_decay.len() == sizes.channels {
            for (own, sum) in self.log_decay.iter_mut().zip(shared) {
                *own = sum as f32;
            }
        }
        of_state.write(sizes, self.state);
    }
}

impl Backward<'_> {
    /// Gradient of the last state, stored after those of contexts.
    fn of_last_state(&self) -> State {
        let sizes @ Sizes { length, width, value, normalised, .. } = self.plane.sizes;
        let mut state = State::zeros(sizes);
        take(self.gradient.rows_from(length), width, value, &mut state.numbers, padded(value));
        if normalised {
            for (channel, sum) in state.sums[..width].iter_mut().enumerate() {
                *sum = self.gradient.row(length + width + channel / value, value)[channel % value];
            }
        }
        state
    }

    /// Reads the gradients of contexts; division by totals also contributes to the totals' gradients.
    #[inline(always)]
    fn read_gradient(&self, chunk: &Chunk, state: &State, slopes: &mut Slopes) {
        let Sizes { value, normalised, .. } = self.plane.sizes;
        let values = padded(value);
        take(self.gradient.rows_from(chunk.first), chunk.count, value, &mut slopes.read, values);
        if !normalised {
            return;
        }
        for (at, row) in slopes.read.chunks_mut(values).take(chunk.count).enumerate() {
            let total = chunk.total(at, state);
            if total == 0.0 {
                slopes.totals[at] = 0.0;
                continue;
            }
            let share = 1.0 / total;
            let context = self.rows.row(chunk.first + at, value);
            slopes.totals[at] = -share * row.iter().zip(context).map(|(slope, number)| slope * number).sum::<f32>();
            for slope in row {
                *slope *= share;
            }
        }
    }

    /// Gradients of pairs, of writes, and of products with the states before and after the chunk.
    #[inline(always)]
    fn differentiate<S: Simd>(&mut self, simd: S, chunk: &Chunk, state: &State, of_state: &State, slopes: &mut Slopes) {
        let Sizes { width, value, normalised, .. } = self.plane.sizes;
        let (columns, values, count) = (padded(width), padded(value), chunk.count);
        let Slopes { read, totals, pairs, erased, written, queries, keys, erasing, product, transposed, .. } = slopes;
        let of_read = matrix(read, values);
        let all = Transposed(matrix(&chunk.pairs, CHUNK));
        multiply(simd, [count, values, count], Sparsity::TriangleOfTransposedLeft, all, of_read, written);
        let writing = matrix(&chunk.writing, columns);
        add_multiplied(simd, [count, values, width], Sparsity::None, writing, matrix(&of_state.numbers, values), written);
        transpose(matrix(&chunk.written, values), [count, value], transposed, CHUNK);
        multiply(simd, [count, CHUNK, value], Sparsity::TriangleOfResult, of_read, matrix(transposed, CHUNK), pairs);
        if let Some(Delta { strengths, pairs, system, rest, .. }) = &chunk.delta {
            solve_transposed(simd, count, system, written, values);
            multiply(simd, [count, CHUNK, value], Sparsity::TriangleOfResult, matrix(written, values), matrix(transposed, CHUNK), erased);
            for at in 0..count {
                let slope = &mut written[at * values..][..values];
                let row = &mut erased[at * CHUNK..][..CHUNK];
                row[at..].fill(0.0);
                let of_strength = dot(slope, &rest[at * values..][..values]) - dot(row, &pairs[at * CHUNK..][..CHUNK]);
                self.strengths[chunk.first + at] = of_strength;
                for number in row {
                    *number *= -strengths[at];
                }
                for number in slope {
                    *number *= -strengths[at];
                }
            }
        } else {
            for number in &mut written[..count * values] {
                *number = -*number;
            }
        }
        transpose(matrix(&state.numbers, values), [width, value], transposed, columns);
        multiply(simd, [count, columns, value], Sparsity::None, of_read, matrix(transposed, columns), product);
        if normalised {
            for (at, &slope) in totals.iter().enumerate().take(count) {
                add_times(slope, &state.sums, &mut product[at * columns..][..columns]);
                for number in &mut pairs[at * CHUNK..][..=at] {
                    *number += slope;
                }
            }
        }
        times(&product[..count * columns], &chunk.decays.kept, queries);
        if chunk.delta.is_some() {
            multiply(simd, [count, columns, value], Sparsity::None, matrix(written, values), matrix(transposed, columns), product);
            times(&product[..count * columns], &chunk.decays.kept, erasing);
        }
        transpose(matrix(&of_state.numbers, values), [width, value], transposed, columns);
        multiply(simd, [count, columns, value], Sparsity::None, matrix(&chunk.written, values), matrix(transposed, columns), product);
        if normalised {
            for row in product.chunks_mut(columns).take(count) {
                add_times(1.0, &of_state.sums, row);
            }
        }
        times(&product[..count * columns], &chunk.decays.behind, keys);
    }

    /// Adds the pair gradients to those of queries and keys, and derives those of sums of logarithms.
    #[inline(always)]
    fn add_pairs<S: Simd>(&self, simd: S, chunk: &mut Chunk, state: &State, of_state: &State, slopes: &mut Slopes) {
        let columns = padded(self.plane.sizes.width);
        let Chunk { count, queries: own_queries, keys: own_keys, pairs: own_pairs, decays, delta, .. } = chunk;
        let (count, is_delta) = (*count, delta.is_some());
        let rows = |at: usize| at * columns..(at + 1) * columns;
        let Slopes { pairs, erased, queries, keys, erasing, sums, behind, last, itself, .. } = slopes;
        for (at, row) in pairs.chunks_mut(CHUNK).take(count).enumerate() {
            itself[at] = row[at];
            row[at..].fill(0.0);
        }
        let channels = sums.len() / CHUNK;
        if channels > 0 {
            // Reads after the chunk of the state before it include all decays of the chunk.
            let values = padded(self.plane.sizes.value);
            for (channel, slope) in behind.iter_mut().enumerate() {
                let row = channel * values..(channel + 1) * values;
                let own = dot(&state.numbers[row.clone()], &of_state.numbers[row]);
                *slope = decays.whole[channel] * (own + state.sums[channel] * of_state.sums[channel]);
            }
        }
        if channels == 1 {
            let mut sums = HeadSums { sums, count, columns };
            sums.begin(behind);
            sums.add_before(own_queries, queries);
            sums.add_behind(own_keys, keys);
            sums.add_pairs(own_pairs, pairs);
            if let Some(Delta { pairs, .. }) = delta {
                sums.add_before(own_keys, erasing);
                sums.add_pairs(pairs, erased);
            }
        } else if channels > 1 {
            // The last position's write does not decay within the chunk.
            for at in 0..count - 1 {
                add_products(&own_keys[rows(at)], &keys[rows(at)], behind);
            }
            let row = &mut keys[rows(count - 1)];
            last.copy_from_slice(row);
            row.fill(0.0);
        }
        decays.add_slopes(simd, count, pairs, (own_queries, queries), (own_keys, keys));
        if is_delta {
            decays.add_slopes(simd, count, erased, (own_keys, erasing), (own_keys, keys));
        }
        if channels > 1 {
            for (at, sums) in sums.chunks_mut(channels).take(count).enumerate() {
                let own = (&own_queries[rows(at)], &own_keys[rows(at)]);
                let of_own = (&queries[rows(at)], &keys[rows(at)]);
                channel_sums(own, of_own, is_delta.then_some(&erasing[rows(at)]), sums);
            }
            let end = &mut sums[(count - 1) * channels..][..channels];
            end.iter_mut().zip(&**behind).for_each(|(sum, behind)| *sum += f64::from(*behind));
            add_times(1.0, last, &mut keys[rows(count - 1)]);
        }
        for (at, &slope) in itself.iter().enumerate().take(count) {
            add_times(slope, &own_keys[rows(at)], &mut queries[rows(at)]);
            add_times(slope, &own_queries[rows(at)], &mut keys[rows(at)]);
            if is_delta {
                add_times(1.0, &erasing[rows(at)], &mut keys[rows(at)]);
            }
        }
    }

    /// Sums the gradients of sums of logarithms, each of which includes a position's decay from there on. `shared` is that of a decay shared by all positions.
    fn write_decay(&mut self, chunk: &Chunk, slopes: &Slopes, shared: &mut [f64]) {
        let channels = shared.len();
        if channels == 0 {
            return;
        }
        let is_shared = self.log_decay.len() == channels;
        let mut later = vec![0.0; channels];
        for at in (0..chunk.count).rev() {
            for (channel, later) in later.iter_mut().enumerate() {
                *later += slopes.sums[at * channels + channel];
                if is_shared {
                    shared[channel] += *later;
                } else {
                    self.log_decay[(chunk.first + at) * channels + channel] = *later as f32;
                }
            }
        }
    }
}

/// Converts the gradient of the state after a chunk to that of the state before it.
#[inline(always)]
fn go_before<S: Simd>(simd: S, chunk: &Chunk, slopes: &Slopes, of_state: &mut State) {
    let Sizes { width, value, normalised, .. } = chunk.plane.sizes;
    let (columns, values, sizes) = (padded(width), padded(value), [width, padded(value), chunk.count]);
    if chunk.plane.log_decay.is_some() {
        of_state.decay(&chunk.decays.whole, values);
    }
    let reading = Transposed(matrix(&chunk.reading, columns));
    add_multiplied(simd, sizes, Sparsity::None, reading, matrix(&slopes.read, values), &mut of_state.numbers);
    if let Some(Delta { erasing, .. }) = &chunk.delta {
        let erasing = Transposed(matrix(erasing, columns));
        add_multiplied(simd, sizes, Sparsity::None, erasing, matrix(&slopes.written, values), &mut of_state.numbers);
    }
    if normalised {
        for (at, &slope) in slopes.totals.iter().enumerate().take(chunk.count) {
            add_times(slope, &chunk.reading[at * columns..][..columns], &mut of_state.sums);
        }
    }
}
