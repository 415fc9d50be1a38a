//! Gated linear attention (Yang et al. 2024, section 4).
//!
//! `S_t = diag(alpha_t) S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(K)`: linear attention with an input-dependent decay per key channel,
//! `alpha_t = sigmoid(x_t W_1 W_2 + b)^(1 / tau)`. The decay map is of low rank, and `tau = 16` keeps decays near 1. Head outputs are normalised and gated by
//! `swish(x W_G)` before the output projection. By default keys are half as wide as values.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/gla.svg")]

use burn::tensor::activation::log_sigmoid;

use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence::{self, GatedRecurrence, HeadOptions, Rule};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{PlainRecurrence, RecurrentAttention, expanded};

/// Configuration of [`GatedLinear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct GlaConfig {
    /// Width of a head's queries and keys as a multiple of the head width, rounded up (default: 0.5).
    pub key_expansion: f64,
    /// Width of a head's values as a multiple of the head width, rounded up (default: 1).
    pub value_expansion: f64,
    /// Rank of the decay map, at least 1 (default: 16).
    pub gate_rank: usize,
    /// Exponent denominator `tau` of the decays (default: 16).
    pub gate_normaliser: f64,
    /// Normalisation of the head outputs (default: root mean square with a gain, as in the released code).
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether a gate precedes the output projection (default: yes).
    pub gate: bool,
}

impl Default for GlaConfig {
    fn default() -> Self {
        Self {
            key_expansion: 0.5,
            value_expansion: 1.0,
            gate_rank: 16,
            gate_normaliser: 16.0,
            norm: HeadNorm::RmsWithGain,
            norm_epsilon: None,
            gate: true,
        }
    }
}

/// Recurrent state with input-dependent decay per key channel.
///
/// Should be created with [`GlaConfig`].
#[derive(Module, Debug)]
pub struct GatedLinear {
    /// First factor of the decay map, `[C, rank]`.
    pub rate_in: Linear,
    /// Second factor of the decay map, `[rank, H K]`, with a bias.
    pub rate_out: Linear,
    normaliser: f64,
}

impl GlaConfig {
    fn heads(&self, spec: &LayerSpec) -> HeadOptions {
        let widths = [self.key_expansion, self.value_expansion].map(|expansion| expanded(spec, expansion));
        HeadOptions::new(spec.heads, widths, (self.norm, self.norm_epsilon), self.gate)
    }
}

/// Difference of the decay map from released code.
pub(super) const RATE_BIAS: &str =
    "The bias of the decay map starts at 0, as in whole models of the released code; its bare layer draws the bias uniformly.";

/// Recurrence of heads with decays, given as logits `[B, H, N, K]` or `[B, H, N, 1]`; the exponent of the decays is `1 / normaliser`.
pub(super) fn fading([queries, keys, values]: [Tensor<4>; 3], rates: Tensor<4>, normaliser: f64) -> Recurrence {
    let width = queries.dims()[3];
    Recurrence {
        queries: queries * (width as f64).powf(-0.5),
        keys,
        values,
        log_decay: Some(log_sigmoid(in_32_bits(rates)) / normaliser),
        strengths: None,
        normalised: false,
    }
}

/// The same in the formula; `rates` returns the decay logits of a key's channels from its index and the number of channels.
pub(super) fn plain_fading(
    query: &Query,
    heads: PlainRecurrence,
    normaliser: f64,
    rates: impl Fn(usize, usize) -> Vec<f64>,
) -> PlainRecurrence {
    let width = heads.query.len();
    let log_decay = |index| rates(index, width).into_iter().map(|rate| formula::log_sigmoid(rate) / normaliser).collect();
    PlainRecurrence {
        query: heads.query.iter().map(|x| x / (width as f64).sqrt()).collect(),
        log_decay: (0..query.keys()).map(log_decay).collect(),
        ..heads
    }
}

impl Rule for GatedLinear {
    const CHANNELS_DECAY: bool = true;

    fn recurrence(&self, heads: [Tensor<4>; 3], x: &Tensor<3>, _: usize) -> Recurrence {
        let rates = linear(linear(x.clone(), &self.rate_in), &self.rate_out);
        let rates = split_heads(rates, heads[0].dims()[1]);
        fading(heads, rates, self.normaliser)
    }
}

impl Mechanism for GlaConfig {
    type Module = AttentionOf<RecurrentAttention<GatedRecurrence<GatedLinear>>>;
    const NAME: &'static str = "gla";
    const CARD: Card = Card {
        variant: "Gla",
        description: "Recurrent state with input-dependent decay per channel, in decoders.",
        source: "Yang et al. 2024, section 4",
        links: &[
            "https://arxiv.org/abs/2312.06635",
            "https://github.com/berlino/gated_linear_attention",
            "https://github.com/fla-org/flash-linear-attention",
        ],
        kind: Kind::Whole,
        time: "n K v",
        state: "K v",
        letters: &[gated_recurrence::KEYS, gated_recurrence::VALUES, ("u", "rank of the map to rates, option `gate_rank`")],
        differences: &[
            RATE_BIAS,
            "Projections start Xavier-uniform with gain 1; the authors' code has gain `2^-2.5`, flash-linear-attention a normal distribution of deviation 0.02.",
            gated_recurrence::DROPOUT,
        ],
        tensors: &[
            ("rate_in.weight", "first factor of the map to the decays of key channels [d_in, rank]"),
            ("rate_out.weight", "second factor of that map [rank, d_out]; heads lie side by side in d_out"),
            ("rate_out.bias", "bias of that map [d_out]"),
            gated_recurrence::GAIN,
            gated_recurrence::GATE,
        ],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a width or the rank is 0, or `gate_normaliser` is not a positive number.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.positive("key_expansion", self.key_expansion)?;
        check.positive("value_expansion", self.value_expansion)?;
        check.positive("gate_normaliser", self.gate_normaliser)?;
        check.at_least_one("gate_rank", self.gate_rank)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<GatedLinear>> {
        let heads = self.heads(spec);
        let rule = GatedLinear {
            rate_in: init::linear(spec.d_model, self.gate_rank, false, &key.named("rate_in"), device),
            rate_out: init::linear(self.gate_rank, heads.key_heads * heads.key_width, true, &key.named("rate_out"), device),
            normaliser: self.gate_normaliser,
        };
        heads.around(rule, spec, key, device)
    }

    /// Yang et al. 2024, sections 4.2 and 4.4, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        let rates = |query: &Query, index| query.mapped("mixer.rate_out", &query.mapped("mixer.rate_in", query.attended(index)));
        let rule = move |query: &Query, heads| {
            let own = |index, width| rates(query, index)[query.head * width..(query.head + 1) * width].to_vec();
            plain_fading(query, heads, self.gate_normaliser, own)
        };
        Some(gated_recurrence::formula(|spec| self.heads(spec), rule))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(gated_recurrence::parameters(self.norm, self.gate, &[(1, "d u"), (1, "u K"), (1, "K")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.heads(spec).letters().into_iter().chain([("u", self.gate_rank)]).collect()
    }
}
