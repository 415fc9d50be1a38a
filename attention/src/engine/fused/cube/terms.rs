//! What logits are made of, tile by tile: what an attention does not have is not in its kernels either.

mod bias;
mod relative;
mod spans;

use cubecl::prelude::*;

pub(super) use self::bias::gradient_of_bias;
pub(super) use self::relative::{Relative, RelativeLaunch, add_gradients_of_queries, gradients_of_strips, sum_of_strips};
pub(super) use self::spans::{Spans, SpansLaunch, height, limited, longest_of_tiles};
use super::products::{Room, add_products_of_rows, rows_of};
use super::weights::{Place, hide, hide_by_key};

/// What is added up to logits, where it is there.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Terms<F: Float, N: Size> {
    pub content: ComptimeOption<Factors<F, N>>,
    /// `[B|1, H|1, Q, K]`.
    pub bias: ComptimeOption<OwnedTensor<F>>,
    pub relative: ComptimeOption<Relative<F, N>>,
    pub spans: ComptimeOption<Spans<F>>,
}

/// Thin factors of logits.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Factors<F: Float, N: Size> {
    /// `[B, H, Q, R]`.
    pub queries: OwnedTensor<Vector<F, N>>,
    /// `[B, H, K, R]`.
    pub keys: OwnedTensor<Vector<F, N>>,
}

/// A tile of a head of a row of the batch.
#[derive(CubeType)]
pub(super) struct At {
    pub row: usize,
    pub head: usize,
    /// Number among the tiles of queries.
    pub queries: usize,
    /// Number among the tiles of keys.
    pub keys: usize,
}

/// The first place from `at` on in a list of tiles that ends at `end` at which spans reach the tile, or the end.
#[cube]
pub(super) fn reached<F: Float, N: Size>(
    terms: &Terms<F, N>,
    tiles: &Tensor<u32>,
    place: &Place,
    at: usize,
    end: usize,
    #[comptime] by_key: bool,
) -> usize {
    let mut at = at;
    #[comptime]
    if let ComptimeOption::Some(spans) = &terms.spans {
        let mut searches = at < end;
        while searches {
            let other = tiles[at] as usize;
            let (queries, keys) = if comptime!(by_key) { (other, place.tile) } else { (place.tile, other) };
            searches = spans::are_beyond(spans, &At { row: place.row, head: place.head, queries, keys });
            if searches {
                at += 2;
                searches = at < end;
            }
        }
    }
    at
}

/// Adds the logits of a tile to `logits` `[rows, COLUMNS]`, limits them by spans, and hides what `mask` does. Rows are queries and columns are keys, or the
/// other way round if `by_key`.
#[cube]
pub(super) fn add_logits<F: Float, N: Size>(
    logits: &mut Array<f32>,
    room: &mut Room,
    terms: &Terms<F, N>,
    tiles: &Tensor<u32>,
    at: &At,
    mask: usize,
    #[comptime] rows: usize,
    #[comptime] by_key: bool,
) {
    add_scores(logits, room, terms, tiles, at, mask, rows, by_key);
    #[comptime]
    if let ComptimeOption::Some(spans) = &terms.spans {
        spans::limit(logits, spans, at, rows, by_key);
    }
}

/// [`add_logits`] as if spans had no end.
#[cube]
pub(super) fn add_scores<F: Float, N: Size>(
    logits: &mut Array<f32>,
    room: &mut Room,
    terms: &Terms<F, N>,
    tiles: &Tensor<u32>,
    at: &At,
    mask: usize,
    #[comptime] rows: usize,
    #[comptime] by_key: bool,
) {
    #[comptime]
    if let ComptimeOption::Some(content) = &terms.content {
        let of_queries = rows_of(&content.queries, at.row, at.head, at.queries);
        let of_keys = rows_of(&content.keys, at.row, at.head, at.keys);
        if by_key {
            add_products_of_rows(logits, room, &content.keys, &of_keys, &content.queries, &of_queries, rows);
        } else {
            add_products_of_rows(logits, room, &content.queries, &of_queries, &content.keys, &of_keys, rows);
        }
    }
    #[comptime]
    if let ComptimeOption::Some(bias) = &terms.bias {
        bias::add(logits, bias, at, rows, by_key);
    }
    #[comptime]
    if let ComptimeOption::Some(relative) = &terms.relative {
        relative::add(logits, room, relative, at, rows, by_key);
    }
    if by_key {
        hide_by_key(logits, tiles, mask, rows);
    } else {
        hide(logits, tiles, mask, rows);
    }
}
