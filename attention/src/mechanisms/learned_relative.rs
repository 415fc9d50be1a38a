//! Learned relative positions: the base model of adaptive attention span (Sukhbaatar et al. 2019, section 2.1).
//!
//! `logits_h[i, j] = q_i · (k_j + p_|i-j|) / sqrt(D)`, `q_i = x_i W_Q^h`, `k_j = m_j W_K^h`, for keys at most `S` positions away; others are hidden. The heads
//! share the vectors `p`. Distance scores are one product with all vectors, shifted into place. In encoders a key after the query uses the vector of the same
//! distance before it.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/learned-relative.svg")]

use super::relative::by_distance;
use crate::mechanisms::prelude::*;

/// Configuration of [`LearnedRelative`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LearnedRelativeConfig {
    /// Maximum distance of a visible key, `S`, at least 1 (default: the maximal length).
    pub max_distance: Option<usize>,
    /// Whether all layers of a stack share the vectors, as in the released code (default: no).
    pub shared_table: bool,
}

/// Logits with learned relative positions.
///
/// Should be created with [`LearnedRelativeConfig`].
#[derive(Module, Debug)]
pub struct LearnedRelative {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Vectors of the distances `0..=S`, `[S + 1, D]`.
    pub distances: Param<Tensor<2>>,
    heads: usize,
    kv_heads: usize,
    max_distance: usize,
    shared_table: bool,
}

impl Mechanism for LearnedRelativeConfig {
    type Module = LogitsOf<LearnedRelative>;
    const NAME: &'static str = "learned-relative";
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "LearnedRelative",
        description: "Adds a trained vector per distance to the key, as in the base model of adaptive spans.",
        source: "Sukhbaatar et al. 2019, section 2.1",
        links: &["https://arxiv.org/abs/1905.07799", "https://github.com/facebookresearch/adaptive-span"],
        state: "2 (S + 1) d",
        letters: &[("S", "longest distance that is seen")],
        differences: &[
            "Each layer has its own table, unless `shared_table` is true.",
            "The query's own position is visible, as in all other mechanisms. The released code hides it, as `own_position = false` of `adaptive-span` does.",
        ],
        tensors: &[("distances", "key vectors of the distances 0, 1, .. [distance, d_head]")],
        ..Card::DEFAULT
    };

    fn resolved(self, max_length: usize) -> Self {
        Self { max_distance: self.max_distance.or(Some(max_length)), ..self }
    }

    /// # Errors
    /// If the maximum distance is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one_if_given("max_distance", self.max_distance)
    }

    /// Initialises the logits with the usual projections; the table is normal with standard deviation 1, as in the released code.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> LearnedRelative {
        let linear = |name, width| init::linear(spec.d_model, width, spec.qkv_bias, &key.named(name), device);
        let max_distance = self.max_distance.unwrap_or(spec.max_length);
        LearnedRelative {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            distances: Init::Normal(1.0).parameter([max_distance + 1, spec.d_head()], &key.named("distances"), device),
            heads: spec.heads,
            kv_heads: spec.n_kv_heads(),
            max_distance,
            shared_table: self.shared_table,
        }
    }

    /// Sukhbaatar et al. 2019, section 2.1: `q (k + p)`.
    fn formula(&self) -> Option<Formula<'_>> {
        let logit = |query: &Query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let p = query.parameter("distances").row(&[query.distance(key)]);
            (dot(&q, &k) + dot(&q, p)) / (q.len() as f64).sqrt()
        };
        let shows = |query: &Query, key| query.distance(key) <= self.max_distance.unwrap_or(query.spec().max_length);
        Some(Formula::default().logit(logit).shows(shows))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d q"), (1, "d g"), (1, "D S"), (1, "D")]))
    }

    fn shared_parameters(&self) -> ParameterFormula {
        if self.shared_table { ParameterFormula::trained(&[(1, "D S"), (1, "D")]) } else { ParameterFormula::none() }
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("S", self.max_distance.unwrap_or(max_length))]
    }
}

impl Logits for LearnedRelative {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear_at(memory, &self.key, positions), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("relative logits are given the keys that they asked for");
        let d_head = keys.dims()[3];
        let queries = split_heads(linear_at(query, &self.query, positions) * (d_head as f64).powf(-0.5), self.heads);
        // Keys beyond the table are hidden; they use the last row.
        let row = |distance: i64| distance.unsigned_abs().min(self.max_distance as u64) as i32;
        let by_distance = by_distance(&self.distances, span, row);
        let relative = Content { queries: queries.clone(), keys: by_distance.unsqueeze_dims(&[0, 1]) };
        LogitTerms { relative: Some(relative), ..LogitTerms::content(queries, keys) }
    }

    fn visibility(&self) -> Option<Visibility> {
        Some(Visibility::window(self.max_distance, self.max_distance))
    }

    fn reach(&self) -> Option<usize> {
        Some(self.max_distance)
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        2.0 * d_head
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        let is_alike = self.distances.shape() == earlier.distances.shape();
        if self.shared_table && earlier.shared_table && is_alike { Self { distances: earlier.distances.clone(), ..self } } else { self }
    }
}
