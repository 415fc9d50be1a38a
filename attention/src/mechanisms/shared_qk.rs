//! Shared-QK attention (Kitaev, Kaiser and Levskaya 2020, section 2).
//!
//! `logits_h[i, j] = q_i · q_j / (‖q_j‖ sqrt(D))`: one projection serves as query and key, and keys have length 1. A query matches itself best, so it sees its
//! own position only if it sees no other key: the own score is reduced by 110 plus twice the query's maximum possible score. Beside any other key, the own
//! weight is less than `e^-110` of that key's weight, which is 0 in 32 bits.
//!
//! LSH attention (`lsh`) scores the members of a bucket in the same way. Any pattern can restrict these logits: `[shared-qk@local-1d,lsh]` alternates local layers
//! with LSH attention. In the released code of Reformer, local layers have separate queries and keys.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/shared-qk.svg")]

use burn::tensor::DType;

use super::relative::factors_of_distances;
use crate::engine::row_norm::{self, RowNorm};
use crate::mechanisms::prelude::*;

/// Scale of the logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Unit keys, and queries divided by the square root of their width (the paper).
    #[default]
    Paper,
    /// Unit keys only (trax and transformers).
    Code,
}

/// Configuration of [`SharedQk`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SharedQkConfig {
    /// Scale of the logits (default: as in the paper).
    pub scale: Scale,
}

/// Logits with a shared projection for queries and keys.
///
/// Should be created with [`SharedQkConfig`].
#[derive(Module, Debug)]
pub struct SharedQk {
    /// Shared projection of queries and keys `[C, C]`, split into heads.
    pub query_key: Linear,
    #[module(skip)]
    scale: Scale,
    heads: usize,
}

/// Minimum difference between a query's own score and that of any other key.
// If a query sees only itself, score gradients are differences that are 0 up to rounding. A mixture multiplies them by the scores, and 100,000, as in public
// code, would enlarge them.
const MARGIN: f64 = 110.0;

/// Keys of shared vectors `[B, H, K, D]`: their directions.
pub(super) fn unit(shared: Tensor<4>) -> Tensor<4> {
    // The epsilon maps a zero query to a zero key.
    let scale = row_norm::Scale { averages: false, epsilon: 1e-12, factor: 1.0 };
    RowNorm { x: shared, scale, gain: None, gate: None }.execute()
}

/// Queries of shared vectors `[B, H, Q, D]`.
pub(super) fn scaled(shared: Tensor<4>, scale: Scale) -> Tensor<4> {
    let width = shared.dims()[3] as f64;
    if scale == Scale::Paper { shared * width.powf(-0.5) } else { shared }
}

impl Mechanism for SharedQkConfig {
    type Module = LogitsOf<SharedQk>;
    const NAME: &'static str = "shared-qk";
    const CARD: Card = Card {
        variant: "SharedQk",
        description: "Dot-product attention with one projection for queries and normalised keys (Reformer).",
        source: "Kitaev, Kaiser and Levskaya 2020, section 2",
        links: &["https://arxiv.org/abs/2001.04451", "https://github.com/google/trax/tree/master/trax/models/reformer"],
        differences: &["Two of three public implementations do not divide by `sqrt(D)` (`scale = \"code\"`)."],
        tensors: &[("query_key.weight", "shared projection of queries and keys [d_in, d_out]; heads lie side by side in d_out")],
        // Only whether a key is the query's own matters, which is the same in a cache.
        positioning: Some(Positioning::None),
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> SharedQk {
        let LayerSpec { d_model, heads, .. } = *spec;
        SharedQk { query_key: init::linear(d_model, d_model, false, &key.named("query_key"), device), scale: self.scale, heads }
    }

    /// Kitaev, Kaiser and Levskaya 2020, section 2.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let (q, k) = (query.projected("query_key", query.element()), query.projected("query_key", query.attended(key)));
            let scale = if self.scale == Scale::Paper { (q.len() as f64).sqrt() } else { 1.0 };
            let own = if query.distance(key) == 0 { 1e5 } else { 0.0 };
            dot(&q, &k) / (dot(&k, &k).sqrt() * scale) - own
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d q")]))
    }
}

impl Logits for SharedQk {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default().with_keys()
    }

    fn keys(&self, memory: Tensor<3>, _positions: &Positions) -> Option<Tensor<4>> {
        Some(unit(split_heads(linear(memory, &self.query_key), self.heads)))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let queries = scaled(split_heads(linear(query, &self.query_key), self.heads), self.scale);
        // Keys have length 1, so no score exceeds the length of the query. Squares of 16-bit numbers are summed in 32 bits.
        let greatest = queries.clone().detach().cast(DType::F32).square().sum_dim(3).sqrt();
        let penalties = (greatest * 2.0 + MARGIN).cast(queries.dtype());
        let is_own = factors_of_distances(span, &queries, |_, distance| if distance == 0 { -1.0 } else { 0.0 });
        LogitTerms { relative: Some(Content { queries: penalties, keys: is_own }), ..LogitTerms::content(queries, keys) }
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        d_head + 1.0
    }
}
