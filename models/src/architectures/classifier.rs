//! The encoder-only Transformer, or the decoder-only one as a classifier: classification or regression of sentences and sentence pairs.

mod config;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::contract::training::Training;
use heedful_attention::engine::dropout::dropout;
use heedful_attention::prelude::*;

pub use self::config::{ClassifierConfig, Pooling};
use crate::architectures::masked::MaskedHead;
use crate::architectures::seq2seq::Scores;
use crate::block::stack::Stack;
use crate::block::{Context, Hidden};
use crate::kernels::fused::linear;
use crate::parts::embedding::TokenEmbedding;

/// Sequences to classify, padded on the right.
#[derive(Clone, Debug)]
pub struct Sentences<'a> {
    /// Token ids `[B, N]`.
    pub tokens: Tensor<2, Int>,
    /// Segment types `[B, N]`: 0 in the first sentence of a pair, 1 in the second.
    pub segments: Option<Tensor<2, Int>>,
    /// Number of real tokens per row, at least 1.
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
    /// Linear map of the pooled vector before a hyperbolic tangent, `[C, C]`.
    pub pooler: Option<Linear>,
    /// Map from the pooled vector to the outputs.
    pub output: Linear,
    /// Head that predicts [masked tokens](crate::architectures::masked) from hidden states, with biases.
    pub masked_head: Option<MaskedHead>,
    #[module(skip)]
    pooling: Pooling,
    causal: bool,
    dropout: f64,
    training: Training,
}

impl<A: Attention> Classifier<A> {
    /// Class logits, or the prediction, `[B, outputs]`, for tokens `[B, N]`. The mask defines the padding: [`Mask::none`], [`Mask::padding`], or a tensor mask,
    /// which is read back.
    ///
    /// Dropout follows [`LanguageModel::forward`](crate::architectures::language_model::LanguageModel::forward): it is active in training.
    /// [`forward_with`](Self::forward_with) is the full form, which also accepts segments of sentence pairs.
    ///
    /// # Panics
    /// If the sequences exceed the maximal length of the model, or the mask hides more than padding at the end of rows.
    pub fn forward(&self, tokens: Tensor<2, Int>, mask: &Mask) -> Tensor<2> {
        let [batch, length] = tokens.dims();
        let sentences = Sentences { tokens, segments: None, lengths: &mask.lengths(batch, length) };
        let random = self.training.next_key(&self.embedding.tokens.weight.device());
        let Scores { logits, losses } = self.forward_with(sentences, random, &mut Probe::off());
        self.training.warn_of_lost(&losses, &self.embedding.tokens.weight.device(), "forward_with");
        logits
    }

    /// Full form of [`forward`](Self::forward): class logits, or the prediction, `[B, outputs]`. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If the sequences exceed `max_length`, or segment types are given to a model without segment vectors.
    pub fn forward_with(&self, sentences: Sentences, random: Option<RandomKey>, probe: &mut Probe) -> Scores<2> {
        let lengths = sentences.lengths;
        let hidden = match self.pooling {
            Pooling::MeanEmbeddings => Hidden { states: self.embedded(sentences, random), losses: Losses::default() },
            _ => self.hidden(sentences, random, probe),
        };
        let pooled = self.pool(hidden.states, lengths);
        let pooled = match &self.pooler {
            Some(pooler) => linear(pooled, pooler).tanh(),
            None => pooled,
        };
        let pooled = dropout(pooled, self.dropout, random.map(|key| key.named("output")).as_ref());
        Scores { logits: self.output.forward(pooled), losses: hidden.losses }
    }

    /// Hidden states `[B, N, C]` of the last layer.
    ///
    /// # Panics
    /// If the sequences exceed `max_length`, or segment types are given to a model without segment vectors.
    pub fn hidden(&self, sentences: Sentences, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let lengths = sentences.lengths;
        let x = self.embedded(sentences, random);
        let real = Visibility::padding(lengths.to_vec());
        let visibility = if self.causal { real.and(Visibility::causal()) } else { real };
        let context = Context::new(visibility).lengths(lengths);
        probe.within("encoder", None, |probe| self.encoder.forward(x, &context, random, probe))
    }

    /// Input of the layers, `[B, N, C]`.
    fn embedded(&self, Sentences { tokens, segments, .. }: Sentences, random: Option<RandomKey>) -> Tensor<3> {
        let key = random.map(|key| key.named("embedding"));
        self.embedding.forward_segments(tokens, segments, &Positions::default(), key)
    }

    fn pool(&self, states: Tensor<3>, lengths: &[usize]) -> Tensor<2> {
        let [batch, length, width] = states.dims();
        let share: fn(usize, usize) -> f32 = match self.pooling {
            Pooling::ClassToken => return states.narrow(1, 0, 1).reshape([batch, width]),
            Pooling::Mean | Pooling::MeanEmbeddings => |real, index| if index < real { 1.0 / real as f32 } else { 0.0 },
            Pooling::LastToken => |real, index| if index + 1 == real { 1.0 } else { 0.0 },
        };
        let shares: Vec<f32> = lengths.iter().flat_map(|&real| (0..length).map(move |index| share(real, index))).collect();
        let shares = TensorData::new(shares, [batch, 1, length]);
        Tensor::from_data(shares, (&states.device(), states.dtype())).matmul(states).reshape([batch, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    use crate::block::BlockConfig;
    use crate::parts::feed_forward::Activation;

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
        let logits = model.forward_with(sentences, None, &mut Probe::off()).logits;
        assert_eq!(logits.dims(), [B, config.outputs]);
        logits.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn what_padding_holds_never_matters() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_see_ahead) {
            for pooling in [Pooling::ClassToken, Pooling::Mean, Pooling::LastToken] {
                let config = ClassifierConfig { pooling, ..tiny(attention.clone()) };
                let run = |pad| outputs(&config, [[4, 5, pad, pad], [4, 2, 3, 4]], &[2, 4]);
                assert_eq!(run(0), run(9), "{attention}, {pooling:?}");
            }
        }
    }

    #[test]
    fn a_sentence_alone_equals_its_row_in_a_padded_batch() {
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_see_ahead) {
            for pooling in [Pooling::ClassToken, Pooling::Mean] {
                let config = ClassifierConfig { pooling, ..tiny(attention.clone()) };
                let alone = outputs(&config, [[4, 5]], &[2]);
                let batch = outputs(&config, [[4, 2, 3, 4], [4, 5, 0, 0]], &[4, 2]);
                assert!(alone.iter().zip(&batch[3..]).all(|(a, b)| (a - b).abs() < 1e-5), "{attention}, {pooling:?}");
            }
        }
    }

    #[test]
    fn a_causal_model_reads_a_sentence_to_its_last_token() {
        let close = |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            let config = ClassifierConfig { pooling: Pooling::LastToken, causal: true, ..tiny(attention.clone()) };
            let run = |pad| outputs(&config, [[4, 5, pad, pad], [4, 2, 3, 4]], &[2, 4]);
            assert!(close(&run(0), &run(9)), "{attention}: padding");
            assert!(close(&outputs(&config, [[4, 5]], &[2]), &run(0)[..3]), "{attention}: alone");
            let model = config.init(&RandomKey::from_seed(1), &Device::flex());
            let states = |last: i32| {
                let tokens = Tensor::from_data([[4, 5, last]], &Device::flex());
                let hidden = model.hidden(Sentences { tokens, segments: None, lengths: &[3] }, None, &mut Probe::off());
                hidden.states.into_data().try_to_vec::<f32>().unwrap()
            };
            let (one, other) = (states(6), states(7));
            // In LSH attention later tokens move the borders of chunks.
            assert!(attention.family() == "lsh" || close(&one[..16], &other[..16]), "{attention}: before");
            assert!(!close(&one[16..], &other[16..]), "{attention}: last");
        }
    }

    #[test]
    fn pooling_takes_the_first_state_the_last_one_or_the_mean_of_the_real_ones() {
        let states = Tensor::from_data([[[1.0, 2.0], [3.0, 6.0], [99.0, 99.0]]], &Device::flex());
        let pooled = |pooling| {
            let model = ClassifierConfig { pooling, ..tiny(AnyMechanism::default()) }.init(&RandomKey::from_seed(1), &Device::flex());
            model.pool(states.clone(), &[2]).into_data().try_to_vec::<f32>().unwrap()
        };
        assert_eq!(pooled(Pooling::ClassToken), [1.0, 2.0]);
        assert_eq!(pooled(Pooling::Mean), [2.0, 4.0]);
        assert_eq!(pooled(Pooling::LastToken), [3.0, 6.0]);
    }

    #[test]
    fn the_mean_of_embeddings_passes_no_layer_and_trains_none() {
        let config = ClassifierConfig { pooling: Pooling::MeanEmbeddings, ..tiny(AnyMechanism::default()) };
        let run = |attention: &str| {
            outputs(&ClassifierConfig { attention: attention.parse::<AnyMechanism>().unwrap().into(), ..config.clone() }, [[4, 5, 0]], &[2])
        };
        assert_eq!(run("dot-product"), run("uniform"));
        let device = Device::flex().autodiff();
        let model = config.init(&RandomKey::from_seed(1), &device);
        let sentences = Sentences { tokens: Tensor::from_data([[4, 5, 0]], &device), segments: None, lengths: &[2] };
        let gradients = model.forward_with(sentences, None, &mut Probe::off()).logits.sum().backward();
        assert!(model.embedding.tokens.weight.grad(&gradients).is_some() && model.output.weight.grad(&gradients).is_some());
        assert!(model.encoder.layers.iter().all(|layer| !layer.feed_forward.as_ref().unwrap().input.weight.is_require_grad()));
    }

    #[test]
    fn a_pooler_is_a_map_and_a_tangent_before_the_output() {
        let config = ClassifierConfig { pooler: true, ..tiny(AnyMechanism::default()) };
        let model = config.init(&RandomKey::from_seed(1), &Device::flex());
        let sentences = || Sentences { tokens: Tensor::from_data([[4, 5, 6]], &Device::flex()), segments: None, lengths: &[3] };
        let first = model.hidden(sentences(), None, &mut Probe::off()).states.narrow(1, 0, 1).reshape([1, 8]);
        let expected = model.output.forward(model.pooler.as_ref().unwrap().forward(first).tanh());
        let difference: f32 = (model.forward_with(sentences(), None, &mut Probe::off()).logits - expected).abs().max().into_scalar();
        assert!(difference < 1e-6, "{difference}");
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
            model.forward_with(sentences, None, &mut Probe::off()).logits.into_data()
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
            model.forward_with(sentences, Some(RandomKey::from_seed(seed)), &mut Probe::off()).logits.into_data()
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
            ("pooling", ClassifierConfig { causal: true, ..base() }),
            ("heads", ClassifierConfig { block: BlockConfig { heads: 3, ..base().block }, ..base() }),
            ("dropout", ClassifierConfig { block: BlockConfig { dropout: 1.0, ..base().block }, ..base() }),
            ("attention", ClassifierConfig { attention: crate::block::layout::LayerAttention::Each(vec![]), ..base() }),
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
