//! Configuration of the encoder-decoder Transformer.

use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::contract::training::Training;
use heedful_attention::layer::Choice;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::Seq2SeqTransformer;
use crate::block::BlockConfig;
use crate::block::builders::model_builders;
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::DepthConfig;
use crate::block::layout::{AttentionLayout, CrossLayout, IntoLayers, IntoLayout, resolved};
use crate::block::stack::StackConfig;
use crate::parts::embedding::{EmbeddingScale, TokenEmbeddingConfig};
use crate::parts::position::PositionConfig;

/// Tying of embedding and output matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tying {
    /// Source embedding, target embedding and output projection: for a joint vocabulary (the paper).
    #[default]
    ThreeWay,
    /// Target embedding and output projection.
    Output,
    /// No tying: the output projection has its own matrix (without bias).
    None,
}

/// Configuration of [`Seq2SeqTransformer`]. The defaults are the base model of the paper; the vocabularies must be given.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use heedful_models::prelude::*;
///
/// let device = Device::flex();
/// let [source, target] = [[[5, 7, 1]], [[2, 4, 6]]].map(|ids| Tensor::<2, Int>::from_data(ids, &device));
/// let config = Seq2SeqConfig::new(11, 11).with_attention("hc-sa").with_layers(1).with_d_model(16).with_n_heads(2).with_d_ff(32);
/// let logits = config.build(&device)?.forward(source, target, &Mask::none()); // [1, 3, 11]
/// # assert_eq!(logits.dims(), [1, 3, 11]);
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct Seq2SeqConfig {
    /// Number of source tokens, at least 1.
    #[setters(skip)]
    pub source_vocabulary: usize,
    /// Number of target tokens, at least 1.
    #[setters(skip)]
    pub target_vocabulary: usize,
    /// The attention of encoder, decoder and cross-attention (default: dot-product everywhere).
    #[setters(skip)]
    pub attention: AttentionLayout,
    /// Layers of the encoder, at least 1 (default 6).
    pub encoder_layers: usize,
    /// Layers of the decoder, at least 1 (default 6).
    pub decoder_layers: usize,
    /// Sizes and options of all layers.
    pub block: BlockConfig,
    /// Position vectors (default: sinusoidal, which requires an even width).
    pub positions: PositionConfig,
    /// Position vectors of the source, if they differ from those of the target, such as another grid for a small image that becomes a large one (default: the
    /// same).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_positions: Option<PositionConfig>,
    /// Scale of embedded tokens (default: the square root of the width).
    pub embedding_scale: EmbeddingScale,
    /// Whether the sum of embedded tokens and positions is normalised (default: no).
    pub embedding_norm: bool,
    /// Sharing of weights across the layers of a stack (default: each layer has its own).
    pub depth: DepthConfig,
    /// Initialisation of the weights (default: that of each module, Xavier-uniform).
    pub initialisation: Initialisation,
    /// Tying of matrices (default: source embedding, target embedding and output projection).
    pub tying: Tying,
    /// Seed of [`build`](Self::build) and of the dropout of `forward`, with equal numbers on every backend (default: drawn from the device's generator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for Seq2SeqConfig {
    fn default() -> Self {
        Self {
            source_vocabulary: 0,
            target_vocabulary: 0,
            attention: AttentionLayout::default(),
            encoder_layers: 6,
            decoder_layers: 6,
            block: BlockConfig::default(),
            positions: PositionConfig::default(),
            source_positions: None,
            embedding_scale: EmbeddingScale::default(),
            embedding_norm: false,
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            tying: Tying::default(),
            seed: None,
        }
    }
}

model_builders!(Seq2SeqConfig, Seq2SeqTransformer);

impl Seq2SeqConfig {
    /// Configuration for these source and target vocabularies, at least 1 each. Vocabularies of equal size are treated as a joint vocabulary and share their
    /// matrices; others do not ([`with_tying`](Self::with_tying)).
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        let tying = if source_vocabulary == target_vocabulary { Tying::ThreeWay } else { Tying::Output };
        Self { source_vocabulary, target_vocabulary, tying, ..Self::default() }
    }

    /// Sets the attention of each part: a layout, or the self-attention of both stacks (see [`IntoLayout`]; default: dot-product everywhere).
    pub fn with_attention<Form>(mut self, attention: impl IntoLayout<Form>) -> Self {
        self.attention = attention.into_layout();
        self
    }

    /// Sets the self-attention of the encoder (see [`IntoLayers`]; default: dot-product).
    pub fn with_encoder_attention<Form>(mut self, attention: impl IntoLayers<Form>) -> Self {
        self.attention.encoder = attention.into_layers();
        self
    }

    /// Sets the self-attention of the decoder (see [`IntoLayers`]; default: dot-product).
    pub fn with_decoder_attention<Form>(mut self, attention: impl IntoLayers<Form>) -> Self {
        self.attention.decoder = attention.into_layers();
        self
    }

    /// Sets the cross-attention of all decoder layers: a name, a configuration or an [`AnyMechanism`](heedful_attention::description::AnyMechanism) (default:
    /// dot-product). A [`CrossLayout`] in [`attention`](Self::attention) supports more options.
    pub fn with_cross_attention(mut self, attention: impl Into<Choice>) -> Self {
        self.attention.cross = CrossLayout::All(resolved(attention).into());
        self
    }

    /// Sets the number of layers of the encoder and of the decoder, at least 1 (default 6).
    pub fn with_layers(mut self, layers: usize) -> Self {
        (self.encoder_layers, self.decoder_layers) = (layers, layers);
        self
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, or an attention in an unsupported place; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("seq2seq");
        check.at_least_one("source_vocabulary", self.source_vocabulary)?;
        check.at_least_one("target_vocabulary", self.target_vocabulary)?;
        if self.tying == Tying::ThreeWay && self.source_vocabulary != self.target_vocabulary {
            let remedy = format!(
                "one matrix cannot serve {} source and {} target tokens: use a joint vocabulary, or tying = \"output\"",
                self.source_vocabulary, self.target_vocabulary
            );
            return Err(check.refuse("tying", "three-way", remedy));
        }
        check.at_least_one("encoder_layers", self.encoder_layers)?;
        check.at_least_one("decoder_layers", self.decoder_layers)?;
        self.block.validate(&check)?;
        if self.tying == Tying::ThreeWay && self.source_positions.is_some() {
            let remedy =
                "source and target share one embedding, which adds one kind of position vectors: leave it out, or give tying = \"output\"";
            return Err(check.refuse("source_positions", "given", remedy));
        }
        for positions in [self.positions, self.positions_of_source()] {
            positions.validate(&check, self.block.d_model, self.block.max_length)?;
            self.depth.validate(&check, &self.block, positions)?;
        }
        self.initialisation.validate(&check, self.tying != Tying::None)?;
        if self.depth.blocks(self.decoder_layers) < self.decoder_layers && matches!(self.attention.cross, CrossLayout::Last(_)) {
            return Err(check.refuse("attention.cross", "last", "give it to all layers: one block serves them all"));
        }
        self.attention.validate_lengths(&check, self.depth.blocks(self.encoder_layers), self.depth.blocks(self.decoder_layers))?;
        for spec in self.encoder_stack().specs().chain(self.decoder_stack().specs()) {
            self.attention.at(&spec).validate(&spec)?;
        }
        Ok(())
    }

    fn positions_of_source(&self) -> PositionConfig {
        self.source_positions.unwrap_or(self.positions)
    }

    pub(crate) fn encoder_stack(&self) -> StackConfig {
        let Self { block, encoder_layers: layers, depth, .. } = *self;
        StackConfig::new(Role::Encoder, block, layers, depth, self.positions_of_source())
    }

    pub(crate) fn decoder_stack(&self) -> StackConfig {
        let Self { block, decoder_layers: layers, depth, positions, .. } = *self;
        let cross_heads = self.attention.cross_heads(depth.blocks(layers), block.heads);
        StackConfig { cross_heads, ..StackConfig::new(Role::Decoder, block, layers, depth, positions) }
    }

    pub(crate) fn source_embedding(&self) -> TokenEmbeddingConfig {
        self.embedding(self.source_vocabulary, self.positions_of_source())
    }

    pub(crate) fn target_embedding(&self) -> TokenEmbeddingConfig {
        self.embedding(self.target_vocabulary, self.positions)
    }

    fn embedding(&self, vocabulary: usize, positions: PositionConfig) -> TokenEmbeddingConfig {
        let embedding = self.block.embedding(vocabulary, self.depth.embedded_positions(positions), self.embedding_scale);
        TokenEmbeddingConfig { norm: self.embedding_norm.then_some(self.block.norm), ..embedding }
    }

    /// Initialises the model.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, key: &RandomKey, device: &Device) -> Seq2SeqTransformer {
        self.init_with(key, device, |spec, key, device| self.attention.at(spec).init(spec, key, device))
    }

    /// Initialises the model with attentions that `build` creates from their place and key. Only the places and heads of cross-attention in
    /// [`attention`](Self::attention) are used.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: impl Fn(&LayerSpec, &RandomKey, &Device) -> A,
    ) -> Seq2SeqTransformer<A> {
        let model = Seq2SeqTransformer {
            source: self.source_embedding().init(&key.named("source"), device),
            target: (self.tying != Tying::ThreeWay).then(|| self.target_embedding().init(&key.named("target"), device)),
            encoder: self.encoder_stack().init_with(&key.named("encoder"), device, &build),
            decoder: self.decoder_stack().init_with(&key.named("decoder"), device, &build),
            output: (self.tying == Tying::None)
                .then(|| init::linear(self.block.d_model, self.target_vocabulary, false, &key.named("output"), device)),
            max_length: self.block.max_length,
            training: Training::new(&key.named("plain")),
        };
        self.initialisation.apply(model, self.encoder_layers.max(self.decoder_layers), self.embedding_scale, key)
    }
}
