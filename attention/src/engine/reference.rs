//! Dense execution: all `Q x K` weights are materialised.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

use super::heads::{by_own_head, by_shared_head, repeat_heads};
use super::program::for_each_row;
use super::{
    AttentionProgram, Bias, Content, Dropout, Kronecker, LogitTerms, Normaliser, Weighting, greatest_log_ratio, least_sum, relative_shift,
};
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::{DenseMask, hidden_logit};
use crate::engine::dropout::WeightDropout;

/// Executes a program and returns the context `[B, H, Q, D]`. The probe observes the weights before dropout.
pub fn attend(program: AttentionProgram, probe: &mut Probe) -> Tensor<4> {
    let heads = program.heads();
    let AttentionProgram { weighting, mask, soft_span, values, dropout: drop } = program;
    let _span = tracing::trace_span!("reference attention", values = ?values.dims()).entered();
    let keys = values.dims()[2];
    let soft_span = soft_span.map(|span| span.factors(weighting.queries(), keys));
    let weights = match weighting.dense(&values) {
        Weighting::Scores(terms, normaliser) => {
            let sink = terms.sink.clone();
            let logits = logits(terms, keys);
            match soft_span {
                Some(span) => {
                    assert!(normaliser == Normaliser::Softmax && sink.is_none(), "soft spans are those of a softmax");
                    spanned_weights(logits, mask, span)
                }
                None => normaliser.weights(logits, mask, sink),
            }
        }
        Weighting::Density { weights, renormalise } => {
            let weights = soft_span.map_or_else(|| weights.clone(), |span| weights.clone() * span);
            density_weights(weights, mask, renormalise)
        }
        Weighting::Gaussian(_) => unreachable!("they have become a tensor"),
    };
    let weights = repeat_heads(weights, heads);
    probe.observe(|| Observation::Weights(weights.clone()));
    let weights = match drop {
        // Weights shared by all batch rows are dropped separately for each row, as if they were not shared.
        Some(drop) => dropped(for_each_row(weights, values.dims()[0]), drop),
        None => weights,
    };
    let weights = by_shared_head(for_each_row(weights, values.dims()[0]), values.dims()[1]);
    by_own_head(weights.matmul(values), heads)
}

fn dropped(weights: Tensor<4>, drop: Dropout) -> Tensor<4> {
    match WeightDropout::new(drop.probability, drop.key) {
        Some(dropout) => dropout.drop(weights),
        None => weights,
    }
}

/// `m exp(s) / sum m exp(s)`: the softmax keeps the exponentials in range and cancels against the normaliser. A key with `m = 0` is masked, so that its
/// exponential cannot underflow all others.
fn spanned_weights(logits: Tensor<4>, mask: Option<DenseMask>, span: Tensor<4>) -> Tensor<4> {
    let span = visible(span, mask);
    let is_outside = span.clone().equal_elem(0.0).float().cast(span.dtype());
    let hidden = is_outside.clone() * hidden_logit(span.dtype());
    let weights = softmax(logits.clone() + hidden.clone(), 3);
    if !span.device().is_autodiff() {
        return normalised(weights * span);
    }
    // A key exactly at the end of a ramp has no weight. Its hypothetical weight at factor 1 is the slope of the context by that factor.
    let within = (logits.clone() + hidden).detach();
    let top = within.clone().max_dim(3);
    let sum = ((within - top.clone()).exp() * span.clone().detach()).sum_dim(3);
    let is_empty = sum.clone().lower_equal_elem(0.0).float().cast(sum.dtype());
    let log_sum = (sum + is_empty.clone()).log() + top;
    let share = (weights.clone().detach() * span.clone().detach()).sum_dim(3);
    let greatest = greatest_log_ratio(logits.dtype());
    let ratio = (logits.detach() - log_sum).clamp_max(greatest).exp();
    let weights = (weights + is_outside * ratio * share) * (is_empty - 1.0).neg();
    normalised(weights * span)
}

/// The logits `[B|1, H|1, Q, K]` themselves.
///
/// # Panics
/// If the terms are empty.
pub fn logits(terms: LogitTerms, keys: usize) -> Tensor<4> {
    let (content, cap) = (terms.content.clone().map(product), terms.cap.clone());
    let logits = [content, dense_bias(terms, keys)].into_iter().flatten().reduce(|a, b| a + b).expect("logits have a term");
    let Some(cap) = cap else { return logits };
    let logits = cap.of(logits);
    match cap.added {
        Some(added) => logits + added.product(),
        None => logits,
    }
}

/// Terms added to the product of thin factors, `[B|1, H|1, Q, K]`, if any precede a soft cap.
pub(super) fn dense_bias(terms: LogitTerms, keys: usize) -> Option<Tensor<4>> {
    let LogitTerms { content: _, relative, kronecker, bias, cap: _, sink: _ } = terms;
    let relative = relative.map(|relative| relative_shift(product(relative), keys));
    let kronecker = kronecker.map(Kronecker::logits);
    [relative, kronecker, bias.map(Bias::product)].into_iter().flatten().reduce(|a, b| a + b)
}

/// `queries keys^T`. One product if all batch rows, or also all heads, share their keys; one per group for shared key heads.
fn product(Content { queries, keys }: Content) -> Tensor<4> {
    if keys.dims()[..2] == [1, 1] {
        let [rows, heads, length, width] = queries.dims();
        let scored = keys.dims()[2];
        return queries.reshape([1, 1, rows * heads * length, width]).matmul(keys.swap_dims(2, 3)).reshape([rows, heads, length, scored]);
    }
    let heads = queries.dims()[1].max(keys.dims()[1]);
    let queries = by_shared_head(repeat_heads(queries, heads), keys.dims()[1]);
    let ([rows, _, length, width], [own_rows, shared, scored, _]) = (queries.dims(), keys.dims());
    if own_rows == 1 && rows > 1 {
        let flat = queries.swap_dims(0, 1).reshape([1, shared, rows * length, width]);
        return by_own_head(flat.matmul(keys.swap_dims(2, 3)).reshape([shared, rows, length, scored]).swap_dims(0, 1), heads);
    }
    by_own_head(for_each_row(queries, own_rows).matmul(keys.swap_dims(2, 3)), heads)
}

fn density_weights(weights: Tensor<4>, mask: Option<DenseMask>, renormalise: bool) -> Tensor<4> {
    let weights = visible(weights, mask);
    if renormalise { normalised(weights) } else { weights }
}

/// Weights that are 0 where hidden.
fn visible(weights: Tensor<4>, mask: Option<DenseMask>) -> Tensor<4> {
    match mask {
        // exp(0) = 1 where visible, exp(-large) = 0 where not.
        Some(mask) => weights * mask.bias.exp(),
        None => weights,
    }
}

fn normalised(weights: Tensor<4>) -> Tensor<4> {
    let sum = weights.clone().sum_dim(3);
    // A row without visible keys is divided by 1: it stays 0, as do its gradients, which division by a tiny number would make infinite.
    let is_empty = sum.clone().lower_elem(least_sum(sum.dtype())).float().cast(sum.dtype());
    weights / (sum + is_empty)
}
