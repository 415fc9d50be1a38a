//! What is run: the content of `mechanism.toml`.

use burn::tensor::Device;
use heedful_models::block::Parallel;
use heedful_models::block::halting::{Blend, HaltingConfig};
use heedful_models::block::layer_sharing::SharedConfig;
use heedful_models::parts::residual_gate::{GateConfig, GateKind};
use heedful_models::prelude::*;
use heedful_runs::settings::{SettingsError, complete};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::part::Part;
use crate::model::mechanisms::deserialize_attention;

/// An attention by its table or its name alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamedAttention(#[serde(deserialize_with = "deserialize_attention")] pub AnyMechanism);

/// Options of the blocks around attentions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlockOptions {
    /// Hidden units of the feed-forward network (default 256).
    pub d_ff: usize,
    /// Non-linearity of the feed-forward network (default: ReLU).
    pub activation: Activation,
    /// Whether the hidden units are multiplied by a second map of the input (default: no).
    pub gated_feed_forward: bool,
    /// Whether the maps of the feed-forward network have biases (default: yes).
    pub feed_forward_bias: bool,
    /// Positions that pass the feed-forward network at once (default: all).
    pub feed_forward_chunk: Option<usize>,
    /// Whether convolutions precede the maps of the feed-forward network (default: no).
    pub separable_feed_forward: bool,
    /// Which normalisation (default: layer normalisation with an epsilon of 1e-6).
    pub norm: NormConfig,
    /// Place of the normalisation (default: before the sublayers).
    pub norm_order: NormOrder,
    /// Parallel sublayers, which read the same states, and their normalisations (default: they follow each other).
    pub parallel: Option<Parallel>,
    /// The gate in place of the residual sum (default: none).
    pub gate: Option<GateKind>,
    /// Whether sublayer outputs pass a ReLU before they join the stream (default: no).
    pub relu_before_residual: bool,
    /// Whether the backward pass recomputes activations (default: no).
    pub checkpoint: bool,
    /// Whether a stack's output is normalised (default: where the residual sums are not).
    pub final_norm: Option<bool>,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            d_ff: 256,
            activation: Activation::default(),
            gated_feed_forward: false,
            feed_forward_bias: true,
            feed_forward_chunk: None,
            separable_feed_forward: false,
            norm: NormConfig::default(),
            norm_order: NormOrder::Pre,
            parallel: None,
            gate: None,
            relu_before_residual: false,
            checkpoint: false,
            final_norm: None,
        }
    }
}

/// Options of adaptive computation time; see [`HaltingConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaltingOptions {
    /// How far the summed halting probability of a position may stay below 1 when it halts (default 0.01).
    pub epsilon: f64,
    /// How the states of the steps become one (default: mean field).
    pub blend: Blend,
    /// Whether positions that have not halted at the last step receive the remainder there (default: yes).
    pub remainder_at_limit: bool,
    /// Whether the halting unit reads the input of the update (default: its output).
    pub before_update: bool,
    /// Whether a state that has halted stays as it is (default: yes); for stacks.
    pub freeze: bool,
    /// Weight of the mean ponder cost in `loss.ponder` (default 0.01); for stacks.
    pub ponder_weight: f64,
}

impl Default for HaltingOptions {
    fn default() -> Self {
        let HaltingConfig { epsilon, ponder_weight, blend, remainder_at_limit, freeze, before_update, .. } = HaltingConfig::default();
        Self { epsilon, blend, remainder_at_limit, before_update, freeze, ponder_weight }
    }
}

impl From<HaltingOptions> for HaltingConfig {
    fn from(options: HaltingOptions) -> Self {
        let HaltingOptions { epsilon, blend, remainder_at_limit, before_update, freeze, ponder_weight } = options;
        Self { epsilon, blend, remainder_at_limit, before_update, freeze, ponder_weight, ..Self::default() }
    }
}

/// A part of a model and its options: the content of `mechanism.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityConfig {
    /// Which part (default `attention`).
    pub part: Part,
    /// The attention: a table with its name and options, or a name alone (default `dot-product`).
    #[serde(deserialize_with = "deserialize_attention")]
    pub attention: AnyMechanism,
    /// `encoder` (default), `decoder` (causal) or, for an attention alone, `cross` (attends to `memory`).
    pub role: Role,
    /// Width of the model (default 64).
    pub d_model: usize,
    /// Number of heads (default 4).
    pub heads: usize,
    /// Number of heads of keys and values, which several heads share (default: as many as heads).
    pub kv_heads: Option<usize>,
    /// Width of a head (default: `d_model / heads`).
    pub head_width: Option<usize>,
    /// Whether the projections of queries, keys and values have biases (default: no).
    pub qkv_bias: bool,
    /// Whether the output projection has a bias (default: no).
    pub output_bias: bool,
    /// Longest sequence (default 64): the size of tables that are tied to positions.
    pub max_length: usize,
    /// Index of the layer, from 0 (default 0): some mechanisms differ from layer to layer.
    pub layer: usize,
    /// Number of layers (default 1).
    pub layers: usize,
    /// Seed of random draws other than weights, which the file provides (default 1).
    pub seed: u64,
    /// How an attention alone is executed where there is a choice: `auto` (default), `fused` or `reference`.
    pub engine: Engine,
    /// Whether the gradient reaches the memory of an earlier segment (default: no, as in training).
    pub memory_gradient: bool,
    /// Cross-attention of blocks: as `attention` (default: none).
    pub cross: Option<NamedAttention>,
    /// Options of blocks.
    pub block: BlockOptions,
    /// Options of halting (default: of the part `halting` the defaults; shared stacks do not halt).
    pub halting: Option<HaltingOptions>,
    /// Position vectors that shared and segment stacks add before each layer (default: none).
    pub positions: PositionConfig,
    /// Vectors that tell the steps of a shared block apart (default: sinusoidal).
    pub step_signal: PositionConfig,
    /// How many positions stacks that read segments remember (default 64).
    pub memory_length: usize,
}

impl Default for ParityConfig {
    fn default() -> Self {
        Self {
            part: Part::default(),
            attention: AnyMechanism::default(),
            role: Role::Encoder,
            d_model: 64,
            heads: 4,
            kv_heads: None,
            head_width: None,
            qkv_bias: false,
            output_bias: false,
            max_length: 64,
            layer: 0,
            layers: 1,
            seed: 1,
            engine: Engine::default(),
            memory_gradient: false,
            cross: None,
            block: BlockOptions::default(),
            halting: None,
            positions: PositionConfig::None,
            step_signal: PositionConfig::default(),
            memory_length: 64,
        }
    }
}

impl ParityConfig {
    /// The configuration without what means nothing to the part.
    ///
    /// # Errors
    /// If TOML cannot express it.
    pub fn used(&self) -> Result<Table, SettingsError> {
        let mut table = complete(self)?;
        table.retain(|field, _| self.part.uses(field, self.role));
        Ok(table)
    }

    /// The role of self-attention, or of the one attention.
    pub(super) fn self_role(&self) -> Role {
        if self.part.reads_segments() { Role::Decoder } else { self.role }
    }

    /// How many blocks there are, with weights of their own.
    pub(super) fn blocks(&self) -> usize {
        if self.part.is_stack() { self.depth().blocks(self.layers) } else { 1 }
    }

    /// Layers whose attentions are built.
    pub(super) fn placed_layers(&self) -> std::ops::Range<usize> {
        if self.part.is_stack() { 0..self.blocks() } else { self.layer..self.layer + 1 }
    }

    pub(super) fn spec(&self, role: Role, layer: usize) -> LayerSpec {
        let Self { d_model, heads, kv_heads, head_width, max_length, qkv_bias, output_bias, .. } = *self;
        let layers = if self.part.is_stack() { self.blocks() } else { self.layers };
        let place = LayerSpec::new(role, d_model, heads).with_kv_heads(kv_heads).with_head_width(head_width);
        place.at_layer(layer, layers).with_max_length(max_length).with_qkv_bias(qkv_bias).with_output_bias(output_bias)
    }

    /// The key of what is drawn.
    pub(super) fn key(&self) -> RandomKey {
        RandomKey::from_seed(self.seed)
    }

    pub(super) fn init_attention(&self, device: &Device) -> AnyAttention {
        self.attention.init(&self.spec(self.role, self.layer), &self.key(), device)
    }

    pub(super) fn block_config(&self) -> BlockConfig {
        let Self { d_model, heads, kv_heads, head_width, qkv_bias, output_bias: attention_output_bias, max_length, block, .. } = *self;
        BlockConfig {
            d_model,
            heads,
            kv_heads,
            head_width,
            qkv_bias,
            attention_output_bias,
            d_ff: block.d_ff,
            activation: block.activation,
            gated_feed_forward: block.gated_feed_forward,
            feed_forward_bias: block.feed_forward_bias,
            feed_forward_chunk: block.feed_forward_chunk,
            separable_feed_forward: block.separable_feed_forward,
            norm: block.norm,
            norm_order: block.norm_order,
            parallel: block.parallel,
            gate: block.gate.map(GateConfig::new),
            relu_before_residual: block.relu_before_residual,
            checkpoint: block.checkpoint,
            final_norm: block.final_norm,
            dropout: 0.0,
            max_length,
            ..BlockConfig::default()
        }
    }

    pub(super) fn depth(&self) -> DepthConfig {
        match self.part {
            Part::StackShared | Part::SegmentsShared => {
                DepthConfig::Shared(SharedConfig { step_signal: self.step_signal, halting: self.halting.map(Into::into) })
            }
            Part::StackReversible => DepthConfig::Reversible,
            _ => DepthConfig::Stacked,
        }
    }
}
