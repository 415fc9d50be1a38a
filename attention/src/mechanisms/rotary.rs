//! Rotary positions, RoPE (Su et al. 2021, section 3.2).
//!
//! `logits_h[i, j] = (R_i x_i W_Q^h) · (R_j m_j W_K^h) / sqrt(D)`: dot-product attention with queries and keys rotated by their positions. `R_p` rotates pair
//! `c` of the first `r` channels of a head by the angle `p θ_c`, `θ_c = base^(-2 c / r)`. So a score depends on the relative position `i - j`, not on absolute
//! positions. Values are not rotated, and there are no parameters beyond the projections. With the option `qk_norm`, queries and keys are normalised before the
//! rotation, as in Qwen-3 and Gemma-3.
//!
//! Decoding caches keys after rotation, with their absolute positions. In a cache that moves keys (`rotary@streaming-llm`) they are rotated at every step. For
//! sequences longer than the training length, the option `scaling` slows the angles down: position interpolation (Chen et al. 2023), NTK-aware bases, also
//! dynamic ones, the rule of Llama 3.1, and YaRN (Peng et al. 2023, section 3).
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/rotary.svg")]

pub(super) mod formula;
mod scaling;
pub(super) mod tables;

use std::sync::{Arc, Mutex, PoisonError};

pub use self::scaling::RotaryScaling;
use self::tables::Tables;
use super::qk_norm::{HeadNorm, QkNorm, normalised};
use crate::engine::heads::repeat_heads;
pub use crate::engine::rotation::PairLayout;
use crate::engine::rotation::rotated;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::sink_columns::SinkColumns;

/// Configuration of [`Rotary`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct RotaryConfig {
    /// Pairing of channels: `half` (default), channels `c` and `c + r / 2`, as in Hugging Face files, or `interleaved`, channels `2 c` and `2 c + 1`, as in the
    /// paper. Both layouts compute the same scores from permuted projection rows.
    pub layout: PairLayout,
    /// Base of the angles, `rope_theta` of Hugging Face, greater than 1 (default 10000).
    pub base: f64,
    /// Fraction of a head's channels that are rotated, starting with the first, `partial_rotary_factor` of Hugging Face, greater than 0 and at most 1 (default
    /// 1). The product is rounded down to a whole number, which must be even. For no rotated channels use the mechanism `dot-product`.
    pub fraction: f64,
    /// Normalisation of queries and keys before the rotation: `none` (default), `rms` or `layer`, with a gain per channel that all heads share.
    pub qk_norm: QkNorm,
    /// Epsilon that these norms add to the mean of squares, greater than 0 (default 1e-6).
    pub qk_norm_epsilon: Option<f64>,
    /// Scale of the scores, greater than 0 (default `1 / sqrt(D)`). It equals `1 / sqrt(query_pre_attn_scalar)` of Hugging Face, which is `1 / sqrt(144)` in
    /// Gemma 2 with 27 billion parameters, whose heads have 128 channels.
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_scale: Option<f64>,
    /// Angle scaling for sequences longer than the training length: a table with `kind` `none` (default), `linear`, `ntk`, `dynamic`, `proportional`, `llama3`
    /// or `yarn`, the `factor`, and the further keys of `rope_parameters` of Hugging Face (`original_max_position_embeddings`, `partial_rotary_factor`,
    /// `low_freq_factor`, `high_freq_factor`, `beta_fast`, `beta_slow`, `attention_factor`, `mscale`, `mscale_all_dim`, `truncate`).
    pub scaling: RotaryScaling,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self {
            layout: PairLayout::Half,
            base: 10_000.0,
            fraction: 1.0,
            qk_norm: QkNorm::None,
            qk_norm_epsilon: None,
            score_scale: None,
            scaling: RotaryScaling::None,
        }
    }
}

/// Logits with rotary positions.
///
/// Should be created with [`RotaryConfig`].
#[derive(Module, Debug)]
pub struct Rotary {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Norm of queries.
    pub query_norm: Option<HeadNorm>,
    /// Norm of keys.
    pub key_norm: Option<HeadNorm>,
    #[module(skip)]
    tables: Arc<Tables>,
    #[module(skip)]
    by_length: Option<ByLength>,
    #[module(skip)]
    layout: PairLayout,
    score_scale: Option<f64>,
    #[module(skip)]
    cache: Option<SinkCache>,
    heads: usize,
    kv_heads: usize,
}

/// Angles that depend on the current sequence length.
#[derive(Clone, Debug)]
struct ByLength {
    scaling: RotaryScaling,
    base: f64,
    pairs: usize,
    /// Tables of the latest length, shared by the layers of a decoding step.
    last: Arc<Mutex<Option<Arc<Tables>>>>,
}

impl ByLength {
    fn tables(&self, length: usize) -> Arc<Tables> {
        let tables = Tables::shared(self.scaling.frequencies_at(self.base, self.pairs, length), self.scaling.magnitude());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(tables.clone());
        tables
    }
}

impl RotaryConfig {
    /// Number of rotated channels.
    fn rotated(&self, width: usize) -> usize {
        // 0.7 of 10 channels are 7, although the double-precision product is less.
        (self.fraction * width as f64 + 1e-6) as usize
    }
}

impl Mechanism for RotaryConfig {
    type Module = LogitsOf<Rotary>;
    const NAME: &'static str = "rotary";
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "Rotary",
        description: "Rotates queries and keys by angles proportional to their positions, so that scores depend on distances (RoPE).",
        source: "Su et al. 2021, section 3.2",
        links: &["https://arxiv.org/abs/2104.09864", "https://github.com/ZhuiyiTechnology/roformer"],
        differences: &[
            "The paper and the files of Llama by Meta pair neighbouring channels (`layout = \"interleaved\"`); the default is the layout of Hugging Face files.",
            "With `dynamic` scaling decoding rotates cached keys again for the current length; transformers leaves them unchanged. Beyond the original length a full forward pass differs from its decoding steps, since all its positions use the final length.",
            "The ramp of YaRN is linear in the index of a pair, as in the released code, and not in the number of its turns, as in the paper.",
        ],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the number of rotated channels is 0 or odd, or a number is out of range.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if !(self.base.is_finite() && self.base > 1.0) {
            return Err(check.refuse("base", self.base, "give a number greater than 1"));
        }
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            let remedy = "give a number greater than 0 and at most 1, or use the mechanism dot-product, which turns nothing";
            return Err(check.refuse("fraction", self.fraction, remedy));
        }
        let (width, rotated) = (spec.d_head(), self.rotated(spec.d_head()));
        if rotated == 0 || !rotated.is_multiple_of(2) {
            let remedy = format!("it turns {rotated} of the {width} channels of a head: choose both so that the number is even and not 0");
            return Err(check.refuse("fraction", self.fraction, remedy));
        }
        self.qk_norm.validate(self.qk_norm_epsilon, &check)?;
        if let Some(scale) = self.score_scale.filter(|scale| !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(scale)) {
            return Err(check.refuse("score_scale", scale, "give a number greater than 0, or leave it out"));
        }
        if matches!(self.scaling, RotaryScaling::Proportional { .. }) && self.fraction != 1.0 {
            let remedy = "leave it out: scaling.partial_rotary_factor says which share is turned";
            return Err(check.refuse("fraction", self.fraction, remedy));
        }
        self.scaling.validate(&check, rotated, false)
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.qk_norm.without_effect(option)
    }

    fn positioning(&self) -> Positioning {
        if self.scaling.is_dynamic() { Positioning::Length } else { Positioning::Movable }
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Rotary {
        let linear = |name, width| init::linear(spec.d_model, width, spec.qkv_bias, &key.named(name), device);
        let norm = |name| self.qk_norm.init(self.qk_norm_epsilon, spec, &key.named(name), device);
        let pairs = self.rotated(spec.d_head()) / 2;
        Rotary {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            query_norm: norm("query_norm"),
            key_norm: norm("key_norm"),
            tables: Tables::shared(self.scaling.frequencies(self.base, pairs), self.scaling.magnitude()),
            by_length: self.scaling.is_dynamic().then(|| ByLength { scaling: self.scaling, base: self.base, pairs, last: Arc::default() }),
            layout: self.layout,
            score_scale: self.score_scale,
            cache: spec.cache(),
            heads: spec.heads,
            kv_heads: spec.n_kv_heads(),
        }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(formula::of(self))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::query_key().plus(self.qk_norm.parameters()))
    }
}

impl Rotary {
    /// Splits projections `[B, N, H D]` into heads `[B, H, N, D]`, rotated by the positions from `start` on.
    fn turned(&self, x: Tensor<3>, heads: usize, start: usize, tables: &Tables) -> Tensor<4> {
        let [batch, length, width] = x.dims();
        let [cos, sin] = tables.of(start..start + length, &x.device(), x.dtype());
        rotated(x.reshape([batch, length, heads, width / heads]), cos, sin, self.layout).swap_dims(1, 2)
    }

    /// The same for arbitrary positions, either common to all batch rows or listed row after row.
    fn turned_to(&self, x: Tensor<3>, places: &[usize]) -> Tensor<4> {
        let ([batch, length, width], heads) = (x.dims(), self.heads);
        let [cos, sin] = self.tables.at(places, &x.device(), x.dtype());
        let x = x.reshape([batch * length / places.len(), places.len(), heads, width / heads]);
        rotated(x, cos, sin, self.layout).reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
    }

    /// Scores inside a cache, from unrotated queries `[B, N, H D]` and keys `[B, H, K, D]` (Xiao et al. 2023, section 3.2).
    fn terms_in(&self, cache: SinkCache, queries: Tensor<3>, keys: Tensor<4>, span: Span, positions: &Positions) -> LogitTerms {
        let [cos, sin] = self.tables.of(span.key_start..span.key_start + span.keys, &keys.device(), keys.dtype());
        let keys = rotated(keys.swap_dims(1, 2), cos, sin, self.layout).swap_dims(1, 2);
        let in_sequence = self.turned(queries.clone(), self.heads, span.query_start, &self.tables);
        let Some(columns) = SinkColumns::new(cache, span, positions) else { return LogitTerms::content(in_sequence, keys) };
        let sinks = repeat_heads(columns.sinks(keys.clone()), self.heads);
        let scores = self.turned_to(queries, &columns.places()).matmul(sinks.swap_dims(2, 3));
        LogitTerms::content(in_sequence, columns.others(keys)).plus(columns.scored(scores))
    }
}

impl Logits for Rotary {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default().with_keys()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        let keys = normalised(linear_at(memory, &self.key, positions), &self.key_norm);
        Some(match (self.cache, &self.by_length) {
            // Left padding shifts all positions of a row equally, which does not change scores.
            (None, None) => self.turned(keys, self.kv_heads, positions.start, &self.tables),
            // Keys that move inside the cache, or whose angles depend on the length, are rotated when scored.
            _ => split_heads(keys, self.kv_heads),
        })
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("rotary logits are given the keys that they asked for");
        let scale = self.score_scale.unwrap_or_else(|| (keys.dims()[3] as f64).powf(-0.5));
        let queries = normalised(linear_at(query, &self.query, positions), &self.query_norm) * scale;
        match (self.cache, &self.by_length) {
            (Some(cache), _) => self.terms_in(cache, queries, keys, span, positions),
            (None, Some(by_length)) => {
                let tables = by_length.tables(span.key_start + span.keys);
                let [cos, sin] = tables.of(span.key_start..span.key_start + span.keys, &keys.device(), keys.dtype());
                let keys = rotated(keys.swap_dims(1, 2), cos, sin, self.layout).swap_dims(1, 2);
                LogitTerms::content(self.turned(queries, self.heads, span.query_start, &tables), keys)
            }
            (None, None) => LogitTerms::content(self.turned(queries, self.heads, span.query_start, &self.tables), keys),
        }
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        d_head + self.cache.map_or(0.0, |cache| cache.sinks as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: RotaryConfig, head_width: usize) -> String {
        let place = LayerSpec::new(Role::Decoder, 8, 2).with_head_width(Some(head_width));
        AnyMechanism::from(config).validate(&place).unwrap_err().to_string()
    }

    #[test]
    fn layers_share_the_tables_of_a_length_until_the_next() {
        let scaling = RotaryScaling::Dynamic { factor: 3.0, original_max_position_embeddings: 7 };
        let [one, other] = [(); 2].map(|()| ByLength { scaling, base: 1e4, pairs: 3, last: Arc::default() });
        for length in [20, 21] {
            let made = Arc::downgrade(&one.tables(length));
            assert!(made.upgrade().is_some_and(|made| Arc::ptr_eq(&made, &other.tables(length))), "made anew for another layer");
            for layer in [&one, &other] {
                layer.tables(length + 1);
            }
            assert!(made.upgrade().is_none(), "tables of earlier lengths are kept");
        }
    }

    #[test]
    fn an_even_number_of_channels_is_turned() {
        let config = RotaryConfig::default();
        assert!(refused(config.clone(), 5).contains("`fraction` is 1: it turns 5 of the 5 channels"));
        for fraction in [0.0, -0.5, 1.5, f64::NAN] {
            assert!(refused(config.clone().with_fraction(fraction), 8).contains("use the mechanism dot-product"), "{fraction}");
        }
        assert!(refused(config.clone().with_fraction(0.1), 8).contains("it turns 0 of the 8 channels"));
        assert!(refused(config.clone().with_fraction(0.375), 8).contains("it turns 3 of the 8 channels"));
        for (fraction, width, rotated) in [(0.25, 64, 16), (0.4, 80, 32), (0.6, 10, 6), (0.3, 14, 4)] {
            assert_eq!(config.clone().with_fraction(fraction).rotated(width), rotated, "{fraction} of {width}");
        }
    }

    #[test]
    fn numbers_out_of_their_range_are_refused() {
        let config = RotaryConfig::default();
        for base in [1.0, f64::INFINITY, f64::NAN] {
            assert!(refused(config.clone().with_base(base), 4).contains("`base` is"), "{base}");
        }
        for scale in [0.0, -1.0, 1e-60, f64::NAN] {
            assert!(refused(config.clone().with_score_scale(scale), 4).contains("`score_scale` is"), "{scale}");
        }
        let scaled = |scaling: &str, width| {
            let config: AnyMechanism = with_scaling(scaling);
            refused(config.get::<RotaryConfig>().unwrap().clone(), width)
        };
        for kind in ["linear", "ntk"] {
            assert!(scaled(&format!("{{\"kind\": \"{kind}\", \"factor\": 0.5}}"), 4).contains("`scaling.factor` is 0.5"), "{kind}");
        }
        assert!(scaled("{\"kind\": \"ntk\", \"factor\": 2}", 2).contains("at least 4 channels"));
        let llama3 = |further: &str| scaled(&format!("{{\"kind\": \"llama3\", \"factor\": 8, {further}}}"), 4);
        assert!(llama3("\"original_max_position_embeddings\": 0").contains("`scaling.original_max_position_embeddings` is 0"));
        assert!(llama3("\"original_max_position_embeddings\": 9, \"low_freq_factor\": 4").contains("greater than low_freq_factor = 4"));
        let yarn = |further: &str| {
            scaled(&format!("{{\"kind\": \"yarn\", \"factor\": 8, \"original_max_position_embeddings\": 9, {further}}}"), 4)
        };
        assert!(yarn("\"beta_fast\": 1").contains("greater than beta_slow = 1"));
        assert!(yarn("\"beta_slow\": 0").contains("`scaling.beta_slow` is 0"));
        assert!(yarn("\"attention_factor\": -1").contains("`scaling.attention_factor` is -1"));
        assert!(yarn("\"mscale\": 1").contains("give mscale_all_dim with it"));
        assert!(yarn("\"mscale\": 1, \"mscale_all_dim\": 1, \"attention_factor\": 1").contains("`scaling.mscale` is 1: leave it out"));
        assert!(yarn("\"mscale_all_dim\": 1").contains("`scaling.mscale_all_dim` is 1"));
        assert!(
            scaled("{\"kind\": \"dynamic\", \"factor\": 2, \"original_max_position_embeddings\": 9}", 2).contains("at least 4 channels")
        );
        assert!(scaled("{\"kind\": \"dynamic\", \"factor\": 2, \"original_max_position_embeddings\": 0}", 4).contains("at least 1"));
        let proportional = |share: f64| scaled(&format!("{{\"kind\": \"proportional\", \"partial_rotary_factor\": {share}}}"), 4);
        assert!([0.0, 0.4, 1.5].iter().all(|&share| proportional(share).contains("`scaling.partial_rotary_factor` is")));
        let both: AnyMechanism = with_scaling("{\"kind\": \"proportional\"}");
        assert!(refused(both.get::<RotaryConfig>().unwrap().clone().with_fraction(0.5), 8).contains("`fraction` is 0.5: leave it out"));
    }

    fn with_scaling(scaling: &str) -> AnyMechanism {
        serde_json::from_str(&format!("{{\"name\": \"rotary\", \"scaling\": {scaling}}}")).unwrap()
    }

    #[test]
    fn unknown_and_missing_options_of_a_scaling_are_refused() {
        let refused = |scaling: &str| serde_json::from_str::<RotaryConfig>(&format!("{{\"scaling\": {scaling}}}")).unwrap_err().to_string();
        assert!(refused("{\"kind\": \"linear\", \"factor\": 2, \"beta_fast\": 3}").contains("beta_fast"));
        assert!(refused("{\"kind\": \"llama3\", \"factor\": 2}").contains("original_max_position_embeddings"));
        assert!(refused("{\"kind\": \"dynamic\", \"factor\": 2}").contains("original_max_position_embeddings"));
        assert!(refused("{\"kind\": \"longrope\", \"factor\": 2}").contains("longrope"));
    }
}
