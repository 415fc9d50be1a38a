//! Dense masks and tiles, cached with their visibility.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{Rule, Span, TILE, TileMap, Visibility};
use crate::contract::Positions;

pub(super) struct CachedTiles {
    span: Span,
    heads: usize,
    /// End of the computed queries in each batch row.
    ends: Option<Arc<[usize]>>,
    tiles: Arc<TileMap>,
}

pub(super) struct CachedMask {
    span: Span,
    heads: usize,
    dtype: DType,
    device: Device,
    mask: Option<DenseMask>,
}

/// A visibility in additive form for logits.
#[derive(Clone, Debug)]
pub struct DenseMask {
    /// 0 if visible, otherwise a large negative number, `[batch | 1, heads | 1, queries, keys]`.
    pub bias: Tensor<4>,
    /// 1 for rows with a visible key, otherwise 0, `[batch | 1, heads | 1, queries, 1]`; absent if every row has one.
    pub has_key: Option<Tensor<4>>,
}

impl Visibility {
    /// Additive mask for logits, or `None` if nothing is hidden.
    pub fn mask(&self, span: Span, heads: usize, dtype: DType, device: &Device) -> Option<DenseMask> {
        if matches!(*self.rule, Rule::All) {
            return None;
        }
        self.check_boolean();
        let locked = || self.dense.lock().expect("no panic happens while the cache is locked");
        if let Some(hit) = locked().iter().find(|c| {
            c.span == span && c.heads == heads && c.dtype == dtype && c.device == *device && c.device.is_autodiff() == device.is_autodiff()
        }) {
            return hit.mask.clone();
        }
        // Custom relations are evaluated here and may panic.
        let mask = self.build_mask(span, heads, dtype, device);
        keep(&mut locked(), CachedMask { span, heads, dtype, device: device.clone(), mask: mask.clone() });
        mask
    }

    /// Tile map of the visibility.
    pub fn tiles(&self, span: Span, heads: usize) -> Arc<TileMap> {
        self.tiles_up_to(span, heads, None)
    }

    /// Tile map of the visibility without tiles of padding queries that need not be computed: [`Positions::ends`].
    ///
    /// # Panics
    /// If the visibility is for another number of batch rows.
    pub(crate) fn tiles_of(&self, span: Span, heads: usize, positions: &Positions) -> Arc<TileMap> {
        let tiles = |end: &usize| end.saturating_sub(span.query_start).min(span.queries).div_ceil(TILE);
        // If no tile can be skipped, rows need not be distinguished.
        let ends = positions.ends.as_ref().filter(|ends| ends.iter().any(|end| tiles(end) < span.queries.div_ceil(TILE)));
        self.tiles_up_to(span, heads, ends)
    }

    fn tiles_up_to(&self, span: Span, heads: usize, ends: Option<&Arc<[usize]>>) -> Arc<TileMap> {
        self.check_boolean();
        let locked = || self.tiles.lock().expect("no panic happens while the cache is locked");
        if let Some(hit) = locked().iter().find(|cached| cached.span == span && cached.heads == heads && cached.ends.as_ref() == ends) {
            return hit.tiles.clone();
        }
        let tiles = Arc::new(TileMap::of_real_queries(self, span, heads, ends.map(|ends| &**ends)));
        keep(&mut locked(), CachedTiles { span, heads, ends: ends.cloned(), tiles: tiles.clone() });
        tiles
    }

    fn build_mask(&self, span: Span, heads: usize, dtype: DType, device: &Device) -> Option<DenseMask> {
        if self.is_given() {
            return Some(self.given_mask(span, heads, dtype, device));
        }
        let rows = self.rows();
        let heads = if self.depends_on_head() { heads } else { 1 };
        let visible = self.booleans(span, rows, heads);
        if visible.iter().all(|&visible| visible) {
            return None;
        }
        let bias = visible.iter().map(|&visible| if visible { 0.0 } else { hidden_logit(dtype) }).collect::<Vec<_>>();
        let has_key = visible.chunks(span.keys).map(|row| if row.contains(&true) { 1.0f32 } else { 0.0 }).collect::<Vec<_>>();
        let tensor = |values, last| Tensor::from_data(TensorData::new(values, [rows, heads, span.queries, last]), (device, dtype));
        Some(DenseMask { has_key: has_key.contains(&0.0).then(|| tensor(has_key, 1)), bias: tensor(bias, span.keys) })
    }
}

/// Number of cached results per visibility. Calls of one training step use few spans; decoding uses a new span at each step.
pub(super) const KEPT: usize = 4;

/// Caches a result, replacing the oldest if the cache is full.
fn keep<T>(cache: &mut Vec<T>, result: T) {
    if cache.len() == KEPT {
        cache.remove(0);
    }
    cache.push(result);
}

/// Bias of hidden logits: finite, so that a row without keys stays free of NaN, and so far below any logit that `exp(x - max)` is exactly 0.
pub(crate) const fn hidden_logit(dtype: DType) -> f32 {
    if matches!(dtype, DType::F16) { -3.0e4 } else { -1.0e30 }
}

/// Lower bound for logits of visible keys, with any additive mask.
pub(crate) fn least_visible_logit(dtype: DType) -> f32 {
    hidden_logit(dtype) / 2.0
}
