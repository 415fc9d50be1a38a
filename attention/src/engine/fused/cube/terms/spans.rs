//! Spans that end softly: factors of the exponentials of logits, which become logarithms that are added to logits.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::products::{COLUMNS, LOWEST, own_column, own_row};
use super::At;
use crate::visibility::TILE;

/// Spans, and how they end: a [`Ramp`](crate::engine::Ramp).
#[derive(CubeType, CubeLaunch)]
pub(in super::super) struct Spans<F: Float> {
    /// `[B|1, H|1, Q|1, 1]`.
    lengths: OwnedTensor<F>,
    /// The longest one of each tile of queries, `[B|1, H|1, tiles|1, 1]`.
    longest: OwnedTensor<f32>,
    pub width: f32,
    origin: f32,
    nearest: i32,
    farthest: i32,
    offset: i32,
    /// Of what [`greatest_log_ratio`](crate::engine::greatest_log_ratio) is.
    pub greatest_log_ratio: f32,
}

/// The factor of a pair before it is limited to `[0, 1]`; what is no key of the query lies below.
#[cube]
pub(in super::super) fn height<F: Float>(spans: &Spans<F>, at: &At, query: usize, key: usize) -> f32 {
    let lengths = &spans.lengths;
    let mut own = query;
    if own >= lengths.shape(2) {
        own = lengths.shape(2) - 1;
    }
    let plane = at.row % lengths.shape(0) * lengths.stride(0) + at.head % lengths.shape(1) * lengths.stride(1);
    let length = f32::cast_from(lengths[plane + own * lengths.stride(2)]);
    let distance = distance(query as i32 + spans.offset, key as i32);
    let height = (length + (spans.origin - f32::cast_from(distance))) / spans.width + 1.0f32;
    select(distance >= spans.nearest && distance <= spans.farthest, height, -1.0f32)
}

#[cube]
fn distance(a: i32, b: i32) -> i32 {
    max(a - b, b - a)
}

/// The logit of a pair with a factor.
#[cube]
pub(in super::super) fn limited(logit: f32, height: f32) -> f32 {
    let factor = min(max(height, 1.0e-30f32), 1.0f32);
    select(height > 0.0f32, logit + factor.ln(), LOWEST)
}

/// Limits the logits `[rows, COLUMNS]` of a tile.
#[cube]
pub(super) fn limit<F: Float>(logits: &mut Array<f32>, spans: &Spans<F>, at: &At, #[comptime] rows: usize, #[comptime] by_key: bool) {
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (row, column) = (own_row(i, rows), own_column(j));
            let (query, key) = if comptime!(by_key) { (column, row) } else { (row, column) };
            let height = height(spans, at, at.queries * TILE + query, at.keys * TILE + key);
            logits[i * COLUMNS + j] = limited(logits[i * COLUMNS + j], height);
        }
    }
}

/// Whether no query of a tile reaches a key of it. A key at height 0 has no weight, but its ramp a slope.
#[cube]
pub(super) fn are_beyond<F: Float>(spans: &Spans<F>, at: &At) -> bool {
    let longest = &spans.longest;
    let mut tile = at.queries;
    if tile >= longest.shape(2) {
        tile = longest.shape(2) - 1;
    }
    let plane = at.row % longest.shape(0) * longest.shape(1) + at.head % longest.shape(1);
    let length = longest[plane * longest.shape(2) + tile];
    let between = distance((at.queries * TILE) as i32 + spans.offset, (at.keys * TILE) as i32);
    let nearest = max(between - comptime!(TILE as i32 - 1), 0i32);
    nearest > spans.farthest || (length + (spans.origin - f32::cast_from(nearest))) / spans.width + 1.0f32 < 0.0f32
}

/// The longest span of each tile of queries: a unit each.
#[cube(launch)]
pub(in super::super) fn longest_of_tiles<F: Float>(lengths: &Tensor<F>, longest: &mut Tensor<f32>, #[define(F)] _number: ElemType) {
    let (tile, head, row) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let plane = row * lengths.stride(0) + head * lengths.stride(1);
    let first = tile * TILE;
    let mut end = first + TILE;
    if end > lengths.shape(2) {
        end = lengths.shape(2);
    }
    let mut largest = f32::cast_from(lengths[plane + first * lengths.stride(2)]);
    for query in first..end {
        largest = max(largest, f32::cast_from(lengths[plane + query * lengths.stride(2)]));
    }
    let place = (row * longest.shape(1) + head) * longest.shape(2) + tile;
    longest[place] = largest;
}
