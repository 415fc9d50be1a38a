//! Keys and values in the layout of the products.

use std::sync::Arc;

use super::kernel::{Aligned, transposed_tiles, widened_tiles};
use super::layout::{Inputs, Places, Sizes};
use crate::engine::fused::plan::Part;

/// Keys and values of a batch row and key head, packed once for all heads that share them. A head packs data of its own, or in its own order, itself.
pub(super) struct Packed {
    /// Keys and values in each part.
    parts: Vec<Option<[Arc<Aligned>; 2]>>,
}

impl Packed {
    /// Packs the keys and values with this index.
    pub(super) fn new(inputs: Inputs, number: usize) -> Self {
        let group = inputs.sizes.group();
        let pack = |part: &Part| {
            let is_shared = group > 1 && part.has_keys_in_one_order();
            is_shared.then(|| [keys(inputs, part, number * group), values(inputs, part, number * group)].map(Arc::new))
        };
        Self { parts: inputs.plan.parts.iter().map(pack).collect() }
    }

    /// Keys of a plane that shares them, `[tiles, factor, TILE]`.
    pub(super) fn keys(&self, inputs: Inputs, part: usize, plane: usize) -> Arc<Aligned> {
        match &self.parts[part] {
            Some([keys, _]) => keys.clone(),
            None => Arc::new(keys(inputs, &inputs.plan.parts[part], plane)),
        }
    }

    /// Their values, `[tiles, TILE, padded value]`.
    pub(super) fn values(&self, inputs: Inputs, part: usize, plane: usize) -> Arc<Aligned> {
        match &self.parts[part] {
            Some([_, values]) => values.clone(),
            None => Arc::new(values(inputs, &inputs.plan.parts[part], plane)),
        }
    }
}

fn keys(inputs: Inputs, part: &Part, plane: usize) -> Aligned {
    let Sizes { heads, keys, factor, .. } = inputs.sizes;
    let (row, head) = (plane / heads, plane % heads);
    let places = Places::new(part.keys.as_ref(), row, head, keys);
    transposed_tiles(places.rows(inputs.keys.of(row, head), factor).matrix(), places.len(), factor)
}

fn values(inputs: Inputs, part: &Part, plane: usize) -> Aligned {
    let Sizes { heads, keys, value, .. } = inputs.sizes;
    let (row, head) = (plane / heads, plane % heads);
    let places = Places::new(part.keys.as_ref(), row, head, keys);
    widened_tiles(places.rows(inputs.values.of(row, head), value).matrix(), places.len(), value)
}
