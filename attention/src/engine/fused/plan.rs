//! Plan of a fused attention: visibility, order and dropout.

use std::ops::Range;
use std::sync::Arc;

use crate::contract::visibility::TileMap;
use crate::engine::dropout::WeightDropout;
use crate::engine::{GaussianWeights, Normaliser, Ramp};

/// Visibility, order and options of an attention.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of heads. Keys and values have equal head counts, a divisor of it: a group of heads shares each key head.
    pub heads: usize,
    /// Visibility in parts, under one softmax. A pair in several parts counts repeatedly, apart from shifts.
    pub parts: Arc<[Part]>,
    /// Normaliser of the scores.
    pub normaliser: Normaliser,
    /// Dropout of the weights, if any.
    pub dropout: Option<WeightDropout>,
    /// Factors of the exponentials of the logits by distance, if any.
    pub ramp: Option<Ramp>,
    /// Pair of the first key in each batch row or in all, for logits with a Kronecker product.
    pub first_pairs: Option<Arc<[isize]>>,
    /// Closed-form weights, exclusive with other logits; they also specify whether rows are divided by their sum.
    pub gaussians: Option<Arc<GaussianWeights>>,
    /// Soft cap of the logits, if any.
    pub cap: Option<Cap>,
    /// Whether the bias needs no gradient.
    pub is_bias_fixed: bool,
    /// Whether the device has kernels for this plan: a softmax of a product of thin factors, scores by distance and a bias, or a subset, with or without soft
    /// spans, over tiles in index order without shifts.
    pub by_kernels: bool,
    /// Upper bound of hidden logits, which a bias can hide by a number within the operands' type.
    pub least_visible: f32,
}

/// A soft cap of logits: [`SoftCap::limit`](crate::engine::SoftCap::limit) bounds the terms before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    /// Greater than 0.
    pub limit: f32,
    /// Whether the bias is added after it. All other terms are before it.
    pub is_before_bias: bool,
}

/// A subset of query-key pairs.
#[derive(Clone, Debug)]
pub struct Part {
    /// Tiles over the places of queries and keys in this part.
    pub tiles: Arc<TileMap>,
    /// Order of queries, with related ones adjacent. Absent if places are indices.
    pub queries: Option<Order>,
    /// Order of keys.
    pub keys: Option<Order>,
}

/// Index at each place, per distinct batch row and head. Indices without a place are not part of it.
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

    /// Whether all heads of a batch row share the key order.
    pub(super) fn has_keys_in_one_order(&self) -> bool {
        self.keys.as_ref().is_none_or(|order| order.heads == 1)
    }

    /// Whether places are indices.
    pub fn is_in_order(&self) -> bool {
        self.queries.is_none() && self.keys.is_none()
    }
}

impl Order {
    /// Creates an order from one list of indices per plane of `heads` heads, batch row by batch row; one row or head if shared.
    pub fn new(heads: usize, planes: Vec<Vec<u32>>) -> Self {
        assert!(planes.len().is_multiple_of(heads), "{} orders for {heads} heads", planes.len());
        Self { heads, planes }
    }

    /// Indices of a batch row and head, by place.
    pub fn of(&self, row: usize, head: usize) -> &[u32] {
        let (row, head) = (if self.planes.len() == self.heads { 0 } else { row }, if self.heads == 1 { 0 } else { head });
        &self.planes[row * self.heads + head]
    }
}

impl Plan {
    /// A plain softmax over these parts.
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

    /// Pair of the first key of a batch row.
    ///
    /// # Panics
    /// If logits have no Kronecker product.
    pub(crate) fn first_pair(&self, row: usize) -> isize {
        let pairs = self.first_pairs.as_deref().expect("logits have a Kronecker product");
        pairs[if pairs.len() == 1 { 0 } else { row }]
    }

    /// Soft cap of the logits, if the bias is added after it.
    pub(crate) fn cap_before_bias(&self) -> Option<Cap> {
        self.cap.filter(|cap| cap.is_before_bias)
    }

    /// Whether rows are divided by their sum.
    pub(crate) fn is_normalised(&self) -> bool {
        self.normaliser.per_key().is_none() && self.gaussians.as_ref().is_none_or(|gaussians| gaussians.are_renormalised())
    }

    /// Whether all pairs are in index order, without shifts.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&*self.parts, [part] if part.is_in_order() && part.tiles.is_plain())
    }

    /// Number of distinct batch rows and heads.
    pub(crate) fn distinct(&self) -> [usize; 2] {
        distinct(&self.parts)
    }
}

/// Number of distinct batch rows and heads in the parts of a plan.
pub(super) fn distinct(parts: &[Part]) -> [usize; 2] {
    let distinct = parts.iter().map(Part::distinct);
    distinct.reduce(|[rows, heads], [own_rows, own_heads]| [rows.max(own_rows), heads.max(own_heads)]).expect("a plan has a part")
}

impl Part {
    fn distinct(&self) -> [usize; 2] {
        let orders = [&self.queries, &self.keys].into_iter().flatten().map(|order| [order.planes.len() / order.heads, order.heads]);
        orders.fold(self.tiles.distinct(), |[rows, heads], [own_rows, own_heads]| [rows.max(own_rows), heads.max(own_heads)])
    }

    /// Calls `see` with each visible pair of the queries `chunk` and `keys` keys, and its bias.
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
