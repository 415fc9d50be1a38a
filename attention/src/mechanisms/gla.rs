//! Gated linear attention (Yang et al. 2024, section 4).
//!
//! `S_t = diag(alpha_t) S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(K)`: each channel of the keys forgets at its own rate, which the element decides,
//! `alpha_t = sigmoid(x_t W_1 W_2 + b)^(1 / tau)`. The map to the rates has a low rank, and `tau = 16` keeps rates near 1. Heads are normalised and gated by
//! `swish(x W_G)` before the output projection. Keys are half as wide as values.
//!
//! How far a change of each of 32 random elements moves the output of an untrained layer: rows are outputs, columns are elements.
//!
#![doc = include_str!("../../pictures/gla.svg")]

use burn::tensor::activation::log_sigmoid;

use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::mechanisms::gated_mixer;
use crate::mechanisms::gated_mixer::{GatedMixer, HeadOptions, Rule};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{PlainRecurrence, RecurrentAttention, expanded};

/// Configuration of [`GatedLinear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct GlaConfig {
    /// Width of a head's queries and keys in widths of the head, rounded up (default: 0.5).
    pub key_expansion: f64,
    /// Width of a head's values in widths of the head, rounded up (default: 1).
    pub value_expansion: f64,
    /// Rank of the map from elements to rates, at least 1 (default: 16).
    pub gate_rank: usize,
    /// Root that is taken of the rates, `tau` (default: 16).
    pub gate_normaliser: f64,
    /// How heads are normalised (default: root mean square with a gain, as in the released code).
    pub norm: HeadNorm,
    /// What the norm of heads adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code).
    // Left out where it has its default, so that configurations of earlier runs stay what they are.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether there is a gate before the output projection (default: yes).
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

/// A state whose channels forget at rates that elements decide.
///
/// Should be created with [`GlaConfig`].
#[derive(Module, Debug)]
pub struct GatedLinear {
    /// First part of the map to rates, `[C, rank]`.
    pub rate_in: Linear,
    /// Second part of the map to rates, `[rank, H K]`, with a bias.
    pub rate_out: Linear,
    normaliser: f64,
}

impl GlaConfig {
    fn heads(&self, spec: &LayerSpec) -> HeadOptions {
        let [key_width, value_width] = [self.key_expansion, self.value_expansion].map(|expansion| expanded(spec, expansion));
        let (norm, epsilon) = (self.norm, self.norm_epsilon.unwrap_or(gated_mixer::EPSILON));
        HeadOptions { key_heads: spec.heads, key_width, value_width, taps: None, norm, epsilon, gate: self.gate }
    }

    /// Initialises the attention.
    pub fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedMixer<GatedLinear>> {
        let heads = self.heads(spec);
        let rule = GatedLinear {
            rate_in: init::linear(spec.d_model, self.gate_rank, false, &key.named("rate_in"), device),
            rate_out: init::linear(self.gate_rank, heads.key_heads * heads.key_width, true, &key.named("rate_out"), device),
            normaliser: self.gate_normaliser,
        };
        heads.around(rule, spec, key, device)
    }
}

impl Rule for GatedLinear {
    const CHANNELS_DECAY: bool = true;

    fn recurrence(&self, [queries, keys, values]: [Tensor<4>; 3], x: &Tensor<3>, _: usize) -> Recurrence {
        let [_, heads, _, width] = queries.dims();
        let rates = linear(linear(x.clone(), &self.rate_in), &self.rate_out);
        Recurrence {
            queries: queries * (width as f64).powf(-0.5),
            keys,
            values,
            log_decay: Some(log_sigmoid(in_32_bits(split_heads(rates, heads))) / self.normaliser),
            strengths: None,
            normalised: false,
        }
    }
}

impl Mechanism for GlaConfig {
    const NAME: &'static str = "gla";
    const CARD: Card = Card {
        variant: "Gla",
        description: "Keeps a sum of the past of which each channel fades at a rate that elements decide, in decoders.",
        source: "Yang et al. 2024, section 4",
        kind: Kind::Whole,
        time: "n K v",
        state: "K v",
        letters: &[
            ("K", "width of the keys of all heads"),
            ("v", "width of the values of a head"),
            ("u", "rank of the map to rates, option `gate_rank`"),
        ],
        differences: &[
            "The bias of the map to rates begins with 0; that of the released code is uniform.",
            "Dropout drops numbers of the heads' outputs; the released code has none there.",
        ],
        tensors: &[
            ("rate_in.weight", "first part of the map to the rates at which channels of keys fade [d_in, rank]"),
            ("rate_out.weight", "second part of that map [rank, d_out]; heads lie side by side in d_out"),
            ("rate_out.bias", "bias of that map [d_out]"),
            gated_mixer::GAIN,
            gated_mixer::GATE,
        ],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a width or the rank is 0, or the root is not a positive number.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        let Self { key_expansion, value_expansion, gate_normaliser, .. } = *self;
        for (option, value) in
            [("key_expansion", key_expansion), ("value_expansion", value_expansion), ("gate_normaliser", gate_normaliser)]
        {
            check.positive(option, value)?;
        }
        check.at_least_one("gate_rank", self.gate_rank)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn attention(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        AnyAttention::new(self.init(spec, key, device))
    }

    /// Yang et al. 2024, section 4.2 and 4.4, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        let log_rate = |rate: f64| formula::log_sigmoid(rate) / self.gate_normaliser;
        Some(gated_mixer::formula(
            |spec| self.heads(spec),
            move |query, heads| {
                let width = heads.query.len();
                let rates = |index| query.mapped("mixer.rate_out", &query.mapped("mixer.rate_in", query.attended(index)));
                let own = |rates: Vec<f64>| rates[query.head * width..(query.head + 1) * width].iter().copied().map(log_rate).collect();
                PlainRecurrence {
                    query: heads.query.iter().map(|x| x / (width as f64).sqrt()).collect(),
                    log_decay: (0..query.keys()).map(|index| own(rates(index))).collect(),
                    ..heads
                }
            },
        ))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(gated_mixer::parameters(self.norm, self.gate, &[(1, "d u"), (1, "u K"), (1, "K")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.heads(spec).letters().into_iter().chain([("u", self.gate_rank)]).collect()
    }
}
