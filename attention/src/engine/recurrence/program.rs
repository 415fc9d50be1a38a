//! Operands and results of a recurrence.

use burn::tensor::Tensor;

/// One linear recurrence, ready for execution.
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
    /// Log decay of the state per position, at most 0: one number per head, or one per key channel, `[B|1, H, N|1, R|1]`. `None`: no decay.
    pub log_decay: Option<Tensor<4>>,
    /// Write strengths of the delta rule, `[B, H, N, 1]`, from 0 to 2 for keys of length 1: `S_t = S' + b_t k_t (v_t - S'^T k_t)^T` with the state
    /// `S' = exp(g_t) S_(t-1)` replaces the value stored under the key (Yang et al. 2024b, section 2.2; Schlag et al. 2021, section 4.2). `None`: values are
    /// added.
    pub strengths: Option<Tensor<4>>,
    /// Whether reads are divided by the sum of their weights, `q_t . sum_j k_j` without decay (Katharopoulos et al. 2020, equation 9), for non-negative queries
    /// and keys. The state then has one more column, the sum of the keys. Reads from an empty state are 0.
    pub normalised: bool,
}

/// Results of a recurrence.
#[derive(Clone, Debug)]
pub struct RecurrentOutput {
    /// `[B, H, N, D]`.
    pub context: Tensor<4>,
    /// Final state, `[B, H, R, D]`, or `[B, H, R, D + 1]` with the sum of the keys.
    pub state: Tensor<4>,
}
