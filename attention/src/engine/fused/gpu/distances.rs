//! Scores by distance (Dai et al. 2019).
//!
//! A table has one row per distance, in descending order, preceded by zero rows for the queries missing in the last tile. So the pairs of two tiles use 127
//! successive rows that start at a table tile. Scores are products with the rows of two table tiles, shifted to their keys through shared memory; gradients are
//! shifted back the same way.

use cubecl::prelude::*;

use super::inputs::Inputs;
use super::launch::KernelConfig;
use super::products::{
    COLUMNS, Four, SharedMemory, add_product_of_tile, add_products_of_rows, number_at, own_column, own_row, rows_of, write_tile,
};
use super::terms::Pair;
use crate::contract::visibility::TILE;

/// Offset of a tile's first key from its first query, in table rows.
const MIDDLE: usize = TILE - 1;

/// First of the two table tiles for the pairs of two tiles.
#[cube]
fn strip_of(queries: usize, pair: &Pair) -> usize {
    queries.div_ceil(TILE) - 1 + pair.keys - pair.queries
}

/// Adds the scores by distance of a pair of tiles to logits `[rows, COLUMNS]`, whose rows are queries, or keys with `by_key`.
#[cube]
pub(super) fn add_scores_by_distance<F: Float, N: Size>(
    logits: &mut Array<f32>,
    room: &mut SharedMemory,
    inputs: &Inputs<F, N>,
    pair: &Pair,
    #[comptime] by_key: bool,
    #[comptime] form: KernelConfig,
) {
    if comptime!(form.made.relative) {
        let (queries, table) = (inputs.relative_queries.as_ref().unwrap(), inputs.table.as_ref().unwrap());
        let rows = comptime!(form.rows);
        let of_queries = rows_of(queries, pair.row, pair.head, pair.queries);
        let strip = strip_of(queries.shape(2), pair);
        #[unroll]
        for half in 0..2 {
            let of_table = rows_of(table, pair.row % table.shape(0), pair.head % table.shape(1), strip + half);
            let mut scores = Array::<f32>::new(comptime!(rows * COLUMNS));
            add_products_of_rows(&mut scores, room, queries, &of_queries, table, &of_table, rows);
            sync_cube();
            write_tile(room, &scores, rows);
            sync_cube();
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..COLUMNS {
                    let (row, column) = (own_row(i, rows), own_column(j));
                    let query = if by_key { column } else { row };
                    let key = if by_key { row } else { column };
                    let place = key + MIDDLE - query;
                    if place / TILE == half {
                        logits[i * COLUMNS + j] += number_at(room, query, place % TILE);
                    }
                }
            }
        }
    }
}

/// Adds the products of the logit gradients `slopes` of a pair of tiles, with query rows, and `wide` columns of the table.
#[cube]
pub(super) fn add_products_by_distance<F: Float, N: Size>(
    sums: &mut Array<Four>,
    room: &mut SharedMemory,
    slopes: &Array<f32>,
    queries: usize,
    table: &Tensor<Vector<F, N>>,
    pair: &Pair,
    first: usize,
    #[comptime] wide: usize,
    #[comptime] rows: usize,
) {
    sync_cube();
    write_tile(room, slopes, rows);
    sync_cube();
    let mut near = Array::<f32>::new(comptime!(rows * COLUMNS));
    let mut far = Array::<f32>::new(comptime!(rows * COLUMNS));
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (query, place) = (own_row(i, rows), own_column(j));
            // These keys of the first table tile are below or on a diagonal, those of the second above it.
            let number = number_at(room, query, (query + place + 1) % TILE);
            let is_near = query + place >= MIDDLE;
            near[i * COLUMNS + j] = select(is_near, number, 0.0f32);
            far[i * COLUMNS + j] = select(is_near, 0.0f32, number);
        }
    }
    let strip = strip_of(queries, pair);
    #[unroll]
    for half in 0..2 {
        sync_cube();
        if comptime!(half == 0) {
            write_tile(room, &near, rows);
        } else {
            write_tile(room, &far, rows);
        }
        let of_table = rows_of(table, pair.row % table.shape(0), pair.head % table.shape(1), strip + half);
        add_product_of_tile(sums, room, table, &of_table, first, wide, rows);
    }
}

/// Shifts the logit gradients `slopes` of a pair of tiles, with query rows, to the rows of their first or second table tile, and writes them to the tile in
/// shared memory. The columns of that tile are queries.
#[cube]
pub(super) fn write_by_distance(room: &mut SharedMemory, slopes: &Array<f32>, half: usize, #[comptime] rows: usize) {
    sync_cube();
    write_tile(room, slopes, rows);
    sync_cube();
    let mut moved = Array::<f32>::new(comptime!(rows * COLUMNS));
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..COLUMNS {
            let (place, query) = (own_row(i, rows), own_column(j));
            let number = number_at(room, query, (query + place + 1) % TILE);
            // Two selections: in C++ for CUDA, CubeCL cannot compare one boolean with another.
            let (near, far) = (select(half == 0, number, 0.0f32), select(half == 0, 0.0f32, number));
            moved[i * COLUMNS + j] = select(query + place >= MIDDLE, near, far);
        }
    }
    sync_cube();
    write_tile(room, &moved, rows);
}
