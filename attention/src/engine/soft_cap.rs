//! Soft caps of logits.

use burn::tensor::Tensor;

use super::{Bias, LogitTerms};
use crate::engine::exponential::tanh;

/// A soft cap of logits: a sum of terms `s` becomes `c tanh(s / c)`, which lies between `-c` and `c` and is close to `s` for small `s`.
#[derive(Clone, Debug)]
pub struct SoftCap {
    /// The bound `c`, greater than 0.
    pub limit: f32,
    /// Additive mask, applied after the cap.
    pub added: Option<Bias>,
}

impl SoftCap {
    /// The capped logits, without the additive mask.
    pub(super) fn of<const D: usize>(&self, logits: Tensor<D>) -> Tensor<D> {
        (logits / self.limit).tanh() * self.limit
    }

    /// Adds `other` after the cap.
    ///
    /// # Panics
    /// If `other` is more than a bias.
    pub(super) fn plus(self, other: LogitTerms) -> Self {
        let LogitTerms { content: None, relative: None, kronecker: None, bias: Some(bias), cap: None, sink: None } = other else {
            panic!("to logits with a soft cap a bias can be added and nothing else")
        };
        let added = match self.added {
            Some(added) => Bias { numbers: added.product() + bias.product(), scale: None },
            None => bias,
        };
        Self { added: Some(added), ..self }
    }
}

/// Caps logits and writes their derivatives.
#[inline(always)]
pub(super) fn bound(limit: f32, logits: &mut [f32], slopes: &mut [f32]) {
    let scale = limit.recip();
    for (logit, slope) in logits.iter_mut().zip(slopes) {
        let share = tanh(*logit * scale);
        *logit = limit * share;
        *slope = 1.0 - share * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_logits_and_their_slopes_are_those_of_the_definition() {
        let given: Vec<f32> = (-4000..=4000).map(|at| at as f32 / 8.0).chain([1e-6, -1e30, f32::NEG_INFINITY]).collect();
        for limit in [0.5f32, 50.0] {
            let (mut logits, mut slopes) = (given.clone(), vec![0.0; given.len()]);
            bound(limit, &mut logits, &mut slopes);
            for ((&logit, slope), given) in logits.iter().zip(slopes).zip(&given) {
                let share = (f64::from(*given) / f64::from(limit)).tanh();
                let (wanted, wanted_slope) = (f64::from(limit) * share, 1.0 - share * share);
                assert!((f64::from(logit) - wanted).abs() <= 4e-7 * wanted.abs(), "{given} with {limit}: {logit}, not {wanted}");
                assert!((f64::from(slope) - wanted_slope).abs() <= 4e-7, "{given} with {limit}: slope {slope}, not {wanted_slope}");
            }
        }
    }
}
