//! The input vectors of all clusters.

use burn::module::Module;
use burn::nn::{Embedding, Linear};
use burn::tensor::module::{embedding, linear};
use burn::tensor::{Int, Tensor};

/// Vectors of a tail's tokens.
#[derive(Module, Debug)]
pub struct Tail {
    /// The matrix `E_i` `[V_i, C / div^i]`.
    pub tokens: Embedding,
    /// The matrix `P_i` `[C / div^i, C]`.
    pub projection: Linear,
}

/// Input vectors except those of the head, which are [`TokenEmbedding::tokens`](crate::parts::embedding::TokenEmbedding::tokens).
///
/// Should be created with [`AdaptiveConfig`](super::AdaptiveConfig).
#[derive(Module, Debug)]
pub struct AdaptiveEmbedding {
    /// The matrix `P_0` `[C, C]` of the head.
    pub projection: Linear,
    /// The tails, from frequent tokens to rare ones.
    pub tails: Vec<Tail>,
}

impl AdaptiveEmbedding {
    /// Input vectors of `tokens` `[B, N]`, `[B, N, C]`; `head` holds those of the first tokens, `[V_0, C]`.
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
        // All concatenated vectors but one are 0, so one product projects all clusters.
        linear(Tensor::cat(vectors, 2), Tensor::cat(maps, 0), None)
    }

    /// Number of tokens in the tails.
    pub(crate) fn tokens(&self) -> usize {
        self.tails.iter().map(|tail| tail.tokens.weight.dims()[0]).sum()
    }
}
