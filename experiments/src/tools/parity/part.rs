//! The parts of models that can be run on their own.

use heedful_attention::contract::layer_spec::Role;
use heedful_models::parts::residual_gate::GateKind;
use serde::{Deserialize, Serialize};

/// Which part of a model is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// One attention, all positions at once.
    #[default]
    #[serde(rename = "attention")]
    Attention,
    /// One attention, step by step.
    #[serde(rename = "step")]
    Step,
    /// `σ(W_g x) ⊙ x + y`.
    #[serde(rename = "gate:input")]
    GateInput,
    /// `x + σ(W_g x - b_g) ⊙ y`.
    #[serde(rename = "gate:output")]
    GateOutput,
    /// `σ(W_g x + b_g) ⊙ x + (1 - σ(W_g x + b_g)) ⊙ y`.
    #[serde(rename = "gate:highway")]
    GateHighway,
    /// `x + σ(W_g y - b_g) ⊙ tanh(U_g y)`.
    #[serde(rename = "gate:sig-tanh")]
    GateSigTanh,
    /// The gated recurrent unit over depth.
    #[serde(rename = "gate:gru")]
    GateGru,
    /// Adaptive computation time over given updates.
    #[serde(rename = "halting")]
    Halting,
    /// Attention and a feed-forward network with their residual connections.
    #[serde(rename = "block")]
    Block,
    /// Blocks with weights of their own.
    #[serde(rename = "stack")]
    Stack,
    /// One block again and again: the Universal Transformer.
    #[serde(rename = "stack:shared")]
    StackShared,
    /// Reversible blocks: Reformer.
    #[serde(rename = "stack:reversible")]
    StackReversible,
    /// Blocks that read a sequence segment by segment: Transformer-XL.
    #[serde(rename = "segments")]
    Segments,
    /// The same with one block again and again.
    #[serde(rename = "segments:shared")]
    SegmentsShared,
}

impl Part {
    /// All parts, with what `--list` says of them.
    pub const ALL: [(Self, &str); 14] = [
        (Self::Attention, "one attention, all positions at once"),
        (Self::Step, "one attention, step by step, in steps of given sizes"),
        (Self::GateInput, "gate of GTrXL: s(W x) x + y"),
        (Self::GateOutput, "gate of GTrXL: x + s(W x - b) y"),
        (Self::GateHighway, "gate of GTrXL: s(W x + b) x + (1 - s(W x + b)) y"),
        (Self::GateSigTanh, "gate of GTrXL: x + s(W y - b) tanh(U y)"),
        (Self::GateGru, "gate of GTrXL: gated recurrent unit over depth"),
        (Self::Halting, "adaptive computation time over given updates"),
        (Self::Block, "attention and feed-forward network with norms, gates, residual sums"),
        (Self::Stack, "blocks with weights of their own"),
        (Self::StackShared, "one block for all layers (Universal Transformer), with halting or without"),
        (Self::StackReversible, "reversible blocks (Reformer)"),
        (Self::Segments, "blocks that read segments and remember (Transformer-XL)"),
        (Self::SegmentsShared, "the same with one block for all layers"),
    ];

    /// The name, as it stands in configurations.
    pub fn name(self) -> String {
        match toml::Value::try_from(self) {
            Ok(toml::Value::String(name)) => name,
            other => unreachable!("a part is written as its name, not {other:?}"),
        }
    }

    /// The kind of a gate.
    pub(super) fn gate(self) -> Option<GateKind> {
        match self {
            Self::GateInput => Some(GateKind::Input),
            Self::GateOutput => Some(GateKind::Output),
            Self::GateHighway => Some(GateKind::Highway),
            Self::GateSigTanh => Some(GateKind::SigTanh),
            Self::GateGru => Some(GateKind::Gru),
            _ => None,
        }
    }

    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Attention | Self::Step)
    }

    pub(super) fn is_stack(self) -> bool {
        matches!(self, Self::Stack | Self::StackShared | Self::StackReversible) || self.reads_segments()
    }

    pub(super) fn reads_segments(self) -> bool {
        matches!(self, Self::Segments | Self::SegmentsShared)
    }

    fn is_shared(self) -> bool {
        matches!(self, Self::StackShared | Self::SegmentsShared)
    }

    pub(super) fn has_attention(self) -> bool {
        self.is_alone() || self == Self::Block || self.is_stack()
    }

    /// Whether a field of [`ParityConfig`] means something to this part in this role.
    pub(super) fn uses(self, field: &str, role: Role) -> bool {
        match field {
            "part" | "d_model" => true,
            "attention" | "heads" | "kv_heads" | "head_width" | "qkv_bias" | "output_bias" | "max_length" | "layers" | "seed" => {
                self.has_attention()
            }
            "role" => self.has_attention() && !self.reads_segments(),
            "layer" => self.is_alone() || self == Self::Block,
            "engine" => self.is_alone(),
            "memory_gradient" => (self == Self::Attention && role != Role::Cross) || self == Self::Block,
            "cross" => self == Self::Block || (self.is_stack() && !self.reads_segments()),
            "block" => self == Self::Block || self.is_stack(),
            "halting" => self == Self::Halting || self.is_shared(),
            "positions" => self.is_stack() && self != Self::StackReversible,
            "step_signal" => self.is_shared(),
            "memory_length" => self.reads_segments(),
            other => unreachable!("`{other}` is no field"),
        }
    }
}

#[cfg(test)]
mod tests {
    use heedful_runs::settings::complete;

    use super::*;
    use crate::tools::parity::config::ParityConfig;

    #[test]
    fn every_part_has_a_name_that_reads_back_and_knows_every_field() {
        let fields = complete(&ParityConfig::default()).unwrap();
        for (part, _) in Part::ALL {
            assert_eq!(toml::Value::String(part.name()).try_into::<Part>().unwrap(), part);
            let used = fields.keys().filter(|field| part.uses(field, Role::Decoder)).count();
            assert!(used >= 2 && used < fields.len(), "{}: {used} fields", part.name());
        }
    }
}
