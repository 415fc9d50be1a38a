//! Gather and scatter of rows by the arrangement.

use cubecl::prelude::*;

use super::layout::{Sizes, chunk_of_group, chunks_of, column_at, key_at, places, query_at, start_of};
use crate::mechanisms::lsh::device::sort_layout::{Rows, Rules};

#[cube(launch, address_type = "dynamic")]
pub(super) fn take_rows<F: Float>(
    x: &Tensor<F>,
    arrangement: &Tensor<i32>,
    taken: &mut Tensor<F>,
    sizes: Sizes,
    #[comptime] rows: Rows,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < taken.len() {
        let (count, width) = (taken.shape(3), taken.shape(4));
        let (row, column) = (at / width, at % width);
        let (plane, index) = (row / count, row % count);
        let length = sizes.length as usize;
        let first = if comptime!(rows == Rows::Contexts) { plane * places(&sizes) } else { plane / sizes.rounds as usize * length };
        let source = if comptime!(rows == Rows::Keys) {
            arrangement[key_at(&sizes, plane, 0, index)]
        } else if comptime!(rows == Rows::Queries) {
            arrangement[query_at(&sizes, plane, index)]
        } else {
            arrangement[start_of(&sizes, plane) + 2 * length + index]
        };
        let mut number = F::new(0.0);
        if source >= 0 {
            number = x[(first + source as usize) * width + column];
        }
        taken[at] = number;
    }
}

#[cube(launch, address_type = "dynamic")]
pub(super) fn return_rows<F: Float>(
    x: &Tensor<F>,
    arrangement: &Tensor<i32>,
    returned: &mut Tensor<F>,
    sizes: Sizes,
    #[comptime] rows: Rows,
    #[comptime] rules: Rules,
    #[comptime] meets_all: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < returned.len() {
        let (count, width) = (x.shape(3), x.shape(4));
        let (row, column) = (at / width, at % width);
        let length = sizes.length as usize;
        let mut sum = 0.0f32;
        if comptime!(rows == Rows::Contexts) {
            let (plane, place) = (row / places(&sizes), row % places(&sizes));
            let query = arrangement[query_at(&sizes, plane, place)];
            if query >= 0 {
                sum = f32::cast_from(x[(plane * count + query as usize) * width + column]);
            }
        } else {
            let (head, position) = (row / length, row % length);
            for round in 0..sizes.rounds {
                let plane = head * sizes.rounds as usize + round as usize;
                let start = start_of(&sizes, plane);
                if comptime!(rows == Rows::Queries) {
                    let place = arrangement[start + 2 * length + position] as usize;
                    sum += f32::cast_from(x[(plane * count + place) * width + column]);
                } else {
                    let place = arrangement[start + length + position];
                    if place >= 0 {
                        sum += of_groups(x, arrangement, &sizes, plane, place as u32, column, rules, meets_all);
                    }
                }
            }
        }
        returned[at] = F::cast_from(sum);
    }
}

/// Sum over all groups that meet the key at a place.
#[cube]
fn of_groups<F: Float>(
    x: &Tensor<F>,
    arrangement: &Tensor<i32>,
    sizes: &Sizes,
    plane: usize,
    place: u32,
    column: usize,
    #[comptime] rules: Rules,
    #[comptime] meets_all: bool,
) -> f32 {
    let (count, width) = (x.shape(3), x.shape(4));
    let (chunk, own) = (place / sizes.size, (place % sizes.size) as usize);
    let chunks = chunks_of(arrangement, sizes, plane);
    let mut sum = 0.0f32;
    let mut group = 0u32;
    if comptime!(!meets_all && !rules.wraps) {
        // A group starts in no later chunk than its index, and later groups start in no earlier chunk.
        let ahead = sizes.window - 1 - sizes.before;
        if chunk > ahead {
            group = chunk - ahead;
        }
    }
    while group < sizes.groups {
        let mut slot = chunk;
        if comptime!(!meets_all) {
            let first = chunk_of_group(arrangement, sizes, plane, group as usize, rules);
            if comptime!(rules.wraps) {
                slot = (chunk + chunks - first + sizes.before % chunks) % chunks;
            } else {
                // For a group that starts too late the slot wraps to a large number.
                slot = chunk + sizes.before - first;
                if first > chunk + sizes.before {
                    group = sizes.groups;
                }
            }
        }
        if slot < sizes.window {
            let at = arrangement[column_at(sizes, plane, group as usize, slot as usize, own)];
            if at >= 0 {
                let index = group as usize * sizes.columns as usize + at as usize;
                sum += f32::cast_from(x[(plane * count + index) * width + column]);
            }
        }
        group += 1;
    }
    sum
}
