//! Capabilities of a mechanism.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Support for causal attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Causality {
    /// By the visibility of the call.
    Masked,
    /// The mechanism never looks ahead.
    ByConstruction,
    /// No causal form: every query of every head sees the same keys.
    Impossible,
}

/// Capabilities of a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Supports cross-attention.
    pub cross_attention: bool,
    /// Support for causal attention.
    pub causality: Causality,
    /// Supports decoding from a bounded state.
    pub steps: bool,
    /// Reports its weights to a probe.
    pub weights: bool,
    /// Longest sequence, if there is a limit.
    pub max_length: Option<usize>,
    /// Returns auxiliary losses.
    pub auxiliary_losses: bool,
    /// Draws random numbers other than dropout.
    pub randomness: bool,
}

impl Abilities {
    /// Self-attention of unlimited length that supports decoding, reports no weights, returns no losses and draws no random numbers.
    pub const fn new(causality: Causality) -> Self {
        Self {
            cross_attention: false,
            causality,
            steps: true,
            weights: false,
            max_length: None,
            auxiliary_losses: false,
            randomness: false,
        }
    }
}

impl fmt::Display for Causality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Masked => "by mask",
            Self::ByConstruction => "inherently",
            Self::Impossible => "no",
        })
    }
}

impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |able| if able { "yes" } else { "no" };
        let limit = self.max_length.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        write!(
            f,
            "causal: {}; cross-attention: {}; step by step: {}; maximal length: {limit}",
            self.causality,
            yes(self.cross_attention),
            yes(self.steps),
        )
    }
}
