//! Simple gated linear attention: the scalar decay of Mamba-2 (Dao and Gu 2024, section 3) in the layer of gated linear attention (Yang et al. 2024, section 4).
//!
//! `S_t = a_t S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(D)`: each head forgets all its channels at one rate, which the element decides,
//! `a_t = sigmoid(x_t w + b)^(1 / tau)` with `tau = 16`. Queries, keys and values pass through short convolutions and a SiLU. Heads are normalised and gated by
//! `swish(x W_G)` before the output projection.
//!
//! How far a change of each of 32 random elements moves the output of an untrained layer: rows are outputs, columns are elements.
//!
#![doc = include_str!("../../pictures/simple-gla.svg")]

use burn::tensor::activation::log_sigmoid;

use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::mechanisms::gated_mixer;
use crate::mechanisms::gated_mixer::{GatedMixer, HeadOptions, Rule};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{PlainRecurrence, RecurrentAttention, expanded};

/// Configuration of [`SimpleGatedLinear`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SimpleGlaConfig {
    /// Width of a head's queries and keys in widths of the head, rounded up (default: 1).
    pub key_expansion: f64,
    /// Width of a head's values in widths of the head, rounded up (default: 1).
    pub value_expansion: f64,
    /// Taps of the short convolutions, at least 1 (default: 4).
    pub taps: usize,
    /// Root that is taken of the rates, `tau` (default: 16).
    pub gate_normaliser: f64,
    /// How heads are normalised (default: root mean square with a gain).
    pub norm: HeadNorm,
    /// What the norm of heads adds to mean squares or variances, greater than 0 (default: 1e-5, as in the released code).
    // Left out where it has its default, so that configurations of earlier runs stay what they are.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether there is a gate before the output projection (default: yes).
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

/// A state whose heads forget at rates that elements decide.
///
/// Should be created with [`SimpleGlaConfig`].
#[derive(Module, Debug)]
pub struct SimpleGatedLinear {
    /// Map to rates, `[C, H]`, with a bias.
    pub rate: Linear,
    normaliser: f64,
}

impl SimpleGlaConfig {
    fn heads(&self, spec: &LayerSpec) -> HeadOptions {
        let [key_width, value_width] = [self.key_expansion, self.value_expansion].map(|expansion| expanded(spec, expansion));
        let (norm, epsilon) = (self.norm, self.norm_epsilon.unwrap_or(gated_mixer::EPSILON));
        HeadOptions { key_heads: spec.heads, key_width, value_width, taps: Some(self.taps), norm, epsilon, gate: self.gate }
    }

    /// Initialises the attention.
    pub fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedMixer<SimpleGatedLinear>> {
        let rate = init::linear(spec.d_model, spec.heads, true, &key.named("rate"), device);
        let rule = SimpleGatedLinear { rate, normaliser: self.gate_normaliser };
        self.heads(spec).around(rule, spec, key, device)
    }
}

impl Rule for SimpleGatedLinear {
    fn recurrence(&self, [queries, keys, values]: [Tensor<4>; 3], x: &Tensor<3>, _: usize) -> Recurrence {
        let [_, heads, _, width] = queries.dims();
        let rates = split_heads(linear(x.clone(), &self.rate), heads);
        Recurrence {
            queries: queries * (width as f64).powf(-0.5),
            keys,
            values,
            log_decay: Some(log_sigmoid(in_32_bits(rates)) / self.normaliser),
            strengths: None,
            normalised: false,
        }
    }
}

impl Mechanism for SimpleGlaConfig {
    const NAME: &'static str = "simple-gla";
    const CARD: Card = Card {
        variant: "SimpleGla",
        description: "Keeps a sum of the past of which each head fades at a rate that elements decide, in decoders.",
        source: "Yang et al. 2024, section 4; Dao and Gu 2024, section 3",
        kind: Kind::Whole,
        time: "n K v",
        state: "K v + 2 w K + w H v",
        letters: &[
            ("K", "width of the keys of all heads"),
            ("v", "width of the values of a head"),
            ("w", "taps of short convolutions, option `taps`"),
        ],
        differences: &[
            "The bias of the map to rates begins with 0; that of the released code is uniform.",
            "Dropout drops numbers of the heads' outputs; the released code has none there.",
        ],
        tensors: &[
            gated_mixer::CONVOLUTION,
            ("rate.weight", "map to the rates at which heads fade [d_in, heads]"),
            ("rate.bias", "bias of that map [heads]"),
            gated_mixer::GAIN,
            gated_mixer::GATE,
        ],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a width is 0, there are no taps, or the root is not a positive number.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        let Self { key_expansion, value_expansion, gate_normaliser, .. } = *self;
        for (option, value) in
            [("key_expansion", key_expansion), ("value_expansion", value_expansion), ("gate_normaliser", gate_normaliser)]
        {
            check.positive(option, value)?;
        }
        check.at_least_one("taps", self.taps)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn attention(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        AnyAttention::new(self.init(spec, key, device))
    }

    /// Dao and Gu 2024, section 3, with the gate of Yang et al. 2024, section 4, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        let log_rate = |rate: f64| formula::log_sigmoid(rate) / self.gate_normaliser;
        Some(gated_mixer::formula(
            |spec| self.heads(spec),
            move |query, heads| {
                let width = heads.query.len();
                let rate = |index| query.mapped("mixer.rate", query.attended(index))[query.head];
                PlainRecurrence {
                    query: heads.query.iter().map(|x| x / (width as f64).sqrt()).collect(),
                    log_decay: (0..query.keys()).map(|index| vec![log_rate(rate(index)); width]).collect(),
                    ..heads
                }
            },
        ))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(gated_mixer::parameters(self.norm, self.gate, &[(2, "w K"), (1, "w H v"), (1, "d H"), (1, "H")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.heads(spec).letters()
    }
}
