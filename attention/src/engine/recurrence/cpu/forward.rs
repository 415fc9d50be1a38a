//! Contexts and the last state.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::chunk::{Chunk, Plane, State};
use super::products::{add_multiplied, matrix, multiply};
use super::sizes::{CHUNK, Inputs, Sizes};
use crate::engine::fused::cpu::kernel::{Aligned, Sparsity, Transposed, padded};
use crate::engine::fused::cpu::rows_of_planes;

/// Results of a recurrence.
pub(super) struct Output {
    /// `[B, N + R (+ rows of sums), H, D]`: contexts, rows of the final state, and its key sums.
    pub rows: Vec<f32>,
    /// States before each chunk, `[B, H, M, R, D (+ 1)]`; empty if not saved.
    pub states: Vec<f32>,
}

pub(super) fn forward(inputs: Inputs, keeps_states: bool) -> Output {
    let sizes @ Sizes { batch, heads, length, value, .. } = inputs.sizes;
    let mut rows = vec![0.0; batch * heads * sizes.rows() * value];
    let size = if keeps_states { length.div_ceil(CHUNK) * sizes.of_state() } else { 0 };
    let mut states = vec![0.0; batch * heads * size];
    let mut of_planes = states.chunks_mut(size.max(1));
    let planes: Vec<Forward> = rows_of_planes(&mut rows, [batch, heads, value])
        .into_iter()
        .enumerate()
        .map(|(index, rows)| Forward { plane: inputs.plane(index), rows, states: of_planes.next().unwrap_or_default() })
        .collect();
    planes.into_par_iter().for_each(|plane| Arch::new().dispatch(plane));
    Output { rows, states }
}

/// One batch row and head.
struct Forward<'a> {
    plane: Plane<'a>,
    rows: Vec<&'a mut [f32]>,
    states: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { plane, mut rows, states } = self;
        let sizes @ Sizes { length, width, value, normalised, .. } = plane.sizes;
        let (columns, values) = (padded(width), padded(value));
        let mut state = State::zeros(sizes);
        if let Some(numbers) = plane.state {
            state.read(sizes, numbers);
        }
        let mut kept = states.chunks_mut(sizes.of_state());
        let mut chunk = Chunk::new(plane);
        let mut read = Aligned::zeros(CHUNK * values);
        for first in (0..length).step_by(CHUNK) {
            if let Some(kept) = kept.next() {
                state.write(sizes, kept);
            }
            chunk.set(simd, first, &state);
            let count = chunk.count;
            let reading = matrix(&chunk.reading, columns);
            multiply(simd, [count, values, width], Sparsity::None, reading, matrix(&state.numbers, values), &mut read);
            let pairs = matrix(&chunk.pairs, CHUNK);
            add_multiplied(simd, [count, values, count], Sparsity::TriangleOfLeft, pairs, matrix(&chunk.written, values), &mut read);
            for (at, context) in rows[first..first + count].iter_mut().enumerate() {
                context.copy_from_slice(&read[at * values..][..value]);
                if normalised {
                    let total = chunk.total(at, &state);
                    let share = if total == 0.0 { 1.0 } else { 1.0 / total };
                    for number in context.iter_mut() {
                        *number *= share;
                    }
                }
            }
            if plane.log_decay.is_some() {
                state.decay(&chunk.decays.whole, values);
            }
            let writing = Transposed(matrix(&chunk.writing, columns));
            add_multiplied(simd, [width, values, count], Sparsity::None, writing, matrix(&chunk.written, values), &mut state.numbers);
            if normalised {
                chunk.add_keys(&mut state.sums);
            }
        }
        for (row, numbers) in rows[length..].iter_mut().zip(state.numbers.chunks(values)).take(width) {
            row.copy_from_slice(&numbers[..value]);
        }
        for (row, sums) in rows[length + width..].iter_mut().zip(state.sums[..width].chunks(value)) {
            row[..sums.len()].copy_from_slice(sums);
        }
    }
}
