//! Normalisers, which convert scores to weights.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::{DType, FloatDType, Tensor};

use super::entmax;
use super::per_key::PerKey;
use super::softpick::differences;
use crate::contract::visibility::{DenseMask, least_visible_logit};

/// Normaliser of the scores `s` of a query's visible keys. A query without visible keys has no weights under any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Normaliser {
    /// `exp(s_j) / sum_k exp(s_k)`.
    #[default]
    Softmax,
    /// `exp(s_j) / (1 + sum_k exp(s_k))`: a softmax with an extra key, whose score and value are 0.
    SoftmaxPlusOne,
    /// `1 / (1 + exp(-s_j - bias))`, independently for each key.
    Sigmoid {
        /// Added to the scores.
        bias: f32,
    },
    /// `scale max(s_j, 0)^power`, independently for each key.
    Relu {
        /// At least 1.
        power: u32,
        /// Factor of the powers.
        scale: f32,
    },
    /// `max(exp(s_j) - 1, 0) / sum_k |exp(s_k) - 1|`: keys with scores up to 0 have weight 0, and the weights sum to at most 1.
    Softpick {
        /// Added to the sum after dividing numerator and denominator by `exp(max(0, max_k s_k))`, greater than 0.
        epsilon: f32,
    },
    /// `max(s_j / power - t, 0)^power` with the threshold `t` that makes a query's weights sum to 1: entmax with `alpha = 1 + 1 / power`.
    Entmax {
        /// From 1 to 8.
        power: u32,
    },
}

impl Normaliser {
    /// Whether weights are exponentials divided by their sum, possibly with an extra key.
    pub(super) fn is_softmax(self) -> bool {
        matches!(self, Self::Softmax | Self::SoftmaxPlusOne)
    }

    /// Whether the weights of a query need all its scores at once, beyond a log-sum-exp.
    pub(super) fn needs_rows(self) -> bool {
        matches!(self, Self::Softpick { .. } | Self::Entmax { .. })
    }

    /// The per-key function, for normalisers that weight each key independently.
    pub(super) fn per_key(self) -> Option<PerKey> {
        match self {
            Self::Sigmoid { bias } => Some(PerKey::Logistic { bias }),
            Self::Relu { power, scale } => Some(PerKey::Power { power, scale }),
            Self::Softmax | Self::SoftmaxPlusOne | Self::Softpick { .. } | Self::Entmax { .. } => None,
        }
    }

    /// All weights of logits `[B|1, H|1, Q, K]`; with a [sink](super::LogitTerms::sink) for a softmax.
    pub(super) fn weights(self, logits: Tensor<4>, mask: Option<DenseMask>, sink: Option<Tensor<4>>) -> Tensor<4> {
        let of_visible = |logits| match sink {
            Some(sink) => {
                assert_eq!(self, Self::Softmax, "{SINKS}");
                with_sink(logits, sink)
            }
            None => self.of_visible(logits),
        };
        let Some(DenseMask { bias, has_key }) = mask else { return of_visible(logits) };
        let weights = of_visible(logits + bias);
        match has_key {
            Some(has_key) => weights * has_key,
            None => weights,
        }
    }

    fn of_visible(self, logits: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Softmax => softmax(logits, 3),
            Self::SoftmaxPlusOne => {
                // Maximum over all scores, including that of the extra key. It cancels, as does its gradient.
                let top = logits.clone().detach().max_dim(3).clamp_min(0.0);
                let weights = (logits - top.clone()).exp();
                let sum = weights.clone().sum_dim(3) + top.neg().exp();
                weights / sum
            }
            Self::Softpick { epsilon } => {
                let dtype = logits.dtype();
                let visible = logits.clone().detach().greater_elem(least_visible_logit(dtype)).float().cast(FloatDType::F32);
                // 16 bits cannot represent the epsilon.
                let logits = logits.cast(FloatDType::F32);
                // The shift cancels up to the epsilon. Without the bound, scores far below 0 would overflow.
                let top = logits.clone().detach().max_dim(3).clamp_min(0.0);
                let shifted = Tensor::from_dispatch(differences::<Dispatch>(logits.into_dispatch(), top.into_dispatch())) * visible;
                let sum = shifted.clone().abs().sum_dim(3) + epsilon;
                (relu(shifted) / sum).cast(FloatDType::from(dtype))
            }
            Self::Entmax { power } => {
                let dtype = logits.dtype();
                // 16 bits cannot represent the threshold.
                let scores = logits.cast(FloatDType::F32) / power as f32;
                let found = entmax::thresholds::<Dispatch>(scores.clone().detach().into_dispatch(), power);
                entmax::weights(scores, Tensor::from_dispatch(found), power).cast(FloatDType::from(dtype))
            }
            Self::Sigmoid { .. } | Self::Relu { .. } => self.per_key().expect("it weighs each key by itself").weights(logits),
        }
    }

    /// Context of a softmax `[B, H, Q, D]` and log-sum-exp of its logits `[B|1, H, Q, 1]`, corrected for this normaliser or a sink.
    pub(super) fn corrected(self, context: Tensor<4>, log_sum_exp: Tensor<4>, sink: Option<Tensor<4>>) -> (Tensor<4>, Tensor<4>) {
        let (context, log_sum_exp) = (context.into_dispatch(), log_sum_exp.into_dispatch());
        let (context, log_sum_exp) = match sink {
            Some(sink) => {
                assert_eq!(self, Self::Softmax, "{SINKS}");
                sunk::<Dispatch>(context, log_sum_exp, sink.into_dispatch())
            }
            None => self.corrected_on::<Dispatch>(context, log_sum_exp),
        };
        (Tensor::from_dispatch(context), Tensor::from_dispatch(log_sum_exp))
    }

    /// [`corrected`](Self::corrected) on a backend. With the returned log-sum-exp, weights and gradients are computed as for a softmax.
    pub(super) fn corrected_on<B: Backend>(self, context: FloatTensor<B>, log_sum_exp: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
        match self {
            Self::SoftmaxPlusOne => {
                let share = B::float_cast(B::sigmoid(log_sum_exp.clone()), context.dtype().into());
                // For queries without visible keys the number stays very large or infinite.
                let rest = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(log_sum_exp.clone()))));
                (B::float_mul(context, share), B::float_add(B::float_clamp_min(log_sum_exp, 0.0.into()), rest))
            }
            Self::Softmax | Self::Sigmoid { .. } | Self::Relu { .. } | Self::Softpick { .. } | Self::Entmax { .. } => {
                (context, log_sum_exp)
            }
        }
    }
}

/// Message for a sink with a normaliser other than a softmax.
pub(super) const SINKS: &str = "a sink is one of a softmax";

/// Softmax of logits and a sink, without the weight of the sink.
fn with_sink(logits: Tensor<4>, sink: Tensor<4>) -> Tensor<4> {
    // The overall maximum. It cancels, as does its gradient.
    let top = logits.clone().detach().max_dim(3);
    let top = top.clone().max_pair(sink.clone().detach().expand(top.dims()));
    let weights = (logits - top.clone()).exp();
    let sum = weights.clone().sum_dim(3) + (sink - top).exp();
    weights / sum
}

/// Context and log-sum-exp of a softmax, corrected for a sink: with an extra key of value 0 and logit `a`, all other keys keep the share `1 / (1 + exp(a - L))`
/// of their weights, where `L` is their log-sum-exp.
pub(super) fn sunk<B: Backend>(
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    sink: FloatTensor<B>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let sink = cast::<B>(sink, log_sum_exp.dtype());
    // For queries without visible keys the number stays very large or infinite.
    let ahead = B::float_sub(log_sum_exp, sink.clone());
    let share = cast::<B>(B::sigmoid(ahead.clone()), context.dtype());
    let rest = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(ahead.clone()))));
    (B::float_mul(context, share), B::float_add(B::float_add(B::float_clamp_min(ahead, 0.0.into()), rest), sink))
}

/// Gradient of a sink, from the result of [`sunk`] and the gradient of the context: its weight is `exp(a - L)` with the log-sum-exp `L` that includes it, and
/// all others change in proportion.
pub(super) fn sink_gradient<B: Backend>(
    sink: FloatTensor<B>,
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    gradient: FloatTensor<B>,
) -> FloatTensor<B> {
    let (own, dtype) = (sink.clone(), log_sum_exp.dtype());
    let [context, gradient, sink] = [context, gradient, sink].map(|x| cast::<B>(x, dtype));
    let dots = B::float_sum_dim(B::float_mul(context, gradient), 3);
    let weights = B::float_exp(B::float_sub(sink, log_sum_exp));
    let mut found = B::float_neg(B::float_mul(weights, dots));
    for dim in [2, 0, 1].into_iter().filter(|&dim| own.shape()[dim] == 1) {
        found = B::float_sum_dim(found, dim);
    }
    cast::<B>(found, own.dtype())
}

/// The tensor in this number type.
pub(super) fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::float_cast(x, dtype.into()) }
}
