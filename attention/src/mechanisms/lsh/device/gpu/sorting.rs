//! The arrangement, and the biases on the logits of its pairs.

use cubecl::prelude::*;

use super::layout::{Sizes, chunks_of, column_at, key_at, met, places, query_at, start_of};
use crate::mechanisms::lsh::device::sort_layout::Rules;

/// Layout of the pairwise visibility.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Given {
    /// Distinct batch rows and heads.
    rows: u32,
    heads: u32,
    /// Total number of heads.
    all_heads: u32,
    /// Index of the first query.
    start: u32,
    queries: u32,
    /// Numbers above this bound mark visible pairs.
    least: f32,
}

#[cube(launch, address_type = "dynamic")]
pub(super) fn sort(buckets: &Tensor<i32>, live: &Tensor<i32>, arrangement: &mut Tensor<i32>, sizes: Sizes, #[comptime] rules: Rules) {
    let place = ABSOLUTE_POS;
    if place < buckets.len() {
        let length = sizes.length as usize;
        let (plane, position) = (place / length, place % length);
        let holes = plane / sizes.rounds as usize * length;
        let own = buckets[place];
        let mut queries = 0u32;
        let mut keys = 0u32;
        let mut all = 0u32;
        for other in 0..length {
            let bound = own + select(other < position, 1i32, 0i32);
            let comes = select(buckets[plane * length + other] < bound, 1u32, 0u32);
            queries += comes;
            if comptime!(rules.has_holes) {
                let is_key = live[holes + other] as u32;
                keys += comes * is_key;
                all += is_key;
            }
        }
        if comptime!(!rules.has_holes) {
            keys = queries;
            all = sizes.length;
        }
        let mut chunks = (all + sizes.size - 1) / sizes.size;
        if chunks == 0 {
            chunks = 1u32.runtime();
        }
        let mut chunk = keys / sizes.size;
        if chunk >= chunks {
            chunk = chunks - 1;
        }
        let start = start_of(&sizes, plane);
        arrangement[start + position] = chunk as i32;
        if comptime!(rules.has_holes) {
            arrangement[start + 2 * length + position] = queries as i32;
            arrangement[start + 3 * length + queries as usize] = position as i32;
        }
        let mut is_key = 1i32.runtime();
        if comptime!(rules.has_holes) {
            is_key = live[holes + position];
        }
        if is_key != 0 {
            arrangement[start + length + position] = keys as i32;
            arrangement[start + 3 * length + places(&sizes) + keys as usize] = position as i32;
        }
        if position == 0 {
            arrangement[start_of(&sizes, plane + 1) - 1] = chunks as i32;
        }
    }
}

/// Keys that each group meets, for sorted positions: one unit per place in the chunks that a group meets.
#[cube(launch, address_type = "dynamic")]
pub(super) fn meet(arrangement: &mut Tensor<i32>, units: u32, sizes: Sizes, #[comptime] rules: Rules, #[comptime] meets_all: bool) {
    let unit = ABSOLUTE_POS;
    if unit < units as usize {
        let size = sizes.size as usize;
        let (row, own) = (unit / size, unit % size);
        let (group_row, slot) = (row / sizes.window as usize, row % sizes.window as usize);
        let (plane, group) = (group_row / sizes.groups as usize, group_row % sizes.groups as usize);
        let keys = query_at(&sizes, plane, places(&sizes));
        let chunk = met(&*arrangement, &sizes, plane, group, slot as u32, rules, meets_all);
        if chunk >= 0 {
            let key = arrangement[keys + chunk as usize * size + own];
            if key >= 0 {
                let mut column = 0u32;
                for other_slot in 0..sizes.window {
                    let other = met(&*arrangement, &sizes, plane, group, other_slot, rules, meets_all);
                    if other >= 0 {
                        column += keys_before(&*arrangement, keys + other as usize * size, size, key);
                    }
                }
                arrangement[key_at(&sizes, plane, group, column as usize)] = key;
                arrangement[column_at(&sizes, plane, group, slot, own)] = column as i32;
            }
        }
        if comptime!(!rules.has_holes) {
            // The queries of a group are the keys of a chunk.
            if slot == 0 {
                let first = group * size;
                let query = arrangement[keys + first + own];
                if query >= 0 {
                    let place = first + keys_before(&*arrangement, keys + first, size, query) as usize;
                    arrangement[start_of(&sizes, plane) + 2 * sizes.length as usize + query as usize] = place as i32;
                    arrangement[query_at(&sizes, plane, place)] = query;
                }
            }
        }
    }
}

/// Number of the chunk's keys, from a place on, that precede a position.
#[cube]
fn keys_before(arrangement: &Tensor<i32>, first: usize, size: usize, key: i32) -> u32 {
    let mut count = 0u32;
    for other in 0..size {
        let other = arrangement[first + other];
        count += select(other >= 0 && other < key, 1u32, 0u32);
    }
    count
}

/// 1 if a key is a candidate of a query in the round of a plane, otherwise 0.
#[cube]
fn meets(
    buckets: &Tensor<i32>,
    arrangement: &Tensor<i32>,
    sizes: &Sizes,
    plane: usize,
    query: usize,
    key: usize,
    #[comptime] rules: Rules,
) -> u32 {
    let start = start_of(sizes, plane);
    let from = arrangement[start + query] as u32;
    let to = arrangement[start + key] as u32;
    let near = if comptime!(rules.wraps) {
        let chunks = chunks_of(arrangement, sizes, plane);
        let back = (from + chunks - to) % chunks;
        let ahead = (to + chunks - from) % chunks;
        select(back <= sizes.before || ahead <= sizes.after, 1u32, 0u32)
    } else {
        select(to + sizes.before >= from && to <= from + sizes.after, 1u32, 0u32)
    };
    if comptime!(rules.within_buckets) {
        let first = plane * sizes.length as usize;
        near * select(buckets[first + query] == buckets[first + key], 1u32, 0u32)
    } else {
        near
    }
}

#[cube(launch, address_type = "dynamic")]
pub(super) fn bias_of_pairs<F: Float>(
    buckets: &Tensor<i32>,
    arrangement: &Tensor<i32>,
    pairs: &Tensor<F>,
    bias: &mut Tensor<F>,
    sizes: Sizes,
    given: Given,
    hidden: f32,
    penalty: f32,
    #[comptime] rules: Rules,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < bias.len() {
        let columns = sizes.columns as usize;
        let (row, column) = (at / columns, at % columns);
        let (plane, place) = (row / places(&sizes), row % places(&sizes));
        let query = arrangement[query_at(&sizes, plane, place)];
        let key = arrangement[key_at(&sizes, plane, place / sizes.size as usize, column)];
        let mut logit = hidden;
        if query >= 0 && key >= 0 {
            let (i, j) = (query as usize, key as usize);
            let mut sees = meets(buckets, arrangement, &sizes, plane, i, j, rules);
            if comptime!(rules.is_causal) {
                sees *= select(j <= i, 1u32, 0u32);
            }
            let head = plane / sizes.rounds as usize;
            if comptime!(rules.has_pairs) {
                let (start, queries) = (given.start as usize, given.queries as usize);
                if i >= start && i < start + queries {
                    let (rows, heads) = (given.rows as usize, given.heads as usize);
                    let all_heads = given.all_heads as usize;
                    let of_head = head / all_heads % rows * heads + head % all_heads % heads;
                    let number = f32::cast_from(pairs[(of_head * queries + i - start) * sizes.length as usize + j]);
                    sees *= select(number > given.least, 1u32, 0u32);
                } else {
                    sees = 0u32.runtime();
                }
            }
            if sees != 0 {
                logit = select(i == j, penalty, 0.0f32);
                if comptime!(rules.counts_once) {
                    let mut meetings = 0u32;
                    for round in 0..sizes.rounds {
                        let other = head * sizes.rounds as usize + round as usize;
                        meetings += meets(buckets, arrangement, &sizes, other, i, j, rules);
                    }
                    logit -= f32::cast_from(meetings).ln();
                }
            }
        }
        bias[at] = F::cast_from(logit);
    }
}
