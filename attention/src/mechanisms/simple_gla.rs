//! Simple gated linear attention: the scalar decay of Mamba-2 (Dao and Gu 2024, section 3) in the layer of gated linear attention (Yang et al. 2024, section 4).
//!
//! `S_t = a_t S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(D)`: each head forgets all its channels at one rate, which the element decides,
//! `a_t = sigmoid(x_t w + b)^(1 / tau)` with `tau = 16`. Queries, keys and values pass through short convolutions and a SiLU. Heads are normalised and gated by
//! `swish(x W_G)` before the output projection.
//!
//! How far a change of each of 32 random elements moves the output of an untrained layer: rows are outputs, columns are elements.
//!
#![doc = include_str!("../../pictures/simple-gla.svg")]

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Device, Tensor};
use derive_setters::Setters;
use heedful_random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::contract::error::ConfigError;
use crate::contract::init;
use crate::contract::placement::{Placement, Role};
use crate::description::AnyAttention;
use crate::description::formula::{self, Formula, Query};
use crate::description::parameter_formula::ParameterFormula;
use crate::description::{Card, Kind, Mechanism};
use crate::engine::heads::split_heads;
use crate::engine::linear::linear;
use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::mechanisms::gated_norm::{self, GatedNorm, HeadNorm};
use crate::mechanisms::recurrent_attention::{Mixed, Mixer, PlainRecurrence, RecurrentAttention, Stretch, Widths, expanded, real};
use crate::mechanisms::short_convolution::{self, ShortConvolution};

/// What the released code adds to mean squares.
const EPSILON: f64 = 1e-5;

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
    /// Query projection `[C, H K]`.
    pub query: Linear,
    /// Key projection `[C, H K]`.
    pub key: Linear,
    /// Value projection `[C, H V]`.
    pub value: Linear,
    /// Convolutions of queries, keys and values, side by side.
    pub convolution: ShortConvolution,
    /// Map to rates, `[C, H]`, with a bias.
    pub rate: Linear,
    /// Normalisation of heads, and the gate.
    pub norm: GatedNorm,
    heads: usize,
    normaliser: f64,
}

impl SimpleGlaConfig {
    /// Widths of a head's keys and values.
    fn widths(&self, placement: &Placement) -> [usize; 2] {
        [self.key_expansion, self.value_expansion].map(|expansion| expanded(placement, expansion))
    }

    /// Initialises the attention.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> RecurrentAttention<SimpleGatedLinear> {
        let Placement { d_model, heads, .. } = *placement;
        let [key_width, value_width] = self.widths(placement);
        let linear = |name, outputs| init::linear(d_model, outputs, false, &key.named(name), device);
        let gate = self.gate.then(|| linear("gate", heads * value_width));
        let channels = heads * (2 * key_width + value_width);
        let mixer = SimpleGatedLinear {
            query: linear("query", heads * key_width),
            key: linear("key", heads * key_width),
            value: linear("value", heads * value_width),
            convolution: ShortConvolution::new(self.taps, channels, &key.named("convolution"), device),
            rate: init::linear(d_model, heads, true, &key.named("rate"), device),
            norm: GatedNorm::new(self.norm, value_width, gate, self.norm_epsilon.unwrap_or(EPSILON), &key.named("norm"), device),
            heads,
            normaliser: self.gate_normaliser,
        };
        RecurrentAttention::new(mixer, placement, key, device)
    }
}

impl Mixer for SimpleGatedLinear {
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed {
        let maps = [&self.query, &self.key, &self.value].map(|map| (map, self.heads));
        let [queries, keys, values] = self.convolution.projections(x, maps, stretch);
        let rates = split_heads(linear(x.clone(), &self.rate), self.heads);
        Recurrence {
            queries: queries * (self.widths().key as f64).powf(-0.5),
            keys,
            values,
            log_decay: Some(log_sigmoid(in_32_bits(rates)) / self.normaliser),
            strengths: None,
            normalised: false,
        }
        .into()
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3> {
        self.norm.forward(context, x)
    }

    fn widths(&self) -> Widths {
        let of = |map: &Linear| map.weight.shape()[1] / self.heads;
        Widths { key: of(&self.key), value: of(&self.value), channels_decay: false, delta: false }
    }
}

impl Mechanism for SimpleGlaConfig {
    const NAME: &'static str = "simple-gla";

    fn card() -> Card {
        Card {
            variant: "SimpleGla",
            description: "Keeps a sum of the past of which each head fades at a rate that elements decide, in decoders.",
            source: "Yang et al. 2024, section 4; Dao and Gu 2024, section 3",
            kind: Kind::Whole,
            cross: false,
            causal: true,
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
        }
    }

    fn can_see_ahead() -> bool {
        false
    }

    /// # Errors
    /// If a width is 0, there are no taps, or the root is not a positive number.
    fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        let check = placement.check(Self::NAME);
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

    fn attention(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention {
        AnyAttention::new(self.init(placement, key, device))
    }

    /// Dao and Gu 2024, section 3, with the gate of Yang et al. 2024, section 4, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(move |query: &Query| {
            let [key_width, value_width] = self.widths(query.placement());
            let heads = query.placement().heads;
            let (all, real) = (|| 0..query.keys(), real(query));
            let mixed = |map: &str, width: usize, first: usize| short_convolution::projection(query, map, query.head, width, first, &real);
            let log_rate = |index: usize| {
                let rate = query.mapped("mixer.rate", query.attended(index))[query.head];
                vec![formula::log_sigmoid(rate) / self.gate_normaliser; key_width]
            };
            let recurrence = PlainRecurrence {
                query: mixed("query", key_width, 0)[query.index].iter().map(|x| x / (key_width as f64).sqrt()).collect(),
                keys: mixed("key", key_width, heads * key_width),
                values: mixed("value", value_width, 2 * heads * key_width),
                log_decay: all().map(log_rate).collect(),
                strengths: None,
                real: real.clone(),
            };
            let epsilon = self.norm_epsilon.unwrap_or(EPSILON);
            gated_norm::formula(query, "mixer.norm", self.norm, self.gate, epsilon, recurrence.read(query))
        }))
    }

    fn tensors() -> &'static [(&'static str, &'static str)] {
        &[
            (
                "convolution.weight",
                "weights of the short convolutions of queries, keys and values, earliest element first [taps, channels]",
            ),
            ("rate.weight", "map to the rates at which heads fade [d_in, heads]"),
            ("rate.bias", "bias of that map [heads]"),
            ("norm.gamma", "gain of each channel of a head's values [d_value]"),
            ("norm.gate.weight", "projection to the gate [d_in, d_out]; heads lie side by side in d_out"),
        ]
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let of_values = if self.gate { 3 } else { 2 };
        let all = ParameterFormula::trained(&[(2, "d K"), (of_values, "d H v"), (2, "w K"), (1, "w H v"), (1, "d H"), (1, "H")]);
        Some(if self.norm == HeadNorm::RmsWithGain { all.plus(ParameterFormula::trained(&[(1, "v")])) } else { all })
    }

    fn letters_at(&self, placement: &Placement) -> Vec<(&'static str, usize)> {
        let [key_width, value_width] = self.widths(placement);
        vec![("K", placement.heads.max(1).saturating_mul(key_width)), ("v", value_width), ("w", self.taps)]
    }
}
