//! Linear recurrences: mixers with a fixed-size state instead of cached keys and values.
//!
//! `S_t = exp(g_t) S_(t-1) + k_t v_t^T`, `o_t = S_t^T q_t` (Katharopoulos et al. 2020, section 3.3, without decay; Yang et al. 2024, section 4, with decay):
//! each position writes to the state, then reads from it. The delta rule replaces the value stored under a key instead of adding to it. A recurrence is the
//! second form, beside an [`AttentionProgram`](super::AttentionProgram), to which a mechanism can lower. It has no softmax and no matrix of pairs, only a sum
//! over the past.
//!
//! Three executions are equivalent. [`recur`](Recurrence::recur) runs position by position and takes and returns a state, for decoding and segments.
//! [`in_chunks`](Recurrence::in_chunks) does the same with matrix products: it computes all pairs within a chunk of positions at once, and states between
//! chunks carry the rest (Yang et al. 2024, section 4.3). [`weigh`](Recurrence::weigh) computes all pairs of the whole sequence, reports their weights, and is
//! the oracle for the others; it also supports masks beyond recurrences. [`execute`](Recurrence::execute) chooses between the first two, and uses chunked
//! kernels for tensors in main memory.

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
    /// The same recurrence where positions `[B|1, N]` marked as padding neither write nor decay the state.
    ///
    /// # Panics
    /// If the number of flag rows is neither 1 nor that of the sequences, or the number of positions differs.
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

    /// Converts 16-bit tensors to 32 bits: a state sums over all positions, and decays are close to 1.
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

    /// Runs the fastest execution for the number of positions, from a state `[B, H, R, D]` or an empty one: [`recur`](Self::recur) for one position, chunks for
    /// more. On backends with 32-bit floats in main memory each is one operator. The chunked operator has a custom gradient, which saves the inputs and one
    /// state per 64 positions; the single-position operator overwrites an unshared state. Other backends use tensor operations.
    ///
    /// # Panics
    /// If the delta rule is to be normalised.
    pub fn execute(self, state: Option<Tensor<4>>) -> RecurrentOutput {
        let is_step = self.keys.dims()[2] == 1;
        // A step has no custom gradient.
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

    /// State written by all keys, independent of their order, `[B, H, R, D]` or `[B, H, R, D + 1]`, for [`read`](Self::read).
    ///
    /// # Panics
    /// If the state decays or is overwritten, since the order then matters.
    pub fn written(self) -> Tensor<4> {
        self.assert_without_order();
        let values = if self.normalised { with_ones(self.values) } else { self.values };
        transposed(self.keys).matmul(values)
    }

    /// Reads of queries `[B, H, Q, R]` from a state, `[B, H, Q, D]`.
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

    /// Adds the normaliser around an execution that ignores it.
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

    /// Runs position by position, from a state `[B, H, R, D]` or an empty one. Time `n R D`, state `R D`.
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

/// Converts 16-bit numbers to 32 bits; others are unchanged.
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

/// All columns but the last, divided by it; 0 where it is 0.
fn divided(context: Tensor<4>) -> Tensor<4> {
    let width = context.dims()[3] - 1;
    let totals = context.clone().narrow(3, width, 1);
    context.narrow(3, 0, width) / without_zero(totals)
}
