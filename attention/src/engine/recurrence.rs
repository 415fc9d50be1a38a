//! Linear recurrences: mixers that carry a state of fixed size in the place of keys and values.
//!
//! `S_t = exp(g_t) S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t` (Katharopoulos et al. 2020, section 3.3, without decay; Yang et al. 2024, section 4, with it): each position
//! writes to the state, and then reads from it. A recurrence stands beside an [`AttentionProgram`](super::AttentionProgram) as the second form that a
//! mechanism can lower to: there is no softmax and no matrix of pairs, only a sum over what came before.
//!
//! Two executions give the same: [`recur`](Recurrence::recur) goes position by position and takes and returns a state, as decoding and segments need it;
//! [`weigh`](Recurrence::weigh) computes all pairs at once, shows their weights, and is the oracle for every other one. It also takes masks that no
//! recurrence has.

use burn::tensor::{Tensor, TensorData};

use crate::contract::AttentionInput;
use crate::probe::{Observation, Probe};
use crate::progress::{DecodingStart, Progress};
use crate::visibility::{Mask, selected};

/// One linear recurrence, ready to be executed.
///
/// Dimension letters: `B` batch rows, `H` heads, `N` positions, `R` width of queries and keys, `D` width of values.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// Scaled, `[B, H, N, R]`.
    pub queries: Tensor<4>,
    /// `[B, H, N, R]`.
    pub keys: Tensor<4>,
    /// `[B, H, N, D]`.
    pub values: Tensor<4>,
    /// Logarithm of how much of the state a position keeps, at most 0: one number for each head, or one for each channel of the keys, `[B|1, H, N|1, R|1]`.
    /// Absent: everything is kept.
    pub log_decay: Option<Tensor<4>>,
}

/// What a recurrence gives.
#[derive(Clone, Debug)]
pub struct RecurrentOutput {
    /// `[B, H, N, D]`.
    pub context: Tensor<4>,
    /// The state after the last position, `[B, H, R, D]`.
    pub state: Tensor<4>,
}

impl Recurrence {
    /// The same where positions `[B|1, N]` that are not real neither write nor let the state decay.
    ///
    /// # Panics
    /// If there are neither one nor as many rows as sequences, of as many positions.
    pub fn of_real(self, real: &[bool]) -> Self {
        let [batch, heads, length, _] = self.keys.dims();
        assert!(real.len() == length || real.len() == batch * length, "{} flags for {batch} rows of {length} positions", real.len());
        if real.iter().all(|&real| real) {
            return self;
        }
        let flags = real.iter().map(|&real| if real { 1.0f32 } else { 0.0 }).collect();
        let flags = TensorData::new(flags, [real.len() / length, 1, length, 1]);
        let flags = Tensor::<4>::from_data(flags, (&self.keys.device(), self.keys.dtype()));
        let log_decay = self.log_decay.map(|decay| {
            let width = decay.dims()[3];
            decay.expand([batch, heads, length, width]) * flags.clone()
        });
        Self { keys: self.keys * flags, log_decay, ..self }
    }

    /// Position by position, from a state `[B, H, R, D]` or from nothing. Time `n R D`, state `R D`.
    pub fn recur(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let Self { queries, keys, values, log_decay } = self;
        let [batch, heads, length, width] = keys.dims();
        let mut state = state.unwrap_or_else(|| Tensor::zeros([batch, heads, width, values.dims()[3]], (&keys.device(), keys.dtype())));
        let at = |x: &Tensor<4>, position: usize| x.clone().narrow(2, if x.dims()[2] == 1 { 0 } else { position }, 1);
        let mut contexts = Vec::with_capacity(length);
        for position in 0..length {
            if let Some(decay) = &log_decay {
                state = state * at(decay, position).exp().swap_dims(2, 3);
            }
            state = state + at(&keys, position).swap_dims(2, 3).matmul(at(&values, position));
            contexts.push(at(&queries, position).matmul(state.clone()));
        }
        RecurrentOutput { context: Tensor::cat(contexts, 2), state }
    }

    /// All pairs at once, from nothing: `w[i, j] = sum_r q[i, r] k[j, r] exp(g[j + 1, r] + .. + g[i, r])` for `j <= i` and where the mask shows `j`. The probe
    /// is shown the weights. Time and memory `n^2 R`.
    pub fn weigh(self, mask: Option<Mask>, probe: &mut Probe) -> Tensor<4> {
        let Self { queries, keys, values, log_decay } = self;
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
        let weights = match mask {
            // exp(0) = 1 where visible, exp(-large) = 0 where not.
            Some(mask) => weights * mask.bias.exp(),
            None => weights,
        };
        probe.observe(|| Observation::Weights(weights.clone()));
        weights.matmul(values)
    }
}

/// State of stepwise decoding of the mechanisms that are recurrences: as large after any number of positions.
#[derive(Clone, Debug)]
pub struct RecurrentState {
    progress: Progress,
    length: usize,
    capacity: usize,
    state: Option<Tensor<4>>,
}

impl RecurrentState {
    /// Before the first step.
    pub fn new(start: &DecodingStart) -> Self {
        Self { progress: Progress::new(start), length: 0, capacity: start.capacity(), state: None }
    }

    /// The next positions `[B, N, C]` as an input. What is given next follows them.
    ///
    /// # Panics
    /// If the capacity is exceeded.
    pub fn advance(&mut self, query: Tensor<3>) -> AttentionInput {
        self.length += query.dims()[1];
        assert!(self.length <= self.capacity, "{} positions exceed the state's capacity {}", self.length, self.capacity);
        self.progress.advance(query)
    }

    /// Goes on from the state, and keeps the one after the last position without its gradient. Returns the context `[B, H, N, D]`.
    pub fn recur(&mut self, recurrence: Recurrence) -> Tensor<4> {
        let RecurrentOutput { context, state } = recurrence.recur(self.state.take());
        self.state = Some(state.detach());
        context
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        self.progress.select(rows);
        self.state = self.state.take().map(|state| selected(&state, rows));
    }
}
