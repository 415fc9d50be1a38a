//! Adaptive input vectors and the adaptive softmax, for large vocabularies whose tokens are ordered by frequency.
//!
//! The vocabulary is cut into clusters: a head of the most frequent tokens and tails of increasingly rare ones. The vectors of cluster `i` have width
//! `C / div^i`, rounded down, in a model of width `C`.
//!
//! * Input (Baevski and Auli 2019, section 3): the vector `e` of a token of cluster `i` enters the model as `e P_i`, with a matrix `P_i` `[C / div^i, C]` for
//!   each cluster, the head too.
//! * Output (Grave et al. 2017, section 4; `torch.nn.AdaptiveLogSoftmaxWithLoss` without biases): one softmax is over the tokens of the head and the tails,
//!   each a single class, `p(token) = softmax(x [E_0; K]^T)`. A tail `i` has a softmax of its own over its tokens, `p(token | i) = softmax(x P_i^T E_i^T)`, and
//!   `p(token) = p(i) p(token | i)`.
//!
//! The tied form (Baevski and Auli 2019, section 3; `--tie-adaptive-weights` and `--tie-adaptive-proj` of fairseq) shares `E_i` between input and output, and
//! `P_i` of the tails. As in fairseq, the head of the softmax is not projected: only the input uses `P_0`.
//!
//! Initial vectors are normal with the standard deviation `(C / div^i)^-0.5`, projections and `K` Xavier-uniform, as in fairseq.
//!
//! # Which rows are computed
//!
//! The input computes all rows for all clusters and masks other clusters' rows: shapes do not depend on the tokens, nothing is read from the device, and the
//! vectors are narrow. The loss selects the rows of each tail on the host from the targets, which it reads from the device. Larger tails have fewer rows, the
//! saving of the adaptive softmax; a GPU synchronises when targets are read. A tail without targets in the batch receives no gradient from this loss. Only
//! [`AdaptiveSoftmax::log_probabilities`], for generation and label smoothing, materialises logits of all tokens for all rows. The order of all sums is fixed,
//! as in the plain loss.

mod config;
mod embedding;
mod softmax;
#[cfg(test)]
mod tests;

pub use self::config::AdaptiveConfig;
pub(crate) use self::config::Cluster;
pub use self::embedding::{AdaptiveEmbedding, Tail};
pub use self::softmax::{AdaptiveSoftmax, AdaptiveTables};
