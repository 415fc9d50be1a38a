//! Tiles with their queries and keys, and soft span ends.

use cubecl::prelude::*;

use super::inputs::Inputs;
use super::launch::KernelConfig;
use super::products::{COLUMNS, LOWEST, own_column, own_row};
use super::visibility::CubeTask;
use crate::contract::visibility::TILE;

/// A query tile and a key tile, in a head of a batch row.
#[derive(CubeType)]
pub(super) struct Pair {
    pub row: usize,
    pub head: usize,
    pub queries: usize,
    pub keys: usize,
}

/// A cube's query tile, and a key tile.
#[cube]
pub(super) fn pair_of_queries(place: &CubeTask, keys: usize) -> Pair {
    Pair { row: place.row, head: place.head, queries: place.tile, keys }
}

/// A query tile, and a cube's key tile.
#[cube]
pub(super) fn pair_of_keys(place: &CubeTask, queries: usize) -> Pair {
    Pair { row: place.row, head: place.head, queries, keys: place.tile }
}

/// Query of number `[i, j]` of this unit, in a tile whose rows are queries, or keys with `by_key`.
#[cube]
pub(super) fn query_of(
    pair: &Pair,
    #[comptime] i: usize,
    #[comptime] j: usize,
    #[comptime] by_key: bool,
    #[comptime] rows: usize,
) -> usize {
    let first = pair.queries * TILE;
    if by_key { first + own_column(j) } else { first + own_row(i, rows) }
}

/// Key of that number.
#[cube]
pub(super) fn key_of(pair: &Pair, #[comptime] i: usize, #[comptime] j: usize, #[comptime] by_key: bool, #[comptime] rows: usize) -> usize {
    let first = pair.keys * TILE;
    if by_key { first + own_row(i, rows) } else { first + own_column(j) }
}

/// Scale of the bias.
#[cube]
pub(super) fn scale_of<F: Float, N: Size>(inputs: &Inputs<F, N>, head: usize, #[comptime] form: KernelConfig) -> f32 {
    let mut factor = 1.0f32;
    if comptime!(form.made.scale) {
        let scale = inputs.scale.as_ref().unwrap();
        factor = f32::cast_from(scale[head % scale.shape(1) * scale.stride(1)]);
    }
    factor
}

/// Soft span ends, as in [`Ramp`](crate::engine::Ramp).
#[derive(CubeType, CubeLaunch)]
pub(super) struct Ends {
    pub width: f32,
    pub origin: f32,
    pub nearest: i32,
    pub farthest: i32,
    pub offset: i32,
    /// Maximum log weight of a key at the end of its ramp in the gradient of the span.
    pub greatest: f32,
    /// Maximum logit of hidden keys.
    pub least_visible: f32,
}

/// Minimum factor before a logarithm: factors above it exceed the resolution of 32-bit floats at 1.
const LEAST_FACTOR: f32 = 1.0e-30;

/// The span of a query.
#[cube]
pub(super) fn span_of<F: Float, N: Size>(inputs: &Inputs<F, N>, pair: &Pair, query: usize, #[comptime] form: KernelConfig) -> f32 {
    let mut span = 0.0f32;
    if comptime!(form.made.spans) {
        let spans = inputs.spans.as_ref().unwrap();
        let start = pair.row % spans.shape(0) * spans.stride(0) + pair.head % spans.shape(1) * spans.stride(1);
        span = f32::cast_from(spans[start + at_most(query, spans.shape(2) - 1) * spans.stride(2)]);
    }
    span
}

/// Factor of a key before clamping to `[0, 1]`. Keys outside the query's range have lower values.
#[cube]
pub(super) fn height(ends: &Ends, span: f32, query: usize, key: usize) -> f32 {
    let signed = query as i32 + ends.offset - key as i32;
    let distance = max(signed, 0i32 - signed);
    let level = ends.origin - f32::cast_from(distance);
    let is_key = distance >= ends.nearest && distance <= ends.farthest;
    select(is_key, (span + level) / ends.width + 1.0f32, -1.0f32)
}

/// A logit plus the logarithm of a factor.
#[cube]
pub(super) fn limited(logit: f32, height: f32) -> f32 {
    let within = select(height < 1.0f32, logit + max(height, LEAST_FACTOR.runtime()).ln(), logit);
    select(height > 0.0f32, within, LOWEST.runtime())
}

/// Adds the logarithms of the factors of soft spans to logits `[rows, COLUMNS]`; rows are queries.
#[cube]
pub(super) fn limit<F: Float, N: Size>(logits: &mut Array<f32>, inputs: &Inputs<F, N>, pair: &Pair, #[comptime] form: KernelConfig) {
    if comptime!(form.made.spans) {
        #[unroll]
        for i in 0..comptime!(form.rows) {
            let query = query_of(pair, i, 0usize, false, comptime!(form.rows));
            let span = span_of(inputs, pair, query, form);
            #[unroll]
            for j in 0..COLUMNS {
                let key = key_of(pair, i, j, false, comptime!(form.rows));
                logits[i * COLUMNS + j] = limited(logits[i * COLUMNS + j], height(&inputs.ends, span, query, key));
            }
        }
    }
}

/// Whether no query of a tile reaches a key of another, nor the end of a ramp, which has a slope.
#[cube]
pub(super) fn are_beyond<F: Float, N: Size>(inputs: &Inputs<F, N>, pair: &Pair, #[comptime] form: KernelConfig) -> bool {
    let mut are_beyond = false;
    if comptime!(form.made.spans) {
        let ends = &inputs.ends;
        let length = inputs.spans.as_ref().unwrap().shape(2);
        let mut longest = span_of(inputs, pair, pair.queries * TILE, form);
        for query in at_most(pair.queries * TILE, length)..at_most((pair.queries + 1) * TILE, length) {
            longest = max(longest, span_of(inputs, pair, query, form));
        }
        let signed = (pair.queries * TILE) as i32 + ends.offset - (pair.keys * TILE) as i32;
        let apart = max(signed, 0i32 - signed);
        let wide = comptime!(TILE as i32 - 1);
        let least = max(apart - wide, 0i32);
        let top = (longest + (ends.origin - f32::cast_from(least))) / ends.width + 1.0f32;
        are_beyond = least > ends.farthest || apart + wide < ends.nearest || top < 0.0f32;
    }
    are_beyond
}

#[cube]
pub(super) fn at_most(number: usize, limit: usize) -> usize {
    select(number < limit, number, limit)
}
