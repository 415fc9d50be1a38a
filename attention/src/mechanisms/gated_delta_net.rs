//! Gated DeltaNet (Yang et al. 2025, section 3).
//!
//! `S_t = S' + b_t k_t (v_t - S'^T k_t)^T`, `S' = a_t S_(t-1)`: the delta rule replaces the value stored under a key, and an input-dependent decay `a_t` per
//! head forgets the rest. The decay is that of Mamba-2, `a_t = exp(-exp(a_log) softplus(x_t W + b))`. By default keys are three quarters as wide as a head, and
//! values twice as wide as keys. Head outputs are normalised and gated. Several value heads can share the queries and keys of one head, as in Qwen3-Next (Qwen
//! Team 2025), which also uses a different epsilon: `key_heads`, `norm_epsilon`.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/gated-delta-net.svg")]

use crate::mechanisms::delta_rule::{DeltaOptions, DeltaRule};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence::{GatedRecurrence, HeadOptions};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{RecurrentAttention, expanded};
use crate::mechanisms::{delta_rule, gated_recurrence};

/// Configuration of Gated DeltaNet, a [`DeltaRule`] with decay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct GatedDeltaNetConfig {
    /// Width of a head's queries and keys as a multiple of the head width, rounded up (default: 0.75).
    pub key_expansion: f64,
    /// Width of a head's values as a multiple of the key width, at least 1 (default: 2).
    pub value_expansion: usize,
    /// Heads of queries and keys, a divisor of the number of heads; neighbouring value heads share one (default: all heads; Qwen3-Next: 16 for 32).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_heads: Option<usize>,
    /// Taps of the short convolutions, at least 1 (default: 4).
    pub taps: usize,
    /// Whether write strengths lie in [0, 2] instead of [0, 1], so that the state can change its sign along a key (Grazzi et al. 2025; default: no).
    pub negative_eigenvalues: bool,
    /// Normalisation of the head outputs (default: root mean square with a gain).
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code; Qwen3-Next has 1e-6).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether a gate precedes the output projection (default: yes).
    pub gate: bool,
}

impl Default for GatedDeltaNetConfig {
    fn default() -> Self {
        Self {
            key_expansion: 0.75,
            value_expansion: 2,
            key_heads: None,
            taps: 4,
            negative_eigenvalues: false,
            norm: HeadNorm::RmsWithGain,
            norm_epsilon: None,
            gate: true,
        }
    }
}

impl GatedDeltaNetConfig {
    fn options(&self, spec: &LayerSpec) -> DeltaOptions {
        let key_width = expanded(spec, self.key_expansion);
        let value_width = key_width.saturating_mul(self.value_expansion);
        let greatest = if self.negative_eigenvalues { 2.0 } else { 1.0 };
        let key_heads = self.key_heads.unwrap_or(spec.heads);
        let heads = HeadOptions::new(key_heads, [key_width, value_width], (self.norm, self.norm_epsilon), self.gate);
        DeltaOptions { heads: HeadOptions { taps: Some(self.taps), ..heads }, greatest, decay: true }
    }
}

impl Mechanism for GatedDeltaNetConfig {
    type Module = AttentionOf<RecurrentAttention<GatedRecurrence<DeltaRule>>>;
    const NAME: &'static str = "gated-delta-net";
    const CARD: Card = Card {
        variant: "GatedDeltaNet",
        description: "Recurrent key-value memory with delta-rule updates and input-dependent decay, in decoders.",
        source: "Yang et al. 2025, section 3",
        links: &["https://arxiv.org/abs/2412.06464", "https://github.com/NVlabs/GatedDeltaNet"],
        kind: Kind::Whole,
        time: "n K v",
        state: "K v + 2 w K + w H v",
        letters: &[gated_recurrence::KEYS, gated_recurrence::VALUES, gated_recurrence::TAPS],
        differences: &["Strengths have no bias, as in flash-linear-attention; the authors' code has one.", gated_recurrence::DROPOUT],
        tensors: &[
            gated_recurrence::CONVOLUTION,
            delta_rule::STRENGTH,
            gated_recurrence::GAIN,
            gated_recurrence::GATE,
            ("decay.a_log", "logarithm of the rate of each head's decay [heads]"),
            ("decay.step.weight", "map to the step sizes of decays [d_in, heads]"),
            ("decay.step.bias", "bias of the step sizes of decays [heads]"),
        ],
        without_decay: &[r"\.a_log$"],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If keys or values have no channels, `taps` is 0, key heads do not divide the heads, or ε is not greater than 0 or has no effect.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.positive("key_expansion", self.key_expansion)?;
        check.at_least_one("value_expansion", self.value_expansion)?;
        check.at_least_one("taps", self.taps)?;
        check.at_least_one_if_given("key_heads", self.key_heads)?;
        if let Some(heads) = self.key_heads.filter(|&heads| !spec.heads.is_multiple_of(heads)) {
            return Err(check.refuse("key_heads", heads, format!("give a divisor of heads = {}", spec.heads)));
        }
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
        Some(gated_recurrence::parameters(self.norm, self.gate, &[(2, "w K"), (1, "w H v"), (2, "d H"), (2, "H")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.options(spec).heads.letters()
    }
}
