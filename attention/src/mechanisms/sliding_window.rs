//! Sliding-window attention (Beltagy, Peters and Cohan 2020, section 3.1; Jiang et al. 2023, section 2).
//!
//! Query `i` sees the `W` keys `i - W + 1 ..= i`, its own position included, as in Mistral 7B. After `l` layers the receptive field is `l (W - 1) + 1`
//! positions. In an encoder the window is two-sided, `|i - j| < W`.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/sliding-window.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of sliding-window attention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SlidingWindowConfig {
    /// Number of visible keys per query, `W`, its own position included, at least 1 (default: 256, or a quarter of the maximal length if that is less).
    pub window: Option<usize>,
    /// Execution (default: blocked).
    pub execution: PatternExecution,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Mechanism for SlidingWindowConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "sliding-window";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const SIZE: Option<Size<Self>> = Some(Size {
        option: "window",
        given: |own| own.window,
        with: |own, window| Self { window: Some(window), ..own },
        default: |max_length| quarter(max_length, 256),
        drawn: 8,
    });
    const CARD: Card = Card {
        variant: "SlidingWindow",
        description: "Restricts queries to a window of the nearest positions, over any logits.",
        source: "Beltagy, Peters and Cohan 2020, section 3.1; Jiang et al. 2023, section 2",
        links: &[
            "https://arxiv.org/abs/2004.05150",
            "https://arxiv.org/abs/2310.06825",
            "https://github.com/allenai/longformer",
            "https://github.com/mistralai/mistral-inference",
        ],
        time: "n W d",
        state: "2 W d",
        letters: &[("W", "keys that a query sees, option `window`, by default 256, at most `L / 4`")],
        differences: &[
            "Longformer defines windows differently: its window `w` covers `w / 2` positions on either side, which is `W = w / 2 + 1` here.",
        ],
        sizes: &["window"],
        ..Card::PATTERN
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        let window = self.size(spec.max_length);
        Restricted::over(&self.logits, Near { farthest: window - 1, block: window }, self.execution, spec, key, device)
    }

    /// Jiang et al. 2023: the last `W` positions.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().shows(|query, key| query.distance(key) < self.size(query.spec().max_length)))
    }
}
