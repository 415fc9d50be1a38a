//! Adaptive input vectors and the adaptive softmax, for large vocabularies whose tokens are ordered by frequency.
//!
//! The vocabulary is cut into clusters: a head of the most frequent tokens and tails of ever rarer ones. The vectors of cluster `i` have the width
//! `C / div^i`, rounded down, in a model of width `C`.
//!
//! * Input (Baevski and Auli 2019, section 3): the vector `e` of a token of cluster `i` enters the model as `e P_i`, with a matrix `P_i` `[C / div^i, C]` for
//!   each cluster, the head too.
//! * Output (Grave et al. 2017, section 4; `torch.nn.AdaptiveLogSoftmaxWithLoss` without biases): one softmax is over the tokens of the head and the tails,
//!   each a single class, `p(token) = softmax(x [E_0; K]^T)`. A tail `i` has a softmax of its own over its tokens, `p(token | i) = softmax(x P_i^T E_i^T)`, and
//!   `p(token) = p(i) p(token | i)`.
//!
//! The tied form (Baevski and Auli 2019, section 3; `--tie-adaptive-weights` and `--tie-adaptive-proj` of fairseq) shares `E_i` between both and `P_i` of the
//! tails. The head of the softmax is not projected, as in fairseq: `P_0` is the input's alone.
//!
//! Initial vectors are normal with the standard deviation `(C / div^i)^-0.5`, projections and `K` Xavier-uniform, as in fairseq.
//!
//! # Which rows are computed
//!
//! The input computes all rows for all clusters and hides those of other clusters with a mask: shapes do not depend on the tokens, nothing is read from the
//! device, and the vectors are narrow. The loss selects the rows of each tail on the host, from the targets, which it reads: these rows are the fewer the larger
//! the tail is, which is what the adaptive softmax saves. A GPU is waited for where targets are read. A tail without a target in the batch has no gradient of this
//! loss. Nothing holds logits of all tokens for all rows but [`AdaptiveSoftmax::log_probabilities`], for generation and for label smoothing. The order of
//! all sums is fixed, as that of the plain loss is.

mod config;
mod softmax;
#[cfg(test)]
mod tests;

use burn::module::Module;
use burn::nn::{Embedding, Linear};
use burn::tensor::module::{embedding, linear};
use burn::tensor::{Int, Tensor};

pub use self::config::AdaptiveConfig;
pub(crate) use self::config::Cluster;
pub use self::softmax::{AdaptiveSoftmax, AdaptiveTables};

/// The vectors of a tail's tokens.
#[derive(Module, Debug)]
pub struct Tail {
    /// The matrix `E_i` `[V_i, C / div^i]`.
    pub tokens: Embedding,
    /// The matrix `P_i` `[C / div^i, C]`.
    pub projection: Linear,
}

/// What the input vectors have beside those of the head, which are [`TokenEmbedding::tokens`](crate::parts::embedding::TokenEmbedding::tokens).
///
/// Should be created with [`AdaptiveConfig`].
#[derive(Module, Debug)]
pub struct AdaptiveEmbedding {
    /// The matrix `P_0` `[C, C]` of the head.
    pub projection: Linear,
    /// The tails, from frequent tokens to rare ones.
    pub tails: Vec<Tail>,
}

impl AdaptiveEmbedding {
    /// Input vectors of `tokens` `[B, N]`, `[B, N, C]`; `head` has those of the first tokens, `[V_0, C]`.
    pub(crate) fn forward(&self, head: &Embedding, tokens: Tensor<2, Int>) -> Tensor<3> {
        let tails = self.tails.iter().map(|tail| (&tail.tokens, &tail.projection));
        let (mut first, mut vectors, mut maps) = (0, Vec::new(), Vec::new());
        for (table, projection) in std::iter::once((head, &self.projection)).chain(tails) {
            let size = table.weight.dims()[0];
            let own = tokens.clone().sub_scalar(first as i32);
            let is_inside = own.clone().greater_equal_elem(0).bool_and(own.clone().lower_elem(size as i32));
            let found = embedding(table.weight.val(), own.clamp(0, size as i32 - 1));
            let mask = is_inside.float().cast(found.dtype()).unsqueeze_dim::<3>(2);
            vectors.push(found * mask);
            maps.push(projection.weight.val());
            first += size;
        }
        // Of the vectors beside each other all but one are 0, so that one product projects all clusters.
        linear(Tensor::cat(vectors, 2), Tensor::cat(maps, 0), None)
    }

    /// Number of tokens in the tails.
    pub(crate) fn tokens(&self) -> usize {
        self.tails.iter().map(|tail| tail.tokens.weight.dims()[0]).sum()
    }
}
