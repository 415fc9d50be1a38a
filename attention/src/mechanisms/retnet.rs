//! Multi-scale retention (Sun et al. 2023, section 2).
//!
//! `S_n = gamma_h S_(n-1) + k_n v_n^T`, `o_n = S_n^T q_n`: a recurrent state with a fixed decay per head, `gamma_h = 1 - 2^(-5-h)`. Decay times range from 32
//! to thousands of positions. Queries and keys are rotated by their positions, so their product depends on the distance. There is no softmax: head outputs are
//! normalised and gated by `swish(x W_G)` instead. Keys are scaled by `D^-1/2`, and values are twice as wide as keys by default.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/retnet.svg")]

use crate::engine::recurrence::Recurrence;
use crate::engine::rotation::{PairLayout, rotated};
use crate::mechanisms::gated_norm::HeadNorm;
use crate::mechanisms::gated_recurrence::{self, GatedRecurrence, HeadOptions, Rule, shrunk};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{PlainRecurrence, RecurrentAttention};

/// Epsilon that the authors' code adds to mean squares.
const EPSILON: f64 = 1e-6;

/// Configuration of [`Retention`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct RetnetConfig {
    /// Width of a head's values as a multiple of the key width, at least 1 (default: 2).
    pub value_expansion: usize,
    /// Normalisation of the head outputs (default: group norm, as in the paper; `rms` in later versions of the authors' code).
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances, greater than 0 (default: 1e-6, as in the authors' code).
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[setters(into)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// Whether a gate precedes the output projection (default: yes).
    pub gate: bool,
    /// Whether queries and keys are rotated by their positions (default: yes).
    pub rotation: bool,
}

impl Default for RetnetConfig {
    fn default() -> Self {
        Self { value_expansion: 2, norm: HeadNorm::Group, norm_epsilon: None, gate: true, rotation: true }
    }
}

/// Multi-scale retention, without parameters of its own.
///
/// Should be created with [`RetnetConfig`].
#[derive(Module, Debug)]
pub struct Retention {
    rotation: bool,
}

impl RetnetConfig {
    fn heads(&self, spec: &LayerSpec) -> HeadOptions {
        let (key_heads, key_width) = (spec.heads, spec.d_head());
        let (norm, epsilon) = (self.norm, self.norm_epsilon.unwrap_or(EPSILON));
        HeadOptions { key_heads, key_width, value_width: self.value_expansion * key_width, taps: None, norm, epsilon, gate: self.gate }
    }
}

/// Log decay of a head per position.
fn log_decay(head: usize) -> f64 {
    (-(-5.0 - head as f64).exp2()).ln_1p()
}

/// Rotation angles per position for pairs of channels, from 1 for the first pair to 1/10000 for the last.
fn angles(pairs: usize) -> impl Iterator<Item = f64> {
    (0..pairs).map(move |pair| 1e-4f64.powf(pair as f64 / (pairs.max(2) - 1) as f64))
}

/// Rotates each pair of neighbouring channels of `[B, H, N, D]` by its angle times the position. A last channel without a neighbour is unchanged.
fn turned(x: Tensor<4>, start: usize) -> Tensor<4> {
    let [_, _, length, width] = x.dims();
    let pairs = width / 2;
    let table = |of: fn(f64) -> f64| {
        let numbers = (start..start + length).flat_map(|position| angles(pairs).map(move |angle| of(position as f64 * angle) as f32));
        Tensor::from_data(TensorData::new(numbers.collect(), [length, pairs]), (&x.device(), x.dtype()))
    };
    let (cos, sin) = (table(f64::cos), table(f64::sin));
    rotated(x.swap_dims(1, 2), cos, sin, PairLayout::Interleaved).swap_dims(1, 2)
}

impl Rule for Retention {
    fn recurrence(&self, [queries, keys, values]: [Tensor<4>; 3], x: &Tensor<3>, start: usize) -> Recurrence {
        let turned = |x: Tensor<4>| if self.rotation && x.dims()[3] > 1 { turned(x, start) } else { x };
        let [_, heads, _, width] = keys.dims();
        let decays = (0..heads).map(|head| log_decay(head) as f32).collect();
        Recurrence {
            queries: turned(queries),
            keys: turned(keys) * (width as f64).powf(-0.5),
            values,
            log_decay: Some(Tensor::from_data(TensorData::new(decays, [1, heads, 1, 1]), (&x.device(), x.dtype()))),
            strengths: None,
            normalised: false,
        }
    }
}

impl Mechanism for RetnetConfig {
    type Module = AttentionOf<RecurrentAttention<GatedRecurrence<Retention>>>;
    const NAME: &'static str = "retnet";
    const CARD: Card = Card {
        variant: "Retnet",
        description: "Recurrent state with a fixed decay per head, in decoders.",
        source: "Sun et al. 2023, section 2",
        links: &["https://arxiv.org/abs/2307.08621", "https://github.com/microsoft/torchscale"],
        kind: Kind::Whole,
        time: "n d D",
        state: "2 d D",
        differences: &[
            "The authors' code divides decays and scores by sums of their magnitudes. The head norm cancels this division up to its epsilon; here nothing is divided.",
            "In heads of odd width the last channel is not rotated; the authors' code does not support odd widths.",
            "Dropout acts on the head outputs; the authors' code applies none there.",
        ],
        tensors: &[gated_recurrence::GAIN, gated_recurrence::GATE],
        sees_ahead: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If `value_expansion` is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one("value_expansion", self.value_expansion)?;
        self.norm.validate(self.norm_epsilon, &check)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.norm.without_effect(option)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<Retention>> {
        let heads = self.heads(spec);
        // The authors' gains: 2^-2.5 for input projections, 2^-1 for the output projection.
        let output = shrunk(spec.heads * heads.value_width, spec.d_model, 4, &key.named("output"), device);
        heads.around_with_gain(32, Retention { rotation: self.rotation }, spec, key, device).with_output(output)
    }

    /// Sun et al. 2023, equations 3 to 8, pair by pair.
    fn formula(&self) -> Option<Formula<'_>> {
        let turned = |x: &[f64], position: usize| {
            let mut turned = x.to_vec();
            let pairs = if self.rotation { x.len() / 2 } else { 0 };
            for pair in 0..pairs {
                // 10000^(-pair / (pairs - 1)).
                let angle = position as f64 * if pairs == 1 { 1.0 } else { 10000f64.powf(-(pair as f64) / (pairs as f64 - 1.0)) };
                let (even, odd) = (x[2 * pair], x[2 * pair + 1]);
                turned[2 * pair] = even * angle.cos() - odd * angle.sin();
                turned[2 * pair + 1] = even * angle.sin() + odd * angle.cos();
            }
            turned
        };
        Some(gated_recurrence::formula(
            |spec| self.heads(spec),
            move |query, heads| {
                let width = heads.query.len();
                let key = |(index, key): (usize, &Vec<f64>)| turned(key, index).iter().map(|x| x / (width as f64).sqrt()).collect();
                let gamma = 1.0 - 0.5f64.powi(5 + query.head as i32);
                PlainRecurrence {
                    query: turned(&heads.query, query.index),
                    keys: heads.keys.iter().enumerate().map(key).collect(),
                    log_decay: vec![vec![gamma.ln(); width]; query.keys()],
                    ..heads
                }
            },
        ))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let of_values = self.value_expansion.saturating_mul(2 + usize::from(self.gate));
        let maps = ParameterFormula::trained(&[(of_values.saturating_add(2), "d^2")]);
        Some(maps.plus(self.norm.parameters(self.value_expansion, "D")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_keep_what_the_paper_says() {
        for (head, kept) in [(0, 1.0 - 1.0 / 32.0), (1, 1.0 - 1.0 / 64.0), (7, 1.0 - 1.0 / 4096.0)] {
            assert!((log_decay(head).exp() - kept).abs() < 1e-12, "head {head}");
        }
    }

    #[test]
    fn products_of_rotated_numbers_depend_on_the_distance() {
        let numbers = |numbers: [f32; 5]| Tensor::<4>::from_data([[[numbers]]], &Device::flex());
        let (q, k) = (numbers([0.3, -1.0, 0.7, 0.2, 1.1]), numbers([1.2, 0.4, -0.6, 0.9, 0.5]));
        let product = |i, j| (turned(q.clone(), i) * turned(k.clone(), j)).sum().into_scalar::<f32>();
        assert!((product(9, 6) - product(3, 0)).abs() < 1e-5);
        assert!((product(9, 6) - product(9, 5)).abs() > 1e-3);
        assert!((product(4, 4) - (q.clone() * k.clone()).sum().into_scalar::<f32>()).abs() < 1e-5);
    }
}
