//! Weights from logits, and gradients of logits from those of weights.

use std::ops::Range;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use super::tensors::is_positive;
use super::{Attention, Sums};
use crate::engine::dropout::DropoutOperator;
use crate::engine::softpick::differences;
use crate::engine::{Normaliser, entmax};

/// Row statistics of queries: products of context and gradient, and saved forward results.
pub(super) struct BackwardInputs<B: Backend> {
    pub dots: FloatTensor<B>,
    /// Log-sum-exp; the threshold of an entmax.
    pub log_sum_exp: FloatTensor<B>,
}

impl<B: DropoutOperator> Attention<'_, B> {
    /// Context and log-sum-exp of the queries of a chunk.
    pub(super) fn attend(&self, chunk: &Range<usize>) -> (FloatTensor<B>, FloatTensor<B>) {
        let [batch, heads] = self.planes();
        let logits = self.logits(chunk).sum;
        if !self.plan.is_normalised() {
            let weights = match self.plan.normaliser.per_key() {
                Some(each) => each.weights_on::<B>(logits),
                None => B::float_exp(logits),
            };
            return (self.context(weights, chunk), self.terms.zeros([batch, heads, chunk.len(), 1]));
        }
        if let Normaliser::Softpick { epsilon } = self.plan.normaliser {
            let top = B::float_clamp_min(B::float_max_dim(logits.clone(), 3), 0.0.into());
            let visible = is_positive::<B>(B::float_sub_scalar(logits.clone(), self.plan.least_visible.into()));
            let shifted = B::float_mul(differences::<B>(logits, top.clone()), visible);
            let sum = B::float_add_scalar(B::float_sum_dim(B::float_abs(shifted.clone()), 3), epsilon.into());
            let weights = B::float_div(B::float_clamp_min(shifted, 0.0.into()), sum.clone());
            return (self.context(weights, chunk), B::float_add(B::float_log(sum), top));
        }
        let top = B::float_max_dim(logits.clone(), 3);
        let has_key = is_positive::<B>(B::float_sub_scalar(top.clone(), self.plan.least_visible.into()));
        // Without visible keys the number is about -hidden, so recomputed weights are 0.
        let unseen = B::float_mul_scalar(B::float_sub_scalar(has_key.clone(), 1.0.into()), (2.0 * self.hidden()).into());
        if let Normaliser::Entmax { power } = self.plan.normaliser {
            let scores = B::float_div_scalar(logits, (power as f32).into());
            let thresholds = B::float_add(entmax::thresholds::<B>(scores.clone(), power), unseen);
            let weights = entmax::raised::<B>(B::relu(B::float_sub(scores, thresholds.clone())), power);
            return (self.context(weights, chunk), thresholds);
        }
        let weights = B::float_exp(B::float_sub(logits, top.clone()));
        let sum = B::float_sum_dim(weights.clone(), 3);
        let context = self.context(B::float_div(weights, sum.clone()), chunk);
        let context = B::float_mul(context, has_key);
        (context, B::float_add(B::float_add(B::float_log(sum), top), unseen))
    }

    fn context(&self, weights: FloatTensor<B>, chunk: &Range<usize>) -> FloatTensor<B> {
        self.product(self.dropped(weights, chunk), self.operands.values.clone())
    }

    /// Recomputed weights before dropout.
    pub(super) fn weights(&self, logits: FloatTensor<B>, given: &BackwardInputs<B>) -> FloatTensor<B> {
        match (self.plan.normaliser.per_key(), self.plan.normaliser) {
            (Some(each), _) => each.weights_on::<B>(logits),
            (None, Normaliser::Softpick { .. }) => B::float_clamp_min(differences::<B>(logits, given.log_sum_exp.clone()), 0.0.into()),
            (None, Normaliser::Entmax { power }) => {
                let scores = B::float_div_scalar(logits, (power as f32).into());
                entmax::raised::<B>(B::relu(B::float_sub(scores, given.log_sum_exp.clone())), power)
            }
            (None, _) => B::float_exp(B::float_sub(logits, given.log_sum_exp.clone())),
        }
    }

    /// Logit gradients of a chunk, from the logits, their weights, and the weight gradients `slopes`.
    pub(super) fn differentiated(
        &self,
        logits: FloatTensor<B>,
        weights: FloatTensor<B>,
        slopes: FloatTensor<B>,
        BackwardInputs { dots, log_sum_exp }: BackwardInputs<B>,
        chunk: &Range<usize>,
        sums: &mut Sums<B>,
    ) -> FloatTensor<B> {
        match (self.plan.normaliser.per_key(), self.plan.normaliser) {
            (Some(each), _) => each.differentiated_on::<B>(logits, weights, slopes),
            (None, Normaliser::Softpick { .. }) => {
                let exponentials = B::float_exp(B::float_sub(logits.clone(), log_sum_exp));
                let of_sum = B::float_mul(B::float_sign(logits.clone()), dots);
                B::float_mul(exponentials, B::float_sub(B::float_mul(is_positive::<B>(logits), slopes), of_sum))
            }
            (None, Normaliser::Entmax { power }) => {
                let scores = B::float_div_scalar(logits, (power as f32).into());
                let own = entmax::raised::<B>(B::relu(B::float_sub(scores, log_sum_exp)), power - 1);
                // The threshold's effect; a query without visible keys has no slopes.
                let sum = B::float_clamp_min(B::float_sum_dim(own.clone(), 3), f32::MIN_POSITIVE.into());
                let by_threshold = B::float_div(B::float_sum_dim(B::float_mul(own.clone(), slopes.clone()), 3), sum);
                B::float_mul(own, B::float_sub(slopes, by_threshold))
            }
            (None, _) => {
                let slopes = B::float_sub(slopes, dots);
                self.differentiate_spans(&slopes, log_sum_exp, chunk, sums);
                B::float_mul(weights, slopes)
            }
        }
    }
}
