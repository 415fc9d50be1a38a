//! Relative positions of Transformer-XL (Dai et al. 2019, section 3.3).
//!
//! `logits_h[i, j] = ((q_i + u_h) · k_j + (q_i + v_h) · W_R^h r_{i-j}) / sqrt(D)`, `q_i = x_i W_Q^h`, `k_j = m_j W_K^h`: a content term and a position term,
//! each with its own bias. The position term uses a fixed sinusoid `r` of the model width per distance. It is computed once for each of the `Q + K - 1`
//! distances and shifted into place by a [`relative_shift`](crate::engine::relative_shift).
//!
//! The logits do not depend on absolute positions. A memory carried over from earlier segments
//! ([`AttentionInput::segment`](crate::contract::AttentionInput::segment)) may have any length, also longer in evaluation than in training. Keys after the
//! query have negative distances, so encoders are supported.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/relative.svg")]

use std::sync::{Arc, Mutex};

use crate::engine::reference;
use crate::mechanisms::prelude::*;

/// Configuration of [`Relative`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct RelativeConfig {
    /// Distances beyond this one, at least 1, are clamped to it (default: no clamping). For evaluation with a long memory.
    pub clamp_length: Option<usize>,
    /// Maximum number of visible keys per query, its own included, at least 1; older keys are hidden (default: no limit).
    ///
    /// With a memory of `M` elements, `M + 1` lets the first query of a segment see the whole memory, and every other query the same number of keys. The
    /// released code shows `M` keys, so that its first memory element is never visible.
    pub same_length: Option<usize>,
    /// Whether all layers of a stack share `u` and `v`, the default of the released code, where `untie_r` is false (default here: no).
    pub shared_biases: bool,
}

/// Logits with relative positions.
///
/// Should be created with [`RelativeConfig`].
#[derive(Module, Debug)]
pub struct Relative {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]` of contents, split into key heads.
    pub key: Linear,
    /// Key projection `W_R` `[C, H D]` of distances, split into heads.
    pub position: Linear,
    /// `u`, `[H, D]`.
    pub content_bias: Param<Tensor<2>>,
    /// `v`, `[H, D]`.
    pub position_bias: Param<Tensor<2>>,
    #[module(skip)]
    sinusoids: Sinusoids,
    heads: usize,
    kv_heads: usize,
    clamp_length: Option<usize>,
    same_length: Option<usize>,
    shared_biases: bool,
}

impl Mechanism for RelativeConfig {
    type Module = LogitsOf<Relative>;
    const NAME: &'static str = "relative";
    const CARD: Card = Card {
        variant: "Relative",
        description: "Scores content and sinusoidal relative positions, with memory of any length (Transformer-XL).",
        source: "Dai et al. 2019, section 3.3",
        links: &["https://arxiv.org/abs/1901.02860", "https://github.com/kimiyoung/transformer-xl"],
        differences: &[
            "Each layer has its own `u` and `v`, as with `untie_r` in the released code; `shared_biases` shares them across layers.",
            "Dropout is not applied to the table of sinusoids.",
            "Keys beyond the causal ones are scored correctly rather than left to the mask.",
            "`same_length` counts keys, the query's own included.",
        ],
        tensors: &[
            ("position.weight", "key projection of distances [d_in, d_out]; heads lie side by side in d_out"),
            ("content_bias", "u, added to queries that score contents [heads, d_head]"),
            ("position_bias", "v, added to queries that score distances [heads, d_head]"),
        ],
        free_heads: true,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If an option is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("clamp_length", self.clamp_length)?;
        check.at_least_one_if_given("same_length", self.same_length)
    }

    /// Initialises the logits with the usual projections; `u` and `v` are normal with standard deviation 0.02, as in the released code.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Relative {
        let LayerSpec { d_model, heads, .. } = *spec;
        let projection = |name, width| init::linear(d_model, width, false, &key.named(name), device);
        let bias = |name| Init::Normal(0.02).parameter([heads, spec.d_head()], &key.named(name), device);
        Relative {
            query: projection("query", spec.query_width()),
            key: projection("key", spec.key_width()),
            position: projection("position", spec.query_width()),
            content_bias: bias("content_bias"),
            position_bias: bias("position_bias"),
            sinusoids: Sinusoids { width: d_model, rows: Arc::default() },
            heads,
            kv_heads: spec.n_kv_heads(),
            clamp_length: self.clamp_length,
            same_length: self.same_length,
            shared_biases: self.shared_biases,
        }
    }

    /// Dai et al. 2019, section 3.3: `q k + q W_R r + u k + v W_R r`, each term by itself.
    fn formula(&self) -> Option<Formula<'_>> {
        let logit = |query: &Query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let far = self.clamp_length.map_or(f64::INFINITY, |length| length as f64);
            let distance = (query.position() as f64 - query.position_of(key) as f64).clamp(-far, far);
            let (width, sines) = (query.spec().d_model, query.spec().d_model.div_ceil(2));
            let angle = |pair: usize| distance * 10_000f64.powf(-2.0 * pair as f64 / width as f64);
            let sinusoid: Vec<f64> = (0..width).map(|c| if c < sines { angle(c).sin() } else { angle(c - sines).cos() }).collect();
            let r = query.projected("position", &sinusoid);
            let [u, v] = ["content_bias", "position_bias"].map(|bias| query.parameter(bias).row(&[query.head]));
            (dot(&q, &k) + dot(&q, &r) + dot(u, &k) + dot(v, &r)) / (q.len() as f64).sqrt()
        };
        let shows = |query: &Query, key| self.same_length.is_none_or(|keys| query.position_of(key) + keys > query.position());
        Some(Formula::default().logit(logit).shows(shows))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(2, "d q"), (1, "d g"), (2, "q")]))
    }

    fn shared_parameters(&self) -> ParameterFormula {
        if self.shared_biases { ParameterFormula::trained(&[(2, "q")]) } else { ParameterFormula::none() }
    }
}

/// Sinusoids `[sin | cos]` of distances, computed in double precision on the host and cached.
#[derive(Clone, Debug)]
struct Sinusoids {
    width: usize,
    /// Rows of the distances 0, 1, ...
    rows: Arc<Mutex<Vec<f32>>>,
}

impl Sinusoids {
    /// `[distances, C]`. An odd width has one more sine than cosines.
    fn table(&self, distances: &[i64], device: &Device) -> Tensor<2> {
        let width = self.width;
        let sines = width.div_ceil(2);
        let angle = |distance: usize, pair: usize| distance as f64 / 10_000f64.powf(2.0 * pair as f64 / width as f64);
        let mut rows = self.rows.lock().expect("no panic happens while the table is locked");
        let farthest = distances.iter().map(|distance| distance.unsigned_abs() as usize).max().unwrap_or_default();
        for distance in rows.len() / width..=farthest {
            rows.extend((0..sines).map(|pair| angle(distance, pair).sin() as f32));
            rows.extend((0..width - sines).map(|pair| angle(distance, pair).cos() as f32));
        }
        let mut values = Vec::with_capacity(distances.len() * width);
        for &distance in distances {
            let row = &rows[distance.unsigned_abs() as usize * width..][..width];
            let sign = if distance < 0 { -1.0 } else { 1.0 };
            values.extend(row[..sines].iter().map(|sine| sign * sine));
            values.extend_from_slice(&row[sines..]);
        }
        Tensor::from_data(TensorData::new(values, [distances.len(), width]), device)
    }
}

/// The `Q + K - 1` distances `i - j` between the queries and keys of a span, in descending order: the columns that [`relative_shift`] expects.
fn distances(span: Span) -> Vec<i64> {
    let farthest = (span.query_start + span.queries) as i64 - 1 - span.key_start as i64;
    (0..(span.queries + span.keys) as i64 - 1).map(|column| farthest - column).collect()
}

/// One number per head of the queries `[B, H, Q, R]` and distance of a span, `[1, H, Q + K - 1, 1]`: keys of a product of factors of width 1, so no matrix of
/// all pairs is materialised.
pub(super) fn factors_of_distances(span: Span, queries: &Tensor<4>, factor: impl Fn(usize, i64) -> f32) -> Tensor<4> {
    let (heads, distances) = (queries.dims()[1], distances(span));
    let factors = (0..heads).flat_map(|head| distances.iter().map(|&distance| factor(head, distance)).collect::<Vec<_>>()).collect();
    Tensor::from_data(TensorData::new(factors, [1, heads, distances.len(), 1]), (&queries.device(), queries.dtype()))
}

/// Rows of a table `[rows, R]` for the distances of a span, in their order, `[Q + K - 1, R]`.
pub(super) fn by_distance(table: &Param<Tensor<2>>, span: Span, row: impl Fn(i64) -> i32) -> Tensor<2> {
    let table = table.val();
    let rows: Vec<i32> = distances(span).into_iter().map(row).collect();
    let columns = rows.len();
    let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [columns]), &table.device());
    table.select(0, rows)
}

impl Logits for Relative {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear_at(memory, &self.key, positions), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("relative logits are given the keys that they asked for");
        let (heads, d_model, d_head) = (self.heads, query.dims()[2], keys.dims()[3]);
        let scale = (d_head as f64).powf(-0.5);
        let query = linear_at(query, &self.query, positions);
        let width = heads * d_head;
        let with_bias = |bias: &Param<Tensor<2>>| (query.clone() + bias.val().reshape([1, 1, width])) * scale;

        let farthest = self.clamp_length.map_or(i64::MAX, |length| length as i64);
        let distances: Vec<i64> = distances(span).into_iter().map(|distance| distance.clamp(-farthest, farthest)).collect();
        let sinusoids = self.sinusoids.table(&distances, &query.device()).cast(query.dtype());
        let scored = split_heads(with_bias(&self.position_bias), heads);
        let relative = if span.queries * heads < d_model {
            // (q + v) (r W_R)^T = ((q + v) W_R^T) r^T; for a few queries the second form takes less time than projecting all distances.
            let weights = self.position.weight.val().reshape([1, d_model, heads, d_head]).swap_dims(1, 2);
            Content { queries: reference::logits(LogitTerms::content(scored, weights), d_model), keys: sinusoids.unsqueeze_dims(&[0, 0]) }
        } else {
            let projected = linear(sinusoids, &self.position).reshape([distances.len(), heads, d_head]).swap_dims(0, 1);
            Content { queries: scored, keys: projected.unsqueeze_dim(0) }
        };
        LogitTerms { relative: Some(relative), ..LogitTerms::content(split_heads(with_bias(&self.content_bias), heads), keys) }
    }

    fn visibility(&self) -> Option<Visibility> {
        self.same_length.map(|keys| Visibility::window(keys - 1, usize::MAX))
    }

    fn reach(&self) -> Option<usize> {
        self.same_length.map(|keys| keys - 1)
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        2.0 * d_head
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        let is_alike = self.content_bias.shape() == earlier.content_bias.shape();
        if !(self.shared_biases && earlier.shared_biases && is_alike) {
            return self;
        }
        Self { content_bias: earlier.content_bias.clone(), position_bias: earlier.position_bias.clone(), ..self }
    }
}
