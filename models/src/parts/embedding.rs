//! Token embedding, and the projection back to the vocabulary.
//!
//! Vaswani et al. 2017, section 3.4: embeddings are multiplied by `sqrt(d_model)`, positions are added unscaled, then dropout is applied; the embedding matrix
//! also projects hidden states to logits, `x E^T`. Many later models do not scale ([`EmbeddingScale`]), and BERT normalises the sum before dropout. The
//! [`TokenEmbedding`] owns the matrix; both uses are one leaf of the graph, so their gradients add up. (Two cloned Burn parameters would diverge.)

use burn::module::{Module, Param};
use burn::nn::{Embedding, Linear};
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::init;
use heedful_attention::engine::dropout::dropout;
use heedful_attention::engine::linear::projected;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::parts::adaptive_softmax::AdaptiveEmbedding;
use crate::parts::norm::{Norm, NormConfig};
use crate::parts::position::{PositionConfig, PositionEncoding};

/// Scale of embedded tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingScale {
    /// Square root of the model width (the paper; Gemma).
    #[default]
    Sqrt,
    /// No scaling (GPT-2, BERT, Llama).
    None,
}

/// Sizes of a [`TokenEmbedding`].
#[derive(Clone, Copy, Debug)]
pub struct TokenEmbeddingConfig {
    /// Number of tokens.
    pub vocabulary: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Longest sequence.
    pub max_length: usize,
    /// Kind of position vectors.
    pub positions: PositionConfig,
    /// Maximum random offset of positions in training.
    pub position_offset: usize,
    /// Number of segment types (first and second sentence), 0 for none.
    pub segments: usize,
    /// Scale of embedded tokens.
    pub scale: EmbeddingScale,
    /// Normalisation of the sum, if any.
    pub norm: Option<NormConfig>,
    /// Dropout of the sum.
    pub dropout: f64,
}

/// Embedded tokens plus positions.
#[derive(Module, Debug)]
pub struct TokenEmbedding {
    /// The matrix `E`, `[V, C]`; with adaptive vectors that of the head, `[V_0, C]`.
    pub tokens: Embedding,
    /// Additional [adaptive](crate::parts::adaptive_softmax) vectors.
    pub adaptive: Option<AdaptiveEmbedding>,
    /// Position vectors.
    pub positions: PositionEncoding,
    /// Segment vectors `[segments, C]`.
    pub segments: Option<Param<Tensor<2>>>,
    /// Normalisation of the sum.
    pub norm: Option<Norm>,
    #[module(skip)]
    scale: EmbeddingScale,
    dropout: f64,
}

impl TokenEmbeddingConfig {
    /// Initialises the embedding.
    pub fn init(&self, key: &RandomKey, device: &Device) -> TokenEmbedding {
        let deviation = Init::Normal((self.d_model as f32).powf(-0.5));
        TokenEmbedding {
            tokens: init::embedding(self.vocabulary, self.d_model, &key.named("tokens"), device),
            adaptive: None,
            positions: self
                .positions
                .init(self.max_length, self.d_model, &key.named("positions"), device)
                .with_offset(self.position_offset),
            segments: (self.segments > 0).then(|| deviation.parameter([self.segments, self.d_model], &key.named("segments"), device)),
            norm: self.norm.map(|norm| norm.init(self.d_model, device)),
            scale: self.scale,
            dropout: self.dropout,
        }
    }
}

impl TokenEmbedding {
    /// Embeds token ids `[B, N]` to `[B, N, C]`. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If a position exceeds the maximal length.
    pub fn forward(&self, tokens: Tensor<2, Int>, positions: &Positions, random: Option<RandomKey>) -> Tensor<3> {
        self.forward_segments(tokens, None, positions, random)
    }

    /// Embeds token ids `[B, N]` with segment types `[B, N]`.
    ///
    /// # Panics
    /// If segment types are given without segment vectors, or a position exceeds the maximal length.
    pub fn forward_segments(
        &self,
        tokens: Tensor<2, Int>,
        segments: Option<Tensor<2, Int>>,
        positions: &Positions,
        random: Option<RandomKey>,
    ) -> Tensor<3> {
        let positions = self.positions.shifted(positions, tokens.dims()[1], random.as_ref());
        let x = match &self.adaptive {
            Some(adaptive) => adaptive.forward(&self.tokens, tokens),
            None => self.tokens.forward(tokens),
        };
        let x = match self.scale {
            EmbeddingScale::Sqrt => x * (self.tokens.weight.dims()[1] as f64).sqrt(),
            EmbeddingScale::None => x,
        };
        let x = self.positions.forward(x, &positions);
        let x = match segments {
            Some(segments) => {
                let table = self.segments.as_ref().expect("segment types are given to a model that has vectors for them");
                x + burn::tensor::module::embedding(table.val(), segments)
            }
            None => x,
        };
        let x = match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        dropout(x, self.dropout, random.as_ref())
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.tokens.weight.dims()[0] + self.adaptive.as_ref().map_or(0, AdaptiveEmbedding::tokens)
    }

    /// Logits `x E^T` of hidden states `[.., C]`, `[.., V]`.
    ///
    /// # Panics
    /// If the vectors are adaptive: use [`AdaptiveSoftmax`](crate::parts::adaptive_softmax::AdaptiveSoftmax) instead.
    pub fn project<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        assert!(self.adaptive.is_none(), "adaptive vectors have an adaptive softmax");
        projected(x, self.tokens.weight.val().transpose())
    }
}

/// Logits of hidden states, by a separate matrix if present, otherwise by the embedding's.
pub(crate) fn project<const D: usize>(x: Tensor<D>, own: Option<&Linear>, embedding: &TokenEmbedding) -> Tensor<D> {
    match own {
        Some(Linear { weight, bias: None }) => projected(x, weight.val()),
        Some(output) => output.forward(x),
        None => embedding.project(x),
    }
}

/// Matrix `[V, C]` of [`project`].
pub(crate) fn output_matrix(own: Option<&Linear>, embedding: &TokenEmbedding) -> Tensor<2> {
    match own {
        Some(output) => output.weight.val().transpose(),
        None => embedding.tokens.weight.val(),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::linear;

    use super::*;

    fn config() -> TokenEmbeddingConfig {
        TokenEmbeddingConfig {
            vocabulary: 7,
            d_model: 4,
            max_length: 8,
            positions: PositionConfig::Sinusoidal,
            position_offset: 0,
            segments: 0,
            scale: EmbeddingScale::default(),
            norm: None,
            dropout: 0.1,
        }
    }

    #[test]
    fn tokens_are_scaled_and_positions_are_not() {
        let device = Device::flex();
        let embedding = config().init(&RandomKey::from_seed(1), &device);
        let x = embedding.forward(Tensor::from_data([[3]], &device), &Positions::default(), None);
        let row = embedding.tokens.weight.val().narrow(0, 3, 1) * 2.0 + Tensor::from_data([[0.0, 1.0, 0.0, 1.0]], &device);
        assert_eq!(x.into_data().try_to_vec::<f32>().unwrap(), row.into_data().try_to_vec::<f32>().unwrap());
    }

    #[test]
    fn tokens_that_are_not_scaled_are_rows_of_the_matrix() {
        let device = Device::flex();
        let config = TokenEmbeddingConfig { scale: EmbeddingScale::None, positions: PositionConfig::None, ..config() };
        let embedding = config.init(&RandomKey::from_seed(1), &device);
        let x = embedding.forward(Tensor::from_data([[3]], &device), &Positions::default(), None);
        let row = embedding.tokens.weight.val().narrow(0, 3, 1);
        assert_eq!(x.into_data().try_to_vec::<f32>().unwrap(), row.into_data().try_to_vec::<f32>().unwrap());
    }

    #[test]
    fn the_normalisation_is_that_of_tokens_positions_and_segments() {
        let device = Device::flex();
        let plain = TokenEmbeddingConfig { segments: 2, ..config() };
        let normalised = TokenEmbeddingConfig { norm: Some(NormConfig::default()), ..plain };
        let embed = |config: TokenEmbeddingConfig| {
            let embedding = config.init(&RandomKey::from_seed(1), &device);
            let [tokens, segments] = [[[3, 5]], [[0, 1]]].map(|ids| Tensor::<2, Int>::from_data(ids, &device));
            (embedding.num_params(), embedding.forward_segments(tokens, Some(segments), &Positions::default(), None))
        };
        let (parameters, sum) = embed(plain);
        let (with_norm, found) = embed(normalised);
        assert_eq!(with_norm, parameters + 2 * 4);
        let difference: f32 = (found - NormConfig::default().init(4, &device).forward(sum)).abs().max().into_scalar();
        assert!(difference < 1e-6, "{difference}");
    }

    #[test]
    fn embedded_tokens_have_unit_variance() {
        let config = TokenEmbeddingConfig { vocabulary: 100, d_model: 64, positions: PositionConfig::None, ..config() };
        let embedding = config.init(&RandomKey::from_seed(1), &Device::flex());
        let variance: f32 = (embedding.tokens.weight.val() * 8.0).powf_scalar(2.0).mean().into_scalar();
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn a_shared_matrix_is_one_parameter_with_the_gradient_of_both_uses() {
        let device = Device::flex().autodiff();
        let config = TokenEmbeddingConfig { positions: PositionConfig::None, dropout: 0.0, ..config() };
        let embedding = config.init(&RandomKey::from_seed(1), &device);
        assert_eq!(embedding.num_params(), 28);
        let tokens = || Tensor::from_data([[3, 5]], &device);
        let (positions, weights) = (Positions::default(), Tensor::<3>::from_data([[[1.0, -2.0, 3.0, 0.5, 0.0, 1.0, 2.0]; 2]], &device));
        let gradient = |x: Tensor<3>, project: &dyn Fn(Tensor<3>) -> Tensor<3>| {
            let gradients = (project(x) * weights.clone()).sum().backward();
            embedding.tokens.weight.val().grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap()
        };
        let constant = embedding.tokens.weight.val().detach().transpose();
        let embedded = || embedding.forward(tokens(), &positions, None);
        let input = gradient(embedded(), &|x| linear(x, constant.clone(), None));
        let output = gradient(embedded().detach(), &|x| embedding.project(x));
        let both = gradient(embedded(), &|x| embedding.project(x));
        assert!(input.iter().any(|&g| g != 0.0) && output.iter().any(|&g| g != 0.0));
        for ((a, b), sum) in input.iter().zip(&output).zip(&both) {
            assert!((a + b - sum).abs() < 1e-5, "{a} + {b} is not {sum}");
        }
    }

    #[test]
    fn segment_vectors_tell_the_first_sentence_from_the_second() {
        let device = Device::flex();
        let config = TokenEmbeddingConfig { segments: 2, ..config() };
        let embedding = config.init(&RandomKey::from_seed(1), &device);
        let embed = |segments: [[i32; 2]; 1]| {
            let segments = Some(Tensor::from_data(segments, &device));
            embedding.forward_segments(Tensor::from_data([[3, 5]], &device), segments, &Positions::default(), None)
        };
        let difference = embed([[0, 1]]) - embed([[0, 0]]);
        let difference = difference.into_data().try_to_vec::<f32>().unwrap();
        assert!(difference[..4].iter().all(|&d| d == 0.0) && difference[4..].iter().all(|&d| d != 0.0));
    }
}
