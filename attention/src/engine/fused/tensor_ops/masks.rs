//! Additive masks of a plan's parts. They are cached as long as the parts exist: the layers of a model, and their backward passes, use the same ones.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, TensorData};

use super::tensors::part as slice;
use crate::contract::visibility::{TILE, TileMap, TileVisibility, hidden_logit};
use crate::engine::fused::plan::{Part, distinct};

/// Cache over all devices, at most 256 MiB: a mask contains a number per pair.
pub(super) static MASKS: Masks = Masks::new(256 << 20);

/// Some queries and all keys, and the device and type of their mask.
pub(super) struct Strip<'a, B: Backend> {
    pub queries: &'a Range<usize>,
    pub keys: usize,
    pub device: &'a B::Device,
    pub dtype: DType,
}

/// Cached masks, oldest first.
pub(super) struct Masks {
    most_bytes: usize,
    kept: Mutex<Vec<Kept>>,
}

struct Kept {
    origin: Origin,
    queries: Range<usize>,
    keys: usize,
    bytes: usize,
    dtype: DType,
    /// A [`Place`] of some backend.
    place: Box<dyn Any + Send>,
}

struct Place<B: Backend> {
    device: B::Device,
    mask: FloatTensor<B>,
}

/// Origin of a mask. A weak reference also prevents reuse of its address.
enum Origin {
    /// A plan with index places. Each call has its own plan, but the tiles are those of the visibility.
    Tiles(Weak<TileMap>),
    Parts(Weak<[Part]>),
}

impl Origin {
    fn of(parts: &Arc<[Part]>) -> Self {
        match &**parts {
            [part] if part.is_in_order() => Self::Tiles(Arc::downgrade(&part.tiles)),
            _ => Self::Parts(Arc::downgrade(parts)),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tiles(own), Self::Tiles(other)) => own.ptr_eq(other),
            (Self::Parts(own), Self::Parts(other)) => own.ptr_eq(other),
            _ => false,
        }
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Tiles(tiles) => tiles.strong_count() > 0,
            Self::Parts(parts) => parts.strong_count() > 0,
        }
    }
}

impl Masks {
    const fn new(most_bytes: usize) -> Self {
        Self { most_bytes, kept: Mutex::new(Vec::new()) }
    }

    /// Mask of some queries, `[B|1, H|1, queries, keys]`.
    pub(super) fn mask<B: Backend>(&self, parts: &Arc<[Part]>, strip: Strip<B>) -> FloatTensor<B> {
        let origin = Origin::of(parts);
        if let Some(mask) = self.find(&origin, &strip) {
            return mask;
        }
        let (mask, bytes) = made(parts, &strip);
        let Strip { queries, keys, device, dtype } = strip;
        let place = Box::new(Place::<B> { device: device.clone(), mask: mask.clone() });
        self.keep(Kept { origin, queries: queries.clone(), keys, bytes, dtype, place });
        mask
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().expect("no panic happens while the masks are locked")
    }

    fn find<B: Backend>(&self, origin: &Origin, strip: &Strip<B>) -> Option<FloatTensor<B>> {
        self.lock().iter().find_map(|kept| {
            let is_it = kept.queries == *strip.queries && kept.keys == strip.keys && kept.dtype == strip.dtype && kept.origin.is(origin);
            let place = kept.place.downcast_ref::<Place<B>>().filter(|place| is_it && place.device == *strip.device)?;
            Some(place.mask.clone())
        })
    }

    /// Caches a mask, evicting unreachable ones, and the oldest if space is insufficient.
    fn keep(&self, mask: Kept) {
        if mask.bytes > self.most_bytes {
            return;
        }
        let mut kept = self.lock();
        let mut forgotten: Vec<Kept> = kept.extract_if(.., |kept| !kept.origin.is_alive()).collect();
        kept.push(mask);
        let mut bytes: usize = kept.iter().map(|kept| kept.bytes).sum();
        let is_too_much = |kept: &mut Kept| {
            let is_too_much = bytes > self.most_bytes;
            bytes -= if is_too_much { kept.bytes } else { 0 };
            is_too_much
        };
        forgotten.extend(kept.extract_if(.., is_too_much));
        // Tensors are returned to their device after unlocking the masks, since the device may then run arbitrary code.
        drop(kept);
        drop(forgotten);
    }
}

/// The mask, and its size in bytes.
fn made<B: Backend>(parts: &[Part], strip: &Strip<B>) -> (FloatTensor<B>, usize) {
    match parts {
        [part] if part.is_in_order() => of_tiles(&part.tiles, strip),
        _ => {
            let (numbers, shape) = of_pairs(parts, strip);
            let bytes = numbers.len() * strip.dtype.size();
            (B::float_from_data(TensorData::new(numbers, shape).convert_dtype(strip.dtype), strip.device), bytes)
        }
    }
}

/// Pairs per tile.
const PAIRS: usize = TILE * TILE;

/// Mask of tiles in index order. Planes repeat few distinct tiles: each is uploaded once, and the device distributes it.
fn of_tiles<B: Backend>(map: &TileMap, strip: &Strip<B>) -> (FloatTensor<B>, usize) {
    let Strip { queries, keys, device, dtype } = strip;
    let hidden = hidden_logit(*dtype);
    let [rows, heads] = map.distinct();
    let (query_tiles, key_tiles) = (queries.start / TILE..queries.end.div_ceil(TILE), keys.div_ceil(TILE));
    // The first one is that of hidden tiles.
    let mut numbers = vec![hidden; PAIRS];
    let (mut known, mut places) = (HashMap::new(), Vec::new());
    for (row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
        for tile in query_tiles.clone() {
            let first = places.len();
            places.resize(first + key_tiles, 0i32);
            for tile in map.met_by_queries(row, head, tile) {
                places[first + tile.index as usize] = *known.entry(tile.visible).or_insert_with(|| {
                    numbers.extend(of_tile(map, tile.visible, hidden));
                    (numbers.len() / PAIRS) as i32 - 1
                });
            }
        }
    }
    let (different, count) = (numbers.len() / PAIRS, places.len());
    let tiles = B::float_from_data(TensorData::new(numbers, [different, PAIRS]).convert_dtype(*dtype), device);
    let tiles = B::float_select(tiles, 0, B::int_from_data(TensorData::new(places, [count]), device));
    let tiles = B::float_reshape(tiles, Shape::new([count / key_tiles, key_tiles, TILE, TILE]));
    let whole = Shape::new([rows, heads, query_tiles.len() * TILE, key_tiles * TILE]);
    let whole = B::float_reshape(B::float_swap_dims(tiles, 1, 2), whole);
    let before = query_tiles.start * TILE;
    let mask = slice::<B>(&slice::<B>(&whole, 2, queries.start - before..queries.end - before), 3, 0..*keys);
    (mask, count * PAIRS * dtype.size())
}

/// Numbers of a tile, query by query.
fn of_tile(map: &TileMap, pairs: TileVisibility, hidden: f32) -> Vec<f32> {
    match pairs {
        TileVisibility::All => vec![0.0; PAIRS],
        TileVisibility::Masked(mask) => {
            let rows = map.mask(mask).iter();
            rows.flat_map(|bits| (0..TILE).map(move |key| if bits >> key & 1 == 1 { 0.0 } else { hidden })).collect()
        }
        TileVisibility::Levelled(levels) => map.levels(levels).iter().map(|&level| map.shifts()[level as usize].max(hidden)).collect(),
    }
}

/// The same for any parts, pair by pair, with its shape.
fn of_pairs<B: Backend>(parts: &[Part], strip: &Strip<B>) -> (Vec<f32>, [usize; 4]) {
    let Strip { queries, keys, dtype, .. } = strip;
    let hidden = hidden_logit(*dtype);
    let [rows, heads] = distinct(parts);
    let mut numbers = vec![hidden; rows * heads * queries.len() * keys];
    for (plane, numbers) in numbers.chunks_mut(queries.len() * keys).enumerate() {
        for part in parts {
            part.each(plane / heads, plane % heads, queries, *keys, |query, key, shift| {
                let sum = &mut numbers[(query - queries.start) * keys + key];
                *sum = if *sum == hidden { shift } else { (sum.exp() + shift.exp()).ln() };
            });
        }
    }
    (numbers, [rows, heads, queries.len(), *keys])
}

#[cfg(all(test, feature = "wgpu"))]
mod tests;
