//! What the mechanisms share that write by the delta rule (Schlag et al. 2021; Yang et al. 2024b; Yang et al. 2025).
//!
//! `S_t = S' + b_t k_t (v_t - S'^T k_t)^T`, `S' = a_t S_(t-1)`, `o_t = S_t^T q_t / sqrt(K)`: what the state holds for a key is replaced by the new value, to the
//! part `b_t = sigmoid(x_t w)`. Queries, keys and values pass through short convolutions and a SiLU, and queries and keys have length 1: with longer keys the
//! state would grow without bound.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};
use heedful_random::RandomKey;

use crate::contract::init;
use crate::contract::placement::Placement;
use crate::description::formula::{Formula, Query, sigmoid as plain_sigmoid, softplus as plain_softplus};
use crate::engine::heads::{repeat_heads, split_heads};
use crate::engine::linear::linear;
use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::engine::row_norm::{RowNorm, Scale};
use crate::mechanisms::gated_norm::{self, GatedNorm, HeadNorm};
use crate::mechanisms::recurrent_attention::{Mixed, Mixer, PlainRecurrence, RecurrentAttention, Stretch, Widths, real};
use crate::mechanisms::selective_decay::SelectiveDecay;
use crate::mechanisms::short_convolution::{self, ShortConvolution};

/// What the released code adds to mean squares unless an option says otherwise.
pub(super) const EPSILON: f64 = 1e-5;

/// What the released code adds to the square of a length.
const LENGTH_EPSILON: f64 = 1e-6;

/// Options and sizes of a state that the delta rule writes.
#[derive(Clone, Copy, Debug)]
pub struct DeltaOptions {
    /// Heads of queries and keys, a divisor of the heads of values: neighbouring heads of values share one.
    pub key_heads: usize,
    /// Width of a head's queries and keys.
    pub key_width: usize,
    /// Width of a head's values.
    pub value_width: usize,
    /// Taps of the short convolutions, at least 1.
    pub taps: usize,
    /// Greatest part of what a key held that is replaced, 1 or 2: beyond 1 the state can change its sign along a key.
    pub greatest: f64,
    /// How heads are normalised.
    pub norm: HeadNorm,
    /// What the norm of heads adds to mean squares or variances.
    pub epsilon: f64,
    /// Whether there is a gate before the output projection.
    pub gate: bool,
    /// Whether the state decays.
    pub decay: bool,
}

/// A state that is overwritten by the delta rule.
#[derive(Module, Debug)]
pub struct DeltaRule {
    /// Query projection `[C, G K]`, of `G` heads of keys.
    pub query: Linear,
    /// Key projection `[C, G K]`.
    pub key: Linear,
    /// Value projection `[C, H V]`.
    pub value: Linear,
    /// Convolutions of queries, keys and values, side by side.
    pub convolution: ShortConvolution,
    /// Map to write strengths, `[C, H]`.
    pub strength: Linear,
    /// What is kept of the state; all of it if absent.
    pub decay: Option<SelectiveDecay>,
    /// Normalisation of heads, and the gate.
    pub norm: GatedNorm,
    heads: usize,
    key_heads: usize,
    greatest: f64,
}

impl DeltaRule {
    /// Puts projections without biases, convolutions, normalisation and gate around the rule.
    pub fn attention(options: DeltaOptions, placement: &Placement, key: &RandomKey, device: &Device) -> RecurrentAttention<Self> {
        let DeltaOptions { key_heads, key_width, value_width, taps, greatest, norm, epsilon, gate, decay } = options;
        let Placement { d_model, heads, .. } = *placement;
        let linear = |name, outputs| init::linear(d_model, outputs, false, &key.named(name), device);
        let gate = gate.then(|| linear("gate", heads * value_width));
        let channels = 2 * key_heads * key_width + heads * value_width;
        let mixer = Self {
            query: linear("query", key_heads * key_width),
            key: linear("key", key_heads * key_width),
            value: linear("value", heads * value_width),
            convolution: ShortConvolution::new(taps, channels, &key.named("convolution"), device),
            strength: linear("strength", heads),
            decay: decay.then(|| SelectiveDecay::new(0.0, placement, &key.named("decay"), device)),
            norm: GatedNorm::new(norm, value_width, gate, epsilon, &key.named("norm"), device),
            heads,
            key_heads,
            greatest,
        };
        RecurrentAttention::new(mixer, placement, key, device)
    }
}

/// `[B, H, N, K]` with length `length` over the last dimension; 0 stays 0.
fn of_length(length: f64, x: Tensor<4>) -> Tensor<4> {
    let scale = Scale { averages: false, epsilon: LENGTH_EPSILON, factor: length };
    RowNorm { x: in_32_bits(x), scale, gain: None, gate: None }.execute()
}

impl Mixer for DeltaRule {
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed {
        let maps = [(&self.query, self.key_heads), (&self.key, self.key_heads), (&self.value, self.heads)];
        let [queries, keys, values] = self.convolution.projections(x, maps, stretch);
        let strengths = sigmoid(split_heads(linear(x.clone(), &self.strength), self.heads));
        Recurrence {
            queries: repeat_heads(of_length((self.widths().key as f64).powf(-0.5), queries), self.heads),
            keys: repeat_heads(of_length(1.0, keys), self.heads),
            values,
            log_decay: self.decay.as_ref().map(|decay| decay.log_decay(decay.steps(x.clone()))),
            strengths: Some(if self.greatest == 1.0 { strengths } else { strengths * self.greatest }),
            normalised: false,
        }
        .into()
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3> {
        self.norm.forward(context, x)
    }

    fn widths(&self) -> Widths {
        let of = |map: &Linear, heads: usize| map.weight.shape()[1] / heads;
        Widths { key: of(&self.key, self.key_heads), value: of(&self.value, self.heads), channels_decay: false, delta: true }
    }
}

/// What the parameters mean, by the end of their paths.
pub(super) const TENSORS: &[(&str, &str)] = &[
    ("convolution.weight", "weights of the short convolutions of queries, keys and values, earliest element first [taps, channels]"),
    ("strength.weight", "map to the strengths of writing [d_in, heads]"),
    ("norm.gamma", "gain of each channel of a head's values [d_value]"),
    ("norm.gate.weight", "projection to the gate [d_in, d_out]; heads lie side by side in d_out"),
];

/// Yang et al. 2024b, equations 1 to 3, and Yang et al. 2025, equation 10, pair by pair.
pub(super) fn formula<'a>(options: impl Fn(&Placement) -> DeltaOptions + 'a) -> Formula<'a> {
    Formula::default().head(move |query: &Query| {
        let DeltaOptions { key_heads, key_width, value_width, greatest, norm, epsilon, gate, decay, .. } = options(query.placement());
        // Neighbouring heads share a key.
        let key_head = query.head / (query.placement().heads / key_heads);
        let (all, real) = (|| 0..query.keys(), real(query));
        let mixed =
            |map: &str, head: usize, width: usize, first: usize| short_convolution::projection(query, map, head, width, first, &real);
        let unit = |x: &Vec<f64>| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + LENGTH_EPSILON).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let of_head = |map: &str, index: usize| query.mapped(map, query.attended(index))[query.head];
        let log_decay = |index: usize| {
            if !decay {
                return vec![0.0; key_width];
            }
            let step = plain_softplus(of_head("mixer.decay.step", index));
            vec![-query.parameter("mixer.decay.a_log").values[query.head].exp() * step; key_width]
        };
        let asked = &mixed("query", key_head, key_width, 0)[query.index];
        let recurrence = PlainRecurrence {
            query: unit(asked).iter().map(|x| x / (key_width as f64).sqrt()).collect(),
            keys: mixed("key", key_head, key_width, key_heads * key_width).iter().map(unit).collect(),
            values: mixed("value", query.head, value_width, 2 * key_heads * key_width),
            log_decay: all().map(log_decay).collect(),
            strengths: Some(all().map(|index| greatest * plain_sigmoid(of_head("mixer.strength", index))).collect()),
            real: real.clone(),
        };
        gated_norm::formula(query, "mixer.norm", norm, gate, epsilon, recurrence.read(query))
    })
}
