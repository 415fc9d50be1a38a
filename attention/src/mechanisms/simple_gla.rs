//! Simple gated linear attention: the scalar decay of Mamba-2 (Dao and Gu 2024, section 3) in the layer of gated linear attention (Yang et al. 2024, section 4).
//!
//! `S_t = a_t S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(D)`: linear attention with an input-dependent scalar decay per head,
//! `a_t = sigmoid(x_t w + b)^(1 / tau)` with `tau = 16`. Queries, keys and values pass through short convolutions and a SiLU. Head outputs are normalised and
//! gated by `swish(x W_G)` before the output projection.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/simple-gla.svg")]

use crate::engine::recurrence::Recurrence;
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence::{self, GatedRecurrence, HeadOptions, Rule};
use crate::mechanisms::gla;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{RecurrentAttention, expanded};

/// Configuration of [`SimpleGatedLinear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SimpleGlaConfig {
    /// Width of a head's queries and keys as a multiple of the head width, rounded up (default: 1).
    pub key_expansion: f64,
    /// Width of a head's values as a multiple of the head width, rounded up (default: 1).
    pub value_expansion: f64,
    /// Taps of the short convolutions, at least 1 (default: 4).
    pub taps: usize,
    /// Exponent denominator `tau` of the decays (default: 16).
    pub gate_normaliser: f64,
    /// Normalisation of the head outputs (default: root mean square with a gain).
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether a gate precedes the output projection (default: yes).
    pub gate: bool,
}

impl Default for SimpleGlaConfig {
    fn default() -> Self {
        Self {
            key_expansion: 1.0,
            value_expansion: 1.0,
            taps: 4,
            gate_normaliser: 16.0,
            norm: HeadNorm::RmsWithGain,
            norm_epsilon: None,
            gate: true,
        }
    }
}

/// Recurrent state with input-dependent decay per head.
///
/// Should be created with [`SimpleGlaConfig`].
#[derive(Module, Debug)]
pub struct SimpleGatedLinear {
    /// Decay map, `[C, H]`, with a bias.
    pub rate: Linear,
    normaliser: f64,
}

impl SimpleGlaConfig {
    fn heads(&self, spec: &LayerSpec) -> HeadOptions {
        let widths = [self.key_expansion, self.value_expansion].map(|expansion| expanded(spec, expansion));
        HeadOptions { taps: Some(self.taps), ..HeadOptions::new(spec.heads, widths, (self.norm, self.norm_epsilon), self.gate) }
    }
}

impl Rule for SimpleGatedLinear {
    fn recurrence(&self, heads: [Tensor<4>; 3], x: &Tensor<3>, _: usize) -> Recurrence {
        let rates = split_heads(linear(x.clone(), &self.rate), heads[0].dims()[1]);
        gla::fading(heads, rates, self.normaliser)
    }
}

impl Mechanism for SimpleGlaConfig {
    type Module = AttentionOf<RecurrentAttention<GatedRecurrence<SimpleGatedLinear>>>;
    const NAME: &'static str = "simple-gla";
    const CARD: Card = Card {
        variant: "SimpleGla",
        description: "Recurrent state with input-dependent decay per head, in decoders.",
        source: "Yang et al. 2024, section 4; Dao and Gu 2024, section 3",
        links: &[
            "https://arxiv.org/abs/2312.06635",
            "https://arxiv.org/abs/2405.21060",
            "https://github.com/fla-org/flash-linear-attention",
            "https://github.com/state-spaces/mamba",
        ],
        kind: Kind::Whole,
        time: "n K v",
        state: "K v + 2 w K + w H v",
        letters: &[gated_recurrence::KEYS, gated_recurrence::VALUES, gated_recurrence::TAPS],
        differences: &[gla::RATE_BIAS, gated_recurrence::DROPOUT],
        tensors: &[
            gated_recurrence::CONVOLUTION,
            ("rate.weight", "map to the decays of heads [d_in, heads]"),
            ("rate.bias", "bias of that map [heads]"),
            gated_recurrence::GAIN,
            gated_recurrence::GATE,
        ],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a width or `taps` is 0, or `gate_normaliser` is not a positive number.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.positive("key_expansion", self.key_expansion)?;
        check.positive("value_expansion", self.value_expansion)?;
        check.positive("gate_normaliser", self.gate_normaliser)?;
        check.at_least_one("taps", self.taps)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<SimpleGatedLinear>> {
        let rate = init::linear(spec.d_model, spec.heads, true, &key.named("rate"), device);
        let rule = SimpleGatedLinear { rate, normaliser: self.gate_normaliser };
        self.heads(spec).around(rule, spec, key, device)
    }

    /// Dao and Gu 2024, section 3, with the gate of Yang et al. 2024, section 4, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        let rate = |query: &Query, index| query.mapped("mixer.rate", query.attended(index))[query.head];
        let rule = move |query: &Query, heads| {
            gla::plain_fading(query, heads, self.gate_normaliser, |index, width| vec![rate(query, index); width])
        };
        Some(gated_recurrence::formula(|spec| self.heads(spec), rule))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(gated_recurrence::parameters(self.norm, self.gate, &[(2, "w K"), (1, "w H v"), (1, "d H"), (1, "H")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.heads(spec).letters()
    }
}
