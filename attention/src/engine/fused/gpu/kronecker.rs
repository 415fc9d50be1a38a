//! Logits that are products of two numbers of the query ([`Kronecker`](crate::engine::Kronecker)).

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::backward::slopes_of_tile;
use super::inputs::{BackwardInputs, Inputs};
use super::launch::KernelConfig;
use super::products::{COLUMNS, SharedMemory, number_at, write_tile};
use super::terms::{Pair, are_beyond, at_most, key_of, pair_of_queries, query_of};
use super::visibility::{list_of, place};
use crate::contract::visibility::TILE;

/// Places of two factors in the rows of a query.
#[derive(CubeType)]
struct Places {
    left: usize,
    right: usize,
}

/// The factors of a key's logit. Keys that are padding or past the end are hidden and get arbitrary places.
#[cube]
fn places<F: Float, N: Size>(inputs: &Inputs<F, N>, row: usize, key: usize) -> Places {
    let (left, right, pairs) = (inputs.left.as_ref().unwrap(), inputs.right.as_ref().unwrap(), inputs.pairs.as_ref().unwrap());
    let wide = right.shape(3);
    let number = pairs[row % pairs.shape(0)] + key as i32;
    let number = at_most(max(number, 0i32) as usize, left.shape(3) * wide - 1);
    Places { left: number / wide, right: number % wide }
}

/// Place of the first number of a query.
#[cube]
fn start_of<F: Float>(tensor: &OwnedTensor<F>, pair: &Pair, query: usize) -> usize {
    pair.row * tensor.stride(0) + pair.head * tensor.stride(1) + at_most(query, tensor.shape(2) - 1) * tensor.stride(2)
}

/// Adds the products to logits `[rows, COLUMNS]`, whose rows are queries, or keys with `by_key`.
#[cube]
pub(super) fn add_kronecker<F: Float, N: Size>(
    logits: &mut Array<f32>,
    inputs: &Inputs<F, N>,
    pair: &Pair,
    #[comptime] by_key: bool,
    #[comptime] form: KernelConfig,
) {
    if comptime!(form.made.kronecker) {
        let (left, right) = (inputs.left.as_ref().unwrap(), inputs.right.as_ref().unwrap());
        #[unroll]
        for i in 0..comptime!(form.rows) {
            #[unroll]
            for j in 0..COLUMNS {
                let query = query_of(pair, i, j, by_key, comptime!(form.rows));
                let places = places(inputs, pair.row, key_of(pair, i, j, by_key, comptime!(form.rows)));
                let of_left = left[start_of(left, pair, query) + places.left];
                let of_right = right[start_of(right, pair, query) + places.right];
                logits[i * COLUMNS + j] += f32::cast_from(of_left) * f32::cast_from(of_right);
            }
        }
    }
}

/// A cube computes the gradients of both factors of a query tile, `[B, H, Q, a]` and `[B, H, Q, b]`. One unit adds all terms of a query, so sums have a fixed
/// order.
#[cube(launch)]
pub(super) fn gradient_of_factors<F: Float, N: Size>(
    inputs: &Inputs<F, N>,
    reverse: &BackwardInputs<F, N>,
    of_left: &mut Tensor<f32>,
    of_right: &mut Tensor<f32>,
    #[comptime] form: KernelConfig,
    #[define(F)] _number: ElemType,
) {
    let rows = comptime!(form.rows);
    let (left, right, tiles) = (inputs.left.as_ref().unwrap(), inputs.right.as_ref().unwrap(), &inputs.tiles);
    let place = place(1usize);
    let own = UNIT_POS as usize;
    let query = place.tile * TILE + own;
    let is_there = own < TILE && query < of_left.shape(2);
    let (left_width, right_width) = (of_left.shape(3), of_right.shape(3));
    let row = (place.row * of_left.shape(1) + place.head) * of_left.shape(2) + query;
    if is_there {
        for index in 0..left_width {
            of_left[row * left_width + index] = 0.0f32;
        }
        for index in 0..right_width {
            of_right[row * right_width + index] = 0.0f32;
        }
    }
    let mut room = SharedMemory::new();
    let mut span_sums = Array::<f32>::new(rows);
    let list = list_of(&inputs.lists, &place);
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    while at < end {
        let pair = pair_of_queries(&place, tiles[at] as usize);
        if !are_beyond(inputs, &pair, form) {
            let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
            slopes_of_tile(&mut slopes, &mut span_sums, &mut room, inputs, reverse, &pair, tiles[at + 1] as usize, form);
            sync_cube();
            write_tile(&mut room, &slopes, rows);
            sync_cube();
            if is_there {
                let (of_query, of_query_right) = (start_of(left, &pair, query), start_of(right, &pair, query));
                for column in 0..TILE {
                    let slope = number_at(&mut room, own, column);
                    let places = places(inputs, place.row, pair.keys * TILE + column);
                    let other = f32::cast_from(right[of_query_right + places.right]);
                    of_left[row * left_width + places.left] += slope * other;
                    let other = f32::cast_from(left[of_query + places.left]);
                    of_right[row * right_width + places.right] += slope * other;
                }
            }
        }
        at += 2;
    }
}
