//! Configuration of the decoder of pixels.

use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::{CHANNELS, PixelDecoder};
use crate::architectures::logistic_mixture::NUMBERS_PER_COMPONENT;
use crate::block::BlockConfig;
use crate::block::builders::{model_builders, one_stack_builders};
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::LayerAttention;
use crate::block::stack::StackConfig;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::position::PositionConfig;

/// Configuration of [`PixelDecoder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct PixelDecoderConfig {
    /// Mixture components per pixel, at least 1 (default 10, as in the paper).
    pub components: usize,
    /// Self-attention of the layers (default: dot-product).
    #[setters(skip)]
    pub attention: LayerAttention,
    /// Number of layers, at least 1 (default 6).
    pub layers: usize,
    /// Sizes and options of all layers. `max_length` is in pixels.
    pub block: BlockConfig,
    /// Position vectors (default: sinusoidal, which requires an even width).
    pub positions: PositionConfig,
    /// Sharing of weights across layers (default: each layer has its own).
    pub depth: DepthConfig,
    /// Initialisation of the weights (default: that of each module, Xavier-uniform).
    pub initialisation: Initialisation,
    /// Seed of [`build`](Self::build) and of the dropout of `forward`, with equal numbers on every backend (default: drawn from the device's generator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for PixelDecoderConfig {
    fn default() -> Self {
        Self {
            components: 10,
            attention: LayerAttention::default(),
            layers: 6,
            block: BlockConfig::default(),
            positions: PositionConfig::default(),
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            seed: None,
        }
    }
}

model_builders!(PixelDecoderConfig, PixelDecoder);
one_stack_builders!(PixelDecoderConfig, PixelDecoder);

impl PixelDecoderConfig {
    /// Configuration with the sizes of the base model of Vaswani et al. 2017.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("pixel decoder");
        check.at_least_one("components", self.components)?;
        check.at_least_one("layers", self.layers)?;
        self.block.validate(&check)?;
        self.initialisation.validate(&check, false)?;
        self.stack().validate(&check, &self.attention)
    }

    fn stack(&self) -> StackConfig {
        let Self { block, layers, depth, positions, .. } = *self;
        StackConfig::new(Role::Decoder, block, layers, depth, positions).fitted_to(&self.attention)
    }

    /// Initialises the model with attentions that `build` creates from their place and key, instead of those in [`attention`](Self::attention).
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: impl Fn(&LayerSpec, &RandomKey, &Device) -> A,
    ) -> PixelDecoder<A> {
        let BlockConfig { d_model, max_length, position_offset, dropout, .. } = self.block;
        let positions = self.depth.embedded_positions(self.positions);
        let numbers = NUMBERS_PER_COMPONENT * self.components;
        let model = PixelDecoder {
            input: init::linear(CHANNELS, d_model, true, &key.named("input"), device),
            positions: positions.init(max_length, d_model, &key.named("positions"), device).with_offset(position_offset),
            decoder: self.stack().init_with(&key.named("decoder"), device, &build),
            output: init::linear(d_model, numbers, true, &key.named("output"), device),
            max_length,
            dropout,
        };
        self.initialisation.apply(model, self.layers, EmbeddingScale::default(), key)
    }
}
