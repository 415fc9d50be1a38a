//! Configuration of a block.

use burn::tensor::Device;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Block, Parallel};
use crate::parts::embedding::{EmbeddingScale, TokenEmbeddingConfig};
use crate::parts::feed_forward::{Activation, FeedForwardConfig};
use crate::parts::norm::NormConfig;
use crate::parts::position::PositionConfig;
use crate::parts::residual::{NormOrder, ResidualConfig};
use crate::parts::residual_gate::GateConfig;

/// The stacks whose blocks have a feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardIn {
    /// All of them (Vaswani et al. 2017).
    #[default]
    All,
    /// Encoders alone.
    Encoder,
    /// Decoders, language models among them, alone.
    Decoder,
    /// None: blocks are attentions alone.
    None,
}

impl FeedForwardIn {
    /// Whether the blocks of a stack have one, whose self-attention has this role.
    pub fn has(self, role: Role) -> bool {
        match self {
            Self::All => true,
            Self::Encoder => role == Role::Encoder,
            Self::Decoder => role == Role::Decoder,
            Self::None => false,
        }
    }
}

/// Sizes and options of a [`Block`], shared by the blocks of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlockConfig {
    /// Width of the model (default 512).
    pub d_model: usize,
    /// Heads of self-attention, a divisor of `d_model` unless `head_width` is given (default 8).
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`, which share them in groups (default: as many as heads).
    pub kv_heads: Option<usize>,
    /// Width of a head (default: `d_model / heads`).
    pub head_width: Option<usize>,
    /// Whether the projections of queries, keys and values have biases (default: no, as in the equations of the paper). Where the layers of a language model or a
    /// classifier have different mechanisms, those that cannot have biases have none.
    pub qkv_bias: bool,
    /// Whether the output projections of attentions have biases (default: no, as in the equations of the paper).
    pub attention_output_bias: bool,
    /// Which stacks have feed-forward networks (default: all).
    pub feed_forward_in: FeedForwardIn,
    /// Hidden units of the feed-forward network (default 2048).
    pub d_ff: usize,
    /// Non-linearity of the feed-forward network (default: ReLU).
    pub activation: Activation,
    /// Whether the hidden units of the feed-forward network are multiplied by a second map of its input (default: no).
    pub gated_feed_forward: bool,
    /// Whether the maps of the feed-forward network have biases (default: yes).
    pub feed_forward_bias: bool,
    /// Positions that pass the feed-forward network at once, at least 1 (default: all).
    pub feed_forward_chunk: Option<usize>,
    /// Whether a convolution over the positions around, or before, precedes each map of the feed-forward networks (default: no).
    pub separable_feed_forward: bool,
    /// Which normalisation (default: layer normalisation with ε = 1e-6).
    pub norm: NormConfig,
    /// Where it stands (default: after the residual sum).
    pub norm_order: NormOrder,
    /// Whether the sublayers of a block are given the same states and their outputs are added together, and which normalisations they have then (default: they follow
    /// each other).
    pub parallel: Option<Parallel>,
    /// What joins the stream and a sublayer's output (default: their sum). Gates need a stream that is not normalised.
    pub gate: Option<GateConfig>,
    /// Whether sublayer outputs pass a ReLU before they join the stream, as in TrXL-I and GTrXL (default: no).
    pub relu_before_residual: bool,
    /// Whether a block's activations are not kept for the backward pass but computed again in it (default: no): memory for one tensor each block, at the
    /// price of a second forward pass.
    pub checkpoint: bool,
    /// Whether the stack leaves out padding where it can (default: no): feed-forward networks with the normalisations around them compute the real positions
    /// alone ([unpadding](crate::kernels::unpadding)), and attentions may leave out the queries that are padding, in linear maps and tiles
    /// ([`Positions::ends`](heedful_attention::contract::Positions::ends)). Real positions have the same states but for rounding, dropout falls on other
    /// numbers, and nothing is promised of padding, which has to be hidden from real positions. A batch without padding is computed as ever.
    pub unpadded: bool,
    /// Whether the stack's output is normalised (default: where the residual sums are not; TrXL-I and GTrXL do without).
    pub final_norm: Option<bool>,
    /// Dropout of sublayer outputs and of the model's embeddings (default 0.1).
    pub dropout: f64,
    /// Dropout of attention weights (default 0, as in the paper; tensor2tensor has 0.1).
    pub attention_dropout: f64,
    /// Dropout of the feed-forward network's hidden units (default 0, as in the paper; tensor2tensor has 0.1).
    pub feed_forward_dropout: f64,
    /// Longest sequence in tokens, those that frame it included (default 512).
    pub max_length: usize,
    /// Greatest offset by which the positions of a batch are moved in training, within `max_length` (default 0: they are not).
    pub position_offset: usize,
}

/// The residual connection that a shared normalisation belongs to.
const FIRST: &str = "self_attention_residual";

impl Default for BlockConfig {
    /// The base model of Vaswani et al. 2017, table 3.
    fn default() -> Self {
        Self {
            d_model: 512,
            heads: 8,
            kv_heads: None,
            head_width: None,
            qkv_bias: false,
            attention_output_bias: false,
            feed_forward_in: FeedForwardIn::default(),
            d_ff: 2048,
            activation: Activation::default(),
            gated_feed_forward: false,
            feed_forward_bias: true,
            feed_forward_chunk: None,
            separable_feed_forward: false,
            norm: NormConfig::default(),
            norm_order: NormOrder::default(),
            parallel: None,
            gate: None,
            relu_before_residual: false,
            checkpoint: false,
            unpadded: false,
            final_norm: None,
            dropout: 0.1,
            attention_dropout: 0.0,
            feed_forward_dropout: 0.0,
            max_length: 512,
            position_offset: 0,
        }
    }
}

impl BlockConfig {
    pub(crate) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        for (option, value) in [("d_model", self.d_model), ("heads", self.heads), ("d_ff", self.d_ff), ("max_length", self.max_length)] {
            check.at_least_one(option, value)?;
        }
        if self.head_width.is_none() && !self.d_model.is_multiple_of(self.heads) {
            return Err(check.refuse("heads", self.heads, format!("give a divisor of d_model = {}", self.d_model)));
        }
        if self.feed_forward_chunk == Some(0) {
            return Err(check.refuse("feed_forward_chunk", 0, "give a number of at least 1, or leave it out"));
        }
        if let (Some(chunk), true) = (self.feed_forward_chunk, self.separable_feed_forward) {
            return Err(check.refuse("feed_forward_chunk", chunk, "leave it out: a separable network needs the positions around each"));
        }
        if self.unpadded && self.separable_feed_forward {
            return Err(check.refuse(
                "unpadded",
                true,
                "leave it out: a separable network needs the positions around each in their places",
            ));
        }
        self.norm.validate(check)?;
        self.validate_parallel(check)?;
        if let Some(gate) = &self.gate {
            gate.validate(check)?;
            if self.norm_order == NormOrder::Post {
                let remedy = "give pre: a gate keeps the stream as it is, which a normalisation after it would not";
                return Err(check.refuse("norm_order", "post", remedy));
            }
        }
        check.probability("dropout", self.dropout)?;
        check.probability("attention_dropout", self.attention_dropout)?;
        check.probability("feed_forward_dropout", self.feed_forward_dropout)
    }

    fn validate_parallel(&self, check: &Check) -> Result<(), ConfigError> {
        let Some(parallel) = self.parallel else { return Ok(()) };
        if self.norm_order == NormOrder::Post {
            return Err(check.refuse("norm_order", "post", "give pre: the sublayers of a parallel block are given the same states"));
        }
        if parallel == Parallel::SharedNorm && self.norm_order != NormOrder::Pre {
            let remedy = "give own-norms, or norm_order = \"pre\": only a normalisation before the sublayers can be shared";
            return Err(check.refuse("parallel", "shared-norm", remedy));
        }
        match self.gate {
            Some(_) => {
                Err(check.refuse("gate", "given", "leave it out: the outputs of parallel sublayers are added to the stream together"))
            }
            None => Ok(()),
        }
    }

    /// Refuses to leave out padding in a model that has none.
    pub(crate) fn validate_without_padding(&self, check: &Check, reason: &str) -> Result<(), ConfigError> {
        match self.unpadded {
            true => Err(check.refuse("unpadded", true, format!("leave it out: {reason}"))),
            false => Ok(()),
        }
    }

    /// Whether the output of a stack of such blocks is normalised.
    pub fn has_final_norm(&self) -> bool {
        self.final_norm.unwrap_or(self.norm_order != NormOrder::Post)
    }

    /// Embedded tokens of a model of such blocks, neither normalised nor in segments.
    pub(crate) fn embedding(&self, vocabulary: usize, positions: PositionConfig, scale: EmbeddingScale) -> TokenEmbeddingConfig {
        let Self { d_model, max_length, position_offset, dropout, .. } = *self;
        TokenEmbeddingConfig { vocabulary, d_model, max_length, positions, position_offset, segments: 0, scale, norm: None, dropout }
    }

    /// Where an attention of the block `layer` of `layers` stands. If it has another number of heads than the block, each of them has keys and values of its
    /// own and the usual width.
    pub fn spec(&self, role: Role, layer: usize, layers: usize, heads: usize) -> LayerSpec {
        let Self { d_model, kv_heads, head_width, max_length, attention_dropout: dropout, .. } = *self;
        let place = LayerSpec::new(role, d_model, heads);
        let place = if heads == self.heads { place.with_kv_heads(kv_heads).with_head_width(head_width) } else { place };
        let place = place.with_qkv_bias(self.qkv_bias).with_output_bias(self.attention_output_bias);
        place.at_layer(layer, layers).with_max_length(max_length).with_dropout(dropout)
    }

    /// A block around attentions that are initialised already, in a stack whose self-attention has the role `role`.
    pub fn init<A: Attention>(
        &self,
        role: Role,
        self_attention: A,
        cross_attention: Option<A>,
        key: &RandomKey,
        device: &Device,
    ) -> Block<A> {
        let residual = |name: &str| self.residual(name == FIRST).init(&key.named(name), device);
        let feed_forward = self.feed_forward(role);
        Block {
            self_attention,
            self_attention_residual: residual(FIRST),
            cross_attention_residual: cross_attention.is_some().then(|| residual("cross_attention_residual")),
            cross_attention,
            feed_forward_residual: feed_forward.is_some().then(|| residual("feed_forward_residual")),
            feed_forward: feed_forward.map(|config| config.init(&key.named("feed_forward"), device)),
            parallel: self.parallel,
        }
    }

    /// The residual connection of a sublayer: the first of the block, or a later one.
    pub(crate) fn residual(&self, is_first: bool) -> ResidualConfig {
        let Self { d_model, norm, norm_order, gate, relu_before_residual: relu, dropout, .. } = *self;
        let is_normalised = self.parallel == Some(Parallel::SharedNorm) && !is_first;
        ResidualConfig { d_model, norm, norm_order, is_normalised, gate, relu, dropout }
    }

    /// The feed-forward network of the blocks of a stack whose self-attention has this role, if they have one.
    pub(crate) fn feed_forward(&self, role: Role) -> Option<FeedForwardConfig> {
        self.feed_forward_in.has(role).then(|| FeedForwardConfig {
            d_model: self.d_model,
            d_ff: self.d_ff,
            activation: self.activation,
            gated: self.gated_feed_forward,
            bias: self.feed_forward_bias,
            chunk: self.feed_forward_chunk,
            separable: self.separable_feed_forward,
            causal: role == Role::Decoder,
            dropout: self.feed_forward_dropout,
        })
    }
}
