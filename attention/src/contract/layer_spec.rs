//! Place of an attention in a model.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::SinkCache;
use crate::contract::visibility::Visibility;

/// Role of an attention in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Self-attention of an encoder, over the whole sequence.
    Encoder,
    /// Self-attention of a decoder: causal for any visibility of a call.
    Decoder,
    /// Attention from a decoder to the encoder's output.
    Cross,
}

/// Place of an attention in a model, with the sizes that it shares with the model.
///
/// By default heads have width `d_model / heads` and separate keys and values; [`head_width`](Self::head_width) and [`kv_heads`](Self::kv_heads) change this.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerSpec {
    /// Role in the model.
    pub role: Role,
    /// Index of the layer, from 0.
    pub layer: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Number of heads.
    pub heads: usize,
    /// Number of key and value heads, a divisor of the number of heads (default: equal). Query head `h` of `H` reads key head `h G / H` of `G`: 1 is
    /// multi-query attention (Shazeer 2019), more are grouped-query attention (Ainslie et al. 2023).
    pub kv_heads: Option<usize>,
    /// Head width of queries, keys and values (default: `d_model / heads`).
    pub head_width: Option<usize>,
    /// Longest sequence of the model.
    pub max_length: usize,
    /// Dropout probability of attention weights.
    pub dropout: f64,
    /// Whether the projections of queries, keys and values have biases (default: no).
    pub qkv_bias: bool,
    /// Whether the output projection has a bias (default: no).
    pub output_bias: bool,
    cache: Option<SinkCache>,
}

impl LayerSpec {
    /// Default length of the longest sequence.
    pub(crate) const MAX_LENGTH: usize = 512;

    /// The only layer of a model, for sequences of at most 512 positions, without dropout.
    pub const fn new(role: Role, d_model: usize, heads: usize) -> Self {
        Self {
            role,
            layer: 0,
            layers: 1,
            d_model,
            heads,
            kv_heads: None,
            head_width: None,
            max_length: Self::MAX_LENGTH,
            dropout: 0.0,
            qkv_bias: false,
            output_bias: false,
            cache: None,
        }
    }

    /// Sets the role.
    pub const fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Sets the index of the layer, from 0, and the number of layers.
    pub const fn at_layer(mut self, layer: usize, layers: usize) -> Self {
        self.layer = layer;
        self.layers = layers;
        self
    }

    /// Sets the width of the model.
    pub const fn with_d_model(mut self, d_model: usize) -> Self {
        self.d_model = d_model;
        self
    }

    /// Sets the number of heads.
    pub const fn with_n_heads(mut self, heads: usize) -> Self {
        self.heads = heads;
        self
    }

    /// Sets the number of key and value heads; `None`: equal to the number of heads.
    pub const fn with_kv_heads(mut self, heads: Option<usize>) -> Self {
        self.kv_heads = heads;
        self
    }

    /// Sets the width of a head; `None`: `d_model / heads`.
    pub const fn with_head_width(mut self, width: Option<usize>) -> Self {
        self.head_width = width;
        self
    }

    /// Sets the length of the longest sequence.
    pub const fn with_max_length(mut self, length: usize) -> Self {
        self.max_length = length;
        self
    }

    /// Sets the dropout probability of attention weights.
    pub const fn with_dropout(mut self, probability: f64) -> Self {
        self.dropout = probability;
        self
    }

    /// Sets whether the projections of queries, keys and values have biases.
    pub const fn with_qkv_bias(mut self, bias: bool) -> Self {
        self.qkv_bias = bias;
        self
    }

    /// Sets whether the output projection has a bias.
    pub const fn with_output_bias(mut self, bias: bool) -> Self {
        self.output_bias = bias;
        self
    }

    /// The same place with positions inside a cache; `None`: positions in the sequence.
    pub(crate) const fn in_cache(mut self, cache: Option<SinkCache>) -> Self {
        self.cache = cache;
        self
    }

    /// Cache that defines the positions of queries and keys, if these are not positions in the sequence. Mechanisms declare support in
    /// [`Mechanism::positioning`](crate::description::Mechanism::positioning); no other mechanism is placed in a cache.
    pub const fn cache(&self) -> Option<SinkCache> {
        self.cache
    }

    /// Width of a head.
    pub fn d_head(&self) -> usize {
        self.head_width.unwrap_or(self.d_model / self.heads.max(1))
    }

    /// Total query width of all heads.
    pub fn query_width(&self) -> usize {
        self.head_width.map_or(self.d_model, |width| self.heads.saturating_mul(width))
    }

    /// Number of key and value heads.
    pub fn n_kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Total width of all key heads; also of all value heads.
    pub fn key_width(&self) -> usize {
        if self.n_kv_heads() == self.heads { self.query_width() } else { self.n_kv_heads().saturating_mul(self.d_head()) }
    }

    /// Whether heads share keys, or their total width differs from the model width.
    pub(crate) fn has_own_sizes(&self) -> bool {
        self.n_kv_heads() != self.heads || self.query_width() != self.d_model
    }

    /// Maximum visibility of an attention here: in a decoder no query sees later positions.
    pub fn limit(&self) -> Visibility {
        if self.role == Role::Decoder { Visibility::causal() } else { Visibility::all() }
    }
}

impl fmt::Display for LayerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stack, kind) = match self.role {
            Role::Encoder => ("encoder", "self-attention"),
            Role::Decoder => ("decoder", "self-attention"),
            Role::Cross => ("decoder", "cross-attention"),
        };
        write!(f, "{stack} layer {} of {}, {kind}", self.layer + 1, self.layers)
    }
}
