//! Where in a model an attention stands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Check;
use crate::visibility::Visibility;

/// Role of an attention in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Self-attention of an encoder: sees the whole sequence.
    Encoder,
    /// Self-attention of a decoder: causal, whatever visibility a call gives.
    Decoder,
    /// From a decoder to the encoder's output.
    Cross,
}

/// Where in a model an attention stands and the sizes that it shares with the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Role in the model.
    pub role: Role,
    /// Index of the layer, from 0.
    pub layer: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Number of heads.
    pub heads: usize,
    /// Longest sequence of the model.
    pub max_length: usize,
    /// Dropout probability of attention weights.
    pub dropout: f64,
}

impl Placement {
    /// Length of the longest sequence by default.
    pub(crate) const MAX_LENGTH: usize = 512;

    /// The only layer of a model, for sequences of at most 512 positions, without dropout.
    pub fn new(role: Role, d_model: usize, heads: usize) -> Self {
        Self { role, layer: 0, layers: 1, d_model, heads, max_length: Self::MAX_LENGTH, dropout: 0.0 }
    }

    /// Width of a head.
    pub fn d_head(&self) -> usize {
        self.d_model / self.heads
    }

    /// What an attention here sees at most: in a decoder no query sees what comes after it.
    pub fn limit(&self) -> Visibility {
        if self.role == Role::Decoder { Visibility::causal() } else { Visibility::all() }
    }

    /// Checks options of the mechanism called `attention` that is to stand here.
    pub(crate) fn check<'a>(&'a self, attention: &'a str) -> Check<'a> {
        Check { attention, placement: self }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stack, kind) = match self.role {
            Role::Encoder => ("encoder", "self-attention"),
            Role::Decoder => ("decoder", "self-attention"),
            Role::Cross => ("decoder", "cross-attention"),
        };
        write!(f, "{stack} layer {} of {}, {kind}", self.layer + 1, self.layers)
    }
}
