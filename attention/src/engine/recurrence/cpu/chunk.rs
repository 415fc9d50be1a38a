//! Shared computation of a chunk in both directions: its pairs and writes.

use pulp::Simd;

use super::decays::Decays;
use super::products::{add_times, dot, matrix, multiply, times, transpose};
use super::sizes::{CHUNK, Inputs, Sizes};
use super::solve::solve;
use crate::engine::fused::cpu::kernel::{Aligned, Matrix, Sparsity, padded};

/// Inputs of one batch row and head.
#[derive(Clone, Copy)]
pub(super) struct Plane<'a> {
    pub sizes: Sizes,
    pub queries: Matrix<'a>,
    pub keys: Matrix<'a>,
    pub values: Matrix<'a>,
    pub log_decay: Option<Matrix<'a>>,
    pub strengths: Option<Matrix<'a>>,
    /// `[R, D]`, or `[R, D + 1]` with sums of keys.
    pub state: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    pub(super) fn plane(self, index: usize) -> Plane<'a> {
        let Self { sizes, queries, keys, values, log_decay, strengths, state } = self;
        let (row, head) = (index / sizes.heads, index % sizes.heads);
        Plane {
            sizes,
            queries: queries.of(row, head),
            keys: keys.of(row, head),
            values: values.of(row, head),
            log_decay: log_decay.map(|rows| rows.of(row, head)),
            strengths: strengths.map(|rows| rows.of(row, head)),
            state: state.map(|numbers| &numbers[index * sizes.of_state()..][..sizes.of_state()]),
        }
    }
}

/// A state `[R, D]` with padded rows, and the sum of the keys `[R]`, 0 if not requested. Its gradient has the same form.
pub(super) struct State {
    pub numbers: Aligned,
    pub sums: Aligned,
}

impl State {
    pub(super) fn zeros(sizes: Sizes) -> Self {
        let rows = padded(sizes.width);
        Self { numbers: Aligned::zeros(rows * padded(sizes.value)), sums: Aligned::zeros(rows) }
    }

    /// Reads `[R, D]`, or `[R, D + 1]` with the sums.
    pub(super) fn read(&mut self, sizes: Sizes, numbers: &[f32]) {
        let rows = numbers.chunks(sizes.of_state() / sizes.width).zip(self.numbers.chunks_mut(padded(sizes.value)));
        for ((row, own), sum) in rows.zip(&mut *self.sums) {
            own[..sizes.value].copy_from_slice(&row[..sizes.value]);
            *sum = row.get(sizes.value).copied().unwrap_or_default();
        }
    }

    /// Writes the form that [`read`](Self::read) reads.
    pub(super) fn write(&self, sizes: Sizes, numbers: &mut [f32]) {
        let rows = numbers.chunks_mut(sizes.of_state() / sizes.width).zip(self.numbers.chunks(padded(sizes.value)));
        for ((row, own), &sum) in rows.zip(&*self.sums) {
            row[..sizes.value].copy_from_slice(&own[..sizes.value]);
            row[sizes.value..].fill(sum);
        }
    }

    /// Lets the channels decay.
    #[inline(always)]
    pub(super) fn decay(&mut self, decays: &[f32], columns: usize) {
        for ((row, sum), &decay) in self.numbers.chunks_mut(columns).zip(&mut *self.sums).zip(decays) {
            for number in row {
                *number *= decay;
            }
            *sum *= decay;
        }
    }
}

/// A chunk of positions. Rows are zero-padded to the width of products, which `R` and `D` denote here.
pub(super) struct Chunk<'a> {
    pub plane: Plane<'a>,
    /// Position of the first row, and the number of rows.
    pub first: usize,
    pub count: usize,
    /// `[C, R]`.
    pub queries: Aligned,
    pub keys: Aligned,
    pub decays: Decays,
    /// Queries, decayed from the start of the chunk, `[C, R]`.
    pub reading: Aligned,
    /// Keys, decayed to the end of the chunk, `[C, R]`.
    pub writing: Aligned,
    /// Products of queries and keys, `[C, C]`, 0 above the diagonal.
    pub pairs: Aligned,
    /// Writes, `[C, D]`.
    pub written: Aligned,
    pub delta: Option<Delta>,
    transposed: Aligned,
}

/// Further data of the delta rule.
pub(super) struct Delta {
    /// `[C]`.
    pub strengths: [f32; CHUNK],
    /// Keys, decayed from the start of the chunk, `[C, R]`.
    pub erasing: Aligned,
    /// Products of keys and earlier keys, `[C, C]`, 0 on the diagonal and above.
    pub pairs: Aligned,
    /// The same times negative strengths: the matrix of the equations.
    pub system: Aligned,
    /// Values minus the reads of the state before the chunk, `[C, D]`.
    pub rest: Aligned,
}

impl<'a> Chunk<'a> {
    pub(super) fn new(plane: Plane<'a>) -> Self {
        let (rows, values) = (CHUNK * padded(plane.sizes.width), CHUNK * padded(plane.sizes.value));
        let zeros = Aligned::zeros;
        Self {
            plane,
            first: 0,
            count: 0,
            queries: zeros(rows),
            keys: zeros(rows),
            decays: Decays::new(plane.sizes),
            reading: zeros(rows),
            writing: zeros(rows),
            pairs: zeros(CHUNK * CHUNK),
            written: zeros(values),
            delta: plane.strengths.map(|_| Delta {
                strengths: [0.0; CHUNK],
                erasing: zeros(rows),
                pairs: zeros(CHUNK * CHUNK),
                system: zeros(CHUNK * CHUNK),
                rest: zeros(values),
            }),
            transposed: zeros(rows),
        }
    }

    /// Moves to the chunk at position `first`, computed from the state before it.
    #[inline(always)]
    pub(super) fn set<S: Simd>(&mut self, simd: S, first: usize, state: &State) {
        let Self { plane, queries, keys, decays, reading, writing, pairs, written, delta, transposed, .. } = self;
        let Sizes { length, width, value, .. } = plane.sizes;
        let (columns, values) = (padded(width), padded(value));
        let count = CHUNK.min(length - first);
        (self.first, self.count) = (first, count);
        take(plane.queries.rows_from(first), count, width, queries, columns);
        take(plane.keys.rows_from(first), count, width, keys, columns);
        if let Some(log_decay) = plane.log_decay {
            decays.set(log_decay.rows_from(first), count);
        }
        times(queries, &decays.kept, reading);
        times(keys, &decays.behind, writing);
        transpose(matrix(keys, columns), [count, width], transposed, CHUNK);
        decays.pairs(simd, count, queries, keys, transposed, pairs);
        let own_values = plane.values.rows_from(first);
        let Some(Delta { strengths, erasing, pairs, system, rest }) = delta else {
            take(own_values, count, value, written, values);
            return;
        };
        let given = plane.strengths.expect("the delta rule has strengths").rows_from(first);
        times(keys, &decays.kept, erasing);
        decays.pairs(simd, count, keys, keys, transposed, pairs);
        multiply(simd, [count, values, width], Sparsity::None, matrix(erasing, columns), matrix(&state.numbers, values), rest);
        for at in 0..count {
            let strength = given.row(at, 1)[0];
            strengths[at] = strength;
            let row = at * CHUNK..(at + 1) * CHUNK;
            pairs[row.start + at] = 0.0;
            for (number, pair) in system[row.clone()].iter_mut().zip(&pairs[row]) {
                *number = -strength * pair;
            }
            let row = at * values..at * values + value;
            for (rest, number) in rest[row.clone()].iter_mut().zip(own_values.row(at, value)) {
                *rest = number - *rest;
            }
            for (written, rest) in written[row.clone()].iter_mut().zip(&rest[row]) {
                *written = strength * rest;
            }
        }
        solve(simd, count, system, written, values);
    }

    /// Sum of the weights of a position, including the key sums of the state before the chunk.
    #[inline(always)]
    pub(super) fn total(&self, at: usize, state: &State) -> f32 {
        let columns = padded(self.plane.sizes.width);
        let read = dot(&self.reading[at * columns..][..columns], &state.sums);
        read + self.pairs[at * CHUNK..][..=at].iter().sum::<f32>()
    }

    /// Adds the chunk's keys to their sum.
    #[inline(always)]
    pub(super) fn add_keys(&self, sums: &mut [f32]) {
        for row in self.writing.chunks(padded(self.plane.sizes.width)).take(self.count) {
            add_times(1.0, row, sums);
        }
    }
}

/// Copies `count` rows of `width` to rows of `columns`.
#[inline(always)]
pub(super) fn take(rows: Matrix, count: usize, width: usize, numbers: &mut [f32], columns: usize) {
    for (at, own) in numbers.chunks_mut(columns).take(count).enumerate() {
        own[..width].copy_from_slice(rows.row(at, width));
    }
}
