//! Kernel access to visibility.

use cubecl::prelude::*;

use super::products::{COLUMNS, LOWEST, down, own_column, own_row};

/// Work item of a cube.
#[derive(CubeType)]
pub(super) struct CubeTask {
    /// Batch row.
    pub row: usize,
    pub head: usize,
    /// Number of the tile.
    pub tile: usize,
    /// Index of the block of result columns.
    pub block: usize,
}

/// Work item of this cube, with `blocks` column blocks.
#[cube]
pub(super) fn place(#[comptime] blocks: usize) -> CubeTask {
    let rows_and_blocks = CUBE_POS_Z as usize;
    CubeTask { row: rows_and_blocks / blocks, head: CUBE_POS_Y as usize, tile: CUBE_POS_X as usize, block: rows_and_blocks % blocks }
}

/// Arrangement of the lists of visible tiles.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Lists {
    /// Index of the first list.
    pub first: u32,
    /// Distinct batch rows and heads.
    pub rows: u32,
    pub heads: u32,
}

/// Offset of the list of tiles for this cube's tile; the next offset ends it.
#[cube]
pub(super) fn list_of(lists: &Lists, place: &CubeTask) -> usize {
    list_among(lists, place, CUBE_COUNT_X as usize)
}

/// The same with `count` lists per row and head.
#[cube]
pub(super) fn list_among(lists: &Lists, place: &CubeTask, count: usize) -> usize {
    let (rows, heads) = (lists.rows as usize, lists.heads as usize);
    let of_head = (place.row % rows) * heads + place.head % heads;
    lists.first as usize + of_head * count + place.tile
}

/// Offset of the entry of tile `tile` in a list, or 0 if missing.
#[cube]
pub(super) fn found_in(tiles: &Tensor<u32>, list: usize, tile: usize) -> usize {
    let end = tiles[list + 1] as usize;
    let mut at = tiles[list] as usize;
    let mut found = 0usize;
    while at < end {
        if tiles[at] as usize == tile {
            found = at;
        }
        at += 2;
    }
    found
}

/// Sets the logits `[rows, COLUMNS]` of hidden pairs to the lowest one; rows are queries and columns are keys.
#[cube]
pub(super) fn hide(logits: &mut Array<f32>, tiles: &Tensor<u32>, mask: usize, #[comptime] rows: usize) {
    if mask != 0 {
        #[unroll]
        for i in 0..rows {
            #[unroll]
            for word in 0..comptime!(COLUMNS / 4) {
                let bits = tiles[mask + 2 * own_row(i, rows) + word] >> (UNIT_POS_X * 4);
                #[unroll]
                for k in 0..4 {
                    if (bits >> comptime!(k as u32)) & 1u32 == 0u32 {
                        logits[i * COLUMNS + word * 4 + k] = LOWEST.runtime();
                    }
                }
            }
        }
    }
}

/// [`hide`] for tiles with key rows and query columns.
#[cube]
pub(super) fn hide_by_key(logits: &mut Array<f32>, tiles: &Tensor<u32>, mask: usize, #[comptime] rows: usize) {
    if mask != 0 {
        #[unroll]
        for j in 0..COLUMNS {
            #[unroll]
            for word in 0..2 {
                let bits = tiles[mask + 2 * own_column(j) + word] >> UNIT_POS_Y;
                #[unroll]
                for i in 0..comptime!(rows / 2) {
                    if (bits >> comptime!((i * down(rows)) as u32)) & 1u32 == 0u32 {
                        logits[(word * comptime!(rows / 2) + i) * COLUMNS + j] = LOWEST.runtime();
                    }
                }
            }
        }
    }
}

/// Row index of a tensor `[B, H, length, width]` over all heads of the batch; rows past the end map to the last one of their head.
#[cube]
pub(super) fn row_number<F: Numeric, N: Size>(tensor: &Tensor<Vector<F, N>>, place: &CubeTask, row: usize) -> usize {
    let length = tensor.shape(2);
    let mut row = row;
    if row >= length {
        row = length - 1;
    }
    (place.row * tensor.shape(1) + place.head) * length + row
}
