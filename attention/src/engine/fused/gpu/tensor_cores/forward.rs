//! The context and the log-sum-exp (Dao 2023, algorithm 1).

use cubecl::ir::{ElemType, FastMath};
use cubecl::prelude::*;

use super::super::UNSEEN;
use super::super::products::{LOWEST, rows_for, rows_of};
use super::super::visibility::{Lists, list_of, place, row_number};
use super::TensorCoreConfig;
use super::fragments::{
    Eight, Two, add_product_of_weights, add_products_of_rows, copy_tile, eights, fetch, own_column, own_row, put, share, write_rows,
};
use crate::contract::visibility::TILE;
use crate::engine::dropout::gpu::weights::{Dropout, draws_of, factor};

/// Fragments of the logits of a plane's rows for a tile of keys.
const FRAGMENTS: usize = TILE / 8;

/// Maximum of an empty row: far above hidden logits, whose exponentials are therefore 0.
const NOTHING: f32 = LOWEST / 16.0;

/// A cube computes the context of a tile of queries.
#[cube(launch, fast_math = FastMath::all())]
pub(super) fn attend<F: Float>(
    queries: &Tensor<Eight>,
    keys: &Tensor<Eight>,
    values: &Tensor<Eight>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    context: &mut Tensor<Two<F>>,
    log_sum_exp: &mut Tensor<f32>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] wide: TensorCoreConfig,
    #[define(F)] _number: ElemType,
) {
    let place = place(1usize);
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let mut query_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut key_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut value_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.value)));
    copy_tile(&mut query_room, queries, &of_queries, comptime!(wide.factor));
    let mut sums = Array::<Two<f32>>::new(comptime!(wide.value / 4));
    let mut totals = Array::<f32>::new(2usize);
    let mut tops = Array::<f32>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        tops[i] = NOTHING.runtime();
    }
    let list = list_of(&lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    let mut next_keys = Array::<Eight>::new(comptime!(share(wide.factor)));
    let mut next_values = Array::<Eight>::new(comptime!(share(wide.value)));
    if at < end {
        let tile = tiles[at] as usize;
        fetch(&mut next_keys, keys, &rows_for(keys, queries.shape(1), place.row, place.head, tile), comptime!(wide.factor));
        fetch(&mut next_values, values, &rows_for(values, queries.shape(1), place.row, place.head, tile), comptime!(wide.value));
    }
    while at < end {
        let key_tile = tiles[at] as usize;
        sync_cube();
        put(&mut key_room, &next_keys, comptime!(wide.factor));
        put(&mut value_room, &next_values, comptime!(wide.value));
        sync_cube();
        if at + 2 < end {
            let tile = tiles[at + 2] as usize;
            fetch(&mut next_keys, keys, &rows_for(keys, queries.shape(1), place.row, place.head, tile), comptime!(wide.factor));
            fetch(&mut next_values, values, &rows_for(values, queries.shape(1), place.row, place.head, tile), comptime!(wide.value));
        }
        let mut weights = Array::<Two<f32>>::new(comptime!(2 * FRAGMENTS));
        add_products_of_rows::<F>(&mut weights, &query_room, &key_room, 0usize, FRAGMENTS, comptime!(wide.factor));
        hide(&mut weights, tiles, tiles[at + 1] as usize, 0usize, FRAGMENTS);
        #[unroll]
        for i in 0..2usize {
            let mut largest = tops[i];
            #[unroll]
            for j in 0..FRAGMENTS {
                let two = weights[comptime!(2 * j + i)];
                largest = max(largest, max(two.extract(0usize), two.extract(1usize)));
            }
            largest = max(largest, plane_shuffle_xor(largest, 1u32));
            largest = max(largest, plane_shuffle_xor(largest, 2u32));
            let kept = (tops[i] - largest).exp();
            tops[i] = largest;
            totals[i] *= kept;
            #[unroll]
            for j in 0..comptime!(wide.value / 8) {
                sums[comptime!(2 * j + i)] *= Two::new(kept);
            }
            let query = row_number(queries, &place, place.tile * TILE + own_row(i));
            let draws = draws_of(offsets, query, comptime!(wide.drops));
            #[unroll]
            for j in 0..FRAGMENTS {
                let mut two = weights[comptime!(2 * j + i)];
                #[unroll]
                for k in 0..2usize {
                    let mut weight = (two.extract(k) - largest).exp();
                    totals[i] += weight;
                    if comptime!(wide.drops) {
                        weight *= factor(&dropout, &draws, key_tile * TILE + own_column(j, k));
                    }
                    two.insert(k, weight);
                }
                weights[comptime!(2 * j + i)] = two;
            }
        }
        add_product_of_weights::<F>(&mut sums, &weights, &value_room, 0usize, FRAGMENTS, comptime!(wide.value));
        at += 2;
    }
    #[unroll]
    for i in 0..2usize {
        let mut total = totals[i];
        total += plane_shuffle_xor(total, 1u32);
        total += plane_shuffle_xor(total, 2u32);
        let sees = total > 0.0f32;
        let share = select(sees, 1.0f32 / total, 0.0f32);
        #[unroll]
        for j in 0..comptime!(wide.value / 8) {
            sums[comptime!(2 * j + i)] *= Two::new(share);
        }
        let query = own_row(i);
        if own_column(0usize, 0usize) == 0 && query < of_queries.count {
            let number = row_number(queries, &place, place.tile * TILE + query);
            log_sum_exp[number] = select(sees, tops[i] + total.ln(), UNSEEN);
        }
    }
    let first = row_number(queries, &place, place.tile * TILE);
    write_rows::<F>(context, first, of_queries.count, &sums, comptime!(wide.value));
}

/// Sets the logits of hidden pairs to the lowest one; rows are queries, and columns are the keys of `fragments` fragments from key `first` of the tile on.
#[cube]
pub(super) fn hide(logits: &mut Array<Two<f32>>, tiles: &Tensor<u32>, mask: usize, #[comptime] first: usize, #[comptime] fragments: usize) {
    if mask != 0 {
        #[unroll]
        for i in 0..2usize {
            #[unroll]
            for j in 0..fragments {
                // Four fragments share the word, which is read once.
                let word = tiles[mask + 2 * own_row(i) + comptime!((first + 8 * j) / 32)];
                let bits = word >> (UNIT_POS_X % 4 * 2 + comptime!(((first + 8 * j) % 32) as u32));
                let mut two = logits[comptime!(2 * j + i)];
                #[unroll]
                for k in 0..2usize {
                    if (bits >> comptime!(k as u32)) & 1u32 == 0u32 {
                        two.insert(k, LOWEST.runtime());
                    }
                }
                logits[comptime!(2 * j + i)] = two;
            }
        }
    }
}
