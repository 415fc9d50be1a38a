//! Dense execution: all `Q x K` weights exist at once.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

use super::program::for_each_row;
use super::{AttentionProgram, LogitTerms, Weighting};
use crate::dropout::dropout;
use crate::probe::{Observation, Probe};
use crate::visibility::{Mask, hidden_logit};

/// Executes a program and returns the context `[B, H, Q, D]`. The weights are shown to the probe before dropout.
pub fn attend(program: AttentionProgram, probe: &mut Probe) -> Tensor<4> {
    let AttentionProgram { weighting, mask, soft_span, values, dropout: drop } = program;
    let _span = tracing::trace_span!("reference attention", values = ?values.dims()).entered();
    let weights = match weighting {
        Weighting::Softmax(terms) => match soft_span {
            Some(span) => spanned_weights(terms, mask, span),
            None => softmax_weights(terms, mask),
        },
        Weighting::Density { weights, renormalise } => {
            let weights = soft_span.map_or_else(|| weights.clone(), |span| weights.clone() * span);
            density_weights(weights, mask, renormalise)
        }
    };
    let weights = for_each_head(weights, values.dims()[1]);
    probe.observe(|| Observation::Weights(weights.clone()));
    let weights = match drop {
        // Weights that all batch rows share are dropped for each row apart, as they would be if they were not shared.
        Some(drop) => dropout(for_each_row(weights, values.dims()[0]), drop.probability, Some(&drop.key)),
        None => weights,
    };
    for_each_row(weights, values.dims()[0]).matmul(values)
}

/// The same for each head, where logits or densities do not tell them apart.
fn for_each_head(weights: Tensor<4>, heads: usize) -> Tensor<4> {
    let [rows, given, queries, keys] = weights.dims();
    if given == heads { weights } else { weights.expand([rows, heads, queries, keys]) }
}

fn softmax_weights(terms: LogitTerms, mask: Option<Mask>) -> Tensor<4> {
    let logits = logits(terms);
    let Some(mask) = mask else { return softmax(logits, 3) };
    let weights = softmax(logits + mask.bias, 3);
    match mask.has_key {
        Some(has_key) => weights * has_key,
        None => weights,
    }
}

/// `m exp(s) / sum m exp(s)`: the softmax keeps the exponentials in range and cancels against the normaliser. A key with `m = 0` is hidden from it, lest
/// its exponential make all others vanish.
fn spanned_weights(terms: LogitTerms, mask: Option<Mask>, span: Tensor<4>) -> Tensor<4> {
    let span = visible(span, mask);
    let outside = span.clone().equal_elem(0.0).float() * hidden_logit(span.dtype());
    normalised(softmax(logits(terms) + outside, 3) * span)
}

/// The logits `[B|1, H, Q, K]` themselves.
///
/// # Panics
/// If the terms are empty.
pub fn logits(terms: LogitTerms) -> Tensor<4> {
    let content = terms.content.map(|c| {
        let rows = c.queries.dims()[0].max(c.keys.dims()[0]);
        for_each_row(c.queries, rows).matmul(for_each_row(c.keys, rows).swap_dims(2, 3))
    });
    match (content, terms.bias) {
        (Some(content), Some(bias)) => content + bias,
        (Some(logits), None) | (None, Some(logits)) => logits,
        (None, None) => panic!("logits without a term"),
    }
}

fn density_weights(weights: Tensor<4>, mask: Option<Mask>, renormalise: bool) -> Tensor<4> {
    let weights = visible(weights, mask);
    if renormalise { normalised(weights) } else { weights }
}

/// Weights that are 0 where hidden.
fn visible(weights: Tensor<4>, mask: Option<Mask>) -> Tensor<4> {
    match mask {
        // exp(0) = 1 where visible, exp(-large) = 0 where not.
        Some(mask) => weights * mask.bias.exp(),
        None => weights,
    }
}

fn normalised(weights: Tensor<4>) -> Tensor<4> {
    let sum = weights.clone().sum_dim(3);
    // A row without a visible key is divided by 1: it stays 0, and so do its gradients, which a division by a tiny number would make infinite.
    let is_empty = sum.clone().lower_elem(f32::MIN_POSITIVE).float();
    weights / (sum + is_empty)
}
