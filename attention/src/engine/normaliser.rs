//! How scores become weights.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::{DType, FloatDType, Tensor};

use super::entmax;
use super::per_key::PerKey;
use super::softpick::differences;
use crate::contract::visibility::{DenseMask, least_visible_logit};

/// How the scores `s` of the keys that a query sees become weights. A query that sees no key has no weights in any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Normaliser {
    /// `exp(s_j) / sum_k exp(s_k)`.
    #[default]
    Softmax,
    /// `exp(s_j) / (1 + sum_k exp(s_k))`: a softmax with one more key, whose score and value are 0.
    SoftmaxPlusOne,
    /// `1 / (1 + exp(-s_j - bias))`: each key by itself.
    Sigmoid {
        /// Added to the scores.
        bias: f32,
    },
    /// `scale max(s_j, 0)^power`: each key by itself.
    Relu {
        /// At least 1.
        power: u32,
        /// What the powers are multiplied with.
        scale: f32,
    },
    /// `max(exp(s_j) - 1, 0) / sum_k |exp(s_k) - 1|`: no key with a score up to 0 has a weight, and the weights sum to at most 1.
    Softpick {
        /// Added to the sum after both sides are divided by `exp(max(0, max_k s_k))`, greater than 0.
        epsilon: f32,
    },
    /// `max(s_j / power - t, 0)^power` with the threshold `t` of the query by which its weights sum to 1: entmax with `alpha = 1 + 1 / power`.
    Entmax {
        /// From 1 to 8.
        power: u32,
    },
}

impl Normaliser {
    /// Whether weights are exponentials divided by their sum, to which a key may have been added.
    pub(super) fn is_softmax(self) -> bool {
        matches!(self, Self::Softmax | Self::SoftmaxPlusOne)
    }

    /// Whether the weights of a query need all its scores at once, in more than the logarithm of a sum.
    pub(super) fn needs_rows(self) -> bool {
        matches!(self, Self::Softpick { .. } | Self::Entmax { .. })
    }

    /// How it weighs each key by itself, if it does.
    pub(super) fn per_key(self) -> Option<PerKey> {
        match self {
            Self::Sigmoid { bias } => Some(PerKey::Logistic { bias }),
            Self::Relu { power, scale } => Some(PerKey::Power { power, scale }),
            Self::Softmax | Self::SoftmaxPlusOne | Self::Softpick { .. } | Self::Entmax { .. } => None,
        }
    }

    /// All weights of logits `[B|1, H|1, Q, K]`, with a [sink](super::LogitTerms::sink) if it is a softmax.
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
                // The largest of all scores and of that of the key that is always there. It cancels, and so does its gradient.
                let top = logits.clone().detach().max_dim(3).clamp_min(0.0);
                let weights = (logits - top.clone()).exp();
                let sum = weights.clone().sum_dim(3) + top.neg().exp();
                weights / sum
            }
            Self::Softpick { epsilon } => {
                let dtype = logits.dtype();
                let visible = logits.clone().detach().greater_elem(least_visible_logit(dtype)).float().cast(FloatDType::F32);
                // 16 bits would not hold the epsilon.
                let logits = logits.cast(FloatDType::F32);
                // The shift cancels but for the epsilon. Without the bound, scores that are all far below 0 would have infinite numbers.
                let top = logits.clone().detach().max_dim(3).clamp_min(0.0);
                let shifted = Tensor::from_dispatch(differences::<Dispatch>(logits.into_dispatch(), top.into_dispatch())) * visible;
                let sum = shifted.clone().abs().sum_dim(3) + epsilon;
                (relu(shifted) / sum).cast(FloatDType::from(dtype))
            }
            Self::Entmax { power } => {
                let dtype = logits.dtype();
                // 16 bits would not hold the threshold.
                let scores = logits.cast(FloatDType::F32) / power as f32;
                let found = entmax::thresholds::<Dispatch>(scores.clone().detach().into_dispatch(), power);
                entmax::weights(scores, Tensor::from_dispatch(found), power).cast(FloatDType::from(dtype))
            }
            Self::Sigmoid { .. } | Self::Relu { .. } => self.per_key().expect("it weighs each key by itself").weights(logits),
        }
    }

    /// The context of a softmax `[B, H, Q, D]` and the log-sum-exp of its logits `[B|1, H, Q, 1]`, as they are with this normaliser or with a sink.
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

    /// [`corrected`](Self::corrected) on a backend. With the log-sum-exp that it returns, weights and gradients are computed as those of a softmax.
    pub(super) fn corrected_on<B: Backend>(self, context: FloatTensor<B>, log_sum_exp: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
        match self {
            Self::SoftmaxPlusOne => {
                let share = B::float_cast(B::sigmoid(log_sum_exp.clone()), context.dtype().into());
                // The number of a query that sees no key is very large or infinite, and stays so.
                let rest = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(log_sum_exp.clone()))));
                (B::float_mul(context, share), B::float_add(B::float_clamp_min(log_sum_exp, 0.0.into()), rest))
            }
            Self::Softmax | Self::Sigmoid { .. } | Self::Relu { .. } | Self::Softpick { .. } | Self::Entmax { .. } => {
                (context, log_sum_exp)
            }
        }
    }
}

/// What is said where another normaliser than a softmax has a sink.
pub(super) const SINKS: &str = "a sink is one of a softmax";

/// The softmax of logits and a sink, without the weight of the sink.
fn with_sink(logits: Tensor<4>, sink: Tensor<4>) -> Tensor<4> {
    // The largest of all. It cancels, and so does its gradient.
    let top = logits.clone().detach().max_dim(3);
    let top = top.clone().max_pair(sink.clone().detach().expand(top.dims()));
    let weights = (logits - top.clone()).exp();
    let sum = weights.clone().sum_dim(3) + (sink - top).exp();
    weights / sum
}

/// Context and log-sum-exp of a softmax as they are with a sink: in a softmax with one more key, whose value is 0, all other keys have the share
/// `1 / (1 + exp(a - L))` of what they have without it, for its logit `a` and their log-sum-exp `L`.
pub(super) fn sunk<B: Backend>(
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    sink: FloatTensor<B>,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let sink = cast::<B>(sink, log_sum_exp.dtype());
    // The number of a query that sees no key is very large or infinite, and stays so.
    let ahead = B::float_sub(log_sum_exp, sink.clone());
    let share = cast::<B>(B::sigmoid(ahead.clone()), context.dtype());
    let rest = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(ahead.clone()))));
    (B::float_mul(context, share), B::float_add(B::float_add(B::float_clamp_min(ahead, 0.0.into()), rest), sink))
}

/// The gradient of a sink, from what [`sunk`] returned and the gradient of the context: its weight is `exp(a - L)` with the log-sum-exp `L` that counts it, and
/// all others lose in proportion what it gains.
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

/// The tensor with numbers of this type.
pub(super) fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::float_cast(x, dtype.into()) }
}
