//! Sigmoid attention (Ramapuram et al. 2025, section 2).
//!
//! `w[i, j] = 1 / (1 + exp(-s[i, j] - b))`: each key is weighted independently, and the weights of a query need not sum to 1. With `b = -ln(n)` for sequences
//! of `n` positions, weights initially sum to about 1 (section 4). Any mechanism can supply the scores `s`: `dot-product@sigmoid`, or `sigmoid` for short. Time
//! and decoding state equal those of the scores (default: dot-product attention).
//!
//! Parameter names do not include the normaliser, so a layer can load weights trained with a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/sigmoid.svg")]

use crate::description::formula::sigmoid;
use crate::mechanisms::prelude::*;

/// Configuration of sigmoid attention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SigmoidConfig {
    /// Bias `b` added to the scores (default: `-ln(n)` for the model's maximal length `n`). Set it explicitly to load trained weights into a model with another
    /// maximal length.
    pub bias: Option<f64>,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Mechanism for SigmoidConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "sigmoid";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "Sigmoid",
        description: "Weights each key by the sigmoid of its score, over any logits and pattern.",
        source: "Ramapuram et al. 2025, section 2",
        links: &["https://arxiv.org/abs/2409.04431", "https://github.com/apple/ml-sigmoid-attention"],
        differences: &["The bias is `-ln n` by default, as in the paper; in the released code it is an argument whose default is 0."],
        ..Card::NORMALISER
    };

    /// # Errors
    /// If the bias is not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if let Some(bias) = self.bias.filter(|bias| !bias.is_finite()) {
            return Err(spec.check(Self::NAME).refuse("bias", bias, "give a finite number"));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        let bias = self.bias.unwrap_or_else(|| -(spec.max_length.max(1) as f64).ln()) as f32;
        self.logits.init_scores(spec, key, device).normalised_by(Normaliser::Sigmoid { bias })
    }

    /// Ramapuram et al. 2025, section 2, with the bias of section 4.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let bias = self.bias.unwrap_or_else(|| (1.0 / query.spec().max_length as f64).ln());
            query.scores().into_iter().map(|score| score.map_or(0.0, |score| sigmoid(score + bias))).collect()
        }))
    }
}
