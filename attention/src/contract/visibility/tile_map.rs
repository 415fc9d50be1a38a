//! Tiles of the (query, key) plane that must be computed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::{Shown, Span, Visibility};

/// Number of queries and of keys per tile.
pub const TILE: usize = 64;

/// Visible keys of each query in a tile, one bit per key.
pub(crate) type TileMask = [u64; TILE];

/// Biases of the pairs of a tile, query by query, as indices into [`TileMap::shifts`].
pub(crate) type TileLevels = [u8; TILE * TILE];

/// Level of a hidden pair.
pub(crate) const HIDDEN: u8 = 0;
/// Level of a visible pair without a bias.
pub(crate) const VISIBLE: u8 = 1;

/// Visibility within a tile that is not entirely hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TileVisibility {
    /// All pairs are visible.
    All,
    /// Visible pairs by this mask.
    Masked(u32),
    /// Visibility and biases by these levels.
    Levelled(u32),
}

/// A tile with visible pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Index of the key tile, in lists by query tile; index of the query tile, in lists by key tile.
    pub index: u32,
    /// Visibility of its pairs.
    pub visible: TileVisibility,
}

/// The plane of queries and keys in tiles of [`TILE`] x [`TILE`]. Hidden tiles are not stored. In a causal or windowed visibility only border tiles have a
/// mask, and equal masks are stored once.
#[derive(Clone, Debug)]
pub struct TileMap {
    rows: usize,
    heads: usize,
    planes: Vec<Plane>,
    masks: Vec<TileMask>,
    levels: Vec<Box<TileLevels>>,
    shifts: Vec<f32>,
}

/// Tiles of one batch row and head, listed by query tile and by key tile.
#[derive(Clone, Debug, Default)]
struct Plane {
    of_queries: TileLists,
    of_keys: TileLists,
}

#[derive(Clone, Debug)]
struct TileLists {
    ends: Vec<usize>,
    tiles: Vec<Tile>,
}

impl Default for TileLists {
    fn default() -> Self {
        Self { ends: vec![0], tiles: Vec::new() }
    }
}

impl TileLists {
    fn end_list(&mut self) {
        self.ends.push(self.tiles.len());
    }

    /// Tiles of a list; empty if the list does not exist.
    fn list(&self, index: usize) -> &[Tile] {
        self.ends.get(index + 1).map_or(&[], |&end| &self.tiles[self.ends[index]..end])
    }

    /// The same tiles, listed by the other side.
    fn transposed(&self) -> Self {
        let mut lists: Vec<Vec<Tile>> = Vec::new();
        for query in 0..self.ends.len() - 1 {
            for tile in self.list(query) {
                let key = tile.index as usize;
                lists.resize_with(lists.len().max(key + 1), Vec::new);
                lists[key].push(Tile { index: query as u32, ..*tile });
            }
        }
        let mut transposed = Self::default();
        for list in lists {
            transposed.tiles.extend(list);
            transposed.end_list();
        }
        transposed
    }
}

/// Builder of query tiles, plane by plane.
#[derive(Debug)]
pub(crate) struct TileMapBuilder {
    map: TileMap,
    known: HashMap<TileMask, u32>,
}

impl TileMapBuilder {
    /// Builder for `rows` batch rows and `heads` heads. Levels from 2 on are indices into `shifts`.
    pub(crate) fn new(rows: usize, heads: usize, shifts: &[f32]) -> Self {
        let shifts = [f32::NEG_INFINITY, 0.0].iter().chain(shifts).copied().collect();
        Self { map: TileMap { rows, heads, planes: Vec::new(), masks: Vec::new(), levels: Vec::new(), shifts }, known: HashMap::new() }
    }

    pub(crate) fn begin_plane(&mut self) {
        self.map.planes.push(Plane::default());
    }

    fn lists(&mut self) -> &mut TileLists {
        &mut self.map.planes.last_mut().expect("a plane was begun").of_queries
    }

    /// Adds the next tile of `queries` queries, with the levels of its pairs for each key tile.
    pub(crate) fn push(&mut self, queries: usize, levels: BTreeMap<u32, Box<TileLevels>>) {
        for (keys, levels) in levels {
            if levels.iter().any(|&level| level > VISIBLE) {
                self.map.levels.push(levels);
                let visible = TileVisibility::Levelled(self.map.levels.len() as u32 - 1);
                self.lists().tiles.push(Tile { index: keys, visible });
            } else {
                let bits = |row: &[u8]| row.iter().enumerate().fold(0, |bits, (at, &level)| bits | u64::from(level) << at);
                let mut mask = [0; TILE];
                mask.iter_mut().zip(levels.chunks(TILE)).for_each(|(mask, row)| *mask = bits(row));
                self.push_mask(queries, keys, mask);
            }
        }
        self.end_tile();
    }

    fn push_mask(&mut self, queries: usize, keys: u32, mask: TileMask) {
        if mask.iter().all(|&bits| bits == 0) {
            return;
        }
        let visible = if mask[..queries].iter().all(|&bits| bits == u64::MAX) {
            TileVisibility::All
        } else {
            let masks = &mut self.map.masks;
            TileVisibility::Masked(*self.known.entry(mask).or_insert_with(|| {
                masks.push(mask);
                masks.len() as u32 - 1
            }))
        };
        self.lists().tiles.push(Tile { index: keys, visible });
    }

    fn end_tile(&mut self) {
        self.lists().end_list();
    }

    pub(crate) fn finish(mut self) -> TileMap {
        for plane in &mut self.map.planes {
            plane.of_keys = plane.of_queries.transposed();
        }
        self.map
    }
}

impl TileMap {
    /// Tile map of `visibility` over `span`.
    pub fn new(visibility: &Visibility, span: Span, heads: usize) -> Self {
        Self::of_real_queries(visibility, span, heads, None)
    }

    /// The same without tiles of padding queries: queries of batch row `b` are real before index `ends[b]`. Padding queries in a tile with real queries keep
    /// their visibility.
    ///
    /// # Panics
    /// If the number of ends differs from the number of distinct batch rows.
    pub(crate) fn of_real_queries(visibility: &Visibility, span: Span, heads: usize, ends: Option<&[usize]>) -> Self {
        visibility.read_given();
        let heads = if visibility.depends_on_head() { heads } else { 1 };
        let own_rows = visibility.rows();
        let rows = ends.map_or(own_rows, <[usize]>::len);
        assert!(own_rows == 1 || own_rows == rows, "ends of {rows} rows for a visibility of {own_rows}");
        let mut builder = TileMapBuilder::new(rows, heads, &[]);
        for (batch_row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            builder.begin_plane();
            let row = if own_rows == 1 { 0 } else { batch_row };
            let end = ends.map_or(usize::MAX, |ends| ends[batch_row]);
            let masks = |queries: &Range<usize>| -> Vec<(u32, TileMask)> {
                let mut masks = Vec::new();
                if queries.start >= end {
                    return masks;
                }
                for (index, keys) in tiles(span.key_start, span.keys).enumerate() {
                    let shown = visibility.shown(row, queries.clone(), keys.clone());
                    let sees = |i, j| shown == Shown::Everything || visibility.is_visible(row, head, i, j);
                    if shown != Shown::Nothing {
                        masks.push((index as u32, mask(queries.clone(), keys, sees)));
                    }
                }
                masks
            };
            // Patterns are evaluated pair by pair, which is slow for long sequences.
            let of_queries: Vec<Range<usize>> = tiles(span.query_start, span.queries).collect();
            let found: Vec<_> = of_queries.par_iter().map(masks).collect();
            for (queries, masks) in of_queries.iter().zip(found) {
                masks.into_iter().for_each(|(index, mask)| builder.push_mask(queries.len(), index, mask));
                builder.end_tile();
            }
        }
        builder.finish()
    }

    fn plane(&self, row: usize, head: usize) -> &Plane {
        let (row, head) = (if self.rows == 1 { 0 } else { row }, if self.heads == 1 { 0 } else { head });
        &self.planes[row * self.heads + head]
    }

    /// Key tiles visible to query tile `queries`, in ascending order.
    pub(crate) fn met_by_queries(&self, row: usize, head: usize, queries: usize) -> &[Tile] {
        self.plane(row, head).of_queries.list(queries)
    }

    /// Query tiles that see key tile `keys`, in ascending order.
    pub(crate) fn met_by_keys(&self, row: usize, head: usize, keys: usize) -> &[Tile] {
        self.plane(row, head).of_keys.list(keys)
    }

    /// Bias of the logit of query `query` of the span for its key `key`; `None` if hidden.
    pub fn shift(&self, row: usize, head: usize, query: usize, key: usize) -> Option<f32> {
        let tiles = self.met_by_queries(row, head, query / TILE);
        let tile = tiles[tiles.binary_search_by_key(&((key / TILE) as u32), |tile| tile.index).ok()?];
        match tile.visible {
            TileVisibility::All => Some(0.0),
            TileVisibility::Masked(mask) => (self.mask(mask)[query % TILE] >> (key % TILE) & 1 == 1).then_some(0.0),
            TileVisibility::Levelled(levels) => match self.levels(levels)[query % TILE * TILE + key % TILE] {
                HIDDEN => None,
                level => Some(self.shifts[level as usize]),
            },
        }
    }

    /// Number of distinct batch rows and heads.
    pub fn distinct(&self) -> [usize; 2] {
        [self.rows, self.heads]
    }

    /// Masks of the tiles, by index.
    #[cfg(feature = "cube")]
    pub(crate) fn masks(&self) -> &[TileMask] {
        &self.masks
    }

    /// The mask of [`TileVisibility::Masked`].
    pub(crate) fn mask(&self, index: u32) -> &TileMask {
        &self.masks[index as usize]
    }

    /// The levels of [`TileVisibility::Levelled`].
    pub(crate) fn levels(&self, index: u32) -> &TileLevels {
        &self.levels[index as usize]
    }

    /// Biases of the levels; minus infinity for hidden pairs.
    pub fn shifts(&self) -> &[f32] {
        &self.shifts
    }

    /// Whether no tile has biases.
    pub fn is_plain(&self) -> bool {
        self.levels.is_empty()
    }
}

fn mask(queries: Range<usize>, keys: Range<usize>, sees: impl Fn(usize, usize) -> bool) -> TileMask {
    let mut mask = [0; TILE];
    for (bits, i) in mask.iter_mut().zip(queries) {
        *bits = keys.clone().enumerate().filter(|&(_, j)| sees(i, j)).fold(0, |bits, (at, _)| bits | 1 << at);
    }
    mask
}

fn tiles(start: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(TILE).map(move |first| start + first..start + (first + TILE).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the map with the visibility, pair by pair.
    fn check(visibility: &Visibility, span: Span, heads: usize) {
        let map = TileMap::new(visibility, span, heads);
        for (row, head) in (0..visibility.rows()).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            for i in 0..span.queries {
                for j in 0..span.keys {
                    let seen = map.shift(row, head, i, j);
                    let wanted = visibility.is_visible(row, head, span.query_start + i, span.key_start + j).then_some(0.0);
                    assert_eq!(seen, wanted, "{visibility:?} {span:?} row {row} head {head} query {i} key {j}");
                }
            }
        }
    }

    #[test]
    fn a_map_shows_what_the_visibility_shows() {
        let spans = [
            Span::whole(1, 1),
            Span::whole(70, 70),
            Span::whole(64, 200),
            Span { query_start: 100, queries: 130, key_start: 30, keys: 200 },
        ];
        let visibilities = [
            Visibility::all(),
            Visibility::causal(),
            Visibility::window(70, 3),
            Visibility::window(0, 0).or(Visibility::window(200, 0).and(Visibility::relation(|_, j| j % 7 == 0))),
            Visibility::causal().and(Visibility::padding(vec![90, 300])),
            Visibility::causal().and(Visibility::left_padding(vec![0, 65])),
            Visibility::pattern(|head, i, j| j + 10 * head < i),
            Visibility::causal().shifted(vec![3, 130].into()),
        ];
        for visibility in visibilities {
            for span in spans {
                check(&visibility, span, 2);
            }
        }
    }

    #[test]
    fn tiles_without_a_visible_pair_take_no_place_and_equal_masks_are_held_once() {
        let map = TileMap::new(&Visibility::causal(), Span::whole(640, 640), 8);
        assert_eq!(map.masks.len(), 1);
        let tiles = &map.planes[0].of_queries.tiles;
        assert_eq!(tiles.len(), 55);
        assert_eq!(tiles.iter().filter(|tile| tile.visible == TileVisibility::All).count(), 45);
    }

    #[test]
    fn tiles_of_padded_keys_or_queries_take_no_place_on_either_side() {
        let span = Span::whole(300, 300);
        let count = |map: &TileMap| {
            [0, 1].map(|row| {
                let of_queries: usize = (0..5).map(|tile| map.met_by_queries(row, 0, tile).len()).sum();
                let of_keys: usize = (0..5).map(|tile| map.met_by_keys(row, 0, tile).len()).sum();
                assert_eq!(of_queries, of_keys);
                of_queries
            })
        };
        let padding = Visibility::padding(vec![300, 100]);
        assert_eq!(count(&TileMap::new(&padding, span, 1)), [5 * 5, 5 * 2], "keys alone");
        let real = TileMap::of_real_queries(&padding, span, 1, Some(&[300, 100]));
        assert_eq!(count(&real), [5 * 5, 2 * 2]);
        // Row 1 keeps the tiles of queries 0 to 63 and 64 to 127, where queries 100 to 127 keep their visibility.
        for (query, key) in [(0, 0), (99, 99), (127, 0), (64, 100), (128, 0), (299, 99)] {
            let wanted = (query < 128 && key < 100).then_some(0.0);
            assert_eq!(real.shift(1, 0, query, key), wanted, "query {query}, key {key}");
        }
        let causal = TileMap::of_real_queries(&Visibility::causal(), span, 1, Some(&[300, 64]));
        assert_eq!((causal.distinct(), count(&causal)), ([2, 1], [15, 1]), "a visibility that does not tell rows apart");
    }

    #[test]
    fn ends_count_from_the_first_query_of_the_sequence() {
        let span = Span { query_start: 100, queries: 130, key_start: 0, keys: 64 };
        let map = TileMap::of_real_queries(&Visibility::all(), span, 1, Some(&[164, 165, 100]));
        let tiles = |row| [0, 1, 2].map(|tile| map.met_by_queries(row, 0, tile).len());
        assert_eq!([0, 1, 2].map(tiles), [[1, 0, 0], [1, 1, 0], [0, 0, 0]]);
    }

    #[test]
    fn both_sides_list_the_same_tiles() {
        let map = TileMap::new(&Visibility::window(70, 0), Span::whole(300, 300), 1);
        let from_queries = (0..5).flat_map(|q| map.met_by_queries(0, 0, q).iter().map(move |tile| (q as u32, tile.index, tile.visible)));
        let from_keys = (0..5).flat_map(|k| map.met_by_keys(0, 0, k).iter().map(move |tile| (tile.index, k as u32, tile.visible)));
        let mut from_keys: Vec<_> = from_keys.collect();
        from_keys.sort_by_key(|&(query, key, _)| (query, key));
        assert_eq!(from_queries.collect::<Vec<_>>(), from_keys);
        assert_eq!(from_keys.len(), 5 + 4 + 3);
    }

    #[test]
    fn levels_shift_what_they_show() {
        let mut levels: Box<TileLevels> = Box::new([HIDDEN; TILE * TILE]);
        (levels[0], levels[TILE + 2]) = (VISIBLE, 2);
        let mut builder = TileMapBuilder::new(1, 1, &[-0.5]);
        builder.begin_plane();
        builder.push(2, BTreeMap::from([(3, levels)]));
        let map = builder.finish();
        let shift = |query, key| map.shift(0, 0, query, 3 * TILE + key);
        assert_eq!([shift(0, 0), shift(1, 2), shift(0, 1)], [Some(0.0), Some(-0.5), None]);
        assert_eq!(map.shift(0, 0, 0, 0), None);
        assert!(!map.is_plain());
    }
}
