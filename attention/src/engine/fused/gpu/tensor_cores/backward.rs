//! Gradients (Dao 2023, algorithm 2), in two kernels so that sums have a fixed order. Each processes half a tile of the other side at a time, limited by
//! registers.

use cubecl::ir::{ElemType, FastMath};
use cubecl::prelude::*;

use super::super::UNSEEN;
use super::super::products::{LOWEST, rows_for, rows_of};
use super::super::visibility::{CubeTask, Lists, list_of, place, row_number};
use super::TensorCoreConfig;
use super::forward::hide;
use super::fragments::{
    Eight, Two, add_product_of_weights, add_products_of_rows, copy_tile, eights, fetch, own_column, own_row, put, share, write_rows,
};
use crate::contract::visibility::TILE;
use crate::engine::dropout::gpu::weights::{Dropout, draws_of, factor};

/// Tile columns processed at a time.
const HALF: usize = TILE / 2;

/// Fragments of these columns.
const FRAGMENTS: usize = HALF / 8;

/// A cube computes the gradient of a tile of queries.
#[cube(launch, fast_math = FastMath::all())]
pub(super) fn gradient_of_queries<F: Float>(
    queries: &Tensor<Eight>,
    keys: &Tensor<Eight>,
    values: &Tensor<Eight>,
    gradient: &Tensor<Eight>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    result: &mut Tensor<Two<F>>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] wide: TensorCoreConfig,
    #[define(F)] _number: ElemType,
) {
    let place = place(1usize);
    let of_queries = rows_of(queries, place.row, place.head, place.tile);
    let of_gradient = rows_of(gradient, place.row, place.head, place.tile);
    let mut query_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut gradient_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.value)));
    let mut key_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut value_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.value)));
    copy_tile(&mut query_room, queries, &of_queries, comptime!(wide.factor));
    copy_tile(&mut gradient_room, gradient, &of_gradient, comptime!(wide.value));
    let mut sums = Array::<Two<f32>>::new(comptime!(wide.factor / 4));
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
        #[unroll]
        for half in 0..2usize {
            let first = comptime!(half * HALF);
            let mut logits = Array::<Two<f32>>::new(comptime!(2 * FRAGMENTS));
            let mut slopes = Array::<Two<f32>>::new(comptime!(2 * FRAGMENTS));
            add_products_of_rows::<F>(&mut logits, &query_room, &key_room, first, FRAGMENTS, comptime!(wide.factor));
            add_products_of_rows::<F>(&mut slopes, &gradient_room, &value_room, first, FRAGMENTS, comptime!(wide.value));
            hide(&mut logits, tiles, tiles[at + 1] as usize, first, FRAGMENTS);
            #[unroll]
            for i in 0..2usize {
                let query = row_number(queries, &place, place.tile * TILE + own_row(i));
                let (log_sum, dot) = (log_sum_exp[query], dots[query]);
                let draws = draws_of(offsets, query, comptime!(wide.drops));
                #[unroll]
                for j in 0..FRAGMENTS {
                    let (logit, mut two) = (logits[comptime!(2 * j + i)], slopes[comptime!(2 * j + i)]);
                    #[unroll]
                    for k in 0..2usize {
                        let weight = (logit.extract(k) - log_sum).exp();
                        let mut slope = two.extract(k);
                        if comptime!(wide.drops) {
                            slope *= factor(&dropout, &draws, key_tile * TILE + first + own_column(j, k));
                        }
                        two.insert(k, weight * (slope - dot));
                    }
                    slopes[comptime!(2 * j + i)] = two;
                }
            }
            add_product_of_weights::<F>(&mut sums, &slopes, &key_room, first, FRAGMENTS, comptime!(wide.factor));
        }
        at += 2;
    }
    let first = row_number(queries, &place, place.tile * TILE);
    write_rows::<F>(result, first, of_queries.count, &sums, comptime!(wide.factor));
}

/// A cube computes the gradients of a key tile and its values: sums over the heads that share them. Tile rows are keys and columns are queries.
#[cube(launch, fast_math = FastMath::all())]
pub(super) fn gradient_of_keys_and_values<F: Float>(
    queries: &Tensor<Eight>,
    keys: &Tensor<Eight>,
    values: &Tensor<Eight>,
    gradient: &Tensor<Eight>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    result_of_keys: &mut Tensor<Two<F>>,
    result_of_values: &mut Tensor<Two<F>>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] wide: TensorCoreConfig,
    #[define(F)] _number: ElemType,
) {
    let place = place(1usize);
    let of_keys = rows_of(keys, place.row, place.head, place.tile);
    let of_values = rows_of(values, place.row, place.head, place.tile);
    let mut key_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut value_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.value)));
    let mut query_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.factor)));
    let mut gradient_room = Shared::<[Eight]>::new_slice(comptime!(eights(wide.value)));
    let mut sums_of_queries = Shared::<[f32]>::new_slice(comptime!(2 * TILE));
    copy_tile(&mut key_room, keys, &of_keys, comptime!(wide.factor));
    copy_tile(&mut value_room, values, &of_values, comptime!(wide.value));
    let mut key_sums = Array::<Two<f32>>::new(comptime!(wide.factor / 4));
    let mut value_sums = Array::<Two<f32>>::new(comptime!(wide.value / 4));
    let mut next_queries = Array::<Eight>::new(comptime!(share(wide.factor)));
    let mut next_gradient = Array::<Eight>::new(comptime!(share(wide.value)));
    let group = queries.shape(1) / keys.shape(1);
    for member in 0..group {
        let own = CubeTask { row: place.row, head: place.head * group + member, tile: place.tile, block: place.block };
        let list = list_of(&lists, &own);
        let end = tiles[list + 1] as usize;
        let mut at = tiles[list] as usize;
        if at < end {
            let tile = tiles[at] as usize;
            fetch(&mut next_queries, queries, &rows_of(queries, place.row, own.head, tile), comptime!(wide.factor));
            fetch(&mut next_gradient, gradient, &rows_of(gradient, place.row, own.head, tile), comptime!(wide.value));
        }
        while at < end {
            let query_tile = tiles[at] as usize;
            let of_queries = rows_of(queries, place.row, own.head, query_tile);
            sync_cube();
            put(&mut query_room, &next_queries, comptime!(wide.factor));
            put(&mut gradient_room, &next_gradient, comptime!(wide.value));
            let unit = UNIT_POS as usize;
            if unit < TILE {
                let query = row_number(queries, &own, query_tile * TILE + unit);
                // Queries past the end give no key any weight.
                sums_of_queries[2 * unit] = select(unit < of_queries.count, log_sum_exp[query], UNSEEN);
                sums_of_queries[2 * unit + 1] = dots[query];
            }
            sync_cube();
            if at + 2 < end {
                let tile = tiles[at + 2] as usize;
                fetch(&mut next_queries, queries, &rows_of(queries, place.row, own.head, tile), comptime!(wide.factor));
                fetch(&mut next_gradient, gradient, &rows_of(gradient, place.row, own.head, tile), comptime!(wide.value));
            }
            #[unroll]
            for half in 0..2usize {
                let first = comptime!(half * HALF);
                let mut weights = Array::<Two<f32>>::new(comptime!(2 * FRAGMENTS));
                let mut slopes = Array::<Two<f32>>::new(comptime!(2 * FRAGMENTS));
                add_products_of_rows::<F>(&mut weights, &key_room, &query_room, first, FRAGMENTS, comptime!(wide.factor));
                add_products_of_rows::<F>(&mut slopes, &value_room, &gradient_room, first, FRAGMENTS, comptime!(wide.value));
                hide_by_key(&mut weights, tiles, tiles[at + 1] as usize, first, FRAGMENTS);
                #[unroll]
                for j in 0..FRAGMENTS {
                    #[unroll]
                    for k in 0..2usize {
                        let column = own_column(j, k) + first;
                        let (log_sum, dot) = (sums_of_queries[2 * column], sums_of_queries[2 * column + 1]);
                        let query = row_number(queries, &own, query_tile * TILE + column);
                        let draws = draws_of(offsets, query, comptime!(wide.drops));
                        #[unroll]
                        for i in 0..2usize {
                            let (mut weight_two, mut slope_two) = (weights[comptime!(2 * j + i)], slopes[comptime!(2 * j + i)]);
                            let weight = (weight_two.extract(k) - log_sum).exp();
                            let mut slope = slope_two.extract(k);
                            let mut dropped = weight;
                            if comptime!(wide.drops) {
                                let kept = factor(&dropout, &draws, place.tile * TILE + own_row(i));
                                slope *= kept;
                                dropped *= kept;
                            }
                            weight_two.insert(k, dropped);
                            slope_two.insert(k, weight * (slope - dot));
                            weights[comptime!(2 * j + i)] = weight_two;
                            slopes[comptime!(2 * j + i)] = slope_two;
                        }
                    }
                }
                add_product_of_weights::<F>(&mut value_sums, &weights, &gradient_room, first, FRAGMENTS, comptime!(wide.value));
                add_product_of_weights::<F>(&mut key_sums, &slopes, &query_room, first, FRAGMENTS, comptime!(wide.factor));
            }
            at += 2;
        }
    }
    let first = row_number(keys, &place, place.tile * TILE);
    write_rows::<F>(result_of_keys, first, of_keys.count, &key_sums, comptime!(wide.factor));
    write_rows::<F>(result_of_values, first, of_keys.count, &value_sums, comptime!(wide.value));
}

/// [`hide`] for tiles with key rows and query columns.
#[cube]
fn hide_by_key(logits: &mut Array<Two<f32>>, tiles: &Tensor<u32>, mask: usize, #[comptime] first: usize, #[comptime] fragments: usize) {
    if mask != 0 {
        #[unroll]
        for j in 0..fragments {
            #[unroll]
            for k in 0..2usize {
                let query = own_column(j, k) + first;
                // A plane's 16 keys are in one half of the 64 bits of a query.
                let word = tiles[mask + 2 * query + UNIT_POS_Y as usize / 2];
                let bits = word >> (UNIT_POS_Y % 2 * 16 + UNIT_POS_X / 4);
                #[unroll]
                for i in 0..2usize {
                    if (bits >> comptime!(8 * i as u32)) & 1u32 == 0u32 {
                        let mut two = logits[comptime!(2 * j + i)];
                        two.insert(k, LOWEST.runtime());
                        logits[comptime!(2 * j + i)] = two;
                    }
                }
            }
        }
    }
}
