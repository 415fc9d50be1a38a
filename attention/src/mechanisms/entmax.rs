//! Entmax (Peters, Niculae and Martins 2019, section 3) and sparsemax (Martins and Astudillo 2016, section 2).
//!
//! `w[i, j] = max((alpha - 1) s[i, j] - t[i], 0)^(1 / (alpha - 1))`, with the threshold `t[i]` by which the weights of query `i` sum to 1. Keys whose scores are far
//! below the best one have no weight at all. As `alpha` approaches 1, the weights approach those of a softmax. `entmax` has `alpha` 1.5: a key whose score is 2 or
//! more below the best has no weight. `sparsemax` has `alpha` 2: a key whose score is 1 or more below the best has no weight. Scores `s` are those of any mechanism:
//! `alibi@entmax`, or `entmax` for short. Decoding state and order of time are those of the scores, by default of dot-product attention. The fused engine computes
//! the scores once more to find the thresholds, by Newton's method.
//!
//! A key without a weight has no gradient. Parameters have the names that they have without the normaliser, so that weights which were trained with a softmax
//! can be loaded.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/entmax.svg")]

use crate::mechanisms::prelude::*;

/// The name of entmax with `alpha` 2.
const SPARSEMAX: &str = "sparsemax";

/// Configuration of entmax attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct EntmaxConfig {
    /// How sparse weights are: 2, 1.5, or in general `1 + 1 / p` for a whole number `p` from 1 to 8 (default 1.5; `sparsemax` has 2).
    pub alpha: f64,
    /// What scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for EntmaxConfig {
    fn default() -> Self {
        Self { alpha: 1.5, logits: AnyMechanism::default() }
    }
}

impl EntmaxConfig {
    /// The power `1 / (alpha - 1)`, if it is one that is possible.
    fn power(&self) -> Option<u32> {
        // Three decimals suffice for 1 + 1 / 3.
        (1..=8).find(|&power| (self.alpha - (1.0 + 1.0 / f64::from(power))).abs() <= 5e-4)
    }
}

impl Mechanism for EntmaxConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "entmax";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "Entmax",
        description: "Replaces the softmax by entmax, which gives keys with low scores no weight, over any logits and pattern.",
        source: "Peters, Niculae and Martins 2019, section 3; Martins and Astudillo 2016, section 2",
        links: &["https://arxiv.org/abs/1905.05702", "https://arxiv.org/abs/1602.02068", "https://github.com/deep-spin/entmax"],
        differences: &[
            "The power `1 / (alpha - 1)` is a whole number; the released code takes any alpha, and can train one for each head.",
            "The released code sorts scores or halves an interval; thresholds are found by Newton's method here.",
        ],
        ..Card::NORMALISER
    };

    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default()), (SPARSEMAX, Self { alpha: 2.0, ..Self::default() })]
    }

    fn description(&self) -> &'static str {
        match self.power() {
            Some(1) => "Replaces the softmax by sparsemax, the projection of scores onto the simplex, over any logits and pattern.",
            _ => Self::CARD.description,
        }
    }

    fn own_name(&self) -> &'static str {
        if self.power() == Some(1) { SPARSEMAX } else { Self::NAME }
    }

    /// # Errors
    /// If `alpha` is not among those that are possible.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if self.power().is_none() {
            let remedy = "give 2, 1.5, or 1 + 1 / p for a whole number p up to 8; 1 is a softmax, the mechanism without entmax";
            return Err(spec.check(Self::NAME).refuse("alpha", self.alpha, remedy));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        let power = self.power().expect("validated: alpha has a power");
        self.logits.init_scores(spec, key, device).normalised_by(Normaliser::Entmax { power })
    }

    /// Peters et al. 2019, equation 10, with the threshold found by halving.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let power = self.power().expect("validated: alpha has a power");
            let scores: Vec<Option<f64>> = query.scores().into_iter().map(|score| score.map(|score| score / f64::from(power))).collect();
            let weight = |score: f64, threshold: f64| (score - threshold).max(0.0).powi(power as i32);
            let highest = scores.iter().flatten().fold(f64::NEG_INFINITY, |highest, &score| highest.max(score));
            let (mut low, mut high) = (highest - 1.0, highest);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                let sum: f64 = scores.iter().flatten().map(|&score| weight(score, middle)).sum();
                if sum >= 1.0 { low = middle } else { high = middle }
            }
            scores.into_iter().map(|score| score.map_or(0.0, |score| weight(score, low))).collect()
        }))
    }
}
