//! Gradients: weights are recomputed from the log-sum-exp, tile by tile (Dao 2023, algorithm 2). Nothing is added by several cubes to one place, so that
//! sums have one order.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::Form;
use super::products::{
    COLUMNS, Four, LOWEST, Room, add_product_of_tile, add_products_of_rows, fours_of, own_column, own_row, reduce_rows, rows_of,
    write_rows, write_tile,
};
use super::terms::{At, Terms, add_gradients_of_queries, add_logits, add_scores, height, limited, reached};
use super::weights::{Dropout, Lists, draws_of, factor, list_of, place, row_number};
use crate::visibility::TILE;

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

/// Gradients by query.
#[derive(CubeType, CubeLaunch)]
pub(super) struct ByQuery<F: Float> {
    /// That of the queries.
    queries: ComptimeOption<OwnedTensor<F>>,
    /// That of the queries of scores by distance.
    relative_queries: ComptimeOption<OwnedTensor<F>>,
    /// That of the spans, for each query apart.
    spans: ComptimeOption<OwnedTensor<f32>>,
}

/// A cube computes gradients of a tile of queries: `factor_block` columns of that of the queries themselves, `relative_block` columns of that of the
/// queries of scores by distance.
#[cube(launch)]
pub(super) fn gradients_of_queries<F: Float, N: Size>(
    terms: &Terms<F, N>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    results: &mut ByQuery<F>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.factor_block, form.rows));
    let place = place(comptime!(form.blocks));
    let of_gradient = rows_of(gradient, place.row, place.head, place.tile);
    let mut room = Room::new();
    let mut sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    let relative_wide = comptime!(form.relative_block);
    let mut relative_sums = Array::<Four>::new(comptime!(fours_of(relative_wide, rows)));
    let mut of_spans = Array::<f32>::new(rows);
    let list = list_of(&lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = reached(terms, tiles, &place, tiles[list] as usize, end, false);
    while at < end {
        let key_tile = tiles[at] as usize;
        let tile = At { row: place.row, head: place.head, queries: place.tile, keys: key_tile };
        let of_values = rows_of(values, place.row, place.head, key_tile);
        let mut logits = Array::<f32>::new(comptime!(rows * COLUMNS));
        let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
        add_scores(&mut logits, &mut room, terms, tiles, &tile, tiles[at + 1] as usize, rows, false);
        add_products_of_rows(&mut slopes, &mut room, gradient, &of_gradient, values, &of_values, rows);
        #[unroll]
        for i in 0..rows {
            let query = row_number(log_sum_exp, &place, place.tile * TILE + own_row(i, rows));
            let (log_sum, dot) = (log_sum_exp[query], dots[query]);
            let draws = draws_of(offsets, query, comptime!(form.drops));
            #[unroll]
            for j in 0..COLUMNS {
                let (mut logit, mut slope) = (logits[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                let key = key_tile * TILE + own_column(j);
                if comptime!(form.drops) {
                    slope *= factor(&dropout, &draws, key);
                }
                #[comptime]
                if let ComptimeOption::Some(spans) = &terms.spans {
                    let height = height(spans, &tile, place.tile * TILE + own_row(i, rows), key);
                    // What the key would weigh with the factor 1 is the slope by its factor: at height 0 it has a slope and no weight.
                    let ratio = min(logit - log_sum, spans.greatest_log_ratio).exp();
                    let has_slope = logit > LOWEST && height >= 0.0f32 && height <= 1.0f32;
                    of_spans[i] += select(has_slope, ratio * (slope - dot) / spans.width, 0.0f32);
                    logit = limited(logit, height);
                }
                let weight = select(logit > LOWEST, (logit - log_sum).exp(), 0.0f32);
                slopes[i * COLUMNS + j] = weight * (slope - dot);
            }
        }
        #[comptime]
        if let ComptimeOption::Some(content) = &terms.content {
            sync_cube();
            write_tile(&mut room, &slopes, rows);
            let of_keys = rows_of(&content.keys, place.row, place.head, key_tile);
            add_product_of_tile(&mut sums, &mut room, &content.keys, &of_keys, place.block * wide, wide, rows);
        }
        #[comptime]
        if let ComptimeOption::Some(relative) = &terms.relative {
            let column = place.block * relative_wide;
            add_gradients_of_queries(&mut relative_sums, &mut room, relative, &tile, &slopes, column, relative_wide, rows);
        }
        at = reached(terms, tiles, &place, at + 2, end, false);
    }
    let first = row_number(log_sum_exp, &place, place.tile * TILE);
    #[comptime]
    if let ComptimeOption::Some(result) = &mut results.queries {
        write_rows(result, first, of_gradient.count, &sums, place.block * wide, wide, rows);
    }
    #[comptime]
    if let ComptimeOption::Some(result) = &mut results.relative_queries {
        write_rows(result, first, of_gradient.count, &relative_sums, place.block * relative_wide, relative_wide, rows);
    }
    #[comptime]
    if let ComptimeOption::Some(result) = &mut results.spans {
        sync_cube();
        reduce_rows(&mut of_spans, &mut room, rows, true, comptime!(form.planes));
        #[unroll]
        for i in 0..rows {
            let query = own_row(i, rows);
            if UNIT_POS_X == 0 && place.block == 0 && query < of_gradient.count {
                result[row_number(log_sum_exp, &place, place.tile * TILE + query)] = of_spans[i];
            }
        }
    }
}

/// A cube computes `factor_block` columns of the gradient of a tile of keys, and `value_block` columns of that of their values. Rows of its tiles are
/// keys and columns are queries.
#[cube(launch)]
pub(super) fn gradient_of_keys_and_values<F: Float, N: Size>(
    terms: &Terms<F, N>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    result_of_keys: &mut ComptimeOption<OwnedTensor<F>>,
    result_of_values: &mut Tensor<F>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let (factor_block, value_block, rows) = comptime!((form.factor_block, form.value_block, form.rows));
    let place = place(comptime!(form.blocks));
    let of_values = rows_of(values, place.row, place.head, place.tile);
    let mut room = Room::new();
    let mut key_sums = Array::<Four>::new(comptime!(fours_of(factor_block, rows)));
    let mut value_sums = Array::<Four>::new(comptime!(fours_of(value_block, rows)));
    let list = list_of(&lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = reached(terms, tiles, &place, tiles[list] as usize, end, true);
    while at < end {
        let query_tile = tiles[at] as usize;
        let tile = At { row: place.row, head: place.head, queries: query_tile, keys: place.tile };
        let of_gradient = rows_of(gradient, place.row, place.head, query_tile);
        let mut weights = Array::<f32>::new(comptime!(rows * COLUMNS));
        let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
        add_logits(&mut weights, &mut room, terms, tiles, &tile, tiles[at + 1] as usize, rows, true);
        if comptime!(form.has_content) {
            add_products_of_rows(&mut slopes, &mut room, values, &of_values, gradient, &of_gradient, rows);
        }
        #[unroll]
        for j in 0..COLUMNS {
            let column = own_column(j);
            let query = row_number(log_sum_exp, &place, query_tile * TILE + column);
            let (log_sum, dot) = (log_sum_exp[query], dots[query]);
            let draws = draws_of(offsets, query, comptime!(form.drops));
            #[unroll]
            for i in 0..rows {
                let (logit, mut slope) = (weights[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                let seen = logit > LOWEST && column < of_gradient.count;
                let mut weight = select(seen, (logit - log_sum).exp(), 0.0f32);
                slopes[i * COLUMNS + j] = weight;
                if comptime!(form.drops) {
                    let kept = factor(&dropout, &draws, place.tile * TILE + own_row(i, rows));
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
        #[comptime]
        if let ComptimeOption::Some(content) = &terms.content {
            sync_cube();
            write_tile(&mut room, &slopes, rows);
            let of_queries = rows_of(&content.queries, place.row, place.head, query_tile);
            let column = place.block * factor_block;
            add_product_of_tile(&mut key_sums, &mut room, &content.queries, &of_queries, column, factor_block, rows);
        }
        at = reached(terms, tiles, &place, at + 2, end, true);
    }
    let first = row_number(values, &place, place.tile * TILE);
    #[comptime]
    if let ComptimeOption::Some(result) = result_of_keys {
        write_rows(result, first, of_values.count, &key_sums, place.block * factor_block, factor_block, rows);
    }
    write_rows(result_of_values, first, of_values.count, &value_sums, place.block * value_block, value_block, rows);
}
