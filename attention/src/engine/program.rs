//! Description of one attention.

use burn::tensor::Tensor;

use crate::random::RandomKey;
use crate::visibility::Mask;

/// One attention, ready to be executed.
///
/// Dimension letters: `B` batch rows, `H` heads, `Q` queries, `K` keys, `R` width of the thin factors, `D` width of a head's values. A dimension
/// written `B|1` is 1 where nothing depends on the batch row.
#[derive(Clone, Debug)]
pub struct AttentionProgram {
    /// How much each key weighs.
    pub weighting: Weighting,
    /// What is hidden, if anything.
    pub mask: Option<Mask>,
    /// Factors of the exponentials of the logits, in `[0, 1]`, `[B|1, H, Q, K]`, inside the normaliser; of a density, factors of the weights.
    pub soft_span: Option<Tensor<4>>,
    /// `[B, H, K, D]`.
    pub values: Tensor<4>,
    /// Dropout of the weights, if any.
    pub dropout: Option<Dropout>,
}

/// Where the weights come from.
// Made and consumed once per call.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Weighting {
    /// Softmax of logits over the visible keys. A row without a visible key has all weights exactly 0.
    Softmax(LogitTerms),
    /// Given non-negative weights `[B|1, H, Q, K]`, set to 0 where hidden; divided by their sum over the visible keys if `renormalise`.
    Density {
        /// The weights before masking.
        weights: Tensor<4>,
        /// Whether rows are divided by their sum.
        renormalise: bool,
    },
}

/// Logits as a sum of a product of thin factors and a bias, so that nothing of size `Q x K` has to exist unless a bias brings it.
#[derive(Clone, Debug, Default)]
pub struct LogitTerms {
    /// `queries keys^T`.
    pub content: Option<Content>,
    /// Added to the product, `[B|1, H|1, Q, K]`.
    pub bias: Option<Tensor<4>>,
}

/// Thin factors of logits. Scales (`1/sqrt(d)`) are already in the queries.
#[derive(Clone, Debug)]
pub struct Content {
    /// `[B|1, H, Q, R]`.
    pub queries: Tensor<4>,
    /// `[B|1, H, K, R]`.
    pub keys: Tensor<4>,
}

/// Dropout of attention weights.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability that a weight is dropped, in `[0, 1)`.
    pub probability: f64,
    /// Key of the mask.
    pub key: RandomKey,
}

impl LogitTerms {
    /// Logits that are a product of thin factors.
    pub fn content(queries: Tensor<4>, keys: Tensor<4>) -> Self {
        Self { content: Some(Content { queries, keys }), bias: None }
    }

    /// Logits that are given.
    pub fn bias(bias: Tensor<4>) -> Self {
        Self { content: None, bias: Some(bias) }
    }

    /// The logits times `scale` `[1, H|1, 1, 1]`.
    pub fn scaled(self, scale: Tensor<4>) -> Self {
        Self {
            content: self.content.map(|c| Content { queries: c.queries * scale.clone(), keys: c.keys }),
            bias: self.bias.map(|bias| bias * scale),
        }
    }

    /// Sum of two logits: factors are joined along their width, biases are added.
    pub fn plus(self, other: Self) -> Self {
        let content = match (self.content, other.content) {
            (Some(a), Some(b)) => Some(Content { queries: concatenate(a.queries, b.queries), keys: concatenate(a.keys, b.keys) }),
            (a, b) => a.or(b),
        };
        let bias = match (self.bias, other.bias) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        Self { content, bias }
    }
}

/// Joins factors along their width, repeating those that do not depend on the batch row.
fn concatenate(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    let rows = a.dims()[0].max(b.dims()[0]);
    Tensor::cat(vec![for_each_row(a, rows), for_each_row(b, rows)], 3)
}

/// The same for each of `rows` batch rows.
///
/// It is repeated as a flat row because of its gradient, a sum over the first dimension: on wgpu, Burn 0.22.1 sums wrongly over the first of four dimensions
/// where the last two are swapped, as they are in the gradient of keys.
///
/// # Panics
/// If there are neither one nor `rows` batch rows.
pub(super) fn for_each_row(x: Tensor<4>, rows: usize) -> Tensor<4> {
    let [batch, heads, length, width] = x.dims();
    if batch == rows {
        return x;
    }
    let size = heads * length * width;
    x.reshape([batch, size]).expand([rows, size]).reshape([rows, heads, length, width])
}
