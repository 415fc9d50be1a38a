//! Cooperative products of the units of a cube: tiles of 64 x 64, with several rows and columns per unit.
//!
//! A unit has `rows` rows, spaced by the number of units in a column, and [`COLUMNS`] columns. Shared memory is arranged in fours, such that neighbouring units
//! use different banks.

use cubecl::prelude::*;

use crate::contract::visibility::TILE;

/// Tile columns per unit: fours that are `4 * ACROSS` apart.
pub(super) const COLUMNS: usize = 8;

/// Units that share a tile row, neighbours in a plane.
pub(super) const ACROSS: usize = TILE / COLUMNS;

/// Columns that the units of a row cover with one four each.
pub(super) const SWEEP: usize = 4 * ACROSS;

/// Units that share a tile column.
pub(super) fn down(rows: usize) -> usize {
    TILE / rows
}

/// Distance of tile rows in shared memory, in fours.
const PITCH: usize = TILE / 4 + 1;

/// Columns of thin factors multiplied at once.
const DEPTH: usize = TILE / 2;

/// Distance of the rows of such a chunk in shared memory, in fours.
const CHUNK_PITCH: usize = DEPTH / 4 + 1;

/// Fours of two such chunks, and of a tile, which reuses their space.
const TILE_ROOM: usize = 2 * TILE * CHUNK_PITCH;

/// Fours of the rows multiplied with a tile at once.
const CHUNK: usize = 512;

/// Shared memory of a cube in bytes: a tile, a chunk of rows, and a number per unit and row.
pub(super) const SHARED: usize = (4 * (TILE_ROOM + CHUNK) + TILE * ACROSS) * size_of::<f32>();

/// Logit of hidden pairs, and maximum of an empty row. WGSL has no infinity.
pub(super) const LOWEST: f32 = -1.0e30;

/// Four numbers read and written at once.
pub(super) type Four = Vector<f32, Const<4>>;

/// Shared memory of a cube.
#[derive(CubeType)]
pub(super) struct SharedMemory {
    /// `[TILE, PITCH]`, or two chunks of `[TILE, CHUNK_PITCH]`.
    tile: Shared<[Four]>,
    chunk: Shared<[Four]>,
    /// `[TILE, ACROSS]`.
    partial: Shared<[f32]>,
}

#[cube]
impl SharedMemory {
    pub(super) fn new() -> SharedMemory {
        SharedMemory {
            tile: Shared::new_slice(TILE_ROOM),
            chunk: Shared::new_slice(CHUNK),
            partial: Shared::new_slice(comptime!(TILE * ACROSS)),
        }
    }
}

/// Row `i` of this unit.
#[cube]
pub(super) fn own_row(#[comptime] i: usize, #[comptime] rows: usize) -> usize {
    UNIT_POS_Y as usize + comptime!(i * down(rows))
}

/// Column `j` of this unit.
#[cube]
pub(super) fn own_column(#[comptime] j: usize) -> usize {
    UNIT_POS_X as usize * 4 + comptime!(j / 4 * SWEEP + j % 4)
}

/// Rows of a tensor `[B, H, length, width]` in a tile.
#[derive(CubeType)]
pub(super) struct Rows {
    /// Place of the first number.
    start: usize,
    /// Distance of rows.
    stride: usize,
    /// Number of existing rows, at most those of a tile.
    pub count: usize,
}

#[cube]
impl Rows {
    /// Place of a number.
    pub(super) fn at(&self, row: usize, column: usize) -> usize {
        self.start + row * self.stride + column
    }
}

/// Rows of tile `tile` of a head of a row of the batch.
#[cube]
pub(super) fn rows_of<F: Numeric, N: Size>(tensor: &Tensor<Vector<F, N>>, row: usize, head: usize, tile: usize) -> Rows {
    let first = tile * TILE;
    let mut count = tensor.shape(2) - first;
    if count > TILE {
        count = TILE.runtime();
    }
    let stride = tensor.stride(2);
    Rows { start: row * tensor.stride(0) + head * tensor.stride(1) + first * stride, stride, count }
}

/// [`rows_of`] keys or values for one of `heads` heads; each group shares one key head.
#[cube]
pub(super) fn rows_for<F: Numeric, N: Size>(tensor: &Tensor<Vector<F, N>>, heads: usize, row: usize, head: usize, tile: usize) -> Rows {
    rows_of(tensor, row, head * tensor.shape(1) / heads, tile)
}

/// Four numbers of a row; 0 for missing ones. Tensors of fours have rows of fours.
#[cube]
fn read<F: Float, N: Size>(source: &Tensor<Vector<F, N>>, rows: &Rows, row: usize, column: usize) -> Four {
    let width = source.shape(3);
    let fours = N::value();
    let mut four = Four::new(0.0f32);
    let start = rows.at(row, column);
    if comptime!(fours == 4) {
        if row < rows.count && column < width {
            four = Four::cast_from(source[start / 4]);
        }
    } else {
        #[unroll]
        for k in 0..4 {
            if row < rows.count && column + k < width {
                four.insert(k, f32::cast_from(source[start + k].extract(0usize)));
            }
        }
    }
    four
}

/// Adds the products of the rows of `a` (tile rows) and `b` (tile columns) to `sums` `[rows, COLUMNS]`.
#[cube]
pub(super) fn add_products_of_rows<F: Float, N: Size>(
    sums: &mut Array<f32>,
    room: &mut SharedMemory,
    a: &Tensor<Vector<F, N>>,
    rows_a: &Rows,
    b: &Tensor<Vector<F, N>>,
    rows_b: &Rows,
    #[comptime] rows: usize,
) {
    let x = UNIT_POS_X as usize;
    let width = a.shape(3);
    let mut from = 0usize;
    while from < width {
        sync_cube();
        let mut index = UNIT_POS as usize;
        while index < comptime!(TILE * DEPTH / 4) {
            let (row, four) = (index / comptime!(DEPTH / 4), index % comptime!(DEPTH / 4));
            let column = from + four * 4;
            room.tile[row * CHUNK_PITCH + four] = read(a, rows_a, row, column);
            // Rows of neighbouring units become neighbours.
            let place = row / SWEEP * SWEEP + row % 4 * ACROSS + row % SWEEP / 4;
            room.tile[(TILE + place) * CHUNK_PITCH + four] = read(b, rows_b, row, column);
            index += comptime!(ACROSS * down(rows));
        }
        sync_cube();
        let mut deep = (width - from).div_ceil(4usize);
        if deep > comptime!(DEPTH / 4) {
            deep = comptime!(DEPTH / 4).runtime();
        }
        for depth in 0..deep {
            let mut own = Array::<Four>::new(rows);
            #[unroll]
            for i in 0..rows {
                own[i] = room.tile[own_row(i, rows) * CHUNK_PITCH + depth];
            }
            #[unroll]
            for j in 0..COLUMNS {
                let other = room.tile[(comptime!(TILE + j / 4 * SWEEP + j % 4 * ACROSS) + x) * CHUNK_PITCH + depth];
                #[unroll]
                for i in 0..rows {
                    let product = own[i] * other;
                    sums[i * COLUMNS + j] +=
                        product.extract(0usize) + product.extract(1usize) + product.extract(2usize) + product.extract(3usize);
                }
            }
        }
        from += DEPTH;
    }
}

/// Fours of results `[rows, wide]` per unit.
pub(super) fn fours_of(wide: usize, rows: usize) -> usize {
    rows * wide / SWEEP
}

/// Rows of `wide` columns staged at once: a divisor of the tile rows, and fours of them.
fn rows_at_once(wide: usize) -> usize {
    (1 << (4 * CHUNK / wide).ilog2()).min(TILE)
}

/// Adds the product of the tile in shared memory and `wide` columns, from `first` on, of rows to `sums` `[rows, wide / SWEEP]`. Other units may have just
/// written the tile.
#[cube]
pub(super) fn add_product_of_tile<F: Float, N: Size>(
    sums: &mut Array<Four>,
    room: &mut SharedMemory,
    source: &Tensor<Vector<F, N>>,
    of_source: &Rows,
    first: usize,
    #[comptime] wide: usize,
    #[comptime] rows: usize,
) {
    let x = UNIT_POS_X as usize;
    let fours = comptime!(wide / SWEEP);
    let deep = comptime!(rows_at_once(wide));
    let mut from = 0usize;
    while from < of_source.count {
        sync_cube();
        let mut index = UNIT_POS as usize;
        while index < comptime!(deep * wide / 4) {
            let (row, four) = (index / comptime!(wide / 4), index % comptime!(wide / 4));
            room.chunk[index] = read(source, of_source, from + row, first + four * 4);
            index += comptime!(ACROSS * down(rows));
        }
        sync_cube();
        for depth in 0..comptime!(deep / 4) {
            let mut own = Array::<Four>::new(rows);
            #[unroll]
            for i in 0..rows {
                own[i] = room.tile[own_row(i, rows) * PITCH + from / 4 + depth];
            }
            #[unroll]
            for k in 0..4 {
                #[unroll]
                for j in 0..fours {
                    let other = room.chunk[(depth * 4 + k) * comptime!(wide / 4) + j * ACROSS + x];
                    #[unroll]
                    for i in 0..rows {
                        sums[i * fours + j] += Four::new(own[i].extract(k)) * other;
                    }
                }
            }
        }
        from += deep;
    }
}

/// Writes numbers `[rows, COLUMNS]` of each unit to the tile in shared memory. No unit may be reading it.
#[cube]
pub(super) fn write_tile(room: &mut SharedMemory, numbers: &Array<f32>, #[comptime] rows: usize) {
    let x = UNIT_POS_X as usize;
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..comptime!(COLUMNS / 4) {
            let mut four = Four::new(0.0f32);
            #[unroll]
            for k in 0..4 {
                four.insert(k, numbers[i * COLUMNS + j * 4 + k]);
            }
            room.tile[own_row(i, rows) * PITCH + j * ACROSS + x] = four;
        }
    }
}

/// A number of the tile in shared memory.
#[cube]
pub(super) fn number_at(room: &mut SharedMemory, row: usize, column: usize) -> f32 {
    let four = room.tile[row * PITCH + column / 4];
    let k = column % 4;
    let first = select(k == 0, four.extract(0usize), four.extract(1usize));
    let second = select(k == 2, four.extract(2usize), four.extract(3usize));
    select(k < 2, first, second)
}

/// Writes numbers `[rows, wide / SWEEP]` of each unit to `wide` columns, from `first` on, of `count` rows of a contiguous tensor, from row `start` on.
#[cube]
pub(super) fn write_rows<F: Float>(
    target: &mut Tensor<F>,
    start: usize,
    count: usize,
    numbers: &Array<Four>,
    first: usize,
    #[comptime] wide: usize,
    #[comptime] rows: usize,
) {
    let width = target.shape(3);
    let fours = comptime!(wide / SWEEP);
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..fours {
            #[unroll]
            for k in 0..4 {
                let (row, column) = (own_row(i, rows), first + own_column(comptime!(j * 4 + k)));
                if row < count && column < width {
                    target[(start + row) * width + column] = F::cast_from(numbers[i * fours + j].extract(k));
                }
            }
        }
    }
}

/// Maximum or sum of each row over the units that share it, returned to all of them. All units have passed a barrier afterwards.
#[cube]
pub(super) fn reduce_rows(
    numbers: &mut Array<f32>,
    room: &mut SharedMemory,
    #[comptime] rows: usize,
    #[comptime] sum: bool,
    #[comptime] planes: bool,
) {
    if planes {
        #[unroll]
        for i in 0..rows {
            #[unroll]
            for step in 0..comptime!(ACROSS.ilog2()) {
                let other = plane_shuffle_xor(numbers[i], comptime!(1 << step));
                numbers[i] = joined(numbers[i], other, sum);
            }
        }
        sync_cube();
    } else {
        let x = UNIT_POS_X as usize;
        #[unroll]
        for i in 0..rows {
            room.partial[own_row(i, rows) * ACROSS + x] = numbers[i];
        }
        sync_cube();
        #[unroll]
        for i in 0..rows {
            numbers[i] = room.partial[own_row(i, rows) * ACROSS];
            #[unroll]
            for unit in 1..ACROSS {
                numbers[i] = joined(numbers[i], room.partial[own_row(i, rows) * ACROSS + unit], sum);
            }
        }
    }
}

#[cube]
fn joined(a: f32, b: f32, #[comptime] sum: bool) -> f32 {
    if sum { a + b } else { max(a, b) }
}
