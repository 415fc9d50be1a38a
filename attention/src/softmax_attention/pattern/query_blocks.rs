//! Blocks into which a pattern groups the queries of a span.

use std::collections::{BTreeMap, HashMap};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::Pattern;
use crate::contract::Positions;
use crate::contract::visibility::{Span, TILE, TileLevels, TileMapBuilder, VISIBLE, Visibility, hidden_logit};
use crate::engine::blocked::Blocks;
use crate::engine::fused::{Order, Part};

/// Queries of a block and the keys that at least one of them sees, as indices in a span.
#[derive(Clone, Debug)]
struct Block {
    queries: Vec<usize>,
    keys: Vec<usize>,
}

/// Blocks of all distinct batch rows and heads, created on the host.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    span: Span,
    /// Visibility with all restrictions.
    seen: Visibility,
    /// Distinct batch rows and heads of blocks.
    planes: [usize; 2],
    /// Distinct batch rows and heads of masks within the same blocks.
    mask_planes: [usize; 2],
    /// Padding of each row.
    counts: Vec<usize>,
    lists: Vec<Vec<Block>>,
}

/// Number of blocks above which a key is grouped with similar keys rather than with its neighbours.
const BLOCKS_OF_A_NEIGHBOURHOOD: usize = 8;

impl Grouping {
    /// Groups the queries of a span. `seen` contains every restriction, including the pattern.
    pub(crate) fn new(pattern: &dyn Pattern, seen: &Visibility, span: Span, positions: &Positions, all_heads: usize) -> Self {
        let heads = if pattern.depends_on_head() { all_heads } else { 1 };
        let mask_heads = if seen.depends_on_head() { all_heads } else { heads };
        let counts = positions.left_padding.as_deref().unwrap_or(&[0]);
        let (rows, mask_rows) = (counts.len(), seen.rows().max(counts.len()));
        let (query_start, key_start) = (span.query_start, span.key_start);
        let mut lists: Vec<Vec<Block>> = Vec::with_capacity(rows * heads);
        for (row, &count) in counts.iter().enumerate() {
            for head in 0..heads {
                let mut queries = BTreeMap::<usize, Vec<usize>>::new();
                for position in query_start.max(count)..query_start + span.queries {
                    let position = position - count;
                    queries.entry(pattern.block(head, position)).or_default().push(position);
                }
                let keys = key_start.saturating_sub(count)..(key_start + span.keys).saturating_sub(count);
                let sharing_rows = if rows == 1 { 0..mask_rows } else { row..row + 1 };
                let sharing_heads = if heads == 1 { 0..mask_heads } else { head..head + 1 };
                let blocks = queries.into_values().map(|queries| {
                    let mut keys = pattern.candidates(head, &queries, keys.clone());
                    keys.retain(|j| {
                        let visible = |row, head| queries.iter().any(|i| seen.is_visible(row, head, i + count, j + count));
                        sharing_rows.clone().any(|row| sharing_heads.clone().any(|head| visible(row, head)))
                    });
                    let index = |start: usize| move |position| position + count - start;
                    Block {
                        queries: queries.into_iter().map(index(query_start)).collect(),
                        keys: keys.into_iter().map(index(key_start)).collect(),
                    }
                });
                lists.push(blocks.collect());
            }
        }
        Self { span, seen: seen.clone(), planes: [rows, heads], mask_planes: [mask_rows, mask_heads], counts: counts.to_vec(), lists }
    }

    /// Index of the block list for a plane of masks.
    fn list(&self, row: usize, head: usize) -> usize {
        let [rows, heads] = self.planes;
        row.min(rows - 1) * heads + head.min(heads - 1)
    }

    fn is_visible(&self, row: usize, head: usize, query: usize, key: usize) -> bool {
        self.seen.is_visible(row, head, query + self.span.query_start, key + self.span.key_start)
    }

    /// Visible pairs of the blocks, ordered so that the queries of a block and their keys are adjacent.
    pub(crate) fn part(&self) -> Part {
        let [rows, heads] = self.mask_planes;
        let queries: Vec<Vec<u32>> =
            self.lists.iter().map(|blocks| blocks.iter().flat_map(|block| &block.queries).map(|&query| query as u32).collect()).collect();
        let keys: Vec<Vec<u32>> = self.lists.iter().map(|blocks| in_order_of_appearance(blocks)).collect();
        let mut builder = TileMapBuilder::new(rows, heads, &[]);
        for (row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            let list = self.list(row, head);
            let places: HashMap<usize, usize> = keys[list].iter().enumerate().map(|(place, &key)| (key as usize, place)).collect();
            let blocks: Vec<&Block> = self.lists[list].iter().flat_map(|block| std::iter::repeat_n(block, block.queries.len())).collect();
            builder.begin_plane();
            for (queries, blocks) in queries[list].chunks(TILE).zip(blocks.chunks(TILE)) {
                let mut tiles: BTreeMap<u32, Box<TileLevels>> = BTreeMap::new();
                for (at, (&query, block)) in queries.iter().zip(blocks).enumerate() {
                    for &key in block.keys.iter().filter(|&&key| self.is_visible(row, head, query as usize, key)) {
                        let place = places[&key];
                        let levels = tiles.entry((place / TILE) as u32).or_insert_with(|| Box::new([0; TILE * TILE]));
                        levels[at * TILE + place % TILE] = VISIBLE;
                    }
                }
                builder.push(queries.len(), tiles);
            }
        }
        let order = |indices: Vec<Vec<u32>>, all: usize| {
            let is_order = |list: &Vec<u32>| list.len() == all && list.iter().enumerate().all(|(place, &index)| place == index as usize);
            (!indices.iter().all(is_order)).then(|| Order::new(self.planes[1], indices))
        };
        Part { tiles: builder.finish().into(), queries: order(queries, self.span.queries), keys: order(keys, self.span.keys) }
    }

    /// The blocks as tensors.
    pub(crate) fn blocks(mut self, dtype: DType, device: &Device) -> Blocks {
        let Span { query_start, queries: length, .. } = self.span;
        let [rows, heads] = self.planes;
        let size = self.lists.iter().flatten().map(|block| block.queries.len()).max().unwrap_or(0).max(1);
        let width = self.lists.iter().flatten().map(|block| block.keys.len()).max().unwrap_or(0).max(1);
        for (index, blocks) in self.lists.iter_mut().enumerate() {
            // Padding queries see no key.
            let padding: Vec<usize> = (0..self.counts[index / heads].saturating_sub(query_start).min(length)).collect();
            blocks.extend(padding.chunks(size).map(|queries| Block { queries: queries.to_vec(), keys: Vec::new() }));
        }
        let count = self.lists.iter().map(Vec::len).max().unwrap_or(0);

        let mut queries = vec![0i32; rows * heads * count * size];
        let mut keys = vec![0i32; rows * heads * count * width];
        let mut places = vec![0i32; rows * heads * length];
        for (list, blocks) in self.lists.iter().enumerate() {
            for (at, block) in blocks.iter().enumerate() {
                for (place, &i) in block.queries.iter().enumerate() {
                    queries[(list * count + at) * size + place] = i as i32;
                    places[list * length + i] = (at * size + place) as i32;
                }
                for (place, &j) in block.keys.iter().enumerate() {
                    keys[(list * count + at) * width + place] = j as i32;
                }
            }
        }
        let [mask_rows, mask_heads] = self.mask_planes;
        let mut mask = vec![hidden_logit(dtype); mask_rows * mask_heads * count * size * width];
        for (plane, mask) in mask.chunks_mut(count * size * width).enumerate() {
            let (row, head) = (plane / mask_heads, plane % mask_heads);
            for (at, block) in self.lists[self.list(row, head)].iter().enumerate() {
                for (place, &i) in block.queries.iter().enumerate() {
                    let line = &mut mask[(at * size + place) * width..][..block.keys.len()];
                    for (bias, &j) in line.iter_mut().zip(&block.keys) {
                        if self.is_visible(row, head, i, j) {
                            *bias = 0.0;
                        }
                    }
                }
            }
        }
        let indices = |values, last| Tensor::<4, Int>::from_data(TensorData::new(values, [rows, heads, count, last]), device);
        Blocks {
            queries: indices(queries, size),
            keys: indices(keys, width),
            mask: Tensor::from_data(TensorData::new(mask, [mask_rows, mask_heads, count, size, width]), (device, dtype)),
            places: Tensor::from_data(TensorData::new(places, [rows, heads, length]), device),
        }
    }
}

/// Keys of the blocks: first those seen by many blocks, then the others, block by block.
fn in_order_of_appearance(blocks: &[Block]) -> Vec<u32> {
    let mut appearances: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (at, block) in blocks.iter().enumerate() {
        for &key in &block.keys {
            appearances.entry(key).or_insert((0, at)).0 += 1;
        }
    }
    let mut keys: Vec<_> = appearances.into_iter().collect();
    keys.sort_by_key(|&(key, (count, first))| if count > BLOCKS_OF_A_NEIGHBOURHOOD { (0, 0, key) } else { (1, first, key) });
    keys.into_iter().map(|(key, _)| key as u32).collect()
}
