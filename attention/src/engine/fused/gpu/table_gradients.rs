//! Gradients of tables that batch rows and heads can share: a cube computes a table tile, for one row and head after another. No two cubes add to one place, so
//! sums have a fixed order, and no temporary exceeds the tables.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::backward::slopes_of_tile;
use super::distances::write_by_distance;
use super::inputs::{BackwardInputs, Inputs};
use super::launch::KernelConfig;
use super::products::{COLUMNS, Four, SharedMemory, add_product_of_tile, fours_of, own_column, own_row, reduce_rows, rows_of, write_rows};
use super::terms::{are_beyond, at_most, pair_of_queries, scale_of};
use super::visibility::{CubeTask, found_in, list_among, list_of};
use crate::contract::visibility::TILE;

/// A cube computes a tile of the bias gradient, `[B|1, H|1, Q, K]`. `of_scale` `[B|1, H|1, Q, key tiles]` is that of its scale, by query and tile.
#[cube(launch)]
pub(super) fn gradient_of_bias<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    result: &mut Tensor<F>,
    of_scale: &mut Tensor<f32>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let rows = comptime!(form.rows);
    let tiles = &inputs.tiles;
    let (query_tile, key_tile, plane) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (own_rows, own_heads) = (result.shape(0), result.shape(1));
    let (first_row, first_head) = (plane / own_heads, plane % own_heads);
    let row_count = select(own_rows == 1, reverse.gradient.shape(0), 1usize);
    let head_count = select(own_heads == 1, reverse.gradient.shape(1), 1usize);
    let mut room = SharedMemory::new();
    let mut span_sums = Array::<f32>::new(rows);
    let mut sums = Array::<f32>::new(comptime!(rows * COLUMNS));
    for index in 0..row_count * head_count {
        let place =
            CubeTask { row: first_row + index / head_count, head: first_head + index % head_count, tile: query_tile, block: 0usize };
        let at = found_in(tiles, list_of(&inputs.lists, &place), key_tile);
        let pair = pair_of_queries(&place, key_tile);
        if at > 0 && !are_beyond(inputs, &pair, form) {
            let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
            slopes_of_tile(&mut slopes, &mut span_sums, &mut room, inputs, reverse, &pair, tiles[at + 1] as usize, form);
            #[unroll]
            for i in 0..comptime!(rows * COLUMNS) {
                sums[i] += slopes[i];
            }
        }
    }
    let (length, width) = (result.shape(2), result.shape(3));
    let factor = scale_of(inputs, first_head, form);
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (query, key) = (query_tile * TILE + own_row(i, rows), key_tile * TILE + own_column(j));
            if query < length && key < width {
                result[(plane * length + query) * width + key] = F::cast_from(sums[i * COLUMNS + j] * factor);
            }
        }
    }
    if comptime!(form.made.scale) {
        let bias = inputs.bias.as_ref().unwrap();
        let start = first_row * bias.stride(0) + first_head * bias.stride(1);
        let tile_count = of_scale.shape(3);
        let mut totals = Array::<f32>::new(rows);
        #[unroll]
        for i in 0..rows {
            #[unroll]
            for j in 0..COLUMNS {
                let query = at_most(query_tile * TILE + own_row(i, rows), length - 1);
                let key = at_most(key_tile * TILE + own_column(j), width - 1);
                totals[i] += sums[i * COLUMNS + j] * f32::cast_from(bias[start + query * bias.stride(2) + key]);
            }
        }
        reduce_rows(&mut totals, &mut room, rows, true, comptime!(form.planes));
        #[unroll]
        for i in 0..rows {
            let query = query_tile * TILE + own_row(i, rows);
            if UNIT_POS_X == 0 && query < length {
                of_scale[(plane * length + query) * tile_count + key_tile] = totals[i];
            }
        }
    }
}

/// A cube computes `relative_block` columns of a tile of the gradient of a table by distance, `[B|1, H|1, rows, S]`.
#[cube(launch)]
pub(super) fn gradient_of_distances<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    result: &mut Tensor<F>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.relative_block, form.rows));
    let tiles = &inputs.tiles;
    let (table_tile, plane, block) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (own_rows, own_heads) = (result.shape(0), result.shape(1));
    let (first_row, first_head) = (plane / own_heads, plane % own_heads);
    let row_count = select(own_rows == 1, reverse.gradient.shape(0), 1usize);
    let head_count = select(own_heads == 1, reverse.gradient.shape(1), 1usize);
    let (query_tiles, key_tiles) = (inputs.queries.shape(2).div_ceil(TILE), inputs.keys.shape(2).div_ceil(TILE));
    let mut room = SharedMemory::new();
    let mut span_sums = Array::<f32>::new(rows);
    let mut sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    for index in 0..row_count * head_count {
        let (row, head) = (first_row + index / head_count, first_head + index % head_count);
        for query_tile in 0..query_tiles {
            let place = CubeTask { row, head, tile: query_tile, block: 0usize };
            let list = list_among(&inputs.lists, &place, query_tiles);
            // Key tiles that use this table tile as the first and as the second of their two.
            for half in 0..2usize {
                let (found, before) = (table_tile + query_tile, half + query_tiles - 1);
                let is_there = found >= before && found - before < key_tiles;
                let key_tile = select(is_there, found - before, 0usize);
                let at = found_in(tiles, list, key_tile);
                let pair = pair_of_queries(&place, key_tile);
                if is_there && at > 0 && !are_beyond(inputs, &pair, form) {
                    let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
                    slopes_of_tile(&mut slopes, &mut span_sums, &mut room, inputs, reverse, &pair, tiles[at + 1] as usize, form);
                    write_by_distance(&mut room, &slopes, half, rows);
                    let factors = inputs.relative_queries.as_ref().unwrap();
                    let of_factors = rows_of(factors, row, head, query_tile);
                    add_product_of_tile(&mut sums, &mut room, factors, &of_factors, block * wide, wide, rows);
                }
            }
        }
    }
    let length = result.shape(2);
    let first = table_tile * TILE;
    write_rows(result, plane * length + first, length - first, &sums, block * wide, wide, rows);
}
