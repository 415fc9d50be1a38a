//! Visibility and dropout in device-readable form.

use std::sync::{Arc, Mutex, Weak};

use burn::backend::Backend;
use burn::backend::tensor::IntTensor;
use burn::tensor::{Element, TensorData};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

use crate::contract::visibility::{TILE, Tile, TileMap, TileVisibility};

/// A [`TileMap`] on a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceTiles {
    /// Offsets of the query tiles' lists, in order of distinct rows and heads, then of the key tiles' lists, then the end of the last one. Then the lists: per
    /// visible tile its index, and the offset of its mask or 0. Then the masks: two words per query.
    pub words: CubeTensor,
    /// Number of lists before those of the key tiles.
    pub by_key: usize,
    pub rows: usize,
    pub heads: usize,
}

/// Uploads for maps that are still in use.
static UPLOADED: Mutex<Vec<(Weak<TileMap>, CubeDevice, DeviceTiles)>> = Mutex::new(Vec::new());

impl DeviceTiles {
    /// Uploads `map` over `lengths` queries and keys, once per device.
    pub(super) fn new(map: &Arc<TileMap>, lengths: [usize; 2], device: &CubeDevice) -> Self {
        let mut uploaded = UPLOADED.lock().expect("no panic happens while the cache is locked");
        uploaded.retain(|(map, ..)| map.strong_count() > 0);
        let of_this = |known: &Weak<TileMap>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(map));
        if let Some((_, _, tiles)) = uploaded.iter().find(|(known, place, _)| of_this(known) && place == device) {
            return tiles.clone();
        }
        let tiles = Self::upload(map, lengths.map(|length| length.div_ceil(TILE)), device);
        uploaded.push((Arc::downgrade(map), device.clone(), tiles.clone()));
        tiles
    }

    fn upload(map: &TileMap, [query_tiles, key_tiles]: [usize; 2], device: &CubeDevice) -> Self {
        let [rows, heads] = map.distinct();
        let planes = || (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head)));
        let by_query = planes().flat_map(|(row, head)| (0..query_tiles).map(move |tile| map.met_by_queries(row, head, tile)));
        let by_key = planes().flat_map(|(row, head)| (0..key_tiles).map(move |tile| map.met_by_keys(row, head, tile)));
        let lists: Vec<&[Tile]> = by_query.chain(by_key).collect();
        let visible: usize = lists.iter().map(|list| list.len()).sum();

        let (starts, pairs) = (lists.len() + 1, 2 * visible);
        let mut words = Vec::with_capacity(starts + pairs);
        let mut next = starts;
        for list in &lists {
            words.push(next as u32);
            next += 2 * list.len();
        }
        words.push(next as u32);
        for tile in lists.iter().copied().flatten() {
            words.extend(match tile.visible {
                TileVisibility::All => [tile.index, 0],
                TileVisibility::Masked(mask) => [tile.index, (starts + pairs) as u32 + mask * 2 * TILE as u32],
                TileVisibility::Levelled(_) => unreachable!("the kernels are given plain maps"),
            });
        }
        words.extend(map.masks().iter().flatten().flat_map(|&bits| [bits as u32, (bits >> 32) as u32]));
        Self { words: integers::<CubeBackend, u32>(words, device), by_key: rows * heads * query_tiles, rows, heads }
    }
}

/// Words of an attention without dropout.
pub(super) fn none(device: &CubeDevice) -> CubeTensor {
    integers::<CubeBackend, u32>(vec![0; 2], device)
}

/// A list of numbers on a device.
pub(super) fn integers<B: Backend, E: Element>(numbers: Vec<E>, device: &B::Device) -> IntTensor<B> {
    let count = numbers.len();
    B::int_from_data(TensorData::new(numbers, [count]), device)
}
