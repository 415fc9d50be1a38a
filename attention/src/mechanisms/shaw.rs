//! Relative position representations (Shaw, Uszkoreit and Vaswani 2018, section 3.2).
//!
//! `logits_h[i, j] = x_i W_Q^h · (m_j W_K^h + a_{clip(j - i, k)}) / sqrt(D)`: a trained vector `a` per distance from `-k` to `k` is added to the key. More
//! distant keys use the vector of distance `k` on their side. The heads share the vectors.
//!
//! Distance scores are products with these vectors, shifted into place, so no vector per pair is materialised. Only keys have distance vectors here. Those of
//! values would need the weights of all pairs, which fused execution never materialises. In the paper's translation ablation (section 4.3), vectors of keys
//! suffice.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/shaw.svg")]

use super::relative::by_distance;
use crate::mechanisms::prelude::*;

/// Configuration of [`Shaw`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct ShawConfig {
    /// Clipping distance `k`: all keys beyond it on one side share a vector (default 16, as in the paper's base model). With 0 all keys share one vector, which
    /// changes no weight.
    pub max_relative_position: usize,
}

impl Default for ShawConfig {
    fn default() -> Self {
        Self { max_relative_position: 16 }
    }
}

/// Logits with relative position representations.
///
/// Should be created with [`ShawConfig`].
#[derive(Module, Debug)]
pub struct Shaw {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Vectors `a^K` of the distances `j - i` from `-k` to `k`, `[2 k + 1, D]`.
    pub relative_keys: Param<Tensor<2>>,
    heads: usize,
    kv_heads: usize,
    max_relative_position: usize,
}

impl Mechanism for ShawConfig {
    type Module = LogitsOf<Shaw>;
    const NAME: &'static str = "shaw";
    const CARD: Card = Card {
        variant: "Shaw",
        description: "Adds a trained vector per clipped distance to the key.",
        source: "Shaw, Uszkoreit and Vaswani 2018, section 3.2",
        links: &[
            "https://arxiv.org/abs/1803.02155",
            "https://github.com/tensorflow/tensor2tensor/blob/master/tensor2tensor/layers/common_attention.py",
        ],
        letters: &[("p", "greatest distance with a vector of its own, option `max_relative_position`")],
        differences: &["Values have no distance vectors, since their sum needs the weights of all pairs."],
        tensors: &[("relative_keys", "key vectors of the distances -k, .., k from query to key [distance, d_head]")],
        free_heads: true,
        ..Card::DEFAULT
    };

    /// Initialises the logits with the usual projections, and the vectors like the weights of a map from `2 k + 1` inputs.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Shaw {
        let linear = |name, width| init::linear(spec.d_model, width, false, &key.named(name), device);
        let (vectors, width) = (2 * self.max_relative_position + 1, spec.d_head());
        let xavier = Init::XavierUniform { fan_in: vectors, fan_out: width };
        Shaw {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            relative_keys: xavier.parameter([vectors, width], &key.named("relative_keys"), device),
            heads: spec.heads,
            kv_heads: spec.n_kv_heads(),
            max_relative_position: self.max_relative_position,
        }
    }

    /// Shaw et al. 2018, section 3.2: `q (k + a^K)`.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let q = query.projected("query", query.element());
            let mut k = query.projected("key", query.attended(key));
            let (i, j, farthest) = (query.position() as i64, query.position_of(key) as i64, self.max_relative_position as i64);
            let clipped = (j - i).max(-farthest).min(farthest);
            let a = query.parameter("relative_keys").row(&[(clipped + farthest) as usize]);
            k.iter_mut().zip(a).for_each(|(k, a)| *k += a);
            dot(&q, &k) / (q.len() as f64).sqrt()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d q"), (1, "d g"), (2, "D p"), (1, "D")]))
    }

    fn letters(&self, _max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("p", self.max_relative_position)]
    }
}

impl Logits for Shaw {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default().with_keys()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear_at(memory, &self.key, positions), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let queries = split_heads(linear_at(query, &self.query, positions) * (keys.dims()[3] as f64).powf(-0.5), self.heads);
        let farthest = self.max_relative_position as i64;
        // Distances run from key to query, and rows of the table from query to key.
        let row = |distance: i64| (farthest - distance.clamp(-farthest, farthest)) as i32;
        let by_distance = by_distance(&self.relative_keys, span, row);
        let relative = Content { queries: queries.clone(), keys: by_distance.unsqueeze_dims(&[0, 1]) };
        LogitTerms { relative: Some(relative), ..LogitTerms::content(queries, keys) }
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        2.0 * d_head
    }
}
