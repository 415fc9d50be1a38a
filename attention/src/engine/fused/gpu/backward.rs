//! Gradients: weights are recomputed from the log-sum-exp, tile by tile (Dao 2023, algorithm 2). No two cubes add to one place, so sums have a fixed order.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::distances::add_products_by_distance;
use super::inputs::{BackwardInputs, Inputs};
use super::launch::KernelConfig;
use super::logits::add_terms;
use super::products::{
    COLUMNS, Four, LOWEST, SharedMemory, add_product_of_tile, add_products_of_rows, fours_of, own_column, own_row, reduce_rows, rows_for,
    rows_of, write_rows, write_tile,
};
use super::terms::{Pair, are_beyond, height, key_of, limited, pair_of_keys, pair_of_queries, query_of, span_of};
use super::visibility::{CubeTask, hide, hide_by_key, list_of, place, row_number};
use crate::contract::visibility::TILE;
use crate::engine::dropout::gpu::weights::{draws_of, factor};

/// Products of context and gradient, for each query.
#[cube(launch)]
pub(super) fn dots<F: Float>(context: &Tensor<F>, gradient: &Tensor<F>, dots: &mut Tensor<f32>, #[define(F)] _number: ElemType) {
    let (row, head) = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let query = CUBE_POS_X as usize * TILE + UNIT_POS as usize;
    let length = context.shape(2);
    if query < length {
        let of_context = row * context.stride(0) + head * context.stride(1) + query * context.stride(2);
        let of_gradient = row * gradient.stride(0) + head * gradient.stride(1) + query * gradient.stride(2);
        let mut dot = 0.0f32;
        for column in 0..context.shape(3) {
            dot += f32::cast_from(context[of_context + column]) * f32::cast_from(gradient[of_gradient + column]);
        }
        dots[(row * context.shape(1) + head) * length + query] = dot;
    }
}

/// Logit gradients of a pair of tiles with query rows and the mask at `mask`. Span gradients are added to `of_spans` `[rows]`: a key exactly at the end of a
/// ramp has no weight, and its hypothetical weight at factor 1 is the slope by that factor.
#[cube]
pub(super) fn slopes_of_tile<F: Float, N: Size>(
    slopes: &mut Array<f32>,
    of_spans: &mut Array<f32>,
    room: &mut SharedMemory,
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    pair: &Pair,
    mask: usize,
    #[comptime] form: KernelConfig,
) {
    let rows = comptime!(form.rows);
    let (queries, keys, values, gradient) = (&inputs.queries, &inputs.keys, &inputs.values, &reverse.gradient);
    let of_queries = rows_of(queries, pair.row, pair.head, pair.queries);
    let of_gradient = rows_of(gradient, pair.row, pair.head, pair.queries);
    let of_values = rows_for(values, queries.shape(1), pair.row, pair.head, pair.keys);
    let mut logits = Array::<f32>::new(comptime!(rows * COLUMNS));
    if comptime!(form.made.content) {
        let of_keys = rows_for(keys, queries.shape(1), pair.row, pair.head, pair.keys);
        add_products_of_rows(&mut logits, room, queries, &of_queries, keys, &of_keys, rows);
    }
    add_products_of_rows(slopes, room, gradient, &of_gradient, values, &of_values, rows);
    add_terms(&mut logits, room, inputs, pair, false, form);
    hide(&mut logits, &inputs.tiles, mask, rows);
    let place = CubeTask { row: pair.row, head: pair.head, tile: pair.queries, block: 0usize };
    #[unroll]
    for i in 0..rows {
        let own = own_row(i, rows);
        let index = query_of(pair, i, 0usize, false, rows);
        let query = row_number(queries, &place, index);
        let span = span_of(inputs, pair, index, form);
        let (log_sum, dot) = (reverse.log_sum_exp[query], reverse.dots[query]);
        let draws = draws_of(&inputs.offsets, query, comptime!(form.drops));
        #[unroll]
        for j in 0..COLUMNS {
            let key = key_of(pair, i, j, false, rows);
            let (score, mut slope) = (logits[i * COLUMNS + j], slopes[i * COLUMNS + j]);
            if comptime!(form.drops) {
                slope *= factor(&inputs.dropout, &draws, key);
            }
            slope -= dot;
            let mut logit = score;
            if comptime!(form.made.spans) {
                let height = height(&inputs.ends, span, index, key);
                logit = limited(score, height);
                let has_slope = height >= 0.0f32 && height <= 1.0f32 && score > LOWEST && own < of_queries.count;
                of_spans[i] += select(has_slope, min(score - log_sum, inputs.ends.greatest).exp() * slope, 0.0f32);
            }
            let seen = logit > LOWEST && own < of_queries.count;
            slopes[i * COLUMNS + j] = select(seen, (logit - log_sum).exp(), 0.0f32) * slope;
        }
    }
}

/// A cube computes `factor_block` columns of the gradient of a query tile, `relative_block` columns of that of their distance factors, and that of their spans,
/// `[B, H, Q, 1]`.
#[cube(launch)]
pub(super) fn gradient_of_queries<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    result: &mut Tensor<F>,
    of_relative: ComptimeOption<&mut Tensor<F>>,
    of_spans: ComptimeOption<&mut Tensor<f32>>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.factor_block, form.rows));
    let (queries, keys, tiles) = (&inputs.queries, &inputs.keys, &inputs.tiles);
    let place = place(comptime!(form.blocks));
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let mut room = SharedMemory::new();
    let mut sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    let relative_wide = comptime!(form.relative_block);
    let mut relative_sums = Array::<Four>::new(comptime!(fours_of(relative_wide, rows)));
    let mut span_sums = Array::<f32>::new(rows);
    let list = list_of(&inputs.lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    while at < end {
        let pair = pair_of_queries(&place, tiles[at] as usize);
        if !are_beyond(inputs, &pair, form) {
            let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
            slopes_of_tile(&mut slopes, &mut span_sums, &mut room, inputs, reverse, &pair, tiles[at + 1] as usize, form);
            if comptime!(form.made.content) {
                sync_cube();
                write_tile(&mut room, &slopes, rows);
                let of_keys = rows_for(keys, queries.shape(1), place.row, place.head, pair.keys);
                add_product_of_tile(&mut sums, &mut room, keys, &of_keys, place.block * wide, wide, rows);
            }
            if comptime!(form.made.relative) {
                let column = place.block * relative_wide;
                let (length, table) = (queries.shape(2), inputs.table.as_ref().unwrap());
                add_products_by_distance(&mut relative_sums, &mut room, &slopes, length, table, &pair, column, relative_wide, rows);
            }
        }
        at += 2;
    }
    let first = row_number(queries, &place, place.tile * TILE);
    if comptime!(form.made.content) {
        write_rows(result, first, of_queries.count, &sums, place.block * wide, wide, rows);
    }
    if comptime!(form.made.relative) {
        let of_relative = of_relative.unwrap();
        write_rows(of_relative, first, of_queries.count, &relative_sums, place.block * relative_wide, relative_wide, rows);
    }
    if comptime!(form.made.spans) {
        let of_spans = of_spans.unwrap();
        reduce_rows(&mut span_sums, &mut room, rows, true, comptime!(form.planes));
        #[unroll]
        for i in 0..rows {
            let own = own_row(i, rows);
            if UNIT_POS_X == 0 && place.block == 0 && own < of_queries.count {
                of_spans[first + own] = span_sums[i] / inputs.ends.width;
            }
        }
    }
}

/// A cube computes `factor_block` columns of the gradient of a key tile, and `value_block` columns of that of their values: sums over the heads that share
/// them. Tile rows are keys and columns are queries.
#[cube(launch)]
pub(super) fn gradient_of_keys_and_values<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    result_of_keys: &mut Tensor<F>,
    result_of_values: &mut Tensor<F>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let (factor_block, value_block, rows) = comptime!((form.factor_block, form.value_block, form.rows));
    let (queries, keys, values, tiles) = (&inputs.queries, &inputs.keys, &inputs.values, &inputs.tiles);
    let gradient = &reverse.gradient;
    let place = place(comptime!(form.blocks));
    let of_keys = rows_of(keys, place.row, place.head, place.tile);
    let of_values = rows_of(values, place.row, place.head, place.tile);
    let mut room = SharedMemory::new();
    let mut key_sums = Array::<Four>::new(comptime!(fours_of(factor_block, rows)));
    let mut value_sums = Array::<Four>::new(comptime!(fours_of(value_block, rows)));
    let group = queries.shape(1) / keys.shape(1);
    for member in 0..group {
        let own = CubeTask { row: place.row, head: place.head * group + member, tile: place.tile, block: place.block };
        let list = list_of(&inputs.lists, &own);
        let end = tiles[list + 1] as usize;
        let mut at = tiles[list] as usize;
        while at < end {
            let query_tile = tiles[at] as usize;
            let pair = pair_of_keys(&own, query_tile);
            if !are_beyond(inputs, &pair, form) {
                let of_queries = rows_of(queries, place.row, own.head, query_tile);
                let of_gradient = rows_of(gradient, place.row, own.head, query_tile);
                let mut weights = Array::<f32>::new(comptime!(rows * COLUMNS));
                let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
                if comptime!(form.made.content) {
                    add_products_of_rows(&mut weights, &mut room, keys, &of_keys, queries, &of_queries, rows);
                }
                add_products_of_rows(&mut slopes, &mut room, values, &of_values, gradient, &of_gradient, rows);
                add_terms(&mut weights, &mut room, inputs, &pair, true, form);
                hide_by_key(&mut weights, tiles, tiles[at + 1] as usize, rows);
                #[unroll]
                for j in 0..COLUMNS {
                    let column = own_column(j);
                    let query = row_number(queries, &own, query_tile * TILE + column);
                    let (log_sum, dot) = (reverse.log_sum_exp[query], reverse.dots[query]);
                    let draws = draws_of(&inputs.offsets, query, comptime!(form.drops));
                    let span = span_of(inputs, &pair, query_tile * TILE + column, form);
                    #[unroll]
                    for i in 0..rows {
                        let (mut logit, mut slope) = (weights[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                        if comptime!(form.made.spans) {
                            let key = key_of(&pair, i, j, true, rows);
                            logit = limited(logit, height(&inputs.ends, span, query_tile * TILE + column, key));
                        }
                        let seen = logit > LOWEST && column < of_queries.count;
                        let mut weight = select(seen, (logit - log_sum).exp(), 0.0f32);
                        slopes[i * COLUMNS + j] = weight;
                        if comptime!(form.drops) {
                            let kept = factor(&inputs.dropout, &draws, place.tile * TILE + own_row(i, rows));
                            slope *= kept;
                            weight *= kept;
                        }
                        slopes[i * COLUMNS + j] *= slope - dot;
                        weights[i * COLUMNS + j] = weight;
                    }
                }
                sync_cube();
                write_tile(&mut room, &weights, rows);
                let column = place.block * value_block;
                add_product_of_tile(&mut value_sums, &mut room, gradient, &of_gradient, column, value_block, rows);
                if comptime!(form.made.content) {
                    sync_cube();
                    write_tile(&mut room, &slopes, rows);
                    let column = place.block * factor_block;
                    add_product_of_tile(&mut key_sums, &mut room, queries, &of_queries, column, factor_block, rows);
                }
            }
            at += 2;
        }
    }
    let first = row_number(keys, &place, place.tile * TILE);
    if comptime!(form.made.content) {
        write_rows(result_of_keys, first, of_keys.count, &key_sums, place.block * factor_block, factor_block, rows);
    }
    write_rows(result_of_values, first, of_keys.count, &value_sums, place.block * value_block, value_block, rows);
}
