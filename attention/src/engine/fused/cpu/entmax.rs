//! Entmax: thresholds of queries, and the resulting weights.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::forward::{State, each_plane};
use super::kernel::Aligned;
use super::layout::{BackwardInputs, Inputs, Sizes, of_plane, rows_of_planes};
use super::packed::Packed;
use super::scores::Scores;
use super::terms::{Scratch, TileIndex};
use crate::contract::visibility::TILE;
use crate::engine::entmax::{power_and_slope, threshold};
use crate::engine::exponential::largest;

/// Weights of keys: scores are divided by the power, and their excess above the query's threshold is raised to the power.
#[derive(Clone, Copy)]
pub(super) struct Above<'a> {
    /// One threshold per query.
    pub thresholds: &'a [f32],
    pub power: u32,
    /// Whether to raise to the power minus 1 instead, for the slopes of the weights by the scores.
    pub is_slope: bool,
}

impl<'a> Above<'a> {
    /// For the queries from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        Self { thresholds: &self.thresholds[first..], ..self }
    }

    /// Replaces the logits of a tile by weights, which it adds to the totals.
    #[inline(always)]
    pub(super) fn weigh(self, logits: &mut [f32], totals: &mut [f32]) {
        let share = 1.0 / self.power as f32;
        for ((logits, total), threshold) in logits.chunks_exact_mut(TILE).zip(totals).zip(self.thresholds) {
            for logit in &mut *logits {
                let [weight, slope] = power_and_slope(*logit * share - threshold, self.power);
                *logit = if self.is_slope { slope } else { weight };
            }
            *total += logits.iter().sum::<f32>();
        }
    }
}

/// Thresholds of the queries of a plane; infinite without visible keys.
pub(super) fn thresholds(inputs: Inputs, plane: usize, packed: &Packed, power: u32) -> Vec<f32> {
    let queries = inputs.sizes.queries;
    let of_row = |scores: &[f32]| Arch::new().dispatch(Threshold { scores, power });
    let parts = inputs.plan.parts.len();
    if parts == 1 {
        // Tile by tile, so that only the scores of one query tile are stored.
        let scores = Scores::new(inputs, 0, plane, packed);
        let mut found = vec![f32::INFINITY; queries];
        for (place, threshold) in of_queries(&scores, power, |row| of_row(&row)).into_iter().enumerate() {
            found[scores.terms.places[0].index(place)] = threshold;
        }
        return found;
    }
    let mut rows = vec![Vec::new(); queries];
    for part in 0..parts {
        let scores = Scores::new(inputs, part, plane, packed);
        for (place, mut found) in of_queries(&scores, power, |row| row).into_iter().enumerate() {
            rows[scores.terms.places[0].index(place)].append(&mut found);
        }
    }
    rows.par_iter().map(|row| of_row(row)).collect()
}

/// Results of `make` for the [`Candidates`] of each query, by place.
fn of_queries<T: Send>(scores: &Scores, power: u32, make: impl Fn(Vec<f32>) -> T + Sync) -> Vec<T> {
    let queries = scores.terms.places[0].len();
    let scratch = || (Aligned::zeros(TILE * TILE), Scratch::default());
    let tiles = (0..queries.div_ceil(TILE)).into_par_iter().map_init(scratch, |(logits, scratch), tile| {
        let height = TILE.min(queries - tile * TILE);
        let rows = Arch::new().dispatch(Candidates { scores, queries_tile: tile, height, power, logits, scratch });
        rows.into_iter().map(&make).collect::<Vec<T>>()
    });
    tiles.flatten_iter().collect()
}

/// Scores of each query of a tile, divided by the power, that may exceed the threshold.
struct Candidates<'a> {
    scores: &'a Scores<'a>,
    queries_tile: usize,
    height: usize,
    power: u32,
    /// `[TILE, TILE]`.
    logits: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl WithSimd for Candidates<'_> {
    type Output = Vec<Vec<f32>>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let Self { scores, queries_tile, height, power, logits, scratch } = self;
        let share = 1.0 / power as f32;
        let mut rows = vec![Vec::new(); height];
        let mut tops = [f32::NEG_INFINITY; TILE];
        for tile in scores.met_by_queries(queries_tile) {
            let at = TileIndex { queries: queries_tile, keys: tile.index as usize, height };
            if scores.terms.are_beyond(at) {
                continue;
            }
            scores.logits(simd, at, tile.visible, logits, scratch);
            for ((row, top), logits) in rows.iter_mut().zip(&mut tops).zip(logits.chunks_exact_mut(TILE)) {
                logits.iter_mut().for_each(|logit| *logit *= share);
                *top = top.max(largest(logits));
                // The threshold is at most 1 below the maximum.
                let least = *top - 1.0;
                row.extend(logits.iter().copied().filter(|&score| score > least));
            }
        }
        rows
    }
}

/// The threshold of one query.
struct Threshold<'a> {
    scores: &'a [f32],
    power: u32,
}

impl WithSimd for Threshold<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        threshold(self.scores, self.power)
    }
}

/// Mean weight gradient of each query, `[B, H, Q]`, weighted by slopes. Since the threshold depends on the scores, it is subtracted from the gradient of every
/// weight.
pub(super) fn means(inputs: Inputs, given: BackwardInputs, power: u32) -> Vec<f32> {
    let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
    let mut sums = vec![0.0; batch * queries * heads * value];
    let mut means = vec![0.0; batch * heads * queries];
    let of_planes = rows_of_planes(&mut sums, [batch, heads, value]).into_par_iter().zip(means.par_chunks_mut(queries));
    each_plane(inputs, of_planes, |plane, packed, (sums, means)| {
        let mut state = State::new(sums);
        state.meet(inputs, plane, packed, Some(Above { thresholds: of_plane(given.log_sum_exp, plane, queries), power, is_slope: true }));
        let gradient = given.gradient.of(plane / heads, plane % heads);
        for (query, ((mean, sum), total)) in means.iter_mut().zip(&state.sums).zip(&state.totals).enumerate() {
            // A query without visible keys has none.
            if *total > 0.0 {
                *mean = gradient.row(query, value).iter().zip(&**sum).map(|(a, b)| a * b).sum::<f32>() / total;
            }
        }
    });
    means
}
