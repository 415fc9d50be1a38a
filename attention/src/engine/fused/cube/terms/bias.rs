//! A bias, and its gradient: a cube meets one tile of queries and keys in each row of the batch and head that shares it, one after another, so that the sum
//! over them has one order.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::Form;
use super::super::products::{COLUMNS, LOWEST, Room, add_products_of_rows, own_column, own_row, rows_of};
use super::super::weights::{Dropout, Lists, Place, draws_of, factor, list_at, place_in_list, row_number};
use super::{At, Terms, add_logits};
use crate::visibility::TILE;

/// Adds the bias of a tile to `logits` `[rows, COLUMNS]`.
#[cube]
pub(super) fn add<F: Float>(logits: &mut Array<f32>, bias: &Tensor<F>, at: &At, #[comptime] rows: usize, #[comptime] by_key: bool) {
    let start = at.row % bias.shape(0) * bias.stride(0) + at.head % bias.shape(1) * bias.stride(1);
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (row, column) = (own_row(i, rows), own_column(j));
            let (query, key) = if comptime!(by_key) { (column, row) } else { (row, column) };
            let (query, key) = (at.queries * TILE + query, at.keys * TILE + key);
            if query < bias.shape(2) && key < bias.shape(3) {
                logits[i * COLUMNS + j] += f32::cast_from(bias[start + query * bias.stride(2) + key]);
            }
        }
    }
}

/// A cube computes a tile of the gradient of the bias `[B|1, H|1, Q, K]`: tiles of keys lie along x, those of queries along y, rows and heads along z.
#[cube(launch)]
pub(in super::super) fn gradient_of_bias<F: Float, N: Size>(
    terms: &Terms<F, N>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    result: &mut Tensor<F>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let rows = comptime!(form.rows);
    let (key_tile, query_tile, plane) = (CUBE_POS_X as usize, CUBE_POS_Y as usize, CUBE_POS_Z as usize);
    let (distinct_rows, distinct_heads) = (result.shape(0), result.shape(1));
    let (queries, keys) = (result.shape(2), result.shape(3));
    let mut room = Room::new();
    let mut sums = Array::<f32>::new(comptime!(rows * COLUMNS));
    let mut row = plane / distinct_heads;
    while row < values.shape(0) {
        let mut head = plane % distinct_heads;
        while head < values.shape(1) {
            let list = list_at(&lists, row, head, query_tile, CUBE_COUNT_Y as usize);
            let found = place_in_list(tiles, list, key_tile);
            if found != 0 {
                let at = At { row, head, queries: query_tile, keys: key_tile };
                let mut logits = Array::<f32>::new(comptime!(rows * COLUMNS));
                let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
                let of_gradient = rows_of(gradient, row, head, query_tile);
                let of_values = rows_of(values, row, head, key_tile);
                add_logits(&mut logits, &mut room, terms, tiles, &at, tiles[found + 1] as usize, rows, false);
                add_products_of_rows(&mut slopes, &mut room, gradient, &of_gradient, values, &of_values, rows);
                let place = Place { row, head, tile: query_tile, block: 0usize };
                #[unroll]
                for i in 0..rows {
                    let query = row_number(log_sum_exp, &place, query_tile * TILE + own_row(i, rows));
                    let (log_sum, dot) = (log_sum_exp[query], dots[query]);
                    let draws = draws_of(offsets, query, comptime!(form.drops));
                    #[unroll]
                    for j in 0..COLUMNS {
                        let (logit, mut slope) = (logits[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                        let weight = select(logit > LOWEST, (logit - log_sum).exp(), 0.0f32);
                        if comptime!(form.drops) {
                            slope *= factor(&dropout, &draws, key_tile * TILE + own_column(j));
                        }
                        sums[i * COLUMNS + j] += weight * (slope - dot);
                    }
                }
            }
            head += distinct_heads;
        }
        row += distinct_rows;
    }
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (query, key) = (query_tile * TILE + own_row(i, rows), key_tile * TILE + own_column(j));
            if query < queries && key < keys {
                result[(plane * queries + query) * keys + key] = F::cast_from(sums[i * COLUMNS + j]);
            }
        }
    }
}
