//! Soft cap of the scores (Gemma Team 2024, section 2).
//!
//! `s'[i, j] = c tanh(s[i, j] / c)`: scores far from 0 are bounded by `c`, and those near 0 stay about what they are. Scores `s` are those of any mechanism, scaled
//! and with their biases: `alibi@soft-cap`, or `soft-cap` for dot-product attention. What hides keys, and a mask of numbers, is added to the capped scores. A
//! normaliser or a pattern can be over it: `soft-cap@sliding-window` is the local attention of Gemma 2. Time and decoding state are those of the scores, by
//! default of dot-product attention.
//!
//! Parameters have the names that they have without the cap, so that weights which were trained with one can be loaded without it and the other way round.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/soft-cap.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of a soft cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SoftCapConfig {
    /// The bound of the scores, `c`, greater than 0 (default 50, as in Gemma 2; Grok-1 has 30).
    pub cap: f64,
    /// What scores the keys (default: dot-product attention).
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
    /// If the cap is not a number greater than 0 that 32 bits can hold.
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
