//! Softmax plus one, also called softmax-off-by-one (Miller 2023).
//!
//! `w[i, j] = exp(s[i, j]) / (1 + sum_k exp(s[i, k]))`: a query without a relevant key can assign small weights to all keys. It equals a softmax with an extra
//! key whose score and value are 0. Any mechanism can supply the scores `s`: `dot-product@softmax-plus-one`, or `softmax-plus-one` for short. Time and decoding
//! state equal those of the scores (default: dot-product attention).
//!
//! Parameter names do not include the normaliser, so a layer can load weights trained with a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/softmax-plus-one.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of softmax plus one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SoftmaxPlusOneConfig {
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Mechanism for SoftmaxPlusOneConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "softmax-plus-one";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |_, logits| Self { logits } });
    const CARD: Card = Card {
        variant: "SoftmaxPlusOne",
        description: "Adds 1 to the denominator of the softmax, so that a query can attend to nothing, over any logits and pattern.",
        source: "Miller 2023, Attention Is Off By One",
        links: &["https://www.evanmiller.org/attention-is-off-by-one.html"],
        aliases: &[("softmax1", "softmax-plus-one")],
        ..Card::NORMALISER
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        self.logits.init_scores(spec, key, device).normalised_by(Normaliser::SoftmaxPlusOne)
    }

    /// Miller 2023.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let scores = query.scores();
            // Numerator and denominator are divided by the exponential of the largest score; the extra key's score is 0.
            let top = scores.iter().flatten().fold(0.0f64, |top, &score| top.max(score));
            let sum = (-top).exp() + scores.iter().flatten().map(|score| (score - top).exp()).sum::<f64>();
            scores.into_iter().map(|score| score.map_or(0.0, |score| (score - top).exp() / sum)).collect()
        }))
    }
}
