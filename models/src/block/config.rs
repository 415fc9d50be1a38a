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

/// Stacks whose blocks have a feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardIn {
    /// All stacks (Vaswani et al. 2017).
    #[default]
    All,
    /// Only encoders.
    Encoder,
    /// Only decoders, including language models.
    Decoder,
    /// None: blocks contain only attention.
    None,
}

impl FeedForwardIn {
    /// Whether the blocks of a stack with this self-attention role have a feed-forward network.
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
    /// Key and value heads, a divisor of `heads`, which share them in groups (default: equal to `heads`).
    pub kv_heads: Option<usize>,
    /// Width of a head (default: `d_model / heads`).
    pub head_width: Option<usize>,
    /// Whether the projections of queries, keys and values have biases (default: no, as in the paper's equations). If the layers of a language model or a
    /// classifier use different mechanisms, those without bias support have none.
    pub qkv_bias: bool,
    /// Whether the output projections of attentions have biases (default: no, as in the paper's equations).
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
    /// Positions per pass through the feed-forward network, at least 1 (default: all).
    pub feed_forward_chunk: Option<usize>,
    /// Whether a convolution over surrounding or earlier positions precedes each map of the feed-forward networks (default: no).
    pub separable_feed_forward: bool,
    /// Kind of normalisation (default: layer normalisation with ε = 1e-6).
    pub norm: NormConfig,
    /// Place of the normalisation (default: after the residual sum).
    pub norm_order: NormOrder,
    /// Whether the sublayers of a block run in parallel on the same states with summed outputs, and with which normalisations (default: sequentially).
    pub parallel: Option<Parallel>,
    /// Gate that joins the stream and a sublayer's output (default: their sum). Gates require an unnormalised stream.
    pub gate: Option<GateConfig>,
    /// Whether sublayer outputs pass a ReLU before they join the stream, as in TrXL-I and GTrXL (default: no).
    pub relu_before_residual: bool,
    /// Whether a block's activations are recomputed in the backward pass instead of kept (default: no): memory for one tensor per block, at the cost of a
    /// second forward pass.
    pub checkpoint: bool,
    /// Whether the stack skips padding where possible (default: no). Feed-forward networks and their normalisations compute only real positions
    /// ([unpadding](crate::kernels::unpadding)), and attentions may skip padding queries, in linear maps and tiles
    /// ([`Positions::ends`](heedful_attention::contract::Positions::ends)). States of real positions are equal up to rounding, dropout acts on other numbers,
    /// and the outputs of padding, which must be hidden from real positions, are unspecified. A batch without padding is computed as usual.
    pub unpadded: bool,
    /// Whether the stack's output is normalised (default: yes if the residual sums are not; TrXL-I and GTrXL omit it).
    pub final_norm: Option<bool>,
    /// Dropout of sublayer outputs and of the model's embeddings (default 0.1).
    pub dropout: f64,
    /// Dropout of attention weights (default 0, as in the paper; 0.1 in tensor2tensor).
    pub attention_dropout: f64,
    /// Dropout of the feed-forward network's hidden units (default 0, as in the paper; 0.1 in tensor2tensor).
    pub feed_forward_dropout: f64,
    /// Maximum sequence length in tokens, including boundary tokens (default 512).
    pub max_length: usize,
    /// Maximum offset by which the positions of a batch are shifted in training, within `max_length` (default 0: no shift).
    pub position_offset: usize,
}

/// Residual connection of a shared normalisation.
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

    /// Refuses unpadded execution in a model without padding.
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

    /// Token embedding of a model with such blocks, without normalisation and segments.
    pub(crate) fn embedding(&self, vocabulary: usize, positions: PositionConfig, scale: EmbeddingScale) -> TokenEmbeddingConfig {
        let Self { d_model, max_length, position_offset, dropout, .. } = *self;
        TokenEmbeddingConfig { vocabulary, d_model, max_length, positions, position_offset, segments: 0, scale, norm: None, dropout }
    }

    /// Place of an attention in block `layer` of `layers`. With a number of heads other than the block's, each head has its own keys and values and the usual
    /// width.
    pub fn spec(&self, role: Role, layer: usize, layers: usize, heads: usize) -> LayerSpec {
        let Self { d_model, kv_heads, head_width, max_length, attention_dropout: dropout, .. } = *self;
        let place = LayerSpec::new(role, d_model, heads);
        let place = if heads == self.heads { place.with_kv_heads(kv_heads).with_head_width(head_width) } else { place };
        let place = place.with_qkv_bias(self.qkv_bias).with_output_bias(self.attention_output_bias);
        place.at_layer(layer, layers).with_max_length(max_length).with_dropout(dropout)
    }

    /// A block around initialised attentions, in a stack whose self-attention has the role `role`.
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

    /// Residual connection of a sublayer: the first of the block, or a later one.
    pub(crate) fn residual(&self, is_first: bool) -> ResidualConfig {
        let Self { d_model, norm, norm_order, gate, relu_before_residual: relu, dropout, .. } = *self;
        let is_normalised = self.parallel == Some(Parallel::SharedNorm) && !is_first;
        ResidualConfig { d_model, norm, norm_order, is_normalised, gate, relu, dropout }
    }

    /// Feed-forward network for the blocks of a stack with this self-attention role, if any.
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
