//! Scores by distance, and the gradient of what is scored with.
//!
//! Tile by tile of queries and of keys, distances take `2 TILE - 1` successive values: a tile of queries meets a tile of keys in the strip of the table whose
//! number is the difference of theirs. A strip is two tiles of the table, the second of which is the first of the next strip. Queries are multiplied with
//! both, and the products move to their keys by way of shared memory.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::launch::Form;
use super::super::products::{
    COLUMNS, Four, LOWEST, Room, Rows, add_product_of_tile, add_products_of_rows, fours_of, own_column, own_row, read_tile, rows_of,
    write_rows, write_tile,
};
use super::super::weights::{Dropout, Lists, draws_of, factor, list_at, place, place_in_list, row_number};
use super::{At, Terms, add_logits};
use crate::visibility::TILE;

/// Scores by distance.
#[derive(CubeType, CubeLaunch)]
pub(in super::super) struct Relative<F: Float, N: Size> {
    /// `[B, H, Q, S]`.
    queries: OwnedTensor<Vector<F, N>>,
    /// `[B|1, H|1, distances, S]`: that of the last query and the first key would have number `TILE tiles - Q`.
    table: OwnedTensor<Vector<F, N>>,
    /// Tiles of queries.
    tiles: u32,
}

/// Tile `half` of the strip of a tile of queries and keys.
#[cube]
fn table_of<F: Float, N: Size>(relative: &Relative<F, N>, at: &At, #[comptime] half: usize) -> Rows {
    let strip = relative.tiles as usize + at.keys - at.queries - 1;
    let table = &relative.table;
    rows_of(table, at.row % table.shape(0), at.head % table.shape(1), strip + half)
}

/// Adds the scores of a tile to `logits` `[rows, COLUMNS]`.
#[cube]
pub(super) fn add<F: Float, N: Size>(
    logits: &mut Array<f32>,
    room: &mut Room,
    relative: &Relative<F, N>,
    at: &At,
    #[comptime] rows: usize,
    #[comptime] by_key: bool,
) {
    let of_queries = rows_of(&relative.queries, at.row, at.head, at.queries);
    #[unroll]
    for half in 0..2usize {
        let of_table = table_of(relative, at, half);
        let mut scores = Array::<f32>::new(comptime!(rows * COLUMNS));
        if by_key {
            add_products_of_rows(&mut scores, room, &relative.table, &of_table, &relative.queries, &of_queries, rows);
        } else {
            add_products_of_rows(&mut scores, room, &relative.queries, &of_queries, &relative.table, &of_table, rows);
        }
        sync_cube();
        write_tile(room, &scores, rows);
        sync_cube();
        #[unroll]
        for i in 0..rows {
            #[unroll]
            for j in 0..COLUMNS {
                let (row, column) = (own_row(i, rows), own_column(j));
                let (query, key) = if comptime!(by_key) { (column, row) } else { (row, column) };
                let distance = key + comptime!(TILE - 1) - query;
                if distance / TILE == half {
                    let place = distance - comptime!(half * TILE);
                    let score = if comptime!(by_key) { read_tile(room, place, query) } else { read_tile(room, query, place) };
                    logits[i * COLUMNS + j] += score;
                }
            }
        }
    }
}

/// Writes gradients of logits `[rows, COLUMNS]` to the tile in shared memory, those of key `k` at their distances in tile `half` of the strip, and 0 where no
/// key is. Rows are queries and columns become distances, or rows are keys and become distances if `by_key`.
#[cube]
fn write_by_distance(room: &mut Room, slopes: &Array<f32>, #[comptime] half: usize, #[comptime] rows: usize, #[comptime] by_key: bool) {
    sync_cube();
    write_tile(room, slopes, rows);
    sync_cube();
    let mut moved = Array::<f32>::new(comptime!(rows * COLUMNS));
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (row, column) = (own_row(i, rows), own_column(j));
            let (query, distance) = if comptime!(by_key) { (column, row) } else { (row, column) };
            let key_and_more = distance + query + comptime!(half * TILE);
            if key_and_more >= comptime!(TILE - 1) && key_and_more < comptime!(2 * TILE - 1) {
                let key = key_and_more - comptime!(TILE - 1);
                let slope = if comptime!(by_key) { read_tile(room, key, query) } else { read_tile(room, query, key) };
                moved[i * COLUMNS + j] = slope;
            }
        }
    }
    sync_cube();
    write_tile(room, &moved, rows);
}

/// Adds to `sums` `[rows, wide / SWEEP]` what gradients `slopes` of the logits of a tile give `wide` columns of the gradients of queries, from `first` on.
#[cube]
pub(in super::super) fn add_gradients_of_queries<F: Float, N: Size>(
    sums: &mut Array<Four>,
    room: &mut Room,
    relative: &Relative<F, N>,
    at: &At,
    slopes: &Array<f32>,
    first: usize,
    #[comptime] wide: usize,
    #[comptime] rows: usize,
) {
    #[unroll]
    for half in 0..2usize {
        write_by_distance(room, slopes, half, rows, false);
        let of_table = table_of(relative, at, half);
        add_product_of_tile(sums, room, &relative.table, &of_table, first, wide, rows);
    }
}

/// A cube computes `factor_block` columns of the gradient of a strip of the table of one head of a row of the batch, `[B, H, strips 2 TILE, S]`: tiles of
/// queries meet the tiles of keys at this difference one after another.
#[cube(launch)]
pub(in super::super) fn gradients_of_strips<F: Float, N: Size>(
    terms: &Terms<F, N>,
    values: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    dots: &Tensor<f32>,
    tiles: &Tensor<u32>,
    offsets: &Tensor<u32>,
    result: &mut Tensor<f32>,
    lists: Lists,
    dropout: Dropout,
    #[comptime] form: Form,
    #[define(F)] _number: ElemType,
) {
    let (wide, rows) = comptime!((form.factor_block, form.rows));
    let place = place(comptime!(form.blocks));
    let (query_tiles, key_tiles) = (gradient.shape(2).div_ceil(TILE), values.shape(2).div_ceil(TILE));
    let mut room = Room::new();
    let mut first_sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    let mut second_sums = Array::<Four>::new(comptime!(fours_of(wide, rows)));
    for query_tile in 0..query_tiles {
        let key_tile_and_more = place.tile + query_tile + 1;
        let mut found = 0usize;
        if key_tile_and_more >= query_tiles && key_tile_and_more < query_tiles + key_tiles {
            let list = list_at(&lists, place.row, place.head, query_tile, query_tiles);
            found = place_in_list(tiles, list, key_tile_and_more - query_tiles);
        }
        if found != 0 {
            let key_tile = key_tile_and_more - query_tiles;
            let at = At { row: place.row, head: place.head, queries: query_tile, keys: key_tile };
            let of_gradient = rows_of(gradient, place.row, place.head, query_tile);
            let of_values = rows_of(values, place.row, place.head, key_tile);
            let mut logits = Array::<f32>::new(comptime!(rows * COLUMNS));
            let mut slopes = Array::<f32>::new(comptime!(rows * COLUMNS));
            add_logits(&mut logits, &mut room, terms, tiles, &at, tiles[found + 1] as usize, rows, true);
            add_products_of_rows(&mut slopes, &mut room, values, &of_values, gradient, &of_gradient, rows);
            #[unroll]
            for j in 0..COLUMNS {
                let column = own_column(j);
                let query = row_number(log_sum_exp, &place, query_tile * TILE + column);
                let (log_sum, dot) = (log_sum_exp[query], dots[query]);
                let draws = draws_of(offsets, query, comptime!(form.drops));
                #[unroll]
                for i in 0..rows {
                    let (logit, mut slope) = (logits[i * COLUMNS + j], slopes[i * COLUMNS + j]);
                    let seen = logit > LOWEST && column < of_gradient.count;
                    let weight = select(seen, (logit - log_sum).exp(), 0.0f32);
                    if comptime!(form.drops) {
                        slope *= factor(&dropout, &draws, key_tile * TILE + own_row(i, rows));
                    }
                    slopes[i * COLUMNS + j] = weight * (slope - dot);
                }
            }
            #[comptime]
            if let ComptimeOption::Some(relative) = &terms.relative {
                let of_queries = rows_of(&relative.queries, place.row, place.head, query_tile);
                let column = place.block * wide;
                write_by_distance(&mut room, &slopes, 0usize, rows, true);
                add_product_of_tile(&mut first_sums, &mut room, &relative.queries, &of_queries, column, wide, rows);
                write_by_distance(&mut room, &slopes, 1usize, rows, true);
                add_product_of_tile(&mut second_sums, &mut room, &relative.queries, &of_queries, column, wide, rows);
            }
        }
    }
    let strips = CUBE_COUNT_X as usize;
    let first = ((place.row * values.shape(1) + place.head) * strips + place.tile) * comptime!(2 * TILE);
    write_rows(result, first, TILE, &first_sums, place.block * wide, wide, rows);
    write_rows(result, first + TILE, TILE, &second_sums, place.block * wide, wide, rows);
}

/// The gradient of the table `[B|1, H|1, Q + K - 1, S]` from those of its strips: a unit computes one number, planes lie along y. The table begins `before`
/// rows after the first strip.
#[cube(launch)]
pub(in super::super) fn sum_of_strips<F: Float>(strips: &Tensor<f32>, result: &mut Tensor<F>, before: u32, #[define(F)] _number: ElemType) {
    let (rows, heads, distances, width) = (result.shape(0), result.shape(1), result.shape(2), result.shape(3));
    let (index, plane) = (ABSOLUTE_POS_X as usize, CUBE_POS_Y as usize);
    if index < distances * width {
        let distance = index / width + before as usize;
        let (tile, place) = (distance / TILE, distance % TILE);
        let length = strips.shape(2);
        let mut sum = 0.0f32;
        let mut row = plane / heads;
        while row < strips.shape(0) {
            let mut head = plane % heads;
            while head < strips.shape(1) {
                let first = (row * strips.shape(1) + head) * length;
                let own = tile * comptime!(2 * TILE) + place;
                if own < length {
                    sum += strips[(first + own) * width + index % width];
                }
                if tile > 0 {
                    sum += strips[(first + own - TILE) * width + index % width];
                }
                head += heads;
            }
            row += rows;
        }
        result[plane * distances * width + index] = F::cast_from(sum);
    }
}
