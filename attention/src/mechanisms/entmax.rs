//! Entmax (Peters, Niculae and Martins 2019, section 3) and sparsemax (Martins and Astudillo 2016, section 2).
//!
//! `w[i, j] = max((alpha - 1) s[i, j] - t[i], 0)^(1 / (alpha - 1))`, where the threshold `t[i]` makes the weights of query `i` sum to 1. Keys with scores far
//! below the best have weight exactly 0. As `alpha` approaches 1, entmax approaches softmax. `entmax` uses `alpha` 1.5: a key whose score is 2 or more below
//! the best has weight 0. `sparsemax` uses `alpha` 2: a key whose score is 1 or more below the best has weight 0. Any mechanism can supply the scores `s`:
//! `alibi@entmax`, or `entmax` for short. Decoding state and order of time equal those of the scores (default: dot-product attention). The fused engine
//! recomputes the scores to find the thresholds by Newton's method.
//!
//! A key with weight 0 receives no gradient. Parameter names do not include the normaliser, so a layer can load weights trained with a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/entmax.svg")]

use crate::mechanisms::prelude::*;

/// Name of entmax with `alpha` 2.
const SPARSEMAX: &str = "sparsemax";

/// Configuration of entmax attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct EntmaxConfig {
    /// Sparsity of the weights: 2, 1.5, or in general `1 + 1 / p` for a whole number `p` from 1 to 8 (default: 1.5; `sparsemax`: 2).
    pub alpha: f64,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for EntmaxConfig {
    fn default() -> Self {
        Self { alpha: 1.5, logits: AnyMechanism::default() }
    }
}

impl EntmaxConfig {
    /// The power `1 / (alpha - 1)`, if it is supported.
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
        description: "Replaces the softmax by entmax, whose weights are exactly 0 for keys with low scores, over any logits and pattern.",
        source: "Peters, Niculae and Martins 2019, section 3; Martins and Astudillo 2016, section 2",
        links: &["https://arxiv.org/abs/1905.05702", "https://arxiv.org/abs/1602.02068", "https://github.com/deep-spin/entmax"],
        differences: &[
            "The power `1 / (alpha - 1)` is a whole number; the released code supports any alpha, also trained per head.",
            "The released code finds thresholds by sorting or bisection; here Newton's method finds them.",
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
    /// If `alpha` is not supported.
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

    /// Peters et al. 2019, equation 10, with the threshold found by bisection.
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
