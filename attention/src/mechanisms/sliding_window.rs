//! Sliding-window attention (Beltagy, Peters and Cohan 2020, section 3.1; Jiang et al. 2023, section 2).
//!
//! Query `i` sees the `W` keys `i - W + 1 ..= i`, its own position included, as in Mistral 7B. After `l` layers a position has seen `l (W - 1) + 1` others.
//! In an encoder, which sees ahead, it sees as many positions on either side, `|i - j| < W`.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/sliding-window.svg")]

use crate::mechanisms::default_sizes::quarter;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::pattern::Near;

/// Configuration of sliding-window attention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SlidingWindowConfig {
    /// Keys that a query sees, `W`, its own position included, at least 1 (default: 256, or a quarter of the maximal length if that is less).
    #[setters(into)]
    pub window: Option<usize>,
    /// How it is computed (default: blocked).
    pub execution: PatternExecution,
    /// What scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

impl SlidingWindowConfig {
    /// Keys that a query sees in a model of this maximal length.
    pub fn window_at(&self, max_length: usize) -> usize {
        self.window.unwrap_or_else(|| quarter(max_length, 256))
    }
}

impl Mechanism for SlidingWindowConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "sliding-window";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "SlidingWindow",
        description: "Restricts queries to a window of the nearest positions, over any logits.",
        source: "Beltagy, Peters and Cohan 2020, section 3.1; Jiang et al. 2023, section 2",
        kind: Kind::Pattern,
        time: "n W d",
        state: "2 W d",
        letters: &[("W", "keys that a query sees, option `window`, by default 256, at most `L / 4`")],
        differences: &[
            "Longformer counts otherwise: its window of `w` has `w / 2` positions on either side, which is `W = w / 2 + 1` here.",
        ],
        sizes: &["window"],
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { window: Some(8), ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { window: Some(self.window_at(max_length)), logits: self.logits.resolved(max_length), ..self }
    }

    /// # Errors
    /// If the window is empty, or what is restricted has no logits or is wrong itself.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one_if_given("window", self.window)?;
        self.validate_inner(spec)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        let window = self.window_at(spec.max_length);
        Restricted::over(&self.logits, Near { farthest: window - 1, block: window }, self.execution, spec, key, device)
    }

    /// Jiang et al. 2023: the last `W` positions.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| query.distance(key) < self.window_at(query.spec().max_length)))
    }
}
