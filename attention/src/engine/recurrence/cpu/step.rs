//! One position, for decoding steps. It reads and writes each number of the state once; the delta rule reads it once more before.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::chunk::Plane;
use super::sizes::{Inputs, Sizes};

/// Minimum state numbers per thread: for fewer, waking a thread takes longer.
const FEWEST: usize = 16_384;

/// Contexts `[B, H, D]`. States `[B, H, R, D]`, or `[B, H, R, D + 1]` with the key sums, are updated in place.
pub(super) fn step(inputs: Inputs, states: &mut [f32]) -> Vec<f32> {
    let sizes @ Sizes { batch, heads, value, .. } = inputs.sizes;
    let mut contexts = vec![0.0; batch * heads * value];
    let planes = states.par_chunks_mut(sizes.of_state()).zip(contexts.par_chunks_mut(value)).enumerate();
    planes.with_min_len(FEWEST.div_ceil(sizes.of_state())).for_each_init(
        || vec![0.0; 2 * (value + 1)],
        |scratch, (index, (state, context))| {
            let (written, read) = scratch.split_at_mut(value + 1);
            let plane = inputs.plane(index);
            Arch::new().dispatch(Step { plane, state, written, read });
            context.copy_from_slice(&read[..value]);
        },
    );
    contexts
}

/// One batch row and head.
struct Step<'a> {
    plane: Plane<'a>,
    state: &'a mut [f32],
    /// Writes, `[D + 1]`.
    written: &'a mut [f32],
    /// Reads, `[D + 1]`: the context, followed by its divisor if normalised.
    read: &'a mut [f32],
}

impl WithSimd for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { plane, state, written, read } = self;
        let Plane { sizes: sizes @ Sizes { width, value, channels, normalised, .. }, queries, keys, values, log_decay, strengths, .. } =
            plane;
        let columns = sizes.of_state() / width;
        let (written, read) = (&mut written[..columns], &mut read[..columns]);
        let (query, key) = (queries.row(0, width), keys.row(0, width));
        let decays = log_decay.map(|decay| decay.row(0, channels));
        let decay_of = |channel: usize| decays.map_or(1.0, |decays| decays[if channels == 1 { 0 } else { channel }].exp());
        let of_head = if channels > 1 { 1.0 } else { decay_of(0) };
        let kept = |channel: usize| if channels > 1 { decay_of(channel) } else { of_head };
        // The key sum is the write of a value of 1.
        written.fill(1.0);
        written[..value].copy_from_slice(values.row(0, value));
        if let Some(strengths) = strengths {
            read.fill(0.0);
            for (channel, row) in state.chunks_exact(columns).enumerate() {
                let factor = key[channel] * kept(channel);
                for (read, number) in read.iter_mut().zip(row) {
                    *read += factor * number;
                }
            }
            let strength = strengths.row(0, 1)[0];
            for (written, held) in written.iter_mut().zip(&*read) {
                *written = strength * (*written - held);
            }
        }
        read.fill(0.0);
        for (channel, row) in state.chunks_exact_mut(columns).enumerate() {
            let (kept, key, query) = (kept(channel), key[channel], query[channel]);
            for ((number, written), read) in row.iter_mut().zip(&*written).zip(&mut *read) {
                *number = kept * *number + key * written;
                *read += query * *number;
            }
        }
        if normalised {
            let total = read[value];
            let share = if total == 0.0 { 1.0 } else { 1.0 / total };
            for number in read.iter_mut() {
                *number *= share;
            }
        }
    }
}
