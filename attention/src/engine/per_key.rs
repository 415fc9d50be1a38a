//! Normalisers that weight each key independently.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid};

use crate::engine::exponential::sigmoid as logistic;

/// Weight of a key as a function of its score; 0 if hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PerKey {
    /// `1 / (1 + exp(-s - bias))`.
    Logistic { bias: f32 },
    /// `scale max(s, 0)^power`.
    Power { power: u32, scale: f32 },
}

impl PerKey {
    pub(super) fn weights<const D: usize>(self, scores: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Logistic { bias } => sigmoid(scores + bias),
            Self::Power { power, scale } => {
                let positive = relu(scores);
                (1..power).fold(positive.clone(), |product, _| product * positive.clone()) * scale
            }
        }
    }

    /// [`weights`](Self::weights) on a backend.
    pub(super) fn weights_on<B: Backend>(self, scores: FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::Logistic { bias } => B::sigmoid(B::float_add_scalar(scores, bias.into())),
            Self::Power { power, scale } => B::float_mul_scalar(raised::<B>(B::relu(scores), power), scale.into()),
        }
    }

    /// Gradients of the scores, from the scores, their weights and the weight gradients.
    pub(super) fn differentiated_on<B: Backend>(
        self,
        scores: FloatTensor<B>,
        weights: FloatTensor<B>,
        slopes: FloatTensor<B>,
    ) -> FloatTensor<B> {
        match self {
            Self::Logistic { .. } => {
                let rest = B::float_add_scalar(B::float_neg(weights.clone()), 1.0.into());
                B::float_mul(weights, B::float_mul(slopes, rest))
            }
            Self::Power { power: 1, scale } => {
                let has_slope = B::float_clamp_min(B::float_sign(scores), 0.0.into());
                B::float_mul_scalar(B::float_mul(has_slope, slopes), scale.into())
            }
            Self::Power { power, scale } => {
                let by_score = B::float_mul_scalar(raised::<B>(B::relu(scores), power - 1), (scale * power as f32).into());
                B::float_mul(by_score, slopes)
            }
        }
    }

    /// Replaces scores by weights.
    #[inline(always)]
    pub(super) fn weigh(self, scores: &mut [f32]) {
        match self {
            Self::Logistic { bias } => scores.iter_mut().for_each(|score| *score = logistic(*score + bias)),
            Self::Power { power: 1, scale } => scores.iter_mut().for_each(|score| *score = scale * positive(*score)),
            Self::Power { power: 2, scale } => scores.iter_mut().for_each(|score| *score = scale * positive(*score) * positive(*score)),
            Self::Power { power, scale } => scores.iter_mut().for_each(|score| *score = scale * positive(*score).powi(power as i32)),
        }
    }

    /// Replaces scores by weights, and gradients of the weights by gradients of the scores.
    #[inline(always)]
    pub(super) fn differentiate(self, scores: &mut [f32], slopes: &mut [f32]) {
        let pairs = scores.iter_mut().zip(slopes);
        match self {
            Self::Logistic { bias } => pairs.for_each(|(score, slope)| {
                *score = logistic(*score + bias);
                *slope *= *score * (1.0 - *score);
            }),
            Self::Power { power: 1, scale } => pairs.for_each(|(score, slope)| {
                *slope = if *score <= 0.0 { 0.0 } else { *slope * scale };
                *score = scale * positive(*score);
            }),
            Self::Power { power, scale } => pairs.for_each(|(score, slope)| {
                let base = positive(*score);
                let below = if power == 2 { base } else { base.powi(power as i32 - 1) };
                *slope *= scale * power as f32 * below;
                *score = scale * base * below;
            }),
        }
    }
}

/// `x^power`, for a power of at least 1.
pub(super) fn raised<B: Backend>(x: FloatTensor<B>, power: u32) -> FloatTensor<B> {
    (1..power).fold(x.clone(), |product, _| B::float_mul(product, x.clone()))
}

/// The maximum of a number and 0; not `max`, which would turn NaN into 0.
#[inline(always)]
fn positive(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logistic_function_is_exact_to_rounding_at_all_sizes() {
        for x in (-2000..=2000).map(|tenth| tenth as f32 / 10.0) {
            let expected = 1.0 / (1.0 + (-f64::from(x)).exp());
            let found = f64::from(logistic(x));
            let least = f64::from(f32::MIN_POSITIVE);
            assert!((found - expected).abs() <= 1e-6 * expected + 10.0 * least, "{x}: {found} and {expected}");
        }
        assert_eq!(logistic(f32::NEG_INFINITY), 0.0);
        assert!(logistic(f32::NAN).is_nan());
    }

    #[test]
    fn weights_and_slopes_of_powers_are_those_of_the_definition() {
        let given = [-2.0f32, -0.5, 0.0, 0.25, 3.0, f32::NEG_INFINITY];
        for power in 1..=4 {
            let each = PerKey::Power { power, scale: 0.125 };
            let (mut weights, mut slopes, mut alone) = (given, [2.0; 6], given);
            each.differentiate(&mut weights, &mut slopes);
            each.weigh(&mut alone);
            for (at, score) in given.into_iter().enumerate() {
                let base = f64::from(score.max(0.0));
                let slope = if base > 0.0 { 0.25 * f64::from(power) * base.powi(power as i32 - 1) } else { 0.0 };
                assert!((f64::from(weights[at]) - 0.125 * base.powi(power as i32)).abs() < 1e-6, "{score} to the {power}");
                assert!((f64::from(slopes[at]) - slope).abs() < 1e-6, "{score} to the {power}: slope {}", slopes[at]);
                assert!((weights[at] - alone[at]).abs() < 1e-6);
            }
            let mut wrong = [f32::NAN];
            each.weigh(&mut wrong);
            assert!(wrong[0].is_nan());
        }
    }
}
