//! Softpick, a rectified softmax (Zuhri, Fuadi and Aji 2025).
//!
//! `w[i, j] = max(exp(s[i, j]) - 1, 0) / sum_k |exp(s[i, k]) - 1|`: keys with a score up to 0 have weight 0, but reduce the weights of the others, and so
//! receive a gradient. The weights of a query sum to at most 1, and to 0 if no score is positive, so no key has to act as a sink. Any mechanism can supply the
//! scores `s`: `alibi@softpick`, or `softpick` for short. Time and decoding state equal those of the scores (default: dot-product attention).
//!
//! Numerator and denominator are divided by `exp(M)` with `M = max(0, max_k s[i, k])`. Then `epsilon` is added to the sum, which would vanish if all scores
//! were 0. As in the released kernel, gradients treat it as a constant of the sum before the division. Parameter names do not include the normaliser, so a
//! layer can load weights trained with a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/softpick.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of softpick attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SoftpickConfig {
    /// Epsilon added to the divisor of the weights, greater than 0 (default 1e-6, as in the released kernel; 1e-8 in the released plain code).
    pub epsilon: f64,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for SoftpickConfig {
    fn default() -> Self {
        Self { epsilon: 1e-6, logits: AnyMechanism::default() }
    }
}

impl Mechanism for SoftpickConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "softpick";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "Softpick",
        description: "Rectified softmax: keys with negative scores have weight 0, and weights sum to at most 1; over any logits and pattern.",
        source: "Zuhri, Fuadi and Aji 2025",
        links: &["https://arxiv.org/abs/2504.20966", "https://github.com/zaydzuhri/softpick-attention"],
        differences: &[
            "The released code shifts scores by their maximum, which overflows if all are far below 0; if any score is positive, the shift is the same.",
        ],
        ..Card::NORMALISER
    };

    /// # Errors
    /// If `epsilon` is not a number between 0 and 1 that 32 bits can represent.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if !(1e-30..1.0).contains(&self.epsilon) {
            return Err(spec.check(Self::NAME).refuse("epsilon", self.epsilon, "give a small number greater than 0, such as 1e-6"));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        let normaliser = Normaliser::Softpick { epsilon: self.epsilon as f32 };
        self.logits.init_scores(spec, key, device).normalised_by(normaliser)
    }

    /// Zuhri et al. 2025, the definition of softpick in its numerically safe form.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let scores = query.scores();
            let shift = scores.iter().flatten().fold(0.0f64, |largest, &score| largest.max(score));
            let shifted = |score: f64| (score - shift).exp() - (-shift).exp();
            let sum = scores.iter().flatten().map(|&score| shifted(score).abs()).sum::<f64>() + self.epsilon;
            scores.into_iter().map(|score| score.map_or(0.0, |score| shifted(score).max(0.0) / sum)).collect()
        }))
    }
}
