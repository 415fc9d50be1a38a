//! Normalisation of each head and a gate, between a recurrence and the output projection.
//!
//! A read from the state grows with the number of written tokens; a normalisation over the channels of each head removes this growth. The gate is
//! `swish(x W_G)`, multiplied channel by channel (Sun et al. 2023, equation 8; Yang et al. 2024, section 4.4).

use burn::tensor::activation::silu;

use crate::description::formula::sigmoid;
use crate::engine::recurrence::in_32_bits;
use crate::engine::row_norm::{RowNorm, Scale};
use crate::mechanisms::prelude::*;

/// Normalisation of a head's output over its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadNorm {
    /// Mean 0 and variance 1: group normalisation with one group for each head (Wu and He 2018), without gain and shift.
    Group,
    /// Root mean square 1 (Zhang and Sennrich 2019), without gain.
    Rms,
    /// Root mean square 1, with a gain for each channel that the heads share.
    RmsWithGain,
    /// No normalisation.
    None,
}

impl HeadNorm {
    /// # Errors
    /// If ε is not greater than 0, or is given without a norm.
    pub(super) fn validate(self, epsilon: Option<f64>, check: &Check) -> Result<(), ConfigError> {
        let Some(epsilon) = epsilon else { return Ok(()) };
        if self == Self::None {
            return Err(check.refuse("norm_epsilon", epsilon, "leave it out, or normalise heads with the option norm"));
        }
        let is_possible = epsilon.is_finite() && epsilon as f32 > 0.0;
        if is_possible { Ok(()) } else { Err(check.refuse("norm_epsilon", epsilon, "give a number greater than 0")) }
    }

    /// Gain of each channel of a head's values, `count` times the letter `width`, if the norm has one.
    pub(super) fn parameters(self, count: usize, width: &'static str) -> ParameterFormula {
        if self == Self::RmsWithGain { ParameterFormula::trained(&[(count, width)]) } else { ParameterFormula::none() }
    }

    /// Reason why an option of the norm has no effect.
    pub(super) fn without_effect(self, option: &str) -> Option<&'static str> {
        (option == "norm_epsilon" && self == Self::None).then_some("norm_epsilon is for heads that are normalised")
    }
}

/// Normalisation of each head, and a gate.
#[derive(Module, Debug)]
pub struct GatedNorm {
    /// Gain of each channel of a head, `[V]`.
    pub gamma: Option<Param<Tensor<1>>>,
    /// Projection to the gate, `[C, H V]`.
    pub gate: Option<Linear>,
    #[module(skip)]
    norm: HeadNorm,
    epsilon: f64,
}

impl GatedNorm {
    /// Creates the norm for heads with values `width` wide, and the gate if given. `epsilon` is added to variances and mean squares.
    pub fn new(norm: HeadNorm, width: usize, gate: Option<Linear>, epsilon: f64, key: &RandomKey, device: &Device) -> Self {
        let gamma = (norm == HeadNorm::RmsWithGain).then(|| Init::Constant(1.0).parameter([width], &key.named("gamma"), device));
        Self { gamma, gate, norm, epsilon }
    }

    /// Normalises the reads `[B, H, N, V]` and multiplies them by the gate of inputs `[B, N, C]`: `[B, N, H V]`.
    pub fn forward(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3> {
        let heads = context.dims()[1];
        let context = in_32_bits(context);
        let gate = self.gate.as_ref().map(|gate| split_heads(linear(x.clone(), gate), heads));
        let normalised = |x: Tensor<4>, gate: Option<Tensor<4>>| {
            let scale = Scale { averages: true, epsilon: self.epsilon, factor: 1.0 };
            RowNorm { x, scale, gain: self.gamma.as_ref().map(|gamma| in_32_bits(gamma.val())), gate }.execute()
        };
        let context = match (self.norm, gate) {
            (HeadNorm::None, Some(gate)) => context * in_32_bits(silu(gate)),
            (HeadNorm::None, None) => context,
            (HeadNorm::Group, gate) => normalised(context.clone() - context.mean_dim(3), gate),
            (HeadNorm::Rms | HeadNorm::RmsWithGain, gate) => normalised(context, gate),
        };
        merge_heads(context).cast(x.dtype())
    }
}

/// Input of the map `output` from one head, in the formula: the read, normalised and gated. `path` is the prefix of the parameter names.
pub(super) fn formula(query: &Query, path: &str, norm: HeadNorm, is_gated: bool, epsilon: f64, read: Vec<f64>) -> Vec<f64> {
    let (width, mean_of) = (read.len(), |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64);
    let centre = if norm == HeadNorm::Group { mean_of(&read) } else { 0.0 };
    let mut head: Vec<f64> = read.iter().map(|x| x - centre).collect();
    if norm != HeadNorm::None {
        let scale = (mean_of(&head.iter().map(|x| x * x).collect::<Vec<_>>()) + epsilon).sqrt();
        head.iter_mut().for_each(|x| *x /= scale);
    }
    if norm == HeadNorm::RmsWithGain {
        head.iter_mut().zip(&query.parameter(&format!("{path}.gamma")).values).for_each(|(x, gain)| *x *= gain);
    }
    if is_gated {
        let gates = query.mapped(&format!("{path}.gate"), query.element());
        let own = &gates[query.head * width..(query.head + 1) * width];
        head.iter_mut().zip(own).for_each(|(x, gate)| *x *= gate * sigmoid(*gate));
    }
    head
}
