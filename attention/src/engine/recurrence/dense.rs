//! All pairs at once.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;

use super::chunks::products;
use super::inverse::inverse_of_unit_lower;
use super::program::Recurrence;
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::DenseMask;
use crate::engine::transposed;

impl Recurrence {
    /// Computes all pairs from an empty state: `w[i, j] = sum_r q[i, r] k[j, r] exp(g[j + 1, r] + .. + g[i, r])` for `j <= i` where the mask shows `j`, divided
    /// by their sum over `j` if normalised. The delta rule has the weights `w (I + diag(b) a)^-1 diag(b)`, where `a[i, j]` is the same with the key of `i`
    /// instead of its query, for `j < i`. The probe observes the weights. Time and memory `n^2 R`.
    pub fn weigh(self, mask: Option<DenseMask>, probe: &mut Probe) -> Tensor<4> {
        let Self { queries, keys, values, log_decay, strengths, normalised } = self;
        let [batch, heads, length, _] = keys.dims();
        let decay = log_decay.map(|decay| {
            let channels = decay.dims()[3];
            decay.expand([batch, heads, length, channels])
        });
        let similarities = |x: Tensor<4>| visible(products(x, keys.clone(), decay.as_ref()), mask.as_ref());
        let read = similarities(queries);
        let weights = match strengths {
            None => read,
            Some(strengths) => {
                let erased = similarities(keys.clone()).tril(-1) * strengths.clone();
                read.matmul(inverse_of_unit_lower(erased)) * transposed(strengths)
            }
        };
        shown(weights, normalised, probe).matmul(values)
    }

    /// Computes all pairs without order: `w[i, j] = q_i . k_j` where the mask shows `j`, divided by their sum over `j` if normalised. The numbers of queries
    /// and keys may differ. The probe observes the weights. Time `n^2 R`, memory `n^2`.
    ///
    /// # Panics
    /// If the state decays or is overwritten, since the order then matters.
    pub fn relate(self, mask: Option<DenseMask>, probe: &mut Probe) -> Tensor<4> {
        self.assert_without_order();
        let weights = visible(self.queries.matmul(self.keys.swap_dims(2, 3)), mask.as_ref());
        shown(weights, self.normalised, probe).matmul(self.values)
    }

    /// The sums over `j` of the weights of [`relate`](Self::relate) before they are normalised, `[B, H, Q, 1]`.
    pub(crate) fn sums_of_pairs(&self, mask: Option<&DenseMask>) -> Tensor<4> {
        visible(self.queries.clone().matmul(self.keys.clone().swap_dims(2, 3)), mask).sum_dim(3)
    }

    /// The weights of [`relate`](Self::relate), `[B, H, Q, K]`.
    pub(crate) fn weights_of_pairs(self, mask: Option<&DenseMask>) -> Tensor<4> {
        let weights = visible(self.queries.matmul(self.keys.swap_dims(2, 3)), mask);
        if self.normalised { divided_by_sums(weights) } else { weights }
    }
}

/// A softmax of logits `[B, H, Q, K]` where the mask shows them, 0 elsewhere.
pub(crate) fn weights_of_logits(logits: Tensor<4>, mask: Option<&DenseMask>) -> Tensor<4> {
    let Some(DenseMask { bias, has_key }) = mask else { return softmax(logits, 3) };
    let weights = softmax(logits + bias.clone(), 3);
    match has_key {
        Some(has_key) => weights * has_key.clone(),
        None => weights,
    }
}

fn divided_by_sums(weights: Tensor<4>) -> Tensor<4> {
    weights.clone() / without_zero(weights.sum_dim(3))
}

/// Numbers `[B, H, Q, K]` where the mask shows them, otherwise 0.
fn visible(numbers: Tensor<4>, mask: Option<&DenseMask>) -> Tensor<4> {
    match mask {
        // exp(0) = 1 where visible, exp(-large) = 0 where not.
        Some(mask) => numbers * mask.bias.clone().exp(),
        None => numbers,
    }
}

/// Weights `[B, H, Q, K]`, divided by their sums if normalised, and reported to the probe.
fn shown(weights: Tensor<4>, normalised: bool, probe: &mut Probe) -> Tensor<4> {
    let weights = if normalised { divided_by_sums(weights) } else { weights };
    probe.observe(|| Observation::Weights(weights.clone()));
    weights
}

/// Replaces 0, a sum over nothing, by 1.
pub(super) fn without_zero(totals: Tensor<4>) -> Tensor<4> {
    let empty = totals.clone().equal_elem(0.0);
    totals.mask_fill(empty, 1.0)
}
