//! Soft cap of the scores (Gemma Team 2024, section 2).
//!
//! `s'[i, j] = c tanh(s[i, j] / c)`: large scores are bounded by `c`, and scores near 0 are almost unchanged. Any mechanism can supply the scores `s`, scaled
//! and with their biases: `alibi@soft-cap`, or `soft-cap` for dot-product attention. Masks, including additive masks, apply to the capped scores. A normaliser
//! or a pattern can follow: `soft-cap@sliding-window` is the local attention of Gemma 2. Time and decoding state equal those of the scores (default:
//! dot-product attention).
//!
//! Parameter names do not include the cap, so weights trained with a cap can be loaded without it and vice versa.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/soft-cap.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of a soft cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SoftCapConfig {
    /// Bound `c` of the scores, greater than 0 (default 50, as in Gemma 2; Grok-1 uses 30).
    pub cap: f64,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for SoftCapConfig {
    fn default() -> Self {
        Self { cap: 50.0, logits: AnyMechanism::default() }
    }
}

impl Mechanism for SoftCapConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "soft-cap";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "SoftCap",
        description: "Bounds scores by a scaled hyperbolic tangent, over any logits, pattern and normaliser.",
        source: "Gemma Team 2024, Gemma 2, section 2",
        links: &["https://arxiv.org/abs/2408.00118", "https://github.com/google/gemma_pytorch"],
        kind: Kind::ScoreMap,
        cross: true,
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { cap: 1.0, ..self }
    }

    /// # Errors
    /// If the cap is not a number greater than 0 that 32 bits can represent.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&self.cap) {
            return Err(spec.check(Self::NAME).refuse("cap", self.cap, "give a number greater than 0, such as 50"));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        self.logits.init_scores(spec, key, device).capped(self.cap as f32)
    }

    /// Gemma Team 2024, section 2, "logit soft-capping".
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().mapped(|score| self.cap * (score / self.cap).tanh()))
    }
}
