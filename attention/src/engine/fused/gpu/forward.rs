//! The context and the log-sum-exp: the online softmax of Milakov and Gimelshein 2018 over tiles, as in FlashAttention (Dao et al. 2022, algorithm 1).

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::UNSEEN;
use super::inputs::Inputs;
use super::launch::KernelConfig;
use super::logits::add_terms;
use super::products::{
    COLUMNS, Four, LOWEST, SWEEP, SharedMemory, add_product_of_tile, add_products_of_rows, fours_of, own_column, own_row, reduce_rows,
    rows_for, rows_of, write_rows, write_tile,
};
use super::terms::{are_beyond, limit, pair_of_queries};
use super::visibility::{hide, list_of, place, row_number};
use crate::contract::visibility::TILE;
use crate::engine::dropout::gpu::weights::{draws_of, factor};

/// A cube computes `value_block` columns of the context of a tile of queries.
#[cube(launch)]
pub(super) fn attend<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    context: &mut Tensor<F>,
    log_sum_exp: &mut Tensor<f32>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.value_block, form.rows));
    let fours = comptime!(wide / SWEEP);
    let (queries, keys, values, tiles) = (&inputs.queries, &inputs.keys, &inputs.values, &inputs.tiles);
    let place = place(comptime!(form.blocks));
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let mut room = SharedMemory::new();
    let mut sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    let mut totals = Array::<f32>::new(rows);
    let mut tops = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        tops[i] = LOWEST.runtime();
    }
    let list = list_of(&inputs.lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    while at < end {
        let key_tile = tiles[at] as usize;
        let pair = pair_of_queries(&place, key_tile);
        if !are_beyond(inputs, &pair, form) {
            let mut weights = Array::<f32>::new(comptime!(rows * COLUMNS));
            if comptime!(form.made.content) {
                let of_keys = rows_for(keys, queries.shape(1), place.row, place.head, key_tile);
                add_products_of_rows(&mut weights, &mut room, queries, &of_queries, keys, &of_keys, rows);
            }
            add_terms(&mut weights, &mut room, inputs, &pair, false, form);
            hide(&mut weights, tiles, tiles[at + 1] as usize, rows);
            limit(&mut weights, inputs, &pair, form);
            let mut largest = Array::<f32>::new(rows);
            #[unroll]
            for i in 0..rows {
                largest[i] = tops[i];
                #[unroll]
                for j in 0..COLUMNS {
                    largest[i] = max(largest[i], weights[i * COLUMNS + j]);
                }
            }
            reduce_rows(&mut largest, &mut room, rows, false, comptime!(form.planes));
            #[unroll]
            for i in 0..rows {
                let kept = (tops[i] - largest[i]).exp();
                tops[i] = largest[i];
                totals[i] *= kept;
                #[unroll]
                for j in 0..fours {
                    sums[i * fours + j] *= Four::new(kept);
                }
                let query = row_number(queries, &place, place.tile * TILE + own_row(i, rows));
                let draws = draws_of(&inputs.offsets, query, comptime!(form.drops));
                #[unroll]
                for j in 0..COLUMNS {
                    let logit = weights[i * COLUMNS + j];
                    let mut weight = select(logit > LOWEST, (logit - tops[i]).exp(), 0.0f32);
                    totals[i] += weight;
                    if comptime!(form.drops) {
                        weight *= factor(&inputs.dropout, &draws, key_tile * TILE + own_column(j));
                    }
                    weights[i * COLUMNS + j] = weight;
                }
            }
            write_tile(&mut room, &weights, rows);
            let of_values = rows_for(values, queries.shape(1), place.row, place.head, key_tile);
            add_product_of_tile(&mut sums, &mut room, values, &of_values, place.block * wide, wide, rows);
        }
        at += 2;
    }
    reduce_rows(&mut totals, &mut room, rows, true, comptime!(form.planes));
    #[unroll]
    for i in 0..rows {
        let mut sees = totals[i] > 0.0f32;
        if comptime!(form.made.spans) {
            // A bias may hide all keys within a span.
            sees = sees && tops[i] > inputs.ends.least_visible;
        }
        let share = select(sees, 1.0f32 / totals[i], 0.0f32);
        #[unroll]
        for j in 0..fours {
            sums[i * fours + j] *= Four::new(share);
        }
        let query = own_row(i, rows);
        if UNIT_POS_X == 0 && place.block == 0 && query < of_queries.count {
            let number = row_number(queries, &place, place.tile * TILE + query);
            log_sum_exp[number] = select(sees, tops[i] + totals[i].ln(), UNSEEN);
        }
    }
    let first = row_number(queries, &place, place.tile * TILE);
    write_rows(context, first, of_queries.count, &sums, place.block * wide, wide, rows);
}
