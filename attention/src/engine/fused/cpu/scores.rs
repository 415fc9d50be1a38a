//! The logits of a tile.

use std::sync::Arc;

use pulp::Simd;

use super::kernel::{Aligned, Matrix, Sparsity, product};
use super::layout::{Inputs, Placed, Places, Sizes, is_triangle, of_plane, shift};
use super::packed::Packed;
use super::terms::{Scratch, Terms, TileIndex};
use crate::contract::visibility::{TILE, Tile, TileVisibility};
use crate::engine::fused::plan::Part;

/// Inputs of the logits of one batch row and head in one part.
pub(super) struct Scores<'a> {
    part: &'a Part,
    /// Batch row and head.
    pub place: [usize; 2],
    pub terms: Terms<'a>,
    /// Width of the factors.
    factor: usize,
    queries: Placed<'a>,
    /// `[tiles, factor, TILE]`.
    keys_transposed: Arc<Aligned>,
}

impl<'a> Scores<'a> {
    /// Scores of a plane in part `number`.
    pub(super) fn new(inputs: Inputs<'a>, number: usize, plane: usize, packed: &Packed) -> Self {
        let Sizes { heads, queries, keys, factor, .. } = inputs.sizes;
        let part = &inputs.plan.parts[number];
        let (row, head) = (plane / heads, plane % heads);
        let places = Places::new(part.queries.as_ref(), row, head, queries);
        let key_places = Places::new(part.keys.as_ref(), row, head, keys);
        Self {
            part,
            place: [row, head],
            terms: Terms::new(&inputs, row, head, [places, key_places]),
            factor,
            queries: places.rows(inputs.queries.of(row, head), factor),
            keys_transposed: packed.keys(inputs, number, plane),
        }
    }

    /// Key tiles with pairs visible to a query tile.
    #[inline(always)]
    pub(super) fn met_by_queries(&self, tile: usize) -> &'a [Tile] {
        let [row, head] = self.place;
        self.part.tiles.met_by_queries(row, head, tile)
    }

    /// Writes the logits of a tile with visible pairs `pairs`; returns whether no query sees a key after its own place.
    #[inline(always)]
    pub(super) fn logits<S: Simd>(&self, simd: S, at: TileIndex, pairs: TileVisibility, logits: &mut [f32], scratch: &mut Scratch) -> bool {
        let factor = self.factor;
        let queries = self.queries.matrix().rows_from(at.queries * TILE);
        let keys = Matrix { numbers: of_plane(&self.keys_transposed, at.keys, TILE * factor), stride: TILE };
        let is_triangle = is_triangle(&self.part.tiles, pairs);
        let triangle = if is_triangle { Sparsity::TriangleOfResult } else { Sparsity::None };
        product(simd, [at.height, TILE, factor], triangle, queries, keys, logits);
        self.terms.add(simd, at, is_triangle, logits, scratch);
        shift(logits, &self.part.tiles, pairs);
        self.terms.limit(at, logits, |_, _| {});
        is_triangle
    }
}
