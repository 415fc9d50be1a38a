//! Mamba-2's state-space layer (Dao and Gu 2024, sections 3 and 7).
//!
//! `S_t = exp(-exp(a_log) dt_t) S_(t-1) + b_t (dt_t x_t)^T`, `y_t = S_t^T c_t + D x_t`: a linear recurrence with an input-dependent scalar decay and step size
//! `dt_t = softplus(x_t W + b)` per head. The heads of a group share the keys `b` and queries `c`; by default all heads form one group. Inputs `x`, keys and
//! queries pass through a short convolution and a SiLU. `y` is gated by `silu(z)`, and the gated output is normalised over all heads of a group.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/mamba-2.svg")]

use burn::tensor::activation::silu;
use serde::Deserializer;

use crate::description::formula::{sigmoid, softplus};
use crate::engine::heads::repeat_heads;
use crate::engine::recurrence::{Recurrence, in_32_bits};
use crate::engine::row_norm::{RowNorm, Scale};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{Mixed, Mixer, PlainRecurrence, RecurrentAttention, Stretch, Widths, real};
use crate::mechanisms::selective_decay::SelectiveDecay;
use crate::mechanisms::short_convolution::{self, ShortConvolution};

/// Epsilon that the authors' code adds to the mean square.
const EPSILON: f64 = 1e-5;

/// Minimum initial decay rate.
const LEAST_RATE: f64 = 1.0;

/// Configuration of [`StateSpace`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct MambaTwoConfig {
    /// Width of the inputs `x` as a multiple of the model width, at least 1 (default: 2).
    pub expansion: usize,
    /// Width of keys and queries, at least 1 (default: 128).
    pub state: usize,
    /// Groups of heads with shared keys and queries, a divisor of the number of heads (default: 1).
    pub groups: usize,
    /// Taps of the short convolution, at least 1 (default: 4).
    pub taps: usize,
    /// Minimum and maximum step size, `time_step_limit` of Hugging Face: two numbers, the first not negative and less than the second. Default: none, equal to
    /// `[0, inf]` there, which is also accepted. Step sizes outside the range are clamped.
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "step_limit")]
    pub time_step_limit: Option<[f64; 2]>,
    /// Epsilon that the norm adds to the mean square, greater than 0 (default: 1e-5, as in the authors' code).
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
}

/// Limit of a step size: not every file format can represent infinity as a number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give two numbers, of which the second may be inf")]
enum Limit {
    Number(f64),
    Infinite(Infinite),
}

#[derive(Deserialize)]
enum Infinite {
    #[serde(rename = "inf")]
    Infinite,
}

/// Reads step limits; infinity becomes the largest representable step.
fn step_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 2]>, D::Error> {
    let Some(limits) = Option::<[Limit; 2]>::deserialize(deserializer)? else { return Ok(None) };
    let number = |limit| match limit {
        Limit::Number(number) if number != f64::INFINITY => number,
        _ => f64::from(f32::MAX),
    };
    let [least, greatest] = limits.map(number);
    let is_none = least == 0.0 && greatest == f64::from(f32::MAX);
    Ok((!is_none).then_some([least, greatest]))
}

impl Default for MambaTwoConfig {
    fn default() -> Self {
        Self { expansion: 2, state: 128, groups: 1, taps: 4, time_step_limit: None, norm_epsilon: None }
    }
}

/// State space model with input-dependent step sizes.
///
/// Should be created with [`MambaTwoConfig`].
#[derive(Module, Debug)]
pub struct StateSpace {
    /// Projection to the gate `z`, `[C, H V]`.
    pub gate: Linear,
    /// Projection to the inputs `x`, `[C, H V]`.
    pub value: Linear,
    /// Projection to keys `B`, `[C, G K]`.
    pub key: Linear,
    /// Projection to queries `C`, `[C, G K]`.
    pub query: Linear,
    /// Convolutions of inputs, keys and queries, side by side.
    pub convolution: ShortConvolution,
    /// Step sizes and decays.
    pub decay: SelectiveDecay,
    /// Skip weight `D` of each head, from its input to its output, `[H]`.
    pub skip: Param<Tensor<1>>,
    /// Gain of each channel, `[H V]`.
    pub gamma: Param<Tensor<1>>,
    #[module(skip)]
    time_step_limit: Option<[f64; 2]>,
    epsilon: f64,
    heads: usize,
    groups: usize,
}

impl MambaTwoConfig {
    /// Width of a head's values.
    fn value_width(&self, spec: &LayerSpec) -> usize {
        self.expansion.saturating_mul(spec.d_model) / spec.heads.max(1)
    }
}

impl Mixer for StateSpace {
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed {
        let maps = [(&self.value, self.heads), (&self.key, self.groups), (&self.query, self.groups)];
        let [written, keys, queries] = self.convolution.projections(x, maps, stretch);
        let written = in_32_bits(written);
        let steps = self.decay.steps(x.clone());
        let steps = match self.time_step_limit {
            Some([least, greatest]) => steps.clamp(least, greatest),
            None => steps,
        };
        let recurrence = Recurrence {
            // The heads of a group lie side by side.
            queries: repeat_heads(queries, self.heads),
            keys: repeat_heads(keys, self.heads),
            values: written.clone() * steps.clone(),
            log_decay: Some(self.decay.log_decay(steps)),
            strengths: None,
            normalised: false,
        };
        Mixed { recurrence, skip: Some(written * in_32_bits(self.skip.val()).reshape([1, self.heads, 1, 1])) }
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3> {
        let gated = merge_heads(in_32_bits(context)) * in_32_bits(silu(linear(x.clone(), &self.gate)));
        let scale = Scale { averages: true, epsilon: self.epsilon, factor: 1.0 };
        let normalised = merge_heads(RowNorm { x: split_heads(gated, self.groups), scale, gain: None, gate: None }.execute());
        (normalised * in_32_bits(self.gamma.val()).reshape([1, 1, -1])).cast(x.dtype())
    }

    fn widths(&self) -> Widths {
        let of = |map: &Linear, parts: usize| map.weight.shape()[1] / parts;
        Widths { key: of(&self.key, self.groups), value: of(&self.value, self.heads), channels_decay: false, delta: false }
    }
}

impl Mechanism for MambaTwoConfig {
    type Module = AttentionOf<RecurrentAttention<StateSpace>>;
    const NAME: &'static str = "mamba-2";
    const CARD: Card = Card {
        variant: "Mamba-2",
        description: "State space model with input-dependent step sizes and decay; its heads share queries and keys. Decoders only.",
        source: "Dao and Gu 2024, sections 3 and 7",
        links: &["https://arxiv.org/abs/2405.21060", "https://github.com/state-spaces/mamba"],
        kind: Kind::Whole,
        time: "n H N v",
        state: "H N v + 2 w E + w H v",
        letters: &[
            ("N", "width of keys and queries, option `state`"),
            gated_recurrence::VALUES,
            ("E", "width of the keys of all groups"),
            gated_recurrence::TAPS,
        ],
        differences: &[
            "The authors' code fixes the head width at 64 and derives the number of heads; here the model sets the number of heads.",
            "Each projection starts Xavier-uniform; the authors' code draws one joint projection uniformly on `±1 / sqrt(d)`.",
            "Dropout acts on the head outputs; the authors' code applies none there.",
        ],
        tensors: &[
            ("mixer.gate.weight", "projection to the gate [d_in, d_out]; heads lie side by side in d_out"),
            ("convolution.weight", "weights of the short convolutions of values, keys and queries, earliest token first [taps, channels]"),
            ("convolution.bias", "biases of the short convolutions [channels]"),
            ("decay.a_log", "logarithm of the rate of each head's decay [heads]"),
            ("decay.step.weight", "map to the step sizes [d_in, heads]"),
            ("decay.step.bias", "bias of the step sizes [heads]"),
            ("skip", "skip weight of each head, from its input to its output [heads]"),
            ("gamma", "gain of each channel of the values of all heads [d_out]"),
        ],
        without_decay: &[r"\.a_log$", r"StateSpace\.skip$"],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// Keys and queries of all heads, as narrow as the model.
    fn drawn(self) -> Self {
        Self { state: 8, ..self }
    }

    /// # Errors
    /// If a width or `taps` is 0, the groups do not divide the heads, the step limits are no range, or ε is not greater than 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        for (option, value) in [("expansion", self.expansion), ("state", self.state), ("groups", self.groups), ("taps", self.taps)] {
            check.at_least_one(option, value)?;
        }
        if !spec.heads.is_multiple_of(self.groups) {
            return Err(check.refuse("groups", self.groups, format!("give a divisor of heads = {}", spec.heads)));
        }
        if let Some([least, greatest]) = self.time_step_limit
            && !(least >= 0.0 && greatest > least && greatest <= f64::from(f32::MAX))
        {
            let remedy = "give the least and the greatest step, such as [0.001, 0.1]; a greatest of inf is as none";
            return Err(check.refuse("time_step_limit", format!("[{least}, {greatest}]"), remedy));
        }
        HeadNorm::RmsWithGain.validate(self.norm_epsilon, &check)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<StateSpace> {
        let LayerSpec { d_model, heads, .. } = *spec;
        let (inner, shared) = (heads * self.value_width(spec), self.groups * self.state);
        let linear = |name, outputs| init::linear(d_model, outputs, false, &key.named(name), device);
        let convolution = key.named("convolution");
        let mixer = StateSpace {
            gate: linear("gate", inner),
            value: linear("value", inner),
            key: linear("key", shared),
            query: linear("query", shared),
            convolution: ShortConvolution::new(self.taps, inner + 2 * shared, &convolution, device).with_bias(&convolution),
            decay: SelectiveDecay::new(LEAST_RATE, spec, &key.named("decay"), device),
            skip: Init::Constant(1.0).parameter([heads], &key.named("skip"), device),
            gamma: Init::Constant(1.0).parameter([inner], &key.named("gamma"), device),
            time_step_limit: self.time_step_limit,
            epsilon: self.norm_epsilon.unwrap_or(EPSILON),
            heads,
            groups: self.groups,
        };
        RecurrentAttention::new(mixer, spec, key, device)
    }

    /// Dao and Gu 2024, sections 3 and 7, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(move |query: &Query| {
            let heads = query.spec().heads;
            let width = self.value_width(query.spec());
            let real = real(query);
            let gates = query.mapped("mixer.gate", query.element());
            let gated = |head: usize| -> Vec<f64> {
                let read = self.read(&query.of_head(head), &real);
                let own = &gates[head * width..(head + 1) * width];
                read.iter().zip(own).map(|(read, gate)| read * gate * sigmoid(*gate)).collect()
            };
            let of_group = heads / self.groups;
            let first = query.head / of_group * of_group;
            let group: Vec<Vec<f64>> = (first..first + of_group).map(gated).collect();
            let squares: f64 = group.iter().flatten().map(|x| x * x).sum();
            let scale = (squares / (of_group * width) as f64 + self.norm_epsilon.unwrap_or(EPSILON)).sqrt();
            let gamma = &query.parameter("mixer.gamma").values[query.head * width..];
            group[query.head - first].iter().zip(gamma).map(|(x, gain)| x / scale * gain).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let maps = [(3, "d H v"), (2, "d E"), (1, "d H"), (3, "H")];
        let of_channels = [(1, "w H v"), (2, "w E"), (2, "H v"), (2, "E")];
        Some(ParameterFormula::trained(&maps).plus(ParameterFormula::trained(&of_channels)))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        let Self { state, groups, taps, .. } = *self;
        vec![("N", state), ("v", self.value_width(spec)), ("E", groups.saturating_mul(state)), ("w", taps)]
    }
}

impl MambaTwoConfig {
    /// Read of a head plus its skip, `[V]`, in the formula.
    fn read(&self, query: &Query, real: &[bool]) -> Vec<f64> {
        let spec = query.spec();
        let (width, inner) = (self.value_width(spec), spec.heads * self.value_width(spec));
        let group = query.head / (spec.heads / self.groups);
        let all = || 0..query.keys();
        let mixed = |map: &str, head: usize, width: usize, first: usize| {
            short_convolution::projection(query, map, head * width..(head + 1) * width, true, first, real)
        };
        let [least, greatest] = self.time_step_limit.unwrap_or([0.0, f64::INFINITY]);
        let step = |index: usize| softplus(query.mapped("mixer.decay.step", query.attended(index))[query.head]).max(least).min(greatest);
        let rate = query.parameter("mixer.decay.a_log").values[query.head].exp();
        let written = mixed("value", query.head, width, 0);
        let recurrence = PlainRecurrence {
            query: mixed("query", group, self.state, inner + self.groups * self.state)[query.index].clone(),
            keys: mixed("key", group, self.state, inner),
            values: all().map(|index| written[index].iter().map(|x| step(index) * x).collect()).collect(),
            log_decay: all().map(|index| vec![-rate * step(index); self.state]).collect(),
            strengths: None,
            real: real.to_vec(),
        };
        let skip = query.parameter("mixer.skip").values[query.head];
        let own = &written[query.index];
        recurrence.read(query).iter().zip(own).map(|(read, own)| read + if real[query.index] { skip * own } else { 0.0 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_a_group_share_keys_and_queries_and_groups_do_not() {
        let device = Device::flex();
        let spec = LayerSpec::new(Role::Decoder, 8, 4);
        let attention = MambaTwoConfig::default().with_state(3).with_groups(2).init(&spec, &RandomKey::from_seed(1), &device);
        let x = Tensor::<3>::from_data(TensorData::new((0..48).map(|n| ((n * 37 % 11) as f32 - 5.0) / 5.0).collect(), [1, 6, 8]), &device);
        let Mixed { recurrence, .. } = attention.mixer.recurrence(&x, Stretch { start: 0, real: None, tail: &mut None });
        for shared in [recurrence.keys, recurrence.queries] {
            let head = |head: usize| shared.clone().narrow(1, head, 1).into_data();
            assert_eq!((head(0), head(2)), (head(1), head(3)));
            assert_ne!(head(1), head(2));
        }
    }

    #[test]
    fn what_is_gated_is_normalised_over_the_heads_of_a_group() {
        let device = Device::flex();
        let spec = LayerSpec::new(Role::Decoder, 8, 4);
        let mixer = MambaTwoConfig::default().with_groups(2).init(&spec, &RandomKey::from_seed(1), &device).mixer;
        let x = Tensor::<3>::ones([1, 1, 8], &device);
        let context = Tensor::<4>::from_data(TensorData::new((1..=16).map(|n| n as f32).collect(), [1, 4, 1, 4]), &device);
        let output: Vec<f32> = mixer.output(context, &x).into_data().try_to_vec().unwrap();
        for group in output.chunks(8) {
            let mean = group.iter().map(|x| x * x).sum::<f32>() / 8.0;
            assert!((mean - 1.0).abs() < 1e-3, "mean square {mean}");
        }
    }
}
