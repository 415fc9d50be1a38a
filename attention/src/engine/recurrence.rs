//! Linear recurrences: mixers that carry a state of fixed size in the place of keys and values.
//!
//! `S_t = exp(g_t) S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t` (Katharopoulos et al. 2020, section 3.3, without decay; Yang et al. 2024, section 4, with it): each
//! position writes to the state, and then reads from it. By the delta rule it replaces what its key held instead of adding to it. A recurrence stands beside an
//! [`AttentionProgram`](super::AttentionProgram) as the second form that a mechanism can lower to: there is no softmax and no matrix of pairs, only a sum over
//! what came before.
//!
//! Three executions give the same. [`recur`](Recurrence::recur) goes position by position and takes and returns a state, as decoding and segments need it.
//! [`in_chunks`](Recurrence::in_chunks) does the same with products of matrices: within a chunk of positions all pairs are computed at once, and the states
//! between chunks carry the rest (Yang et al. 2024, section 4.3). [`weigh`](Recurrence::weigh) computes all pairs of the whole sequence at once, shows their
//! weights, and is the oracle for every other one. It also takes masks that no recurrence has. [`execute`](Recurrence::execute) chooses between the first two,
//! and goes in chunks by kernels of its own where tensors are in main memory.

mod chunks;
mod cpu;
mod delta_states;
mod dense;
mod inverse;
mod program;
mod state;

use burn::tensor::{DType, Tensor, TensorData};

use crate::engine::transposed;

pub(crate) use self::dense::weights_of_logits;
use self::dense::without_zero;
pub use self::program::{Recurrence, RecurrentOutput};
pub use self::state::RecurrentState;

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

    /// The same in 32 bits, if it has 16: a state sums over all positions, and decays are close to 1.
    pub(crate) fn in_32_bits(self) -> Self {
        Self {
            queries: in_32_bits(self.queries),
            keys: in_32_bits(self.keys),
            values: in_32_bits(self.values),
            log_decay: self.log_decay.map(in_32_bits),
            strengths: self.strengths.map(in_32_bits),
            normalised: self.normalised,
        }
    }

    /// What is faster for so many positions, from a state `[B, H, R, D]` or from nothing: [`recur`](Self::recur) for one, and chunks for more. On backends that
    /// keep 32-bit floats in main memory each is one operator. That of chunks has a gradient of its own, which holds the inputs and one state for each 64 positions;
    /// that of one position overwrites a state which nobody else holds. On others they are tensor operations.
    ///
    /// # Panics
    /// If the delta rule is to be normalised.
    pub fn execute(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let is_step = self.keys.dims()[2] == 1;
        // A step has no gradient of its own.
        if self.is_on_cpu(state.as_ref()) && !(is_step && self.keys.device().is_autodiff()) {
            if self.normalised {
                self.assert_positive();
            }
            return if is_step { self.step_on_cpu(state) } else { self.on_cpu(state) };
        }
        if is_step {
            return self.recur(state);
        }
        let chunk = self.chunk();
        self.in_chunks(state, chunk)
    }

    /// What all keys write together, whatever their order, `[B, H, R, D]` or `[B, H, R, D + 1]`: what [`read`](Self::read) reads.
    ///
    /// # Panics
    /// If the state decays or is overwritten: then there is an order.
    pub fn written(self) -> Tensor<4> {
        self.assert_without_order();
        let values = if self.normalised { with_ones(self.values) } else { self.values };
        transposed(self.keys).matmul(values)
    }

    /// What queries `[B, H, Q, R]` read from a state, `[B, H, Q, D]`.
    pub fn read(queries: Tensor<4>, state: Tensor<4>, normalised: bool) -> Tensor<4> {
        let context = queries.matmul(state);
        if normalised { divided(context) } else { context }
    }

    fn assert_positive(&self) {
        assert!(self.strengths.is_none(), "what the delta rule writes has signs, and its sum is no normaliser");
    }

    fn assert_without_order(&self) {
        let has_order = self.log_decay.is_some() || self.strengths.is_some();
        assert!(!has_order, "the state decays or is overwritten between positions, which therefore have an order");
    }

    /// An execution that knows nothing of the normaliser, around which that is put.
    fn normalising(self, execute: impl FnOnce(Self) -> RecurrentOutput) -> RecurrentOutput {
        if !self.normalised {
            return execute(self);
        }
        self.assert_positive();
        let output = execute(Self { values: with_ones(self.values), normalised: false, ..self });
        RecurrentOutput { context: divided(output.context), ..output }
    }

    /// The state before the first position: the given one, or 0.
    fn first_state(&self, state: Option<Tensor<4>>) -> Tensor<4> {
        let [batch, heads, _, width] = self.keys.dims();
        state.unwrap_or_else(|| Tensor::zeros([batch, heads, width, self.values.dims()[3]], (&self.keys.device(), self.keys.dtype())))
    }

    /// Position by position, from a state `[B, H, R, D]` or from nothing. Time `n R D`, state `R D`.
    pub fn recur(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        self.normalising(|recurrence| recurrence.by_position(state))
    }

    fn by_position(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let mut state = self.first_state(state);
        let Self { queries, keys, values, log_decay, strengths, .. } = self;
        let length = keys.dims()[2];
        let at = |x: &Tensor<4>, position: usize| x.clone().narrow(2, if x.dims()[2] == 1 { 0 } else { position }, 1);
        let mut contexts = Vec::with_capacity(length);
        for position in 0..length {
            if let Some(decay) = &log_decay {
                state = state * transposed(at(decay, position).exp());
            }
            let (key, value) = (at(&keys, position), at(&values, position));
            let written = match &strengths {
                Some(strengths) => (value - key.clone().matmul(state.clone())) * at(strengths, position),
                None => value,
            };
            state = state + transposed(key).matmul(written);
            contexts.push(at(&queries, position).matmul(state.clone()));
        }
        RecurrentOutput { context: Tensor::cat(contexts, 2), state }
    }
}

/// Numbers of 16 bits as numbers of 32, and others as they are.
pub(crate) fn in_32_bits<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(DType::F32),
        _ => x,
    }
}

/// Values `[B, H, N, D]` and a column of ones.
fn with_ones(values: Tensor<4>) -> Tensor<4> {
    let [batch, heads, length, _] = values.dims();
    let ones = Tensor::ones([batch, heads, length, 1], (&values.device(), values.dtype()));
    Tensor::cat(vec![values, ones], 3)
}

/// All columns but the last, divided by that; 0 where it is 0.
fn divided(context: Tensor<4>) -> Tensor<4> {
    let width = context.dims()[3] - 1;
    let totals = context.clone().narrow(3, width, 1);
    context.narrow(3, 0, width) / without_zero(totals)
}
