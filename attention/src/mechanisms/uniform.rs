//! Uniform averaging: all logits 0, so that every visible key has the same weight.
//!
//! `logits_h[i, j] = 0`: the null twin of every softmax attention, without selection of keys. Only the projections of values and output have parameters. A
//! windowed mean costs no less here.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/uniform.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of [`Uniform`], without options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct UniformConfig {}

/// Constant logits.
///
/// Should be created with [`UniformConfig`].
#[derive(Module, Debug)]
pub struct Uniform {
    heads: usize,
}

impl Mechanism for UniformConfig {
    type Module = LogitsOf<Uniform>;
    const NAME: &'static str = "uniform";
    const CARD: Card = Card {
        variant: "Uniform",
        description: "Averages all visible keys with equal weights: the null hypothesis for all other mechanisms.",
        source: "the null twin of softmax attention",
        cross: true,
        state: "n d",
        free_heads: true,
        positioning: Some(Positioning::None),
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, _key: &RandomKey, _device: &Device) -> Uniform {
        Uniform { heads: spec.heads }
    }

    /// Equal weights.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|_, _| 0.0))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::none())
    }
}

impl Logits for Uniform {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: true, max_length: None, remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
        // As a product of thin factors, since a matrix of zeros would need a number per pair.
        let zeros = |heads, length| Tensor::zeros([1, heads, length, 1], (&query.device(), query.dtype()));
        LogitTerms::content(zeros(self.heads, span.queries), zeros(1, span.keys))
    }

    fn multiplications(&self, _d_head: f64) -> f64 {
        0.0
    }
}
