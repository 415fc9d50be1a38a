//! What is hidden from a fused attention, in which order it goes, and what it drops.

use std::ops::Range;
use std::sync::Arc;

use crate::contract::visibility::TileMap;
use crate::engine::dropout::WeightDropout;
use crate::engine::{GaussianWeights, Normaliser, Ramp};

/// What an attention hides and drops.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of heads. Keys and values have the same number of heads, a divisor of it: a group of heads shares each of theirs.
    pub heads: usize,
    /// Which keys queries see: one softmax over all parts. A pair that several parts show counts as often, shifts aside.
    pub parts: Arc<[Part]>,
    /// How scores become weights.
    pub normaliser: Normaliser,
    /// Dropout of the weights, if any.
    pub dropout: Option<WeightDropout>,
    /// Factors of the exponentials of the logits by distance, if any.
    pub ramp: Option<Ramp>,
    /// The pair of the first key in each batch row or in all, where logits have a Kronecker product.
    pub first_pairs: Option<Arc<[isize]>>,
    /// Weights in closed form, which are all that the logits are made of if there are any; they say whether rows are divided by their sum.
    pub gaussians: Option<Arc<GaussianWeights>>,
    /// A soft bound of the logits, if any.
    pub cap: Option<Cap>,
    /// Whether no gradient of the bias is asked for.
    pub is_bias_fixed: bool,
    /// Whether the device has kernels for just this: a softmax of a product of thin factors, scores by distance and a bias, or of some of them,
    /// with soft spans or without, over tiles in the order of indices that shift nothing.
    pub by_kernels: bool,
    /// Logits up to it are those of hidden keys, which a bias may have hidden: by a number that fits into the type of the operands.
    pub least_visible: f32,
}

/// A soft bound of logits: what is before it is bounded by [`SoftCap::limit`](crate::engine::SoftCap::limit).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    /// Greater than 0.
    pub limit: f32,
    /// Whether the bias is added after it. All else is before it.
    pub is_before_bias: bool,
}

/// Some of the pairs of queries and keys.
#[derive(Clone, Debug)]
pub struct Part {
    /// The tiles, over the places that queries and keys have in this part.
    pub tiles: Arc<TileMap>,
    /// Which query has which place: those that belong together lie side by side. Absent if places are indices.
    pub queries: Option<Order>,
    /// Which key has which place.
    pub keys: Option<Order>,
}

/// The index at each place, per batch row and head that are told apart. What has no place is not part of it.
#[derive(Clone, Debug)]
pub struct Order {
    heads: usize,
    planes: Vec<Vec<u32>>,
}

impl Part {
    /// All pairs, in the order of their indices.
    pub fn in_order(tiles: Arc<TileMap>) -> Self {
        Self { tiles, queries: None, keys: None }
    }

    /// Whether all heads of a batch row have the keys in the same order.
    pub(super) fn has_keys_in_one_order(&self) -> bool {
        self.keys.as_ref().is_none_or(|order| order.heads == 1)
    }

    /// Whether places are indices.
    pub fn is_in_order(&self) -> bool {
        self.queries.is_none() && self.keys.is_none()
    }
}

impl Order {
    /// One list of indices for each plane of `heads` heads, batch row by batch row; one row or head if they share their order.
    pub fn new(heads: usize, planes: Vec<Vec<u32>>) -> Self {
        assert!(planes.len().is_multiple_of(heads), "{} orders for {heads} heads", planes.len());
        Self { heads, planes }
    }

    /// The indices of a batch row and head, by place.
    pub fn of(&self, row: usize, head: usize) -> &[u32] {
        let (row, head) = (if self.planes.len() == self.heads { 0 } else { row }, if self.heads == 1 { 0 } else { head });
        &self.planes[row * self.heads + head]
    }
}

impl Plan {
    /// A softmax over these parts, without anything more.
    pub(crate) fn new(heads: usize, parts: Arc<[Part]>, least_visible: f32) -> Self {
        Self {
            heads,
            parts,
            normaliser: Normaliser::Softmax,
            dropout: None,
            ramp: None,
            first_pairs: None,
            gaussians: None,
            cap: None,
            is_bias_fixed: false,
            by_kernels: false,
            least_visible,
        }
    }

    /// The pair of the first key of a batch row.
    ///
    /// # Panics
    /// If logits have no Kronecker product.
    pub(crate) fn first_pair(&self, row: usize) -> isize {
        let pairs = self.first_pairs.as_deref().expect("logits have a Kronecker product");
        pairs[if pairs.len() == 1 { 0 } else { row }]
    }

    /// The bound of the logits, if the bias is added after it.
    pub(crate) fn cap_before_bias(&self) -> Option<Cap> {
        self.cap.filter(|cap| cap.is_before_bias)
    }

    /// Whether rows are divided by their sum.
    pub(crate) fn is_normalised(&self) -> bool {
        self.normaliser.per_key().is_none() && self.gaussians.as_ref().is_none_or(|gaussians| gaussians.are_renormalised())
    }

    /// Whether all pairs go in the order of their indices, with nothing added to their logits.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&*self.parts, [part] if part.is_in_order() && part.tiles.is_plain())
    }

    /// Batch rows and heads that are told apart.
    pub(crate) fn distinct(&self) -> [usize; 2] {
        distinct(&self.parts)
    }
}

/// Batch rows and heads that the parts of a plan tell apart.
pub(super) fn distinct(parts: &[Part]) -> [usize; 2] {
    let distinct = parts.iter().map(Part::distinct);
    distinct.reduce(|[rows, heads], [own_rows, own_heads]| [rows.max(own_rows), heads.max(own_heads)]).expect("a plan has a part")
}

impl Part {
    fn distinct(&self) -> [usize; 2] {
        let orders = [&self.queries, &self.keys].into_iter().flatten().map(|order| [order.planes.len() / order.heads, order.heads]);
        orders.fold(self.tiles.distinct(), |[rows, heads], [own_rows, own_heads]| [rows.max(own_rows), heads.max(own_heads)])
    }

    /// Calls `see` with each visible pair of the queries `chunk` and `keys` keys, and what is added to its logit.
    pub fn each(&self, row: usize, head: usize, chunk: &Range<usize>, keys: usize, mut see: impl FnMut(usize, usize, f32)) {
        let listed = |order: &Option<Order>, all: Range<usize>| match order {
            Some(order) => {
                let places = order.of(row, head).iter().enumerate();
                places.map(|(place, &index)| (place, index as usize)).filter(|(_, index)| all.contains(index)).collect()
            }
            None => all.map(|index| (index, index)).collect::<Vec<_>>(),
        };
        let keys = listed(&self.keys, 0..keys);
        for (query_place, query) in listed(&self.queries, chunk.clone()) {
            for &(key_place, key) in &keys {
                if let Some(shift) = self.tiles.shift(row, head, query_place, key_place) {
                    see(query, key, shift);
                }
            }
        }
    }
}
