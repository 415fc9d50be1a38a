//! Configuration of the classifier.

use burn::module::Module;
use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::contract::training::Training;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::Classifier;
use crate::architectures::masked::MaskedHead;
use crate::block::BlockConfig;
use crate::block::builders::{model_builders, one_stack_builders};
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::LayerAttention;
use crate::block::stack::StackConfig;
use crate::parts::embedding::{EmbeddingScale, TokenEmbeddingConfig};
use crate::parts::position::PositionConfig;

/// Pooling of the hidden states to one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// State of the first token, a class token supplied by the data set (Devlin et al. 2019).
    #[default]
    ClassToken,
    /// Mean over the real tokens.
    Mean,
    /// State of the last real token, as in decoder-based classifiers (Radford et al. 2018, section 3.2).
    LastToken,
    /// Mean over the embeddings of the real tokens: sequences pass no layer, and the model's layers are not trained. A baseline without attention.
    MeanEmbeddings,
}

/// Configuration of [`Classifier`]. The vocabulary and the number of outputs must be given.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use heedful_models::prelude::*;
///
/// let device = Device::flex();
/// let tokens = Tensor::<2, Int>::from_data([[1, 5, 7], [1, 4, 0]], &device);
/// let config = ClassifierConfig::new(11, 3).with_attention(LinformerConfig::default()).with_layers(1).with_d_model(16).with_n_heads(2);
/// let logits = config.with_pooling(Pooling::Mean).build(&device)?.forward(tokens, &Mask::padding(&[3, 2], 3)); // [2, 3]
/// # assert_eq!(logits.dims(), [2, 3]);
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct ClassifierConfig {
    /// Number of tokens, at least 1.
    pub vocabulary: usize,
    /// Number of classes, or 1 for regression.
    pub outputs: usize,
    /// Self-attention of the layers (default: dot-product).
    #[setters(skip)]
    pub attention: LayerAttention,
    /// Number of layers, at least 1 (default 6).
    pub layers: usize,
    /// Sizes and options of all layers.
    pub block: BlockConfig,
    /// Position vectors (default: sinusoidal, which requires an even width).
    pub positions: PositionConfig,
    /// Scale of embedded tokens (default: the square root of the width).
    pub embedding_scale: EmbeddingScale,
    /// Whether the sum of embedded tokens, positions and segments is normalised (default: no).
    pub embedding_norm: bool,
    /// Sharing of weights across layers (default: each layer has its own).
    pub depth: DepthConfig,
    /// Initialisation of the weights (default: that of each module, Xavier-uniform).
    pub initialisation: Initialisation,
    /// Pooling of the hidden states (default: the state of the class token).
    pub pooling: Pooling,
    /// Whether the pooled vector passes a linear map and a hyperbolic tangent before the output (Devlin et al. 2019, default: no).
    pub pooler: bool,
    /// Whether the outputs have biases (default: yes).
    pub output_bias: bool,
    /// Whether tokens see only earlier tokens, as in a decoder (default: no).
    pub causal: bool,
    /// Whether segment vectors distinguish the two sentences of a pair (default: no).
    pub segments: bool,
    /// Whether [masked tokens](crate::architectures::masked) are predicted through a linear map, the non-linearity of the layers and a normalisation, with
    /// biased logits (Devlin et al. 2019, default: no).
    pub masked_head: bool,
    /// Seed of [`build`](Self::build) and of the dropout of `forward`, with equal numbers on every backend (default: drawn from the device's generator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for ClassifierConfig {
    fn default() -> Self {
        Self {
            vocabulary: 0,
            outputs: 0,
            attention: LayerAttention::default(),
            layers: 6,
            block: BlockConfig::default(),
            positions: PositionConfig::default(),
            embedding_scale: EmbeddingScale::default(),
            embedding_norm: false,
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            pooling: Pooling::default(),
            pooler: false,
            output_bias: true,
            causal: false,
            segments: false,
            masked_head: false,
            seed: None,
        }
    }
}

model_builders!(ClassifierConfig, Classifier);
one_stack_builders!(ClassifierConfig, Classifier);

impl ClassifierConfig {
    /// Configuration for this vocabulary and number of classes, at least 1 each. One class means regression.
    pub fn new(vocabulary: usize, classes: usize) -> Self {
        Self { vocabulary, outputs: classes, ..Self::default() }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("classifier");
        check.at_least_one("vocabulary", self.vocabulary)?;
        if self.outputs == 0 {
            return Err(check.refuse("outputs", 0, "give the number of classes, or 1 for regression"));
        }
        check.at_least_one("layers", self.layers)?;
        self.block.validate(&check)?;
        if self.causal && self.pooling == Pooling::ClassToken {
            let remedy = "give last-token or mean: the first token of a causal model sees no other";
            return Err(check.refuse("pooling", "class-token", remedy));
        }
        self.initialisation.validate(&check, false)?;
        self.stack().validate(&check, &self.attention)
    }

    pub(crate) fn embedding(&self) -> TokenEmbeddingConfig {
        let positions = self.depth.embedded_positions(self.positions);
        TokenEmbeddingConfig {
            segments: if self.segments { 2 } else { 0 },
            norm: self.embedding_norm.then_some(self.block.norm),
            ..self.block.embedding(self.vocabulary, positions, self.embedding_scale)
        }
    }

    pub(crate) fn stack(&self) -> StackConfig {
        let Self { block, layers, depth, positions, .. } = *self;
        let role = if self.causal { Role::Decoder } else { Role::Encoder };
        StackConfig::new(role, block, layers, depth, positions).fitted_to(&self.attention)
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
    ) -> Classifier<A> {
        let BlockConfig { d_model, dropout, .. } = self.block;
        let encoder = self.stack().init_with(&key.named("encoder"), device, &build);
        let model = Classifier {
            embedding: self.embedding().init(&key.named("embedding"), device),
            encoder: if self.pooling == Pooling::MeanEmbeddings { encoder.freeze() } else { encoder },
            pooler: self.pooler.then(|| init::linear(d_model, d_model, true, &key.named("pooler"), device)),
            output: init::linear(d_model, self.outputs, self.output_bias, &key.named("output"), device),
            masked_head: self.masked_head.then(|| MaskedHead::init(&self.block, self.vocabulary, &key.named("masked_head"), device)),
            pooling: self.pooling,
            causal: self.causal,
            dropout,
            training: Training::new(&key.named("plain")),
        };
        self.initialisation.apply(model, self.layers, self.embedding_scale, key)
    }
}
