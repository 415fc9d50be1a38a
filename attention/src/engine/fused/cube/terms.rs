//! What is added to the products of queries and keys.

use cubecl::prelude::*;

use super::Form;
use super::products::{COLUMNS, own_column, own_row};
use super::weights::Place;
use crate::visibility::TILE;

/// Tiles of queries and of keys, in a head of a row of the batch.
#[derive(CubeType)]
pub(super) struct Pair {
    pub row: usize,
    pub head: usize,
    pub queries: usize,
    pub keys: usize,
}

/// The tile of queries of a cube, and one of keys.
#[cube]
pub(super) fn pair_of_queries(place: &Place, keys: usize) -> Pair {
    Pair { row: place.row, head: place.head, queries: place.tile, keys }
}

/// A tile of queries, and the tile of keys of a cube.
#[cube]
pub(super) fn pair_of_keys(place: &Place, queries: usize) -> Pair {
    Pair { row: place.row, head: place.head, queries, keys: place.tile }
}

/// Query of number `[i, j]` of those of this unit, in a tile whose rows are queries, or `by_key` keys.
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

/// What the bias is multiplied with.
#[cube]
pub(super) fn scale_of<F: Float>(scale: ComptimeOption<&Tensor<F>>, head: usize, #[comptime] form: Form) -> f32 {
    let mut factor = 1.0f32;
    if comptime!(form.made.scale) {
        let scale = scale.unwrap();
        factor = f32::cast_from(scale[head % scale.shape(1) * scale.stride(1)]);
    }
    factor
}

/// Adds the bias, times its scale, to logits `[rows, COLUMNS]`. What is read past the ends of queries and keys is hidden.
#[cube]
pub(super) fn add_bias<F: Float>(
    logits: &mut Array<f32>,
    bias: ComptimeOption<&Tensor<F>>,
    scale: ComptimeOption<&Tensor<F>>,
    pair: &Pair,
    #[comptime] by_key: bool,
    #[comptime] form: Form,
) {
    if comptime!(form.made.bias) {
        let bias = bias.unwrap();
        let factor = scale_of(scale, pair.head, form);
        let start = pair.row % bias.shape(0) * bias.stride(0) + pair.head % bias.shape(1) * bias.stride(1);
        #[unroll]
        for i in 0..comptime!(form.rows) {
            #[unroll]
            for j in 0..COLUMNS {
                let query = at_most(query_of(pair, i, j, by_key, comptime!(form.rows)), bias.shape(2) - 1);
                let key = at_most(key_of(pair, i, j, by_key, comptime!(form.rows)), bias.shape(3) - 1);
                logits[i * COLUMNS + j] += f32::cast_from(bias[start + query * bias.stride(2) + key]) * factor;
            }
        }
    }
}

#[cube]
pub(super) fn at_most(number: usize, limit: usize) -> usize {
    select(number < limit, number, limit)
}
