//! DeltaNet (Yang et al. 2024b, sections 2 and 3; Schlag et al. 2021, section 4).
//!
//! `S_t = S_(t-1) + b_t k_t (v_t - S_(t-1)^T k_t)^T`: linear attention with delta-rule updates. Plain linear attention accumulates all values; DeltaNet
//! replaces the value stored under a repeated key. Queries, keys and values pass through short convolutions and a SiLU; queries and keys have length 1.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/delta-net.svg")]

use crate::mechanisms::delta_rule::{DeltaOptions, DeltaRule};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence::{GatedRecurrence, HeadOptions};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::RecurrentAttention;
use crate::mechanisms::{delta_rule, gated_recurrence};

/// Configuration of DeltaNet, a [`DeltaRule`] without decay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct DeltaNetConfig {
    /// Taps of the short convolutions, at least 1 (default: 4).
    pub taps: usize,
    /// Whether write strengths lie in [0, 2] instead of [0, 1], so that the state can change its sign along a key (Grazzi et al. 2025; default: no).
    pub negative_eigenvalues: bool,
    /// Normalisation of the head outputs (default: root mean square with a gain, as in the released code).
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether a gate precedes the output projection (default: no).
    pub gate: bool,
}

impl Default for DeltaNetConfig {
    fn default() -> Self {
        Self { taps: 4, negative_eigenvalues: false, norm: HeadNorm::RmsWithGain, norm_epsilon: None, gate: false }
    }
}

impl DeltaNetConfig {
    fn options(&self, spec: &LayerSpec) -> DeltaOptions {
        let greatest = if self.negative_eigenvalues { 2.0 } else { 1.0 };
        let heads = HeadOptions::new(spec.heads, [spec.d_head(); 2], (self.norm, self.norm_epsilon), self.gate);
        DeltaOptions { heads: HeadOptions { taps: Some(self.taps), ..heads }, greatest, decay: false }
    }
}

impl Mechanism for DeltaNetConfig {
    type Module = AttentionOf<RecurrentAttention<GatedRecurrence<DeltaRule>>>;
    const NAME: &'static str = "delta-net";
    const CARD: Card = Card {
        variant: "DeltaNet",
        description: "Recurrent key-value memory with delta-rule updates, in decoders.",
        source: "Yang et al. 2024b, section 3",
        links: &["https://arxiv.org/abs/2406.06484", "https://github.com/fla-org/flash-linear-attention"],
        kind: Kind::Whole,
        time: "n d D",
        state: "d D + 3 w d",
        letters: &[gated_recurrence::TAPS],
        differences: &[gated_recurrence::DROPOUT],
        tensors: &[gated_recurrence::CONVOLUTION, delta_rule::STRENGTH, gated_recurrence::GAIN, gated_recurrence::GATE],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If `taps` is 0, or ε is not greater than 0 or has no effect.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one("taps", self.taps)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<DeltaRule>> {
        self.options(spec).init(spec, key, device)
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(delta_rule::formula(|spec| self.options(spec)))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let maps = if self.gate { 5 } else { 4 };
        Some(ParameterFormula::trained(&[(maps, "d^2"), (3, "w d"), (1, "d H")]).plus(self.norm.parameters(1, "D")))
    }

    fn letters(&self, _max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("w", self.taps)]
    }
}
