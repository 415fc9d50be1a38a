//! The part of a model's configuration that all experiments share.

pub(crate) mod attention;
pub mod mechanisms;

use burn::tensor::Device;
use heedful_models::block::Parallel;
use heedful_models::block::initialisation::Initialisation;
use heedful_models::block::stack::{Stack, StackConfig};
use heedful_models::parts::residual_gate::GateConfig;
use heedful_models::prelude::*;
use serde::{Deserialize, Serialize};

/// Sizes and options of the Transformer under comparison; its attention is what experiments compare. The defaults suit the built-in data and are small: the
/// base model of Vaswani et al. 2017 has 6 layers, `d_model` 512, 8 heads, `d_ff` 2048 and dropout 0.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// The mechanism of each layer (`layers`), or of `encoder`, `decoder` and `cross`, in place of the compared attentions. It is the configuration's form of a
    /// list or table in `--attention`, and is recorded in that form.
    #[serde(skip_serializing)]
    pub attention: Option<ModelAttention>,
    /// Layers of each stack.
    pub layers: usize,
    /// Layers of the decoder, if they differ from those of the encoder, `layers`; by default as many.
    pub decoder_layers: Option<usize>,
    /// Width of the model.
    pub d_model: usize,
    /// Heads of each attention, a divisor of `d_model` unless `head_width` is given.
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`; several heads share each of them. By default as many as heads.
    pub kv_heads: Option<usize>,
    /// Width of a head; by default `d_model / heads`.
    pub head_width: Option<usize>,
    /// Whether the projections of queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the output projections of attentions have biases.
    pub attention_output_bias: bool,
    /// Which stacks have feed-forward networks: `all`, `encoder`, `decoder` or `none`.
    pub feed_forward_in: FeedForwardIn,
    /// Hidden units of the feed-forward networks.
    pub d_ff: usize,
    /// Non-linearity of the feed-forward networks: `relu`, `gelu`, `gelu-tanh`, `quick-gelu` or `silu`.
    pub activation: Activation,
    /// Whether the hidden units of the feed-forward networks are multiplied by a second map of their input.
    pub gated_feed_forward: bool,
    /// Whether the maps of the feed-forward networks have biases.
    pub feed_forward_bias: bool,
    /// Positions per chunk of a feed-forward network; by default all.
    pub feed_forward_chunk: Option<usize>,
    /// Whether a convolution over the positions around, or before, precedes each linear map of the feed-forward networks.
    pub separable_feed_forward: bool,
    /// The normalisation: a `kind` (`layer`, `rms`, `rms-plus-one`), an `epsilon`, and `bias`, whether layer normalisation has a shift.
    pub norm: NormConfig,
    /// Place of the normalisation: `post` (the paper), `pre`, `sandwich` or `branch-output`.
    pub norm_order: NormOrder,
    /// Parallel sublayers, which read the same states: `shared-norm` or `own-norms`. By default sublayers follow each other.
    pub parallel: Option<Parallel>,
    /// Gate that replaces the residual sum: a `kind` (`input`, `output`, `highway`, `sig-tanh`, `gru`) and a `bias`.
    pub gate: Option<GateConfig>,
    /// Whether sublayer outputs pass a ReLU before they join the stream (TrXL-I, GTrXL).
    pub relu_before_residual: bool,
    /// Whether the backward pass recomputes the activations of blocks instead of storing them.
    pub checkpoint: bool,
    /// Whether feed-forward networks, and attentions that support it, skip the padding of batches. This saves time where sequences differ in length. States are
    /// the same up to rounding and other draws of dropout.
    pub unpadded: bool,
    /// Whether the output of each stack is normalised; by default where the residual sums are not.
    pub final_norm: Option<bool>,
    /// Position vectors: `sinusoidal`, `learned`, `per-layer`, `none`, or a `grid`.
    pub positions: PositionConfig,
    /// Scale of the token embeddings: `sqrt` (the root of the width, the paper) or `none`.
    pub embedding_scale: EmbeddingScale,
    /// Whether the sum of embedded tokens, positions and segments is normalised.
    pub embedding_norm: bool,
    /// A `kind`: `stacked`, `shared` (one block for all layers) with a `step_signal` and `halting`,
    /// or `reversible`.
    pub depth: DepthConfig,
    /// How initial weights are drawn, a `kind`: `xavier`, `packed-xavier`, `normal` with a `deviation`,
    /// `normal-tables` with a `deviation` and `scaled_branches`, or `scaled`.
    pub initialisation: Initialisation,
    /// Longest sequence in tokens; synthesizers have tables of this size.
    pub max_length: usize,
    /// Greatest offset that training adds to the positions of a batch, within `max_length`: for models that are to read longer sequences than those of
    /// training.
    pub position_offset: usize,
    /// Dropout of sublayer outputs and embeddings.
    pub dropout: f64,
    /// Dropout of attention weights.
    pub attention_dropout: f64,
    /// Dropout of the hidden units of feed-forward networks.
    pub feed_forward_dropout: f64,
}

/// The mechanism of each part or layer of a model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelAttention {
    /// One name for each layer, of all stacks.
    pub layers: Option<Vec<String>>,
    /// Self-attention of the encoder.
    pub encoder: Option<Names>,
    /// Self-attention of the decoder.
    pub decoder: Option<Names>,
    /// Attention from the decoder to the encoder.
    pub cross: Option<Names>,
}

/// One mechanism for all layers, or one for each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// For all layers.
    One(String),
    /// For each layer, from below.
    Each(Vec<String>),
}

impl ModelAttention {
    /// The name that `--attention` has for it.
    ///
    /// # Errors
    /// The reason why it has no name, with the remedy.
    pub fn name(&self) -> Result<String, &'static str> {
        let list = |names: &[String]| format!("[{}]", names.join(","));
        let roles =
            [("encoder", &self.encoder), ("decoder", &self.decoder), ("cross", &self.cross)].into_iter().filter_map(|(role, names)| {
                Some(match names.as_ref()? {
                    Names::One(name) => format!("{role}={name}"),
                    Names::Each(names) => format!("{role}={}", list(names)),
                })
            });
        let roles: Vec<String> = roles.collect();
        match (&self.layers, roles.is_empty()) {
            (Some(names), true) => Ok(list(names)),
            (None, false) => Ok(format!("{{{}}}", roles.join(","))),
            (Some(_), false) => Err("`layers` holds for all stacks; give it, or `encoder`, `decoder` and `cross`"),
            (None, true) => Err("it is empty; give `layers`, or `encoder`, `decoder` and `cross`"),
        }
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            attention: None,
            layers: 2,
            decoder_layers: None,
            d_model: 64,
            heads: 4,
            kv_heads: None,
            head_width: None,
            qkv_bias: false,
            attention_output_bias: false,
            feed_forward_in: FeedForwardIn::default(),
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
            unpadded: false,
            final_norm: None,
            positions: PositionConfig::default(),
            embedding_scale: EmbeddingScale::default(),
            embedding_norm: false,
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            max_length: 64,
            position_offset: 0,
            dropout: 0.1,
            attention_dropout: 0.0,
            feed_forward_dropout: 0.0,
        }
    }
}

impl ModelSettings {
    /// What all layers of the model share.
    pub fn block(&self) -> BlockConfig {
        BlockConfig {
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_width: self.head_width,
            qkv_bias: self.qkv_bias,
            attention_output_bias: self.attention_output_bias,
            feed_forward_in: self.feed_forward_in,
            d_ff: self.d_ff,
            activation: self.activation,
            gated_feed_forward: self.gated_feed_forward,
            feed_forward_bias: self.feed_forward_bias,
            feed_forward_chunk: self.feed_forward_chunk,
            separable_feed_forward: self.separable_feed_forward,
            norm: self.norm,
            norm_order: self.norm_order,
            parallel: self.parallel,
            gate: self.gate,
            relu_before_residual: self.relu_before_residual,
            checkpoint: self.checkpoint,
            unpadded: self.unpadded,
            final_norm: self.final_norm,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            feed_forward_dropout: self.feed_forward_dropout,
            max_length: self.max_length,
            position_offset: self.position_offset,
        }
    }

    /// Hidden units of a block's feed-forward network as estimates count them, which are lower bounds: none if not all blocks have one.
    pub(crate) fn counted_d_ff(&self) -> usize {
        if self.feed_forward_in == FeedForwardIn::All { self.d_ff } else { 0 }
    }

    /// Layers with this attention, for a module of one's own. If attention and sizes are incompatible, the configuration of
    /// [`language_model`](Self::language_model) reports it for a decoder, and that of [`classifier`](Self::classifier) for an encoder.
    ///
    /// # Panics
    /// If the sizes or the attention are not valid.
    pub fn stack(&self, role: Role, attention: &LayerAttention, key: &RandomKey, device: &Device) -> Stack {
        let Self { layers, positions, depth, .. } = *self;
        let stack = StackConfig::new(role, self.block(), layers, depth, positions);
        stack.init_with(key, device, &|spec: &LayerSpec, key: &RandomKey, device: &Device| attention.at(spec.layer).init(spec, key, device))
    }

    /// An encoder and a decoder with these attentions, and one vocabulary of this size.
    pub fn encoder_decoder(&self, vocabulary: usize, attention: AttentionLayout, tying: Tying) -> Seq2SeqConfig {
        let Self { layers, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = *self;
        Seq2SeqConfig {
            source_vocabulary: vocabulary,
            target_vocabulary: vocabulary,
            attention,
            encoder_layers: layers,
            decoder_layers: self.decoder_layers(),
            block: self.block(),
            positions,
            embedding_scale,
            embedding_norm,
            depth,
            initialisation,
            tying,
            ..Seq2SeqConfig::default()
        }
    }

    /// An encoder with this attention in all layers.
    pub fn classifier(&self, vocabulary: usize, outputs: usize, attention: &LayerAttention) -> ClassifierConfig {
        let Self { layers, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = *self;
        ClassifierConfig {
            vocabulary,
            outputs,
            attention: attention.clone(),
            layers,
            block: self.block(),
            positions,
            embedding_scale,
            embedding_norm,
            depth,
            initialisation,
            ..ClassifierConfig::default()
        }
    }

    /// Those of a classifier.
    pub(crate) fn of_classifier(config: &ClassifierConfig) -> Self {
        let ClassifierConfig { layers, block, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = *config;
        let same =
            LanguageModelConfig { layers, block, positions, embedding_scale, embedding_norm, depth, initialisation, ..Default::default() };
        Self::of_language_model(&same)
    }

    /// Those of a classifier of images.
    pub(crate) fn of_vision(config: &VisionConfig) -> Self {
        let VisionConfig { layers, block, positions, depth, initialisation, .. } = *config;
        Self::of_language_model(&LanguageModelConfig { layers, block, positions, depth, initialisation, ..Default::default() })
    }

    /// Those of a model with encoder and decoder.
    pub(crate) fn of_encoder_decoder(config: &Seq2SeqConfig) -> Self {
        let Seq2SeqConfig { encoder_layers: layers, decoder_layers, block, positions, .. } = *config;
        let Seq2SeqConfig { embedding_scale, embedding_norm, depth, initialisation, .. } = *config;
        let same =
            LanguageModelConfig { layers, block, positions, embedding_scale, embedding_norm, depth, initialisation, ..Default::default() };
        Self { decoder_layers: (decoder_layers != layers).then_some(decoder_layers), ..Self::of_language_model(&same) }
    }

    /// Layers of the decoder of a model with encoder and decoder.
    pub(crate) fn decoder_layers(&self) -> usize {
        self.decoder_layers.unwrap_or(self.layers)
    }

    /// Those of a language model.
    pub(crate) fn of_language_model(config: &LanguageModelConfig) -> Self {
        let LanguageModelConfig { layers, block, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = *config;
        Self {
            attention: None,
            layers,
            decoder_layers: None,
            d_model: block.d_model,
            heads: block.heads,
            kv_heads: block.kv_heads,
            head_width: block.head_width,
            qkv_bias: block.qkv_bias,
            attention_output_bias: block.attention_output_bias,
            feed_forward_in: block.feed_forward_in,
            d_ff: block.d_ff,
            activation: block.activation,
            gated_feed_forward: block.gated_feed_forward,
            feed_forward_bias: block.feed_forward_bias,
            feed_forward_chunk: block.feed_forward_chunk,
            separable_feed_forward: block.separable_feed_forward,
            norm: block.norm,
            norm_order: block.norm_order,
            parallel: block.parallel,
            gate: block.gate,
            relu_before_residual: block.relu_before_residual,
            checkpoint: block.checkpoint,
            unpadded: block.unpadded,
            final_norm: block.final_norm,
            positions,
            embedding_scale,
            embedding_norm,
            depth,
            initialisation,
            max_length: block.max_length,
            position_offset: block.position_offset,
            dropout: block.dropout,
            attention_dropout: block.attention_dropout,
            feed_forward_dropout: block.feed_forward_dropout,
        }
    }

    /// A decoder with this attention in all layers.
    pub fn language_model(&self, vocabulary: usize, attention: &LayerAttention) -> LanguageModelConfig {
        let Self { layers, positions, embedding_scale, embedding_norm, depth, initialisation, .. } = *self;
        LanguageModelConfig {
            vocabulary,
            attention: attention.clone(),
            layers,
            block: self.block(),
            positions,
            embedding_scale,
            embedding_norm,
            depth,
            initialisation,
            ..LanguageModelConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_leave_out_padding_where_the_settings_say_it() {
        for unpadded in [false, true] {
            let settings = ModelSettings { unpadded, ..ModelSettings::default() };
            let language_model = settings.language_model(5, &LayerAttention::default());
            let encoder_decoder = settings.encoder_decoder(5, AttentionLayout::default(), Tying::ThreeWay);
            let classifier = settings.classifier(5, 2, &LayerAttention::default());
            for block in [language_model.block, encoder_decoder.block, classifier.block] {
                assert_eq!(block.unpadded, unpadded);
            }
            assert_eq!(ModelSettings::of_classifier(&classifier), settings);
        }
    }
}
