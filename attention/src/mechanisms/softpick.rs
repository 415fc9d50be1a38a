//! Softpick, a rectified softmax (Zuhri, Fuadi and Aji 2025).
//!
//! `w[i, j] = max(exp(s[i, j]) - 1, 0) / sum_k |exp(s[i, k]) - 1|`: keys with a score up to 0 have no weight, but lessen that of the others, and so have a gradient.
//! The weights of a query sum to at most 1, and to 0 if no score is positive, so that no key is needed that takes what is left. Scores `s` are those of any
//! mechanism: `alibi@softpick`, or `softpick` for short. Time and decoding state are those of the scores, by default of dot-product attention.
//!
//! Both sides are divided by `exp(M)` with `M = max(0, max_k s[i, k])`, and then `epsilon` is added to the sum, which would be 0 where all scores are. Gradients
//! take it for a constant of the sum before the division, as those of the released kernel do. Parameters have the names that they have without the normaliser,
//! so that weights which were trained with a softmax can be loaded.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/softpick.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of softpick attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SoftpickConfig {
    /// What is added to the sum by which weights are divided, greater than 0 (default 1e-6, as in the released kernel; the released plain code has 1e-8).
    pub epsilon: f64,
    /// What scores the keys (default: dot-product attention).
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
        description: "Rectified softmax: keys with negative scores have no weight, and weights sum to at most 1; over any logits and pattern.",
        source: "Zuhri, Fuadi and Aji 2025",
        links: &["https://arxiv.org/abs/2504.20966", "https://github.com/zaydzuhri/softpick-attention"],
        differences: &[
            "The released code shifts scores by the largest alone, which overflows where all are far below 0; where one is positive, the shift is the same.",
        ],
        ..Card::NORMALISER
    };

    /// # Errors
    /// If `epsilon` is not a number between 0 and 1 that 32 bits can hold.
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
