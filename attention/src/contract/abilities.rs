//! What a mechanism can do, as plain facts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a mechanism is kept from seeing the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Causality {
    /// By the visibility that it is given.
    Masked,
    /// It never looks ahead.
    ByConstruction,
    /// It has no causal form: every query, of every head, sees the same keys.
    Impossible,
}

/// What a mechanism can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Attends to keys of another sequence.
    pub cross_attention: bool,
    /// How the future is hidden.
    pub causality: Causality,
    /// Decodes step by step from a bounded state.
    pub steps: bool,
    /// Can show its weights.
    pub weights: bool,
    /// Longest sequence, if there is a limit.
    pub max_length: Option<usize>,
    /// Returns auxiliary losses.
    pub auxiliary_losses: bool,
    /// Draws random numbers apart from dropout.
    pub randomness: bool,
}

impl Abilities {
    /// Of an attention to its own sequence, of any length, that decodes step by step, shows no weights, returns no losses and draws nothing.
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
