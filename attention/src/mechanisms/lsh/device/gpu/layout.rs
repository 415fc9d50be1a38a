//! Addresses of the numbers of an arrangement, for kernels.

use cubecl::prelude::*;

use crate::mechanisms::lsh::device::sort_layout::Rules;

/// Marker for a missing place.
pub(super) const NOWHERE: i32 = -1;

/// Sizes of a form.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Sizes {
    pub rounds: u32,
    pub length: u32,
    pub size: u32,
    pub groups: u32,
    pub window: u32,
    pub columns: u32,
    pub before: u32,
    pub after: u32,
}

#[cube]
pub(super) fn places(sizes: &Sizes) -> usize {
    sizes.groups as usize * sizes.size as usize
}

/// Start of the numbers of a plane.
#[cube]
pub(super) fn start_of(sizes: &Sizes, plane: usize) -> usize {
    let of_groups = sizes.groups as usize * (sizes.columns as usize + sizes.window as usize * sizes.size as usize);
    plane * (3 * sizes.length as usize + 2 * places(sizes) + of_groups + 1)
}

#[cube]
pub(super) fn chunks_of(arrangement: &Tensor<i32>, sizes: &Sizes, plane: usize) -> u32 {
    arrangement[start_of(sizes, plane + 1) - 1] as u32
}

/// Query at a place.
#[cube]
pub(super) fn query_at(sizes: &Sizes, plane: usize, place: usize) -> usize {
    start_of(sizes, plane) + 3 * sizes.length as usize + place
}

/// Chunk of the first query of a group: without holes, groups are the queries of the chunks.
#[cube]
pub(super) fn chunk_of_group(arrangement: &Tensor<i32>, sizes: &Sizes, plane: usize, group: usize, #[comptime] rules: Rules) -> u32 {
    if comptime!(rules.has_holes) {
        let query = arrangement[query_at(sizes, plane, group * sizes.size as usize)];
        arrangement[start_of(sizes, plane) + query as usize] as u32
    } else {
        group as u32
    }
}

/// Chunk `slot` of the chunks that a group meets, or a negative number.
#[cube]
pub(super) fn met(
    arrangement: &Tensor<i32>,
    sizes: &Sizes,
    plane: usize,
    group: usize,
    slot: u32,
    #[comptime] rules: Rules,
    #[comptime] meets_all: bool,
) -> i32 {
    let chunks = chunks_of(arrangement, sizes, plane);
    if comptime!(meets_all && !rules.has_holes && !rules.wraps) {
        let own = group as u32;
        select(slot < chunks && slot + sizes.before >= own && slot <= own + sizes.after, slot as i32, NOWHERE)
    } else if comptime!(meets_all) {
        select(slot < chunks, slot as i32, NOWHERE)
    } else {
        let own = chunk_of_group(arrangement, sizes, plane, group, rules);
        if comptime!(rules.wraps) {
            let chunk = (own + slot + chunks - sizes.before % chunks) % chunks;
            select(slot < chunks, chunk as i32, NOWHERE)
        } else {
            // A chunk before the first one wraps to a large number.
            let chunk = own + slot - sizes.before;
            select(chunk < chunks, chunk as i32, NOWHERE)
        }
    }
}

/// Place of the key in a column of a group.
#[cube]
pub(super) fn key_at(sizes: &Sizes, plane: usize, group: usize, column: usize) -> usize {
    query_at(sizes, plane, 2 * places(sizes)) + group * sizes.columns as usize + column
}

/// Place of the column of the key at place `own` of chunk `slot` of the chunks that a group meets.
#[cube]
pub(super) fn column_at(sizes: &Sizes, plane: usize, group: usize, slot: usize, own: usize) -> usize {
    let size = sizes.size as usize;
    key_at(sizes, plane, sizes.groups as usize, 0) + (group * sizes.window as usize + slot) * size + own
}
