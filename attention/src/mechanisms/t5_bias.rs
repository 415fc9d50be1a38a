//! Relative position biases in buckets, as in T5 (Raffel et al. 2020, section 2.1).
//!
//! `logits_h[i, j] = (x_i W_Q^h) · (m_j W_K^h) + b_h[bucket(j - i)]`: dot-product attention with a trained bias per head and distance bucket, and no other
//! positions. Of `n` buckets on one side, half are single distances, `0 .. n / 2 - 1`. The others widen in proportion to the distance, up to `max_distance`;
//! the last bucket includes all larger distances. In a decoder all buckets are behind the query. In an encoder half of the buckets are for keys behind the
//! query, and half for keys ahead.
//!
//! Scores are not divided by `sqrt(D)`: instead, the initial query weights are smaller by this factor. The biases are a product of factors of width 1, one
//! number per distance, so no matrix of all pairs is materialised.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/t5-bias.svg")]

use super::relative::by_distance;
use crate::mechanisms::prelude::*;

/// Configuration of [`T5Bias`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct T5BiasConfig {
    /// Number of buckets, `relative_attention_num_buckets` of Hugging Face: at least 2 in decoders; even and at least 4 in encoders (default 32).
    pub buckets: usize,
    /// Distance at which the logarithmic buckets end, `relative_attention_max_distance` of Hugging Face, greater than the single-distance buckets (default 128). With
    /// the defaults, the last bucket starts at distance 113 in decoders and 91 in encoders.
    pub max_distance: usize,
}

impl Default for T5BiasConfig {
    fn default() -> Self {
        Self { buckets: 32, max_distance: 128 }
    }
}

/// Logits with relative position biases.
///
/// Should be created with [`T5BiasConfig`].
#[derive(Module, Debug)]
pub struct T5Bias {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Biases `b` `[buckets, H]`; in encoders the second half is for keys ahead of the query.
    pub relative_attention_bias: Param<Tensor<2>>,
    #[module(skip)]
    buckets: Buckets,
    heads: usize,
    kv_heads: usize,
}

/// Distance buckets.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    /// Number of buckets per side.
    of_side: usize,
    max_distance: usize,
    /// Whether keys ahead of the query have separate buckets.
    ahead: bool,
}

impl Buckets {
    /// Number of single-distance buckets.
    fn exact(&self) -> usize {
        self.of_side / 2
    }

    /// Bucket of a key `distance` positions behind the query, or ahead of it if negative.
    fn of(&self, distance: i64) -> usize {
        let (far, first) = match (self.ahead, distance < 0) {
            (true, true) => (distance.unsigned_abs() as usize, self.of_side),
            // No query of a decoder sees ahead.
            (false, true) => (0, 0),
            (_, false) => (distance as usize, 0),
        };
        let exact = self.exact();
        if far < exact {
            return first + far;
        }
        let share = (far as f64 / exact as f64).ln() / (self.max_distance as f64 / exact as f64).ln();
        // If a bucket starts exactly at a distance, rounding must not decide.
        let further = (share * (self.of_side - exact) as f64 + 1e-9) as usize;
        first + (exact + further).min(self.of_side - 1)
    }
}

impl T5BiasConfig {
    fn buckets_of(&self, role: Role) -> Buckets {
        let ahead = role != Role::Decoder;
        Buckets { of_side: if ahead { self.buckets / 2 } else { self.buckets }, max_distance: self.max_distance, ahead }
    }
}

impl Mechanism for T5BiasConfig {
    type Module = LogitsOf<T5Bias>;
    const NAME: &'static str = "t5-bias";
    const CARD: Card = Card {
        variant: "T5Bias",
        description: "Adds a trained bias per distance bucket to unscaled dot products (T5).",
        source: "Raffel et al. 2020, section 2.1",
        links: &["https://arxiv.org/abs/1910.10683", "https://github.com/google-research/text-to-text-transfer-transformer"],
        letters: &[("B", "buckets of distances, option `buckets`")],
        differences: &[
            "Each layer has its own biases; in the released code all layers of a stack share those of the first.",
            "As in the released code, scores are not divided by `sqrt(D)`, and the initial query weights are smaller by this factor; a model's own initialisation must do the same.",
            "A bucket that starts exactly at a whole distance includes that distance; in the released code the rounding of a single-precision logarithm decides. The default buckets do not differ.",
        ],
        tensors: &[(
            "relative_attention_bias",
            "biases of the buckets of distances [bucket, heads]; in encoders the second half is for keys ahead of the query",
        )],
        free_heads: true,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If there are too few buckets, an odd number of them in an encoder, or `max_distance` lies within the single-distance buckets.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if spec.role == Role::Decoder {
            if self.buckets < 2 {
                return Err(check.refuse("buckets", self.buckets, "give at least 2"));
            }
        } else if self.buckets < 4 || self.buckets % 2 == 1 {
            return Err(check.refuse(
                "buckets",
                self.buckets,
                "give an even number of at least 4: half of them are for keys ahead of the query",
            ));
        }
        let exact = self.buckets_of(spec.role).exact();
        if self.max_distance > exact {
            return Ok(());
        }
        let remedy = format!("give more than {exact}, the number of distances that have buckets of their own, or fewer buckets");
        Err(check.refuse("max_distance", self.max_distance, remedy))
    }

    /// Initialises the logits as Hugging Face does: query weights are normal with standard deviation `(C D)^-0.5`, key weights and biases with `C^-0.5`.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> T5Bias {
        let LayerSpec { d_model, heads, .. } = *spec;
        let normal = |inverse: usize| Init::Normal((inverse as f32).powf(-0.5));
        let linear = |name, width, inverse| Linear {
            weight: normal(inverse).parameter([d_model, width], &key.named(name).named("weight"), device),
            bias: None,
        };
        T5Bias {
            query: linear("query", spec.query_width(), d_model * spec.d_head()),
            key: linear("key", spec.key_width(), d_model),
            relative_attention_bias: normal(d_model).parameter([self.buckets, heads], &key.named("relative_attention_bias"), device),
            buckets: self.buckets_of(spec.role),
            heads,
            kv_heads: spec.n_kv_heads(),
        }
    }

    /// Raffel et al. 2020, section 2.1, with the buckets of the released code. Of `n` buckets per side, `n / 2` contain one distance each; the others start at
    /// `n / 2 (max_distance / (n / 2))^(k / (n - n / 2))`, `k = 0, 1, ..`.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let (i, j) = (query.position(), query.position_of(key));
            let (side, first) = match (query.spec().role, j > i) {
                (Role::Decoder, _) => (self.buckets, 0),
                (_, is_ahead) => (self.buckets / 2, if is_ahead { self.buckets / 2 } else { 0 }),
            };
            let (exact, distance) = ((side / 2) as f64, i.abs_diff(j) as f64);
            let begin = |k: usize| exact * (self.max_distance as f64 / exact).powf(k as f64 / (side - side / 2) as f64);
            let bucket = if distance < exact {
                distance as usize
            } else {
                // Powers are rounded: a bucket that starts at 16 may appear to start slightly later.
                let begun = (0..side - side / 2).filter(|&k| begin(k) <= distance * (1.0 + 1e-9)).count();
                side / 2 + begun - 1
            };
            dot(&q, &k) + query.parameter("relative_attention_bias").at(&[first + bucket, query.head])
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d q"), (1, "d g"), (1, "B H")]))
    }

    fn letters(&self, _max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("B", self.buckets)]
    }
}

impl Logits for T5Bias {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default().with_keys()
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear_at(memory, &self.key, positions), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let queries = split_heads(linear_at(query, &self.query, positions), self.heads);
        let (device, dtype) = (queries.device(), queries.dtype());
        let biases = by_distance(&self.relative_attention_bias, span, |distance| self.buckets.of(distance) as i32);
        let distances = biases.dims()[0];
        let biases = biases.swap_dims(0, 1).reshape([1, self.heads, distances, 1]);
        let relative = Content { queries: Tensor::ones([1, self.heads, span.queries, 1], (&device, dtype)), keys: biases };
        LogitTerms { relative: Some(relative), ..LogitTerms::content(queries, keys) }
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        d_head + 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First distance of each bucket.
    fn begins(buckets: Buckets, sign: i64) -> Vec<usize> {
        let of = |distance: usize| buckets.of(sign * distance as i64);
        let first = usize::from(sign < 0);
        (first..2000).filter(|&distance| distance == first || of(distance) != of(distance - 1)).collect()
    }

    #[test]
    fn buckets_begin_where_those_of_the_released_code_do() {
        let config = T5BiasConfig::default();
        let causal = config.buckets_of(Role::Decoder);
        let far = [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113];
        assert_eq!(begins(causal, 1), (0..=16).chain(far).collect::<Vec<_>>());
        assert_eq!((causal.of(112), causal.of(113), causal.of(1_000_000), causal.of(-3)), (30, 31, 31, 0));
        let both = config.buckets_of(Role::Encoder);
        let far = [12, 16, 23, 32, 46, 64, 91];
        assert_eq!(begins(both, 1), (0..=8).chain(far).collect::<Vec<_>>());
        assert_eq!(begins(both, -1), (1..=8).chain(far).collect::<Vec<_>>());
        for distance in 1..200 {
            assert_eq!(both.of(-distance), both.of(distance) + 16, "ahead by {distance}");
        }
    }

    #[test]
    fn a_bucket_that_begins_at_a_whole_distance_holds_it() {
        // 16 buckets from 16 to 256: the fourth starts at 32, the eighth at 64.
        let buckets = T5BiasConfig::default().with_max_distance(256).buckets_of(Role::Decoder);
        assert_eq!([31, 32, 63, 64, 127, 128].map(|distance| buckets.of(distance)), [19, 20, 23, 24, 27, 28]);
    }

    #[test]
    fn every_bucket_has_a_distance_where_there_are_enough() {
        for (buckets, max_distance) in [(2, 5), (3, 9), (8, 40), (31, 500)] {
            let config = T5BiasConfig::default().with_buckets(buckets).with_max_distance(max_distance);
            let side = config.buckets_of(Role::Decoder);
            let found: Vec<usize> = begins(side, 1).into_iter().map(|distance| side.of(distance as i64)).collect();
            assert_eq!(found, (0..buckets).collect::<Vec<_>>(), "{buckets} up to {max_distance}");
            assert!(*begins(side, 1).last().unwrap() <= max_distance);
        }
    }

    #[test]
    fn impossible_buckets_are_refused() {
        let refused = |role, buckets, max_distance| {
            let config = T5BiasConfig { buckets, max_distance };
            AnyMechanism::from(config).validate(&LayerSpec::new(role, 8, 2)).unwrap_err().to_string()
        };
        assert!(refused(Role::Decoder, 1, 128).contains("`buckets` is 1: give at least 2"));
        for buckets in [0, 2, 3, 5] {
            assert!(refused(Role::Encoder, buckets, 128).contains("an even number of at least 4"), "{buckets}");
        }
        assert!(refused(Role::Decoder, 32, 16).contains("`max_distance` is 16: give more than 16"));
        assert!(refused(Role::Encoder, 32, 8).contains("give more than 8"));
        assert_eq!(AnyMechanism::from(T5BiasConfig { buckets: 3, max_distance: 2 }).validate(&LayerSpec::new(Role::Decoder, 8, 2)), Ok(()));
    }
}
