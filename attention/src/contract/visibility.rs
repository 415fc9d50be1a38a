//! Visible keys of queries.
//!
//! A [`Visibility`] is created by named constructors and combined by [`and`](Visibility::and) and [`or`](Visibility::or); `true` always means *visible*. It is
//! a pure function of (batch row, head, query index, key index): one value creates the dense mask, counts visible pairs and can be drawn. The conversion to
//! additive masks happens only here.
//!
//! Indices are those of the padded tensors: query indices start at the first token of the sequence, so decoding uses the same indices as a full pass.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use burn::tensor::{Bool, Tensor};

pub use self::dense::DenseMask;
use self::dense::{CachedMask, CachedTiles};
pub(crate) use self::dense::{hidden_logit, least_visible_logit};
pub use self::tile_map::{TILE, TileMap};
pub(crate) use self::tile_map::{Tile, TileLevels, TileMapBuilder, TileVisibility, VISIBLE};

pub(crate) use self::padding::RowKeys;
pub(crate) use self::tensor_mask::selected;
use self::tensor_mask::{Derived, TensorMask};
use crate::tensors::read::read;

mod dense;
mod padding;
mod tensor_mask;
mod tile_map;

/// The part of the (query, key) plane that one call covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the first query.
    pub query_start: usize,
    /// Number of queries.
    pub queries: usize,
    /// Index of the first key.
    pub key_start: usize,
    /// Number of keys.
    pub keys: usize,
}

impl Span {
    /// Whole sequence of queries and keys.
    pub fn whole(queries: usize, keys: usize) -> Self {
        Self { query_start: 0, queries, key_start: 0, keys }
    }
}

/// Visibility between a range of queries and a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// No query sees a key.
    Nothing,
    /// Every query sees every key.
    Everything,
    /// A mixture, or unknown without evaluating each pair.
    Some,
}

#[derive(Clone)]
enum Rule {
    All,
    Causal,
    Padding(Vec<usize>),
    LeftPadding(Vec<usize>),
    Window { back: usize, ahead: usize },
    Pattern(Arc<dyn Fn(usize, usize, usize) -> bool + Send + Sync>),
    Relation(Arc<dyn Fn(usize, usize) -> bool + Send + Sync>),
    Explicit { shape: [usize; 4], visible: Vec<bool> },
    Tensor(TensorMask),
    Additive { bias: Tensor<4>, visible: Visibility },
    And(Visibility, Visibility),
    Or(Visibility, Visibility),
    Shifted { inner: Visibility, counts: Arc<[usize]> },
    Queries { inner: Visibility, queries: Arc<[Vec<usize>]> },
}

/// Visible keys of a query, per batch row and head.
///
/// Cloning is cheap, and clones share their dense masks: model layers with the same value build a mask once.
///
/// # Example
/// ```
/// use heedful_attention::contract::visibility::Visibility;
///
/// let decoder = Visibility::causal().and(Visibility::padding(vec![3, 2]));
/// assert!(decoder.is_visible(0, 0, 2, 2));
/// assert!(!decoder.is_visible(0, 0, 1, 2), "the future is hidden");
/// assert!(!decoder.is_visible(1, 0, 2, 2), "the second row has two tokens");
/// ```
#[derive(Clone)]
pub struct Visibility {
    rule: Arc<Rule>,
    dense: Arc<Mutex<Vec<CachedMask>>>,
    tiles: Arc<Mutex<Vec<CachedTiles>>>,
    /// The latest row selection: the layers of a model select the same rows.
    selected: Arc<Mutex<Option<CachedSelection>>>,
    derived: Arc<Derived>,
}

struct CachedSelection {
    rows: Vec<usize>,
    visibility: Visibility,
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.rule {
            Rule::All => write!(f, "all"),
            Rule::Causal => write!(f, "causal"),
            Rule::Padding(lengths) => write!(f, "padding({lengths:?})"),
            Rule::LeftPadding(counts) => write!(f, "left_padding({counts:?})"),
            Rule::Window { back, ahead } => write!(f, "window({back}, {ahead})"),
            Rule::Pattern(_) => write!(f, "pattern(..)"),
            Rule::Relation(_) => write!(f, "relation(..)"),
            Rule::Explicit { shape, .. } => write!(f, "explicit({shape:?})"),
            Rule::Tensor(given) => write!(f, "given({:?})", given.shape()),
            Rule::Additive { bias, .. } => write!(f, "additive({:?})", bias.dims()),
            Rule::And(a, b) => write!(f, "({a:?} and {b:?})"),
            Rule::Or(a, b) => write!(f, "({a:?} or {b:?})"),
            Rule::Shifted { inner, counts } => write!(f, "{inner:?} shifted by {counts:?}"),
            Rule::Queries { inner, queries } => write!(f, "{inner:?} of the queries {queries:?}"),
        }
    }
}

impl Visibility {
    /// Every query sees every key.
    pub fn all() -> Self {
        Self::new(Rule::All)
    }

    /// A query sees keys up to and including its own index.
    pub fn causal() -> Self {
        Self::new(Rule::Causal)
    }

    /// Row `b` of the batch has `lengths[b]` keys; those after them are padding.
    pub fn padding(lengths: Vec<usize>) -> Self {
        Self::new(Rule::Padding(lengths))
    }

    /// Row `b` of the batch begins with `counts[b]` padding keys.
    pub fn left_padding(counts: Vec<usize>) -> Self {
        Self::new(Rule::LeftPadding(counts))
    }

    /// Query `i` sees keys `i - back ..= i + ahead`.
    pub fn window(back: usize, ahead: usize) -> Self {
        Self::new(Rule::Window { back, ahead })
    }

    /// Query `i` of head `h` sees key `j` if `visible(h, i, j)`.
    pub fn pattern(visible: impl Fn(usize, usize, usize) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Rule::Pattern(Arc::new(visible)))
    }

    /// Query `i` of every head sees key `j` if `visible(i, j)`.
    pub fn relation(visible: impl Fn(usize, usize) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Rule::Relation(Arc::new(visible)))
    }

    /// The given booleans, `true` = visible, `[batch | 1, heads | 1, queries, keys]`. Reads the tensor back to the host.
    pub fn explicit(visible: Tensor<4, Bool>) -> Self {
        let shape = visible.dims();
        Self::new(Rule::Explicit { shape, visible: read(visible).iter::<bool>().collect() })
    }

    /// Intersection of both visibilities.
    pub fn and(self, other: Self) -> Self {
        Self::new(Rule::And(self, other))
    }

    /// Intersection with `limit`. Returns this value, with its cached masks, if its construction implies the limit.
    pub fn within(&self, limit: &Self) -> Self {
        if self.is_within(limit) {
            self.clone()
        } else if matches!(*self.rule, Rule::All) {
            limit.clone()
        } else {
            self.clone().and(limit.clone())
        }
    }

    fn is_within(&self, limit: &Self) -> bool {
        matches!(*limit.rule, Rule::All)
            || self.equals(limit)
            || matches!(&*self.rule, Rule::And(a, b) if a.is_within(limit) || b.is_within(limit))
            // A limit refers to the original query indices, not the new ones.
            || matches!(&*self.rule, Rule::Queries { inner, .. } if inner.is_within(limit))
    }

    /// Union of both visibilities.
    ///
    /// # Panics
    /// If either is [`additive`](Self::additive).
    pub fn or(self, other: Self) -> Self {
        self.check_boolean();
        other.check_boolean();
        Self::new(Rule::Or(self, other))
    }

    /// Shifts row `b` of the batch by `counts[b]` positions: the same visibility for left-padded sequences. Padding sees no key and is hidden from every query.
    ///
    /// # Panics
    /// If the visibility is [`additive`](Self::additive).
    pub fn shifted(self, counts: Arc<[usize]>) -> Self {
        self.check_boolean();
        Self::new(Rule::Shifted { inner: self, counts })
    }

    /// Visibility of selected queries per batch row, in ascending order and equally many per row: query `i` of row `b` is then query `queries[b][i]`. Returns
    /// `None` if only tensors determine the visibility of a query, and this value if all queries see the same keys.
    ///
    /// # Panics
    /// If rows differ and `queries` has another number of rows.
    pub fn of_queries(&self, queries: Arc<[Vec<usize>]>) -> Option<Self> {
        assert!(self.rows() == 1 || self.rows() == queries.len(), "queries of {} rows for {}", queries.len(), self.rows());
        if !self.depends_on_query() {
            return Some(self.clone());
        }
        (!self.is_given()).then(|| Self::new(Rule::Queries { inner: self.clone(), queries }))
    }

    /// Visibility of the given batch rows, in the given order. Repeated requests for the same rows return the same value with its masks.
    ///
    /// # Panics
    /// If rows differ and a row index is out of range.
    pub fn select(&self, rows: &[usize]) -> Self {
        if self.rows() == 1 {
            return self.clone();
        }
        let mut latest = self.selected.lock().expect("no panic happens while the selection is locked");
        if let Some(known) = latest.as_ref().filter(|known| known.rows == rows) {
            return known.visibility.clone();
        }
        let counts = |counts: &[usize]| rows.iter().map(|&row| counts[row]).collect::<Vec<_>>();
        let of = |inner: &Self| if inner.rows() == 1 { inner.clone() } else { inner.select(rows) };
        let found = Self::new(match &*self.rule {
            Rule::Padding(lengths) => Rule::Padding(counts(lengths)),
            Rule::LeftPadding(padding) => Rule::LeftPadding(counts(padding)),
            Rule::Explicit { shape: [_, heads, queries, keys], visible } => {
                let size = heads * queries * keys;
                let visible = rows.iter().flat_map(|row| &visible[row * size..][..size]).copied().collect();
                Rule::Explicit { shape: [rows.len(), *heads, *queries, *keys], visible }
            }
            Rule::Tensor(given) => Rule::Tensor(given.select(rows)),
            Rule::Additive { bias, visible } => Rule::Additive { bias: selected(bias, rows), visible: visible.select(rows) },
            Rule::Shifted { inner, counts: shifts } => Rule::Shifted { inner: of(inner), counts: counts(shifts).into() },
            Rule::Queries { inner, queries } => {
                Rule::Queries { inner: of(inner), queries: rows.iter().map(|&row| queries[row].clone()).collect() }
            }
            Rule::And(a, b) => Rule::And(of(a), of(b)),
            Rule::Or(a, b) => Rule::Or(of(a), of(b)),
            Rule::All | Rule::Causal | Rule::Window { .. } | Rule::Pattern(_) | Rule::Relation(_) => {
                unreachable!("these do not tell rows apart")
            }
        });
        *latest = Some(CachedSelection { rows: rows.to_vec(), visibility: found.clone() });
        found
    }

    fn new(rule: Rule) -> Self {
        Self { rule: Arc::new(rule), dense: Arc::default(), tiles: Arc::default(), selected: Arc::default(), derived: Arc::default() }
    }

    /// Whether query `i` of head `head` in batch row `row` sees key `j`.
    ///
    /// # Panics
    /// If an index exceeds the sizes given to [`padding`](Self::padding) or the tensors, or the visibility is [`additive`](Self::additive).
    pub fn is_visible(&self, row: usize, head: usize, i: usize, j: usize) -> bool {
        match &*self.rule {
            Rule::All => true,
            Rule::Causal => j <= i,
            Rule::Padding(lengths) => j < lengths[row],
            Rule::LeftPadding(counts) => j >= counts[row],
            Rule::Window { back, ahead } => i <= j.saturating_add(*back) && j <= i.saturating_add(*ahead),
            Rule::Pattern(visible) => visible(head, i, j),
            Rule::Relation(visible) => visible(i, j),
            Rule::Explicit { shape: [rows, heads, queries, keys], visible } => {
                assert!(i < *queries && j < *keys, "explicit visibility [{queries}, {keys}] asked for query {i}, key {j}");
                let (row, head) = (if *rows == 1 { 0 } else { row }, if *heads == 1 { 0 } else { head });
                visible[((row * heads + head) * queries + i) * keys + j]
            }
            Rule::Tensor(given) => given.is_visible(row, head, i, j),
            Rule::Additive { .. } => tensor_mask::refuse_additive(),
            Rule::And(a, b) => a.is_visible(row, head, i, j) && b.is_visible(row, head, i, j),
            Rule::Or(a, b) => a.is_visible(row, head, i, j) || b.is_visible(row, head, i, j),
            Rule::Shifted { inner, counts } => {
                let count = counts[row];
                i >= count && j >= count && inner.is_visible(row, head, i - count, j - count)
            }
            Rule::Queries { inner, queries } => inner.is_visible(row, head, queries[row][i], j),
        }
    }

    /// Visibility of all pairs in a rectangle, from the rule alone.
    pub(crate) fn shown(&self, row: usize, queries: Range<usize>, keys: Range<usize>) -> Shown {
        let within = |first: usize, last: usize| {
            if keys.start >= first && keys.end <= last {
                Shown::Everything
            } else if keys.end <= first || keys.start >= last {
                Shown::Nothing
            } else {
                Shown::Some
            }
        };
        match &*self.rule {
            Rule::All => Shown::Everything,
            Rule::Causal => visible_band(&queries, &keys, usize::MAX, 0),
            Rule::Window { back, ahead } => visible_band(&queries, &keys, *back, *ahead),
            Rule::Padding(lengths) => within(0, lengths[row]),
            Rule::LeftPadding(counts) => within(counts[row], usize::MAX),
            Rule::Pattern(_) | Rule::Relation(_) | Rule::Explicit { .. } | Rule::Tensor(_) | Rule::Additive { .. } => Shown::Some,
            Rule::And(a, b) => match (a.shown(row, queries.clone(), keys.clone()), b.shown(row, queries, keys)) {
                (Shown::Nothing, _) | (_, Shown::Nothing) => Shown::Nothing,
                (Shown::Everything, Shown::Everything) => Shown::Everything,
                _ => Shown::Some,
            },
            Rule::Or(a, b) => match (a.shown(row, queries.clone(), keys.clone()), b.shown(row, queries, keys)) {
                (Shown::Everything, _) | (_, Shown::Everything) => Shown::Everything,
                (Shown::Nothing, Shown::Nothing) => Shown::Nothing,
                _ => Shown::Some,
            },
            Rule::Shifted { inner, counts } => {
                let count = counts[row];
                if queries.end <= count || keys.end <= count {
                    Shown::Nothing
                } else if queries.start >= count && keys.start >= count {
                    inner.shown(row, queries.start - count..queries.end - count, keys.start - count..keys.end - count)
                } else {
                    Shown::Some
                }
            }
            // A statement about all queries of a range also applies to the selected ones.
            Rule::Queries { inner, queries: numbers } => {
                let numbers = &numbers[row][queries];
                inner.shown(row, numbers[0]..numbers[numbers.len() - 1] + 1, keys)
            }
        }
    }

    /// Number of distinct batch rows: the number given to the constructors, or 1.
    ///
    /// # Panics
    /// If two combined visibilities have different numbers of rows.
    pub fn rows(&self) -> usize {
        match &*self.rule {
            Rule::Padding(lengths) => lengths.len(),
            Rule::LeftPadding(counts) => counts.len(),
            Rule::Explicit { shape, .. } => shape[0],
            Rule::Tensor(given) => given.shape()[0],
            Rule::Additive { bias, .. } => bias.dims()[0],
            Rule::Shifted { counts, .. } => counts.len(),
            Rule::Queries { queries, .. } => queries.len(),
            Rule::And(a, b) | Rule::Or(a, b) => match (a.rows(), b.rows()) {
                (1, rows) | (rows, 1) => rows,
                (a, b) => {
                    assert_eq!(a, b, "visibilities for batches of {a} and of {b} rows cannot be joined");
                    a
                }
            },
            _ => 1,
        }
    }

    /// Whether this is known to equal `other`: created by the same constructors from equal values, or from the same function.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.rule, &other.rule) {
            return true;
        }
        match (&*self.rule, &*other.rule) {
            (Rule::All, Rule::All) | (Rule::Causal, Rule::Causal) => true,
            (Rule::Padding(a), Rule::Padding(b)) | (Rule::LeftPadding(a), Rule::LeftPadding(b)) => a == b,
            (Rule::Window { back, ahead }, Rule::Window { back: b, ahead: a }) => (back, ahead) == (b, a),
            (Rule::Pattern(a), Rule::Pattern(b)) => Arc::ptr_eq(a, b),
            (Rule::Relation(a), Rule::Relation(b)) => Arc::ptr_eq(a, b),
            (Rule::And(a, b), Rule::And(c, d)) | (Rule::Or(a, b), Rule::Or(c, d)) => a.equals(c) && b.equals(d),
            (Rule::Shifted { inner, counts }, Rule::Shifted { inner: other, counts: others }) => counts == others && inner.equals(other),
            _ => false,
        }
    }

    pub(crate) fn depends_on_head(&self) -> bool {
        match &*self.rule {
            Rule::Pattern(_) => true,
            Rule::Explicit { shape, .. } => shape[1] > 1,
            Rule::Tensor(given) => given.shape()[1] > 1,
            Rule::Additive { bias, .. } => bias.dims()[1] > 1,
            Rule::And(a, b) | Rule::Or(a, b) => a.depends_on_head() || b.depends_on_head(),
            Rule::Shifted { inner, .. } | Rule::Queries { inner, .. } => inner.depends_on_head(),
            _ => false,
        }
    }

    fn depends_on_query(&self) -> bool {
        match &*self.rule {
            Rule::All | Rule::Padding(_) | Rule::LeftPadding(_) => false,
            Rule::Tensor(given) => !given.is_for_every_query(),
            Rule::And(a, b) | Rule::Or(a, b) => a.depends_on_query() || b.depends_on_query(),
            _ => true,
        }
    }

    /// Number of visible (query, key) pairs, summed over `batch` rows and `heads`.
    pub fn count_visible(&self, span: Span, batch: usize, heads: usize) -> usize {
        let (rows, distinct_heads) = (self.rows(), if self.depends_on_head() { heads } else { 1 });
        let visible = self.booleans(span, rows, distinct_heads).into_iter().filter(|&visible| visible).count();
        visible * (batch / rows) * (heads / distinct_heads)
    }

    /// Visible keys `[rows, keys]` with [`rows`](Self::rows) rows, if all queries of all heads see the same keys; otherwise `None`.
    pub(crate) fn common_keys(&self, span: Span, heads: usize) -> Option<Vec<bool>> {
        if !self.depends_on_query() && !self.depends_on_head() {
            return Some(self.booleans(Span { queries: 1, ..span }, self.rows(), 1));
        }
        let heads = if self.depends_on_head() { heads } else { 1 };
        let seen = self.booleans(span, self.rows(), heads);
        let mut rows = seen.chunks(heads * span.queries * span.keys);
        let is_common = rows.all(|row| row.chunks(span.keys).all(|keys| *keys == row[..span.keys]));
        is_common.then(|| self.booleans(Span { queries: 1, ..span }, self.rows(), 1))
    }

    fn booleans(&self, span: Span, rows: usize, heads: usize) -> Vec<bool> {
        let mut visible = Vec::with_capacity(rows * heads * span.queries * span.keys);
        for row in 0..rows {
            for head in 0..heads {
                for i in span.query_start..span.query_start + span.queries {
                    visible.extend((span.key_start..span.key_start + span.keys).map(|j| self.is_visible(row, head, i, j)));
                }
            }
        }
        visible
    }
}

/// Visibility between ranges for queries that see from `back` keys before to `ahead` keys after themselves.
fn visible_band(queries: &Range<usize>, keys: &Range<usize>, back: usize, ahead: usize) -> Shown {
    let sees = |i: usize, j: usize| i <= j.saturating_add(back) && j <= i.saturating_add(ahead);
    let (first_query, last_query) = (queries.start, queries.end - 1);
    let (first_key, last_key) = (keys.start, keys.end - 1);
    if sees(first_query, last_key) && sees(last_query, first_key) {
        Shown::Everything
    } else if first_key > last_query.saturating_add(ahead) || first_query > last_key.saturating_add(back) {
        Shown::Nothing
    } else {
        Shown::Some
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::dense::KEPT;
    use super::*;

    fn drawn(visibility: &Visibility, row: usize, queries: usize, keys: usize) -> Vec<String> {
        (0..queries).map(|i| (0..keys).map(|j| if visibility.is_visible(row, 0, i, j) { '#' } else { '.' }).collect()).collect()
    }

    #[test]
    fn constructors_mean_what_their_names_say() {
        assert_eq!(drawn(&Visibility::all(), 0, 1, 3), ["###"]);
        assert_eq!(drawn(&Visibility::causal(), 0, 3, 3), ["#..", "##.", "###"]);
        assert_eq!(drawn(&Visibility::window(1, 0), 0, 3, 3), ["#..", "##.", ".##"]);
        assert_eq!(drawn(&Visibility::padding(vec![2, 3]), 0, 1, 3), ["##."]);
        assert_eq!(drawn(&Visibility::left_padding(vec![0, 1]), 1, 1, 3), [".##"]);
        assert_eq!(drawn(&Visibility::pattern(|_, i, j| (i + j) % 2 == 0), 0, 2, 3), ["#.#", ".#."]);
        assert_eq!(drawn(&Visibility::relation(|i, j| i < j), 0, 2, 3), [".##", "..#"]);
        let diagonal = Tensor::<4, Bool>::from_data(TensorData::new(vec![true, false, false, true], [1, 1, 2, 2]), &Device::flex());
        assert_eq!(drawn(&Visibility::explicit(diagonal), 0, 2, 2), ["#.", ".#"]);
    }

    #[test]
    fn and_hides_what_either_hides_and_or_shows_what_either_shows() {
        let joined = Visibility::causal().and(Visibility::window(1, 1));
        assert_eq!(drawn(&joined, 0, 3, 3), ["#..", "##.", ".##"]);
        let joined = Visibility::window(0, 0).or(Visibility::pattern(|_, _, j| j == 0));
        assert_eq!(drawn(&joined, 0, 3, 3), ["#..", "##.", "#.#"]);
    }

    #[test]
    fn a_shifted_visibility_counts_from_the_first_real_element() {
        let shifted = Visibility::pattern(|_, i, j| j <= i && j % 2 == 0).shifted(vec![0, 1].into());
        assert_eq!(drawn(&shifted, 0, 3, 3), ["#..", "#..", "#.#"]);
        assert_eq!(drawn(&shifted, 1, 3, 3), ["...", ".#.", ".#."]);
    }

    #[test]
    fn queries_that_are_picked_see_what_they_saw() {
        let queries: Arc<[Vec<usize>]> = vec![vec![1, 3], vec![0, 0]].into();
        let causal = Visibility::causal().and(Visibility::padding(vec![4, 2]));
        let picked = causal.of_queries(queries.clone()).unwrap();
        assert_eq!(picked.rows(), 2);
        assert_eq!(drawn(&picked, 0, 2, 4), ["##..", "####"]);
        assert_eq!(drawn(&picked, 1, 2, 4), ["#...", "#..."]);
        assert_eq!(drawn(&picked.select(&[1]), 0, 2, 4), ["#...", "#..."]);
        // The limit of a decoder refers to the original places.
        assert!(picked.within(&Visibility::causal()).equals(&picked));
        assert!(!picked.within(&Visibility::window(1, 0)).equals(&picked));
        let padding = Visibility::padding(vec![4, 2]);
        assert!(padding.of_queries(queries.clone()).unwrap().equals(&padding), "all queries see the same");
        let given = Visibility::given(Tensor::<4, Bool>::from_data([[[[true, false], [true, true]]]], &Device::flex()));
        assert!(given.of_queries(queries).is_none());
    }

    #[test]
    fn tiles_of_picked_queries_show_what_they_see() {
        let queries: Vec<usize> = (0..150).map(|index| index + index / 3).collect();
        for visibility in [Visibility::causal(), Visibility::window(40, 0), Visibility::window(9, 9)] {
            let picked = visibility.of_queries(vec![queries.clone()].into()).unwrap();
            let tiles = picked.tiles(Span::whole(150, 200), 1);
            for (index, &query) in queries.iter().enumerate() {
                for key in 0..200 {
                    let wanted = visibility.is_visible(0, 0, query, key).then_some(0.0);
                    assert_eq!(tiles.shift(0, 0, index, key), wanted, "{visibility:?}, query {query}, key {key}");
                }
            }
        }
    }

    #[test]
    fn equal_visibilities_show_the_same_and_different_ones_are_told_apart() {
        let own = Visibility::relation(|i, j| j + 2 > i);
        let made = |length| own.clone().shifted(vec![0, 1].into()).and(Visibility::causal().or(Visibility::padding(vec![length, 3])));
        assert!(made(2).equals(&made(2)));
        assert!(!made(2).equals(&made(3)));
        assert!(!made(2).equals(&own));
        assert!(!Visibility::window(1, 2).equals(&Visibility::window(2, 1)));
        assert!(!Visibility::relation(|i, j| i < j).equals(&Visibility::relation(|i, j| i < j)), "functions cannot be compared");
    }

    #[test]
    fn the_mask_of_later_keys_is_the_right_part_of_the_whole_mask() {
        let device = Device::flex();
        let visibility = Visibility::window(2, 0);
        let whole = visibility.mask(Span::whole(5, 5), 1, DType::F32, &device).unwrap().bias;
        let later = visibility.mask(Span { query_start: 3, queries: 2, key_start: 1, keys: 4 }, 1, DType::F32, &device).unwrap().bias;
        assert_eq!(whole.slice([0..1, 0..1, 3..5, 1..5]).into_data(), later.into_data());
    }

    #[test]
    fn the_mask_of_a_later_span_is_the_lower_part_of_the_whole_mask() {
        let device = Device::flex();
        let visibility = Visibility::causal().and(Visibility::left_padding(vec![1, 0]));
        let whole = visibility.mask(Span::whole(5, 5), 2, DType::F32, &device).unwrap().bias;
        let step = visibility.mask(Span { query_start: 3, queries: 2, key_start: 0, keys: 5 }, 2, DType::F32, &device).unwrap().bias;
        assert_eq!(whole.slice([0..2, 0..1, 3..5, 0..5]).into_data(), step.into_data());
    }

    #[test]
    fn rows_without_a_key_are_marked() {
        let device = Device::flex();
        let visibility = Visibility::causal().and(Visibility::left_padding(vec![2]));
        let mask = visibility.mask(Span::whole(3, 3), 1, DType::F32, &device).unwrap();
        assert_eq!(mask.has_key.unwrap().into_data().try_to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0]);
        assert!(Visibility::causal().mask(Span::whole(3, 3), 1, DType::F32, &device).unwrap().has_key.is_none());
    }

    #[test]
    fn keys_are_common_where_all_queries_and_heads_see_the_same() {
        let span = Span::whole(3, 3);
        let padded = Visibility::padding(vec![2, 3]).and(Visibility::all());
        assert_eq!(padded.common_keys(span, 2), Some(vec![true, true, false, true, true, true]));
        let by_key = |_: usize, _: usize, j: usize| j != 1;
        assert_eq!(Visibility::pattern(by_key).common_keys(span, 2), Some(vec![true, false, true]));
        assert_eq!(Visibility::causal().common_keys(Span { query_start: 2, queries: 1, ..span }, 2), Some(vec![true; 3]));
        for differs in [Visibility::causal(), Visibility::pattern(|h, _, j| h != j), Visibility::window(1, 1)] {
            assert_eq!(differs.common_keys(span, 2), None, "{differs:?}");
        }
    }

    #[test]
    fn decoding_does_not_fill_the_memory_with_masks() {
        let (causal, device) = (Visibility::causal(), Device::flex());
        for start in 0..100 {
            let span = Span { query_start: start, queries: 2, key_start: 0, keys: start + 2 };
            let mask = causal.mask(span, 1, DType::F32, &device).expect("the first query does not see the last key");
            assert_eq!(mask.bias.dims(), [1, 1, 2, start + 2]);
            assert!(Arc::ptr_eq(&causal.tiles(span, 1), &causal.tiles(span, 1)), "the latest tiles are not kept");
        }
        assert_eq!((causal.dense.lock().unwrap().len(), causal.tiles.lock().unwrap().len()), (KEPT, KEPT));
    }

    #[test]
    fn nothing_hidden_needs_no_mask() {
        assert!(Visibility::padding(vec![3, 3]).mask(Span::whole(2, 3), 1, DType::F32, &Device::flex()).is_none());
    }

    #[test]
    fn visible_pairs_are_counted_over_batch_and_heads() {
        let causal = Visibility::causal();
        assert_eq!(causal.count_visible(Span::whole(4, 4), 3, 2), 10 * 3 * 2);
        assert_eq!(Visibility::padding(vec![1, 2]).count_visible(Span::whole(4, 4), 2, 2), (4 + 8) * 2);
    }
}
