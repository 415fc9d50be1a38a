//! ReLU attention (Wortsman, Lee, Gilmer and Kornblith 2023, section 3), and its square (Hua, Dai, Liu and Le 2022).
//!
//! `w[i, j] = max(s[i, j], 0)^p / n`: each key is weighted independently, keys with a score up to 0 have weight 0, and a query's weights need not sum to 1. The
//! power is `p = 1` in `relu` and `p = 2` in `relu-squared`. Division by the sequence length `n` keeps sums at about the magnitude of a softmax. Here `n` is
//! fixed: it is the same for the first query of a causal sequence, which sees one key, and the last. Any mechanism can supply the scores `s`:
//! `alibi@relu-squared`, or `relu` for short. Time and decoding state equal those of the scores (default: dot-product attention).
//!
//! A key without a positive score for any query receives no gradient. Parameter names do not include the normaliser, so a layer can load weights trained with a
//! softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/relu.svg")]

use crate::mechanisms::prelude::*;

/// Name of the squared variant.
const SQUARED: &str = "relu-squared";

/// Configuration of ReLU attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct ReluConfig {
    /// Power `p` of the positive part of scores, from 1 to 8 (default: 1; `relu-squared`: 2).
    pub power: usize,
    /// Divisor `n` of the weights, at least 1 (default: the model's maximal length). Set it explicitly to load trained weights into a model with another
    /// maximal length.
    #[setters(into)]
    pub length: Option<usize>,
    /// Mechanism that scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

impl Default for ReluConfig {
    fn default() -> Self {
        Self { power: 1, length: None, logits: AnyMechanism::default() }
    }
}

impl ReluConfig {
    fn length_at(&self, max_length: usize) -> usize {
        self.length.unwrap_or(max_length).max(1)
    }
}

impl Mechanism for ReluConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "relu";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "Relu",
        description: "Weights each key by the ReLU of its score or its square, over any logits and pattern.",
        source: "Wortsman, Lee, Gilmer and Kornblith 2023, section 3; Hua, Dai, Liu and Le 2022",
        links: &["https://arxiv.org/abs/2309.08586", "https://arxiv.org/abs/2202.10447"],
        differences: &[
            "Hua et al. 2022 divide scores by the length before squaring, in a gated layer with one head; here the weights are divided by the length.",
        ],
        ..Card::NORMALISER
    };

    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default()), (SQUARED, Self { power: 2, ..Self::default() })]
    }

    fn description(&self) -> &'static str {
        match self.power {
            1 => "Weights each key by the ReLU of its score, over any logits and pattern.",
            2 => "Weights each key by the squared ReLU of its score, over any logits and pattern.",
            _ => Self::CARD.description,
        }
    }

    fn own_name(&self) -> &'static str {
        if self.power == 2 { SQUARED } else { Self::NAME }
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { length: Some(self.length_at(max_length)), logits: self.logits.resolved(max_length), ..self }
    }

    /// # Errors
    /// If the power is not supported, or the length is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if !(1..=8).contains(&self.power) {
            return Err(check.refuse("power", self.power, "give a number from 1 to 8"));
        }
        check.at_least_one_if_given("length", self.length)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        let scale = (1.0 / self.length_at(spec.max_length) as f64) as f32;
        let normaliser = Normaliser::Relu { power: self.power as u32, scale };
        self.logits.init_scores(spec, key, device).normalised_by(normaliser)
    }

    /// Wortsman et al. 2023, section 3, with the exponent 1 of the length.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let length = self.length_at(query.spec().max_length) as f64;
            let weight = |score: f64| if score > 0.0 { (0..self.power).fold(1.0, |power, _| power * score) / length } else { 0.0 };
            query.scores().into_iter().map(|score| score.map_or(0.0, weight)).collect()
        }))
    }
}
