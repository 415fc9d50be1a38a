//! Terms added to the product of thin factors, tile by tile, and their gradients.

mod bias;
mod gradients;

use pulp::Simd;

pub(super) use self::bias::{BiasOfGroup, BiasOfPlanes};
pub(super) use self::gradients::{TermGradients, TermsOfPlane};
use super::kernel::{Aligned, Matrix, Sparsity, product, transposed_tiles, widened, widened_tiles};
use super::layout::{Inputs, Places, Planes, Sizes, of_plane};
use crate::contract::visibility::TILE;
use crate::engine::fused::plan::Cap;
use crate::engine::soft_cap::bound;
use crate::engine::{GaussianWeights, Ramp};

/// The terms of one batch row and head in one part.
pub(super) struct Terms<'a> {
    /// Places of queries and of keys.
    pub places: [Places<'a>; 2],
    keys: usize,
    bias: Option<Bias<'a>>,
    is_bias_trained: bool,
    relative: Option<Relative<'a>>,
    kronecker: Option<Kronecker<'a>>,
    spans: Option<Spans<'a>>,
    gaussians: Option<GaussianPlane<'a>>,
    cap: Option<Cap>,
}

/// Pairwise logits.
#[derive(Clone, Copy)]
struct Bias<'a> {
    /// `[Q, K]`.
    numbers: &'a [f32],
    /// Their scale.
    scale: Option<f32>,
}

/// Closed-form weights of one batch row and head.
#[derive(Clone, Copy)]
struct GaussianPlane<'a> {
    gaussians: &'a GaussianWeights,
    row: usize,
    head: usize,
}

/// A tile: its indices among query and key tiles, and its number of queries.
#[derive(Clone, Copy)]
pub(super) struct TileIndex {
    pub queries: usize,
    pub keys: usize,
    pub height: usize,
}

/// Temporary tiles.
#[derive(Default)]
pub(super) struct Scratch {
    scores: Vec<f32>,
    products: Vec<f32>,
    /// Derivatives of the soft cap for the logits of the latest tile; empty without a cap.
    cap_slopes: Vec<f32>,
}

/// Scores by distance. Over a pair of tiles, distances take `2 TILE - 1` successive values; the difference of the tile indices selects the strip of the table.
struct Relative<'a> {
    query_tiles: usize,
    width: usize,
    /// `[Q, S]`.
    queries: Matrix<'a>,
    /// `[strips + 1, S, TILE]`: a strip consists of two successive halves.
    halves: Aligned,
    /// `[(strips + 1) TILE, padded S]`.
    rows: Aligned,
    /// `[query tiles, TILE, padded S]`.
    query_rows: Aligned,
}

/// Kronecker products of vectors of each query.
#[derive(Clone, Copy)]
struct Kronecker<'a> {
    /// `[Q, a]`.
    left: Matrix<'a>,
    /// `[Q, b]`.
    right: Matrix<'a>,
    /// The pair of the first key.
    first: isize,
}

/// The factors in a query's two vectors for each key of a tile.
type PairsOfTile = [[usize; 2]; TILE];

impl<'a> Kronecker<'a> {
    fn new(inputs: &Inputs<'a>, row: usize, head: usize) -> Option<Self> {
        let Sizes { heads, queries, pairs, .. } = inputs.sizes;
        let of = |numbers, width| Matrix { numbers: of_plane(numbers, row * heads + head, queries * width), stride: width };
        let [a, b] = pairs;
        (a > 0).then(|| Self { left: of(inputs.left, a), right: of(inputs.right, b), first: inputs.plan.first_pair(row) })
    }

    fn pairs(&self, places: Places, tile: usize) -> PairsOfTile {
        let mut pairs = [[0; 2]; TILE];
        places.each(tile, |place, key| {
            let pair = (self.first + key as isize).max(0) as usize;
            pairs[place] = [pair / self.right.stride, pair % self.right.stride];
        });
        pairs
    }

    /// The two vectors of a query.
    fn vectors(&self, query: usize) -> [&'a [f32]; 2] {
        [self.left, self.right].map(|factors| factors.row(query, factors.stride))
    }
}

/// Soft span masks.
#[derive(Clone, Copy)]
struct Spans<'a> {
    ramp: Ramp,
    /// One per query, or one for all.
    lengths: &'a [f32],
}

impl Spans<'_> {
    fn length(&self, query: usize) -> f32 {
        self.lengths[if self.lengths.len() == 1 { 0 } else { query }]
    }
}

/// Columns of a strip.
const STRIP: usize = 2 * TILE;

impl<'a> Relative<'a> {
    fn new(inputs: &Inputs<'a>, table: Planes<'a>, row: usize, head: usize) -> Self {
        let Sizes { heads, queries, keys, relative: width, .. } = inputs.sizes;
        let (query_tiles, key_tiles) = (queries.div_ceil(TILE), keys.div_ceil(TILE));
        let own_queries = Matrix { numbers: of_plane(inputs.relative_queries, row * heads + head, queries * width), stride: width };
        // The last query of the last tile would be the first row: rows before it belong to missing queries.
        let first = (query_tiles * TILE - queries) * width;
        let table = table.of(row, head);
        let mut rows = vec![0.0; (query_tiles + key_tiles) * TILE * width];
        rows[first..][..table.len()].copy_from_slice(table);
        let (matrix, count) = (Matrix { numbers: &rows, stride: width }, (query_tiles + key_tiles) * TILE);
        Self {
            query_tiles,
            width,
            queries: own_queries,
            halves: transposed_tiles(matrix, count, width),
            rows: widened(matrix, count, width),
            query_rows: widened_tiles(own_queries, queries, width),
        }
    }

    fn strip(&self, [queries, keys]: [usize; 2]) -> usize {
        self.query_tiles - 1 - queries + keys
    }
}

/// Start of a tile query's scores in its strip row: the next query's distances are longer by one.
fn first_column(query: usize) -> usize {
    TILE - 1 - query
}

impl<'a> Terms<'a> {
    pub(super) fn new(inputs: &Inputs<'a>, row: usize, head: usize, places: [Places<'a>; 2]) -> Self {
        let spans = inputs.spans.zip(inputs.plan.ramp).map(|(spans, ramp)| Spans { ramp, lengths: spans.of(row, head) });
        let relative = inputs.relative_keys.map(|table| {
            assert!(places.iter().all(|places| matches!(places, Places::InOrder(_))), "scores by distance go in the order of indices");
            Relative::new(inputs, table, row, head)
        });
        let gaussians = inputs.plan.gaussians.as_deref().map(|gaussians| GaussianPlane { gaussians, row, head });
        let scale = inputs.bias_scale.map(|scale| scale.of(row, head)[0]);
        let bias = inputs.bias.map(|bias| Bias { numbers: bias.of(row, head), scale });
        Self {
            places,
            keys: inputs.sizes.keys,
            bias,
            is_bias_trained: inputs.trained_bias().is_some(),
            relative,
            kronecker: Kronecker::new(inputs, row, head),
            spans,
            gaussians,
            cap: inputs.plan.cap,
        }
    }

    /// Whether any input of the logits has a gradient.
    pub(super) fn have_gradients(&self, factor: usize) -> bool {
        factor > 0 || self.is_bias_trained || self.relative.is_some() || self.kronecker.is_some() || self.spans.is_some()
    }

    /// Whether no query of a tile reaches a key of the other tile.
    pub(super) fn are_beyond(&self, TileIndex { queries, keys, height }: TileIndex) -> bool {
        let [Places::InOrder(_), Places::InOrder(count)] = self.places else { return false };
        if let Some(GaussianPlane { gaussians, row, head }) = self.gaussians {
            return gaussians.are_beyond(row, head, queries * TILE..queries * TILE + height, keys * TILE..count.min((keys + 1) * TILE));
        }
        let Some(spans) = self.spans else { return false };
        let ramp = Ramp { nearest: 0, ..spans.ramp };
        let (first, last) = (keys * TILE, count.min((keys + 1) * TILE) - 1);
        (queries * TILE..queries * TILE + height).all(|query| {
            let nearest = (query as isize + ramp.offset).clamp(first as isize, last as isize) as usize;
            // At height 0 a key has no weight, but its ramp has a slope.
            ramp.height(spans.length(query), query, nearest) < 0.0
        })
    }

    /// Adds the terms, except span ends, to the logits of a tile and caps them. In a triangle, keys after a query's own place get arbitrary numbers.
    #[inline(always)]
    pub(super) fn add<S: Simd>(&self, simd: S, at: TileIndex, is_triangle: bool, logits: &mut [f32], scratch: &mut Scratch) {
        let TileIndex { queries, keys, height } = at;
        let [query_places, key_places] = self.places;
        if let Some(GaussianPlane { gaussians, row, head }) = self.gaussians {
            for (at, logits) in logits.chunks_exact_mut(TILE).take(height).enumerate() {
                let gaussian = gaussians.row(row, head, query_places.index(queries * TILE + at));
                key_places.each(keys, |place, key| logits[place] += gaussian.logit(key as f32));
            }
        }
        if !self.is_capped_before_bias() {
            self.add_bias(at, logits);
        }
        if let Some(relative) = &self.relative {
            let Relative { width, .. } = *relative;
            let scores = &mut scratch.scores;
            scores.resize(TILE * STRIP, 0.0);
            let own = Matrix { numbers: &relative.queries.numbers[queries * TILE * width..], stride: width };
            let strip = relative.strip([queries, keys]);
            let halves = scores.chunks_exact_mut(TILE * TILE).enumerate();
            for (half, scores) in halves.take(if is_triangle { 1 } else { 2 }) {
                let numbers = of_plane(&relative.halves, strip + half, TILE * width);
                let right = Matrix { numbers, stride: TILE };
                product(simd, [height, TILE, width], Sparsity::BandOfResult(half * TILE), own, right, scores);
            }
            let (earlier, later) = scores.split_at(TILE * TILE);
            for (at, logits) in logits.chunks_exact_mut(TILE).take(height).enumerate() {
                let (first, row) = (first_column(at), at * TILE..(at + 1) * TILE);
                let scores = earlier[row.clone()][first..].iter().chain(&later[row][..first]);
                for (logit, score) in logits.iter_mut().zip(scores) {
                    *logit += score;
                }
            }
        }
        if let Some(kronecker) = self.kronecker {
            let pairs = kronecker.pairs(key_places, keys);
            for (at, logits) in logits.chunks_exact_mut(TILE).take(height).enumerate() {
                let [left, right] = kronecker.vectors(query_places.index(queries * TILE + at));
                for (logit, &[a, b]) in logits.iter_mut().zip(&pairs) {
                    *logit += left[a] * right[b];
                }
            }
        }
        if let Some(cap) = self.cap {
            scratch.cap_slopes.resize(TILE * TILE, 0.0);
            bound(cap.limit, &mut logits[..height * TILE], &mut scratch.cap_slopes);
        }
        if self.is_capped_before_bias() {
            self.add_bias(at, logits);
        }
    }

    /// Whether the bias is added after a soft cap of the logits.
    pub(super) fn is_capped_before_bias(&self) -> bool {
        self.cap.is_some_and(|cap| cap.is_before_bias)
    }

    /// Gradients before the soft cap, from those of the logits of the tile that was [added](Self::add) last.
    #[inline(always)]
    pub(super) fn differentiate_cap(&self, TileIndex { height, .. }: TileIndex, slopes: &mut [f32], scratch: &Scratch) {
        if self.cap.is_some() {
            slopes[..height * TILE].iter_mut().zip(&scratch.cap_slopes).for_each(|(slope, by)| *slope *= by);
        }
    }

    /// Adds the log span factors to the logits of a tile, with minus infinity for hidden pairs. Calls `end` with each key exactly at the end of a ramp, its
    /// place in the tile, and its previous logit.
    #[inline(always)]
    pub(super) fn limit(&self, TileIndex { queries, keys, height }: TileIndex, logits: &mut [f32], mut end: impl FnMut(usize, f32)) {
        let Some(spans) = self.spans else { return };
        let [query_places, key_places] = self.places;
        for (at, logits) in logits.chunks_exact_mut(TILE).take(height).enumerate() {
            let query = query_places.index(queries * TILE + at);
            let length = spans.length(query);
            key_places.each(keys, |place, key| {
                let height = spans.ramp.height(length, query, key);
                if height == 0.0 {
                    end(at * TILE + place, logits[place]);
                }
                if height < 1.0 {
                    logits[place] += height.max(0.0).ln();
                }
            });
        }
    }
}

/// A key exactly at the end of a query's ramp.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// Place in its tile.
    pub place: usize,
    /// Its logit without the span end.
    pub score: f32,
}
