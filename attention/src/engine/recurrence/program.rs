//! What is computed: the operands of a recurrence, and what it gives.

use burn::tensor::Tensor;

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
    /// How strongly a position writes by the delta rule, `[B, H, N, 1]`, from 0 to 2 for keys of length 1: `S_t = S' + b_t k_t (v_t - S'^T k_t)^T` of the state
    /// `S' = exp(g_t) S_(t-1)` replaces what was written with the key before (Yang et al. 2024b, section 2.2; Schlag et al. 2021, section 4.2). Absent: nothing
    /// is replaced.
    pub strengths: Option<Tensor<4>>,
    /// Whether what is read is divided by the sum of its weights, `q_t . sum_j k_j` without decay (Katharopoulos et al. 2020, equation 9): for queries and keys
    /// that are not negative. The state has one more column then, the sum of the keys. What reads from nothing is 0.
    pub normalised: bool,
}

/// What a recurrence gives.
#[derive(Clone, Debug)]
pub struct RecurrentOutput {
    /// `[B, H, N, D]`.
    pub context: Tensor<4>,
    /// The state after the last position, `[B, H, R, D]`, or `[B, H, R, D + 1]` with the sum of the keys.
    pub state: Tensor<4>,
}
