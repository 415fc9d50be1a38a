//! All pairs at once.

use burn::tensor::Tensor;

use super::{Recurrence, without_zero};
use crate::probe::{Observation, Probe};
use crate::visibility::Mask;

impl Recurrence {
    /// All pairs at once, from nothing: `w[i, j] = sum_r q[i, r] k[j, r] exp(g[j + 1, r] + .. + g[i, r])` for `j <= i` and where the mask shows `j`, divided by
    /// their sum over `j` if they are normalised. The probe is shown the weights. Time and memory `n^2 R`.
    pub fn weigh(self, mask: Option<Mask>, probe: &mut Probe) -> Tensor<4> {
        let Self { queries, keys, values, log_decay, normalised } = self;
        let [batch, heads, length, width] = keys.dims();
        let mut products = queries.unsqueeze_dim::<5>(3) * keys.unsqueeze_dim::<5>(2);
        if let Some(decay) = log_decay {
            let channels = decay.dims()[3];
            let sums = decay.expand([batch, heads, length, channels]).cumsum(2);
            let between = sums.clone().unsqueeze_dim::<5>(3) - sums.unsqueeze_dim::<5>(2);
            // Above the diagonal sums are positive; what stands there is hidden.
            products = products * between.clamp_max(0.0).exp().expand([batch, heads, length, length, width]);
        }
        let weights = products.sum_dim(4).reshape([batch, heads, length, length]).tril(0);
        shown(weights, mask, normalised, probe).matmul(values)
    }

    /// All pairs at once whatever their order: `w[i, j] = q_i . k_j` where the mask shows `j`, divided by their sum over `j` if they are normalised. There may
    /// be more or fewer queries than keys. The probe is shown the weights. Time `n^2 R`, memory `n^2`.
    ///
    /// # Panics
    /// If the state decays: then there is an order.
    pub fn relate(self, mask: Option<Mask>, probe: &mut Probe) -> Tensor<4> {
        assert!(self.log_decay.is_none(), "the state decays between positions, which therefore have an order");
        let weights = self.queries.matmul(self.keys.swap_dims(2, 3));
        shown(weights, mask, self.normalised, probe).matmul(self.values)
    }
}

/// Weights `[B, H, Q, K]` where the mask shows them, divided by their sums if they are to be normalised, and shown to the probe.
fn shown(weights: Tensor<4>, mask: Option<Mask>, normalised: bool, probe: &mut Probe) -> Tensor<4> {
    let weights = match mask {
        // exp(0) = 1 where visible, exp(-large) = 0 where not.
        Some(mask) => weights * mask.bias.exp(),
        None => weights,
    };
    let weights = if normalised { weights.clone() / without_zero(weights.sum_dim(3)) } else { weights };
    probe.observe(|| Observation::Weights(weights.clone()));
    weights
}
