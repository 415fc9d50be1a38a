//! Chunks of positions: pairs within a chunk, states between chunks.
//!
//! With `b_i` the sum of log decays from the start of the chunk to position `i`, and `S` the state before the chunk,
//! `o_i = sum_(j <= i) (q_i . k_j exp(b_i - b_j)) v_j + S^T (q_i exp(b_i))`, and the chunk of `C` positions writes `sum_j k_j exp(b_C - b_j) v_j^T`. The states
//! of many chunks are one product of the chunks' writes with the decays between them. All used exponents are at most 0, so nothing overflows; `exp(-b_j)` alone
//! would. Underflow correctly yields 0. `b_i - b_j` is computed as the sum of the decays between, not as a difference, which would lose weak decays beside
//! strong ones.
//!
//! The delta rule writes `u_i = beta_i (v_i - sum_(j < i) (k_i . k_j exp(b_i - b_j)) u_j - S^T (k_i exp(b_i)))` instead of values (Yang et al. 2024b, section
//! 3.2). With the inverse of the triangular matrix of these products, `U = U' - W S`, whose two parts are computed for all chunks at once. Only states are
//! sequential over chunks.

use burn::tensor::Tensor;

use super::delta_states;
use super::inverse::inverse_of_unit_lower;
use super::program::{Recurrence, RecurrentOutput};
use crate::engine::transposed;
use crate::engine::transposed::part;

/// Positions per chunk.
const CHUNK: usize = 64;

/// Positions per chunk for channel-wise decays, where each pair has an exponential per channel.
const CHANNELS_CHUNK: usize = 16;

/// Chunks whose states are computed at once, by a product with a matrix of that size.
const CHUNKS: usize = 32;

/// The same for the delta rule, whose states are computed sequentially: gradients of slices are as large as the tensor. A kernel supports any number, but
/// channel-wise decays take much memory per pair and channel of a chunk.
const DELTA_CHUNKS: usize = 16;

fn chunk_where(channels_decay: bool) -> usize {
    if channels_decay { CHANNELS_CHUNK } else { CHUNK }
}

impl Recurrence {
    /// Fast chunk size.
    pub(super) fn chunk(&self) -> usize {
        chunk_where(self.channels_decay())
    }

    fn channels_decay(&self) -> bool {
        self.log_decay.as_ref().is_some_and(|decay| decay.dims()[3] > 1)
    }

    /// Multiplications of `length` positions of one head, for keys and values of these widths: query-key products, weighted sums of values, and writes to and
    /// reads from states. The delta rule needs more.
    pub(crate) fn multiplications(length: usize, width: usize, value: usize, channels_decay: bool, delta: bool) -> usize {
        let chunk = chunk_where(channels_decay).min(length);
        let states = width * value;
        length * if delta { chunk * (3 * width + 2 * value + chunk) + 3 * states } else { chunk * (width + value) + 2 * states }
    }

    /// Runs in chunks of `chunk` positions, from a state `[B, H, R, D]` or an empty one. Time `n (C (R + D) + R D)`; memory is linear in the length.
    ///
    /// # Panics
    /// If `chunk` is 0.
    pub fn in_chunks(self, state: Option<Tensor<4>>, chunk: usize) -> RecurrentOutput {
        assert!(chunk > 0, "a chunk has at least one position");
        self.normalising(|recurrence| recurrence.by_chunks(state, chunk))
    }

    fn by_chunks(self, state: Option<Tensor<4>>, chunk: usize) -> RecurrentOutput {
        let mut state = self.first_state(state);
        let length = self.keys.dims()[2];
        let chunk = chunk.min(length);
        let mut contexts = Vec::new();
        let stretch = match &self.strengths {
            None => chunk * CHUNKS,
            Some(_) if !self.channels_decay() && delta_states::has_kernel(&self.keys, chunk) => length,
            Some(_) => chunk * DELTA_CHUNKS,
        };
        for start in (0..length).step_by(stretch) {
            let output = self.positions(start, stretch.min(length - start)).of_chunks(state, chunk);
            contexts.push(output.context);
            state = output.state;
        }
        RecurrentOutput { context: joined(contexts, 2), state }
    }

    /// `count` positions from `start` on.
    fn positions(&self, start: usize, count: usize) -> Self {
        let of = |x: &Tensor<4>| if x.dims()[2] == 1 { x.clone() } else { part(x.clone(), 2, start, count) };
        Self {
            queries: of(&self.queries),
            keys: of(&self.keys),
            values: of(&self.values),
            log_decay: self.log_decay.as_ref().map(of),
            strengths: self.strengths.as_ref().map(of),
            normalised: self.normalised,
        }
    }

    /// All chunks at once.
    fn of_chunks(self, state: Tensor<4>, chunk: usize) -> RecurrentOutput {
        let Self { queries, keys, values, log_decay, strengths, .. } = self;
        let [batch, heads, length, width] = keys.dims();
        let (value, rows, chunks) = (values.dims()[3], batch * heads, length.div_ceil(chunk));
        // `[B H, M, C, .]` for M chunks. Keys past the end are 0 and do not decay.
        let folded = |x: Tensor<4>| {
            let [.., channels] = x.dims();
            let missing = chunks * chunk - length;
            let behind = (missing > 0).then(|| Tensor::zeros([batch, heads, missing, channels], (&x.device(), x.dtype())));
            joined([x].into_iter().chain(behind).collect(), 2).reshape([rows, chunks, chunk, channels])
        };
        let decay = log_decay.map(|decay| {
            let channels = decay.dims()[3];
            folded(decay.expand([batch, heads, length, channels]))
        });
        let [queries, keys, values] = [queries, keys, values].map(folded);
        let pairs = products(queries.clone(), keys.clone(), decay.as_ref());
        let kept = decay.as_ref().map(|decay| decay.clone().cumsum(2).exp());
        let queries = multiplied(queries, kept.clone());
        let behind = transposed(multiplied(keys.clone(), decay.as_ref().map(|decay| sums_behind(decay.clone()).exp())));
        let state = state.reshape([rows, 1, width, value]);
        let (values, states) = match strengths {
            None => {
                let written = Tensor::cat(vec![state, behind.matmul(values.clone())], 1);
                let states = match decay {
                    None => written.cumsum(1),
                    Some(decay) => states(written, decay.sum_dim(2)),
                };
                (values, states)
            }
            Some(strengths) => {
                let (strengths, has_kernel) = (folded(strengths), delta_states::has_kernel(&keys, chunk));
                let erased = products(keys.clone(), keys.clone(), decay.as_ref()).tril(-1) * strengths.clone();
                let inverse = inverse_of_unit_lower(erased);
                let values = inverse.clone().matmul(values * strengths.clone());
                let erasing = inverse.matmul(multiplied(keys, kept) * strengths);
                let decays = decay.map(|decay| transposed(decay.sum_dim(2).exp()));
                let writes = Writes { values, erasing, behind, decays };
                if has_kernel { delta_states::overwritten(state, writes) } else { overwritten(state, writes) }
            }
        };
        let context = pairs.matmul(values) + queries.matmul(states.clone().narrow(1, 0, chunks));
        let context = part(context.reshape([batch, heads, chunks * chunk, value]), 2, 0, length);
        RecurrentOutput { context, state: states.narrow(1, chunks, 1).reshape([batch, heads, width, value]) }
    }
}

/// Writes of the delta-rule chunks.
pub(super) struct Writes {
    /// Writes to an empty state, `[X, M, C, D]`.
    pub values: Tensor<4>,
    /// Factor of the state before the chunk in the subtracted part, `[X, M, C, R]`.
    pub erasing: Tensor<4>,
    /// Keys, decayed to the end of the chunk, `[X, M, R, C]`.
    pub behind: Tensor<4>,
    /// Decay of the state over the chunk, `[X, M, R|1, 1]`.
    pub decays: Option<Tensor<4>>,
}

/// Writes of the delta-rule chunks, `[X, M, C, D]`, and states before each chunk and after the last one, `[X, M + 1, R, D]`, from the state `[X, 1, R, D]`.
fn overwritten(state: Tensor<4>, writes: Writes) -> (Tensor<4>, Tensor<4>) {
    let Writes { values, erasing, behind, decays } = writes;
    let chunks = values.dims()[1];
    let mut states = vec![state.clone()];
    let (mut written, mut state) = (Vec::with_capacity(chunks), state);
    for chunk in 0..chunks {
        let of = |x: &Tensor<4>| part(x.clone(), 1, chunk, 1);
        let own = of(&values) - of(&erasing).matmul(state.clone());
        let kept = multiplied(state, decays.as_ref().map(of));
        state = kept + of(&behind).matmul(own.clone());
        written.push(own);
        states.push(state.clone());
    }
    (joined(written, 1), joined(states, 1))
}

fn multiplied(x: Tensor<4>, factors: Option<Tensor<4>>) -> Tensor<4> {
    match factors {
        Some(factors) => x * factors,
        None => x,
    }
}

/// `sum_r x[i, r] y[j, r] exp(g[j + 1, r] + .. + g[i, r])` for `j <= i`, otherwise 0, `[X, M, C, C]` of `[X, M, C, R]` and decays `[X, M, C, R|1]`.
pub(super) fn products(x: Tensor<4>, y: Tensor<4>, log_decay: Option<&Tensor<4>>) -> Tensor<4> {
    let [rows, chunks, chunk, _] = x.dims();
    let shape = [rows, chunks, chunk, chunk];
    let products = match log_decay {
        None => x.matmul(y.swap_dims(2, 3)),
        Some(decay) if decay.dims()[3] == 1 => x.matmul(y.swap_dims(2, 3)) * sums_between(decay.clone()).exp().reshape(shape),
        Some(decay) => {
            let products = x.unsqueeze_dim::<5>(3) * y.unsqueeze_dim::<5>(2) * sums_between(decay.clone()).exp();
            products.sum_dim(4).reshape(shape)
        }
    };
    products.tril(0)
}

/// States before each of M chunks, and after the last one, `[X, M + 1, R, D]`: sums over the initial state and the chunks' writes, `[X, M + 1, R, D]`, each
/// decayed by the chunks since, `[X, M, 1, R|1]`.
fn states(written: Tensor<4>, log_decay: Tensor<4>) -> Tensor<4> {
    let [rows, count, width, value] = written.dims();
    let [.., channels] = log_decay.dims();
    let none = Tensor::zeros([rows, 1, 1, channels], (&log_decay.device(), log_decay.dtype()));
    let log_decay = Tensor::cat(vec![none, log_decay.reshape([rows, 1, count - 1, channels])], 2);
    let sums = sums_between(log_decay);
    if channels == 1 {
        let decays = sums.reshape([rows, 1, count, count]).exp().tril(0);
        return decays.matmul(written.reshape([rows, 1, count, width * value])).reshape([rows, count, width, value]);
    }
    let decays = sums.reshape([rows, count, count, channels]).permute([0, 3, 1, 2]).exp().tril(0);
    decays.matmul(written.swap_dims(1, 2)).swap_dims(1, 2)
}

/// `g[j + 1] + .. + g[i]` for `j < i`, otherwise 0, `[X, M, C (i), C (j), R]` of `[X, M, C, R]`.
fn sums_between(log_decay: Tensor<4>) -> Tensor<5> {
    let [rows, chunks, chunk, channels] = log_decay.dims();
    let later = Tensor::<2>::ones([chunk, chunk], (&log_decay.device(), log_decay.dtype())).tril(-1).reshape([1, 1, chunk, chunk, 1]);
    (log_decay.unsqueeze_dim::<5>(3).expand([rows, chunks, chunk, chunk, channels]) * later).cumsum(2)
}

/// `g[j + 1] + .. + g[C]`, `[X, M, C, R]`.
fn sums_behind(log_decay: Tensor<4>) -> Tensor<4> {
    let [rows, chunks, chunk, channels] = log_decay.dims();
    let end = Tensor::zeros([rows, chunks, 1, channels], (&log_decay.device(), log_decay.dtype()));
    if chunk == 1 {
        return end;
    }
    Tensor::cat(vec![log_decay.narrow(2, 1, chunk - 1), end], 2).flip([2]).cumsum(2).flip([2])
}

fn joined(mut parts: Vec<Tensor<4>>, dim: usize) -> Tensor<4> {
    if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, dim) }
}
