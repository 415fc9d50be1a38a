//! The encoder-only Transformer: classification of, or regression on, sentences and pairs of sentences.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::contract::{Attention, Positions};
use heedful_attention::dropout::dropout;
use heedful_attention::init;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_attention::registry::AnyAttention;
use heedful_attention::visibility::Visibility;
use serde::{Deserialize, Serialize};

use crate::block::{BlockConfig, Context, Hidden};
use crate::depth::DepthConfig;
use crate::embedding::{TokenEmbedding, TokenEmbeddingConfig};
use crate::error::{Check, ConfigError};
use crate::initialisation::Initialisation;
use crate::layout::LayerAttention;
use crate::position::PositionConfig;
use crate::seq2seq::Scores;
use crate::stack::{Stack, StackConfig};

/// How the hidden states of a sequence become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The state of the first token, which the data set makes a class token (Devlin et al. 2019).
    #[default]
    ClassToken,
    /// The mean over the real tokens.
    Mean,
}

/// Configuration of [`Classifier`]. The vocabulary and the number of outputs must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifierConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    /// Number of classes, or 1 for regression.
    pub outputs: usize,
    /// Self-attention of the layers (default: dot-product).
    pub attention: LayerAttention,
    /// Number of layers (default 6).
    pub layers: usize,
    /// Sizes and options of all layers.
    pub block: BlockConfig,
    /// Position vectors (default: sinusoidal).
    pub positions: PositionConfig,
    /// Whether each layer has weights of its own, or one block serves all (default: each has its own).
    pub depth: DepthConfig,
    /// How initial weights are drawn (default: as their modules say, Xavier-uniform).
    pub initialisation: Initialisation,
    /// How hidden states become one vector (default: the state of the class token).
    pub pooling: Pooling,
    /// Whether there are vectors that tell the first sentence of a pair from the second (default: no).
    pub segments: bool,
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
            depth: DepthConfig::default(),
            initialisation: Initialisation::default(),
            pooling: Pooling::default(),
            segments: false,
        }
    }
}

/// Sequences to classify, padded on the right.
#[derive(Clone, Debug)]
pub struct Sentences<'a> {
    /// Token ids `[B, N]`.
    pub tokens: Tensor<2, Int>,
    /// Segment types `[B, N]`: 0 in the first sentence of a pair, 1 in the second.
    pub segments: Option<Tensor<2, Int>>,
    /// Number of real tokens of each row, at least 1.
    pub lengths: &'a [usize],
}

/// The encoder-only Transformer.
///
/// Should be created with [`ClassifierConfig`].
#[derive(Module, Debug)]
pub struct Classifier<A: Attention = AnyAttention> {
    /// Embedding.
    pub embedding: TokenEmbedding,
    /// The layers.
    pub encoder: Stack<A>,
    /// From the pooled vector to the outputs.
    pub output: Linear,
    #[module(skip)]
    pooling: Pooling,
    dropout: f64,
}

impl ClassifierConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// An impossible option, or an attention that it is impossible for; the message names both and the remedy.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check("classifier");
        check.vocabulary("vocabulary", self.vocabulary)?;
        if self.outputs == 0 {
            return Err(check.wrong("outputs", 0, "give the number of classes, or 1 for regression"));
        }
        check.at_least_one("layers", self.layers)?;
        self.block.validate(&check)?;
        self.positions.validate(&check, self.block.d_model, self.block.max_length)?;
        self.depth.validate(&check, &self.block, self.positions)?;
        self.initialisation.validate(&check, false)?;
        self.attention.validate_length(&check, "attention", self.depth.blocks(self.layers))?;
        for placement in self.stack().placements() {
            self.attention.at(placement.layer).validate(&placement)?;
        }
        Ok(())
    }

    pub(crate) fn stack(&self) -> StackConfig {
        let Self { block, layers, depth, positions, .. } = *self;
        StackConfig { role: Role::Encoder, block, cross_heads: vec![None; depth.blocks(layers)], layers, depth, positions }
    }

    /// Initialises the model.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, key: &RandomKey, device: &Device) -> Classifier {
        self.init_with(key, device, |placement, key, device| self.attention.at(placement.layer).init(placement, key, device))
    }

    /// Initialises the model with attentions made by `build` from their place and key, instead of those in [`attention`](Self::attention).
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: impl Fn(&Placement, &RandomKey, &Device) -> A,
    ) -> Classifier<A> {
        let BlockConfig { d_model, max_length, position_offset, dropout, .. } = self.block;
        let Self { vocabulary, depth, .. } = *self;
        let positions = depth.embedded_positions(self.positions);
        let segments = if self.segments { 2 } else { 0 };
        let embedding = TokenEmbeddingConfig { vocabulary, d_model, max_length, positions, position_offset, segments, dropout };
        let model = Classifier {
            embedding: embedding.init(&key.named("embedding"), device),
            encoder: self.stack().init_with(&key.named("encoder"), device, &build),
            output: init::linear(d_model, self.outputs, true, &key.named("output"), device),
            pooling: self.pooling,
            dropout,
        };
        self.initialisation.apply(model, self.layers, key)
    }
}

impl<A: Attention> Classifier<A> {
    /// Logits of the classes, or the prediction, `[B, outputs]`. Dropout is on exactly if a key is given.
    ///
    /// # Panics
    /// If the sequences are longer than `max_length`, or segment types are given to a model without vectors for them.
    pub fn forward(&self, sentences: Sentences, random: Option<RandomKey>, probe: &mut Probe) -> Scores<2> {
        let lengths = sentences.lengths;
        let hidden = self.hidden(sentences, random, probe);
        let pooled = dropout(self.pool(hidden.states, lengths), self.dropout, random.map(|key| key.named("output")).as_ref());
        Scores { logits: self.output.forward(pooled), losses: hidden.losses }
    }

    /// Hidden states `[B, N, C]` of the last layer.
    ///
    /// # Panics
    /// If the sequences are longer than `max_length`, or segment types are given to a model without vectors for them.
    pub fn hidden(&self, sentences: Sentences, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let Sentences { tokens, segments, lengths } = sentences;
        let key = random.map(|key| key.named("embedding"));
        let x = self.embedding.forward_segments(tokens, segments, &Positions::default(), key);
        let context = Context::new(Visibility::padding(lengths.to_vec())).lengths(lengths);
        probe.within("encoder", None, |probe| self.encoder.forward(x, &context, random, probe))
    }

    fn pool(&self, states: Tensor<3>, lengths: &[usize]) -> Tensor<2> {
        let [batch, length, width] = states.dims();
        let pooled = match self.pooling {
            Pooling::ClassToken => states.narrow(1, 0, 1),
            Pooling::Mean => {
                let share = |real: usize, index: usize| if index < real { 1.0 / real as f32 } else { 0.0 };
                let shares: Vec<f32> = lengths.iter().flat_map(|&real| (0..length).map(move |index| share(real, index))).collect();
                let shares = TensorData::new(shares, [batch, 1, length]);
                Tensor::from_data(shares, (&states.device(), states.dtype())).matmul(states)
            }
        };
        pooled.reshape([batch, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heedful_attention::registry::AnyMechanism;

    use crate::feed_forward::Activation;

    fn tiny(attention: AnyMechanism) -> ClassifierConfig {
        ClassifierConfig {
            vocabulary: 11,
            outputs: 3,
            attention: attention.into(),
            layers: 2,
            block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, ..BlockConfig::default() },
            segments: true,
            ..ClassifierConfig::default()
        }
    }

    fn outputs<const B: usize, const N: usize>(config: &ClassifierConfig, tokens: [[i32; N]; B], lengths: &[usize]) -> Vec<f32> {
        config.validate().unwrap();
        let model = config.init(&RandomKey::from_seed(1), &Device::flex());
        let sentences = Sentences { tokens: Tensor::from_data(tokens, &Device::flex()), segments: None, lengths };
        let logits = model.forward(sentences, None, &mut Probe::off()).logits;
        assert_eq!(logits.dims(), [B, config.outputs]);
        logits.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn what_padding_holds_never_matters() {
        for attention in AnyMechanism::all() {
            for pooling in [Pooling::ClassToken, Pooling::Mean] {
                let config = ClassifierConfig { pooling, ..tiny(attention.clone()) };
                let run = |pad| outputs(&config, [[4, 5, pad, pad], [4, 2, 3, 4]], &[2, 4]);
                assert_eq!(run(0), run(9), "{attention}, {pooling:?}");
            }
        }
    }

    #[test]
    fn a_sentence_alone_equals_its_row_in_a_padded_batch() {
        for attention in AnyMechanism::all() {
            for pooling in [Pooling::ClassToken, Pooling::Mean] {
                let config = ClassifierConfig { pooling, ..tiny(attention.clone()) };
                let alone = outputs(&config, [[4, 5]], &[2]);
                let batch = outputs(&config, [[4, 2, 3, 4], [4, 5, 0, 0]], &[4, 2]);
                assert!(alone.iter().zip(&batch[3..]).all(|(a, b)| (a - b).abs() < 1e-5), "{attention}, {pooling:?}");
            }
        }
    }

    #[test]
    fn pooling_takes_the_first_state_or_the_mean_of_the_real_ones() {
        let states = Tensor::from_data([[[1.0, 2.0], [3.0, 6.0], [99.0, 99.0]]], &Device::flex());
        let pooled = |pooling| {
            let model = ClassifierConfig { pooling, ..tiny(AnyMechanism::default()) }.init(&RandomKey::from_seed(1), &Device::flex());
            model.pool(states.clone(), &[2]).into_data().try_to_vec::<f32>().unwrap()
        };
        assert_eq!(pooled(Pooling::ClassToken), [1.0, 2.0]);
        assert_eq!(pooled(Pooling::Mean), [2.0, 4.0]);
    }

    #[test]
    fn every_token_can_change_the_class() {
        let config = tiny(AnyMechanism::default());
        let before = outputs(&config, [[4, 5, 6]], &[3]);
        assert_ne!(before, outputs(&config, [[4, 5, 7]], &[3]));
        assert_ne!(before, outputs(&config, [[4, 7, 6]], &[3]));
    }

    #[test]
    fn segments_matter_where_they_are_given() {
        let model = tiny(AnyMechanism::default()).init(&RandomKey::from_seed(1), &Device::flex());
        let run = |segments: Option<[[i32; 3]; 1]>| {
            let device = Device::flex();
            let segments = segments.map(|segments| Tensor::from_data(segments, &device));
            let sentences = Sentences { tokens: Tensor::from_data([[4, 5, 6]], &device), segments, lengths: &[3] };
            model.forward(sentences, None, &mut Probe::off()).logits.into_data()
        };
        assert_ne!(run(Some([[0, 0, 1]])), run(Some([[0, 1, 1]])));
        assert_ne!(run(Some([[0, 0, 0]])), run(None));
    }

    #[test]
    fn dropout_reaches_the_pooled_vector() {
        let base = tiny(AnyMechanism::default());
        let config = ClassifierConfig { block: BlockConfig { dropout: 0.5, ..base.block }, ..base };
        let model = config.init(&RandomKey::from_seed(1), &Device::flex());
        let run = |seed| {
            let sentences = Sentences { tokens: Tensor::from_data([[4, 5]], &Device::flex()), segments: None, lengths: &[2] };
            model.forward(sentences, Some(RandomKey::from_seed(seed)), &mut Probe::off()).logits.into_data()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn configurations_survive_toml_and_refuse_unknown_fields() {
        let base = tiny(AnyMechanism::default());
        let block = BlockConfig { activation: Activation::Gelu, ..base.block };
        let config = ClassifierConfig { pooling: Pooling::Mean, block, ..base };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<ClassifierConfig>(&text).unwrap(), config);
        assert!(toml::from_str::<ClassifierConfig>("pool = 'mean'").unwrap_err().to_string().contains("pool"));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = || tiny(AnyMechanism::default());
        let cases = [
            ("vocabulary", ClassifierConfig { vocabulary: 0, ..base() }),
            ("outputs", ClassifierConfig { outputs: 0, ..base() }),
            ("layers", ClassifierConfig { layers: 0, ..base() }),
            ("heads", ClassifierConfig { block: BlockConfig { heads: 3, ..base().block }, ..base() }),
            ("dropout", ClassifierConfig { block: BlockConfig { dropout: 1.0, ..base().block }, ..base() }),
            ("attention", ClassifierConfig { attention: crate::layout::LayerAttention::Each(vec![]), ..base() }),
        ];
        for (option, config) in cases {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
    }

    #[test]
    fn separable_networks_do_not_see_padding() {
        let mut config = tiny(AnyMechanism::default());
        config.block.separable_feed_forward = true;
        let model = config.init(&RandomKey::from_seed(1), &Device::flex());
        let hidden = |tokens: Tensor<2, Int>, length: usize| {
            model.hidden(Sentences { tokens, segments: None, lengths: &[length] }, None, &mut Probe::off()).states.narrow(1, 0, length)
        };
        let device = Device::flex();
        let alone = hidden(Tensor::from_data([[2, 5, 7]], &device), 3);
        let padded = hidden(Tensor::from_data([[2, 5, 7, 9, 9, 1]], &device), 3);
        let difference: f32 = (alone - padded).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
    }
}
