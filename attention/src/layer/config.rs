//! Configuration of a layer.

use std::fmt;

use burn::config::Config;
use burn::tensor::Device;
use derive_setters::Setters;
use heedful_random::RandomKey;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::AttentionLayer;
use crate::contract::engine::Engine;
use crate::contract::error::ConfigError;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::description::AnyMechanism;

/// Configuration of an [`AttentionLayer`].
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use heedful_attention::prelude::*;
///
/// # let device = Device::flex();
/// # let (x, lengths) = (Tensor::<3>::ones([2, 6, 64], &device), [6, 4]);
/// let attention = AttentionConfig::new("synthesizer-dense+dot-product", 64, 4).with_causal(true).init(&device)?;
/// let y = attention.forward(x, &Mask::padding(&lengths, 6));
/// # assert_eq!(y.dims(), [2, 6, 64]);
/// let grouped = AttentionConfig::new("dot-product@sigmoid", 64, 4).with_n_kv_heads(2).with_head_width(32).init(&device)?;
/// assert!(AttentionConfig::new("linformer", 64, 4).with_causal(true).init(&device).is_err(), "it sees all of a sequence at once");
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize, Setters)]
#[serde(deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct AttentionConfig {
    /// The mechanism.
    #[setters(skip)]
    pub mechanism: Choice,
    /// Width of the model, a multiple of the number of heads.
    #[setters(skip)]
    pub d_model: usize,
    /// Number of heads.
    #[setters(skip)]
    pub n_heads: usize,
    /// Whether no query sees later positions, for any mask (default: no).
    #[serde(default)]
    pub causal: bool,
    /// Whether the layer attends to another sequence (default: no).
    #[serde(default)]
    pub cross: bool,
    /// Dropout probability of the attention weights, in `[0, 1)` (default: 0).
    #[serde(default)]
    pub dropout: f64,
    /// Maximum sequence length of mechanisms with parameters per position; other mechanisms derive defaults from it (default: 512).
    #[serde(default = "longest")]
    pub max_length: usize,
    /// Index of the layer, from 0, for mechanisms that depend on it (default: 0).
    #[serde(default)]
    #[setters(skip)]
    pub layer: usize,
    /// Number of layers (default: 1).
    #[serde(default = "one")]
    #[setters(skip)]
    pub layers: usize,
    /// Seed of initial weights and dropout: equal numbers on every backend (default: drawn from the device's generator, which [`Device::seed`] seeds).
    #[serde(default)]
    #[setters(strip_option)]
    pub seed: Option<u64>,
    /// Number of key and value heads, a divisor of the number of heads: 1 is multi-query attention, more are grouped-query attention (default: equal to the
    /// number of heads).
    #[serde(default)]
    #[setters(strip_option)]
    pub n_kv_heads: Option<usize>,
    /// Head width; `d_model` then need not be a multiple of the number of heads (default: `d_model / n_heads`).
    #[serde(default)]
    #[setters(strip_option)]
    pub head_width: Option<usize>,
    /// Whether the projections of queries, keys and values have biases (default: no).
    #[serde(default)]
    pub qkv_bias: bool,
    /// Whether the output projection has a bias (default: no).
    #[serde(default)]
    pub output_bias: bool,
    /// Engine (default: the fastest).
    #[serde(default)]
    pub engine: Engine,
}

impl Config for AttentionConfig {}

fn longest() -> usize {
    LayerSpec::MAX_LENGTH
}

fn one() -> usize {
    1
}

/// A mechanism by name or by configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Choice {
    /// A name that [`AnyMechanism`] parses, with default options: `"local-1d"`, `"synthesizer-random+dot-product"`.
    Named(String),
    /// A configuration.
    Configured(AnyMechanism),
}

/// A string is a name and a table is a configuration, so that errors are those of the configuration. Untagged, serde would only report that neither fits.
impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the name of an attention, or a table with the name of one and its options")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Choice, E> {
                Ok(Choice::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                AnyMechanism::deserialize(MapAccessDeserializer::new(map)).map(Choice::Configured)
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

impl From<&str> for Choice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for Choice {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl<C: Into<AnyMechanism>> From<C> for Choice {
    fn from(config: C) -> Self {
        Self::Configured(config.into())
    }
}

impl AttentionConfig {
    /// Bidirectional self-attention by a mechanism: its name, an [`AnyMechanism`], or a configuration such as
    /// [`LinformerConfig`](crate::mechanisms::linformer::LinformerConfig). An unknown name is an error of [`init`](Self::init).
    pub fn new(mechanism: impl Into<Choice>, d_model: usize, n_heads: usize) -> Self {
        Self {
            mechanism: mechanism.into(),
            d_model,
            n_heads,
            causal: false,
            cross: false,
            dropout: 0.0,
            max_length: longest(),
            layer: 0,
            layers: 1,
            seed: None,
            n_kv_heads: None,
            head_width: None,
            qkv_bias: false,
            output_bias: false,
            engine: Engine::default(),
        }
    }

    /// Sets the layer index and the number of layers. Layers with the same seed have different weights.
    pub fn with_layer(mut self, layer: usize, layers: usize) -> Self {
        (self.layer, self.layers) = (layer, layers);
        self
    }

    /// Place of the layer.
    ///
    /// # Errors
    /// If the layer is both causal and cross-attention, its index is out of range, or the maximal length is 0.
    pub fn spec(&self) -> Result<LayerSpec, ConfigError> {
        let &Self { d_model, n_heads: heads, n_kv_heads, head_width, causal, cross, dropout, max_length, layer, layers, .. } = self;
        let role = match (cross, causal) {
            (true, _) => Role::Cross,
            (false, true) => Role::Decoder,
            (false, false) => Role::Encoder,
        };
        let spec = LayerSpec::new(role, d_model, heads)
            .with_kv_heads(n_kv_heads)
            .with_head_width(head_width)
            .at_layer(layer, layers)
            .with_max_length(max_length)
            .with_dropout(dropout)
            .with_qkv_bias(self.qkv_bias)
            .with_output_bias(self.output_bias);
        let check = spec.check("attention");
        if cross && causal {
            return Err(check.refuse("causal", causal, "leave it out: positions of another sequence are neither past nor future"));
        }
        if layer >= layers {
            return Err(check.refuse("layer", layer, format!("give an index less than the number of layers, {layers}")));
        }
        check.at_least_one("max_length", max_length)?;
        Ok(spec)
    }

    /// Initialises the layer.
    ///
    /// # Errors
    /// An unknown mechanism, an invalid option, or a place that the mechanism does not support, with the remedy.
    pub fn init(&self, device: &Device) -> Result<AttentionLayer, ConfigError> {
        let mechanism = match &self.mechanism {
            Choice::Named(name) => name.parse::<AnyMechanism>()?,
            Choice::Configured(mechanism) => mechanism.clone(),
        };
        let spec = self.spec()?;
        mechanism.validate(&spec)?;
        let root = self.seed.map_or_else(|| crate::contract::random::drawn_key(device), RandomKey::from_seed);
        let key = root.named("layer").numbered(self.layer as u64);
        let attention = mechanism.init(&spec, &key, device);
        Ok(AttentionLayer::from_attention(attention, &spec, &key.named("dropout")).with_engine(self.engine))
    }
}
