//! Configuration of the language model.

use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::contract::training::Training;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::LanguageModel;
use crate::block::BlockConfig;
use crate::block::auxiliary::AuxiliaryLossesConfig;
use crate::block::builders::{model_builders, one_stack_builders};
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::LayerAttention;
use crate::block::stack::StackConfig;
use crate::parts::adaptive_softmax::AdaptiveConfig;
use crate::parts::embedding::{EmbeddingScale, TokenEmbeddingConfig};
use crate::parts::position::PositionConfig;

/// Configuration of [`LanguageModel`]. The vocabulary must be given.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use heedful_models::prelude::*;
///
/// let device = Device::flex();
/// let config = LanguageModelConfig::new(11).with_attention("relative").with_layers(2).with_d_model(16).with_n_heads(2).with_d_ff(32);
/// let logits = config.with_seed(1).build(&device)?.forward(Tensor::<2, Int>::from_data([[2, 5, 7]], &device)); // [1, 3, 11]
/// # assert_eq!(logits.dims(), [1, 3, 11]);
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct LanguageModelConfig {
    /// Number of tokens, at least 1.
    pub vocabulary: usize,
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
    /// Whether the sum of embedded tokens and positions is normalised (default: no).
    pub embedding_norm: bool,
    /// Sharing of weights across layers (default: each layer has its own).
    pub depth: DepthConfig,
    /// Initialisation of the weights (default: that of each module, Xavier-uniform).
    pub initialisation: Initialisation,
    /// Adaptive input vectors and an adaptive softmax (Baevski and Auli 2019; default: none). Tokens must be ordered by frequency.
    pub adaptive: Option<AdaptiveConfig>,
    /// Whether the embedding matrix is also the output projection (default: yes). With adaptive vectors, whether the softmax shares the input's vectors and the
    /// projections of their tails.
    pub tied: bool,
    /// Whether the logits have biases (default: no).
    pub output_bias: bool,
    /// Soft cap `c` of the logits `s`, which become `c tanh(s / c)`, greater than 0 (Gemma Team 2024, default: none).
    pub logit_softcap: Option<f64>,
    /// Auxiliary losses in training (default: none). They need the outputs of all layers, which reversible layers do not keep.
    pub auxiliary: Option<AuxiliaryLossesConfig>,
    /// Number of classes for class-conditional modelling: the vector of a class is added to every token of its sequences (Parmar et al. 2018, section 5.2;
    /// default: 0, no classes).
    pub classes: usize,
    /// Seed of [`build`](Self::build) and of the dropout of `forward`, with equal numbers on every backend (default: drawn from the device's generator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for LanguageModelConfig {
    fn default() -> Self {
        Self {
            vocabulary: 0,
            attention: LayerAttention::default(),
            layers: 6,
            block: BlockConfig::default(),
            positions: PositionConfig::default(),
            embedding_scale: EmbeddingScale::default(),
            embedding_norm: false,
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            adaptive: None,
            tied: true,
            output_bias: false,
            logit_softcap: None,
            auxiliary: None,
            classes: 0,
            seed: None,
        }
    }
}

model_builders!(LanguageModelConfig, LanguageModel);
one_stack_builders!(LanguageModelConfig, LanguageModel);

impl LanguageModelConfig {
    /// Configuration for this vocabulary, at least 1, with the sizes of the base model of Vaswani et al. 2017.
    pub fn new(vocabulary: usize) -> Self {
        Self { vocabulary, ..Self::default() }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention that does not support it; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("language model");
        check.at_least_one("vocabulary", self.vocabulary)?;
        check.at_least_one("layers", self.layers)?;
        self.block.validate(&check)?;
        self.initialisation.validate(&check, self.tied)?;
        if let Some(cap) = self.logit_softcap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
            return Err(check.refuse("logit_softcap", cap, "give a number greater than 0, or leave it out"));
        }
        if let Some(adaptive) = &self.adaptive {
            adaptive.validate(&check, self.vocabulary, self.block.d_model)?;
            self.validate_beside_adaptive(&check)?;
        }
        if let Some(auxiliary) = &self.auxiliary {
            auxiliary.validate()?;
        }
        self.stack().validate(&check, &self.attention)
    }

    /// Validates options of the output that an adaptive softmax does not support.
    fn validate_beside_adaptive(&self, check: &Check) -> Result<(), ConfigError> {
        if self.output_bias {
            return Err(check.refuse("output_bias", true, "an adaptive softmax has no biases; leave it out, or `adaptive`"));
        }
        if let Some(cap) = self.logit_softcap {
            return Err(check.refuse("logit_softcap", cap, "an adaptive softmax has no bound of its logits; leave it out, or `adaptive`"));
        }
        if self.initialisation == Initialisation::Scaled {
            let remedy = "with an adaptive softmax tokens cannot be equally likely at first; give another kind, or leave `adaptive` out";
            return Err(check.refuse("initialisation", "scaled", remedy));
        }
        Ok(())
    }

    /// Embedding configuration; that of the head for adaptive vectors.
    pub(crate) fn embedding(&self) -> TokenEmbeddingConfig {
        let vocabulary = self.adaptive.as_ref().map_or(self.vocabulary, |adaptive| adaptive.head(self.vocabulary));
        let positions = self.depth.embedded_positions(self.positions);
        TokenEmbeddingConfig {
            segments: self.classes,
            norm: self.embedding_norm.then_some(self.block.norm),
            ..self.block.embedding(vocabulary, positions, self.embedding_scale)
        }
    }

    pub(crate) fn stack(&self) -> StackConfig {
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
    ) -> LanguageModel<A> {
        let BlockConfig { d_model, max_length, .. } = self.block;
        let vocabulary = self.vocabulary;
        let of_embedding = key.named("embedding");
        let mut embedding = self.embedding().init(&of_embedding, device);
        embedding.adaptive =
            self.adaptive.as_ref().map(|adaptive| adaptive.init_embedding(vocabulary, d_model, &of_embedding.named("adaptive"), device));
        let has_output = !self.tied && self.adaptive.is_none();
        let model = LanguageModel {
            embedding,
            decoder: self.stack().init_with(&key.named("decoder"), device, &build),
            output: has_output.then(|| init::linear(d_model, vocabulary, false, &key.named("output"), device)),
            adaptive: self
                .adaptive
                .as_ref()
                .map(|adaptive| adaptive.init_softmax(vocabulary, d_model, self.tied, &key.named("adaptive"), device)),
            output_bias: self.output_bias.then(|| Init::Constant(0.0).parameter([vocabulary], &key.named("output_bias"), device)),
            auxiliary: self.auxiliary.map(|losses| losses.init(self.layers, d_model, vocabulary, &key.named("auxiliary"), device)),
            logit_softcap: self.logit_softcap,
            max_length,
            training: Training::new(&key.named("plain")),
        };
        self.initialisation.apply(model, self.layers, self.embedding_scale, key)
    }
}
