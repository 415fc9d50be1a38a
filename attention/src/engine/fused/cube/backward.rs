//! Gradients: weights are recomputed from the log-sum-exp, tile by tile (Dao 2023, algorithm 2). Nothing is added by several cubes to one place, so that
//! sums have one order.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::Form;
use super::products::{
    COLUMNS, Four, LOWEST, Room, add_product_of_tile, add_products_of_rows, fours_of, own_column, own_row, rows_of, write_rows, write_tile,
};
use super::terms::{add_bias, pair_of_keys, pair_of_queries};
use super::weights::{Lists, Place, hide, hide_by_key, list_of, place, row_number};
use crate::dropout::cube::weights::{Dropout, draws_of, factor};
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

/// Gradients of the logits of the tile of queries of a cube, whose rows they are, and one of keys, with the mask at place `mask`.
#[cube]
pub(super) fn slopes_of_tile<F: Float, N: Size>(
    slopes: &mut Array<f32>,
    room: &mut Room,
    queries: &Tensor<Vector<F, N>>,
    keys: &Tensor<Vector<F, N>>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    offsets: &Tensor<u32>,
    tiles: &Tensor<u32>,
    bias: ComptimeOption<&Tensor<F>>,
    scale: ComptimeOption<&Tensor<F>>,
    place: &Place,
    key_tile: usize,
    mask: usize,
    dropout: &Dropout,
    #[comptime] form: Form,
) {
    let rows = comptime!(form.rows);
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let of_gradient = rows_of(gradient, place.row, place.head, place.tile);
    let of_values = rows_of(values, place.row, place.head, key_tile);
    let mut logits = Array::<f32>::new(comptime!(rows * COLUMNS));
    if comptime!(form.made.content) {
        let of_keys = rows_of(keys, place.row, place.head, key_tile);
        add_products_of_rows(&mut logits, room, queries, &of_queries, keys, &of_keys, rows);
    }
    add_products_of_rows(slopes, room, gradient, &of_gradient, values, &of_values, rows);
    add_bias(&mut logits, bias, scale, &pair_of_queries(place, key_tile), false, form);
    hide(&mut logits, tiles, mask, rows);
    #[unroll]
    for i in 0..rows {
        let own = own_row(i, rows);
        let query = row_number(queries, place, place.tile * TILE + own);
        let (log_sum, dot) = (log_sum_exp[query], dots[query]);
        let draws = draws_of(offsets, query, comptime!(form.drops));
        #[unroll]
        for j in 0..COLUMNS {
            let (logit, mut slope) = (logits[i * COLUMNS + j], slopes[i * COLUMNS + j]);
            let seen = logit > LOWEST && own < of_queries.count;
            let weight = select(seen, (logit - log_sum).exp(), 0.0f32);
            if comptime!(form.drops) {
                slope *= factor(dropout, &draws, key_tile * TILE + own_column(j));
            }
            slopes[i * COLUMNS + j] = weight * (slope - dot);
        }
    }
}

/// A cube computes `factor_block` columns of the gradient of a tile of queries.
#[cube(launch)]
pub(super) fn gradient_of_queries<F: Float, N: Size>(
    queries: &Tensor<Vector<F, N>>,
    keys: &Tensor<Vector<F, N>>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    bias: ComptimeOption<&Tensor<F>>,
    scale: ComptimeOption<&Tensor<F>>,
    result: &mut Tensor<F>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.factor_block, form.rows));
    let place = place(comptime!(form.blocks));
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let mut room = Room::new();
    let mut sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    let list = list_of(&lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    while at < end {
        let key_tile = tiles[at] as usize;
        let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
        slopes_of_tile(
            &mut slopes,
            &mut room,
            queries,
            keys,
            values,
            gradient,
            log_sum_exp,
            dots,
            offsets,
            tiles,
            bias,
            scale,
            &place,
            key_tile,
            tiles[at + 1] as usize,
            &dropout,
            form,
        );
        sync_cube();
        write_tile(&mut room, &slopes, rows);
        let of_keys = rows_of(keys, place.row, place.head, key_tile);
        add_product_of_tile(&mut sums, &mut room, keys, &of_keys, place.block * wide, wide, rows);
        at += 2;
    }
    let first = row_number(queries, &place, place.tile * TILE);
    write_rows(result, first, of_queries.count, &sums, place.block * wide, wide, rows);
}

/// A cube computes `factor_block` columns of the gradient of a tile of keys, and `value_block` columns of that of their values. Rows of its tiles are
/// keys and columns are queries.
#[cube(launch)]
pub(super) fn gradient_of_keys_and_values<F: Float, N: Size>(
    queries: &Tensor<Vector<F, N>>,
    keys: &Tensor<Vector<F, N>>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    bias: ComptimeOption<&Tensor<F>>,
    scale: ComptimeOption<&Tensor<F>>,
    result_of_keys: &mut Tensor<F>,
    result_of_values: &mut Tensor<F>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let (factor_block, value_block, rows) = comptime!((form.factor_block, form.value_block, form.rows));
    let place = place(comptime!(form.blocks));
    let of_keys = rows_of(keys, place.row, place.head, place.tile);
    let of_values = rows_of(values, place.row, place.head, place.tile);
    let mut room = Room::new();
    let mut key_sums = Array::<Four>::new(comptime!(fours_of(factor_block, rows)));
    let mut value_sums = Array::<Four>::new(comptime!(fours_of(value_block, rows)));
    let list = list_of(&lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    while at < end {
        let query_tile = tiles[at] as usize;
        let of_queries = rows_of(queries, place.row, place.head, query_tile);
        let of_gradient = rows_of(gradient, place.row, place.head, query_tile);
        let mut weights = Array::<f32>::new(comptime!(rows * COLUMNS));
        let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
        if comptime!(form.made.content) {
            add_products_of_rows(&mut weights, &mut room, keys, &of_keys, queries, &of_queries, rows);
        }
        add_products_of_rows(&mut slopes, &mut room, values, &of_values, gradient, &of_gradient, rows);
        add_bias(&mut weights, bias, scale, &pair_of_keys(&place, query_tile), true, form);
        hide_by_key(&mut weights, tiles, tiles[at + 1] as usize, rows);
        #[unroll]
        for j in 0..COLUMNS {
            let column = own_column(j);
            let query = row_number(queries, &place, query_tile * TILE + column);
            let (log_sum, dot) = (log_sum_exp[query], dots[query]);
            let draws = draws_of(offsets, query, comptime!(form.drops));
            #[unroll]
            for i in 0..rows {
                let (logit, mut slope) = (weights[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                let seen = logit > LOWEST && column < of_queries.count;
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
        if comptime!(form.made.content) {
            sync_cube();
            write_tile(&mut room, &slopes, rows);
            let column = place.block * factor_block;
            add_product_of_tile(&mut key_sums, &mut room, queries, &of_queries, column, factor_block, rows);
        }
        at += 2;
    }
    let first = row_number(keys, &place, place.tile * TILE);
    if comptime!(form.made.content) {
        write_rows(result_of_keys, first, of_keys.count, &key_sums, place.block * factor_block, factor_block, rows);
    }
    write_rows(result_of_values, first, of_keys.count, &value_sums, place.block * value_block, value_block, rows);
}
