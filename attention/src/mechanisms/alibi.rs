//! Attention with linear biases, ALiBi (Press, Smith and Lewis 2022, section 3).
//!
//! `logits_h[i, j] = (x_i W_Q^h) · (m_j W_K^h) / sqrt(D) - m_h |i - j|`: dot-product attention with a linear distance penalty and no other positional
//! information. The slopes are not trained: `m_h = 2^(-8 h / H)` for `h = 1..H` if `H` is a power of two. Otherwise the slopes are those of the next lower
//! power `P`, followed by the 1st, 3rd, 5th, ... slope for `2 P` heads.
//!
//! The biases are a product of factors of width 1, one number per distance, so no matrix of all pairs is materialised. In an encoder, which the paper does not
//! treat, the penalty is symmetric. In a cache that moves keys (`alibi@streaming-llm`) distances are those inside the cache.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/alibi.svg")]

use super::relative::factors_of_distances;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::sink_columns::SinkColumns;

/// Configuration of [`Alibi`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct AlibiConfig {
    /// Slopes `m` of the heads, each at least 0 (default: the paper's slopes).
    pub slopes: Option<Vec<f64>>,
}

/// Logits with linear distance biases.
///
/// Should be created with [`AlibiConfig`].
#[derive(Module, Debug)]
pub struct Alibi {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    #[module(skip)]
    slopes: Vec<f64>,
    #[module(skip)]
    cache: Option<SinkCache>,
    kv_heads: usize,
}

/// The paper's slopes for `heads` heads.
pub fn slopes(heads: usize) -> Vec<f64> {
    let geometric = |count: usize| (1..=count).map(move |head| (-8.0 * head as f64 / count as f64).exp2());
    let power = 1 << heads.max(1).ilog2();
    geometric(power).chain(geometric(2 * power).step_by(2)).take(heads).collect()
}

impl Mechanism for AlibiConfig {
    type Module = LogitsOf<Alibi>;
    const NAME: &'static str = "alibi";
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "Alibi",
        description: "Subtracts a penalty proportional to the distance from dot-product scores (ALiBi).",
        source: "Press, Smith and Lewis 2022, section 3",
        links: &["https://arxiv.org/abs/2108.12409", "https://github.com/ofirpress/attention_with_linear_biases"],
        positioning: Some(Positioning::Movable),
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the number of slopes differs from the number of heads, or a slope is negative or not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let Some(slopes) = &self.slopes else { return Ok(()) };
        let check = spec.check(Self::NAME);
        if slopes.len() != spec.heads {
            return Err(check.refuse("slopes", format!("a list of {}", slopes.len()), format!("give {}, one for each head", spec.heads)));
        }
        slopes.iter().try_for_each(|&slope| check.non_negative("slopes", slope))
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Alibi {
        let linear = |name, width| init::linear(spec.d_model, width, spec.qkv_bias, &key.named(name), device);
        let slopes = self.slopes.clone().unwrap_or_else(|| slopes(spec.heads));
        Alibi {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            slopes,
            cache: spec.cache(),
            kv_heads: spec.n_kv_heads(),
        }
    }

    /// Press et al. 2022, section 3: slopes `2^(-8 h / H)`; for other head counts, followed by every second slope for twice as many heads.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let (head, mut power) = (query.head, 1);
            while power * 2 <= query.spec().heads {
                power *= 2;
            }
            let share = if head < power { (head + 1) as f64 / power as f64 } else { (2 * (head - power) + 1) as f64 / (2 * power) as f64 };
            let slope = self.slopes.as_ref().map_or(2f64.powf(-8.0 * share), |slopes| slopes[head]);
            dot(&q, &k) / (q.len() as f64).sqrt() - slope * query.distance(key) as f64
        }))
    }
}

impl Logits for Alibi {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear_at(memory, &self.key, positions), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let heads = self.slopes.len();
        let scale = (keys.dims()[3] as f64).powf(-0.5);
        let queries = split_heads(linear_at(query, &self.query, positions) * scale, heads);
        let columns = self.cache.and_then(|cache| SinkColumns::new(cache, span, positions));
        // If queries moved, distances beyond the window belong to sinks, which are scored separately, and to hidden keys.
        let farthest = columns.as_ref().map_or(u64::MAX, |columns| columns.cache().window as u64 - 1);
        let bias = |head: usize, distance: u64| (-self.slopes[head] * distance as f64) as f32;
        let in_sequence = |head, distance: u64| if distance > farthest { 0.0 } else { bias(head, distance) };
        let biases = factors_of_distances(span, &queries, |head, distance| in_sequence(head, distance.unsigned_abs()));
        let ones = Tensor::ones([1, heads, span.queries, 1], (&queries.device(), queries.dtype()));
        let relative = Content { queries: ones, keys: biases };
        let sinks = columns.map(|columns| columns.biased(&queries, |head, distance| bias(head, distance as u64)));
        let terms = LogitTerms { relative: Some(relative), ..LogitTerms::content(queries, keys) };
        sinks.into_iter().fold(terms, LogitTerms::plus)
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        d_head + 1.0 + self.cache.map_or(0.0, |cache| cache.sinks as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::read::read;

    #[test]
    fn the_slopes_are_those_of_the_paper_for_any_number_of_heads() {
        assert_eq!(slopes(8), [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]);
        assert_eq!(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
        let twelve = slopes(12);
        assert_eq!((twelve.len(), twelve[7]), (12, 1.0 / 256.0));
        for (found, power) in twelve[8..].iter().zip([0.5f64, 1.5, 2.5, 3.5]) {
            assert!((found - (-power).exp2()).abs() < 1e-12, "{found} is not 2^-{power}");
        }
    }

    #[test]
    fn own_slopes_take_the_place_of_the_papers() {
        let place = LayerSpec::new(Role::Encoder, 4, 2).with_max_length(8);
        let logits = AlibiConfig { slopes: Some(vec![1.5, 0.0]) }.init(&place, &RandomKey::from_seed(1), &Device::flex());
        let x = Tensor::ones([1, 3, 4], &Device::flex());
        let terms = logits.terms(x.clone(), logits.keys(x, &Positions::default()), Span::whole(3, 3), &Positions::default());
        let biases = read(terms.relative.unwrap().keys.reshape([10])).try_to_vec::<f32>().unwrap();
        assert_eq!(biases, [-3.0, -1.5, 0.0, -1.5, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn without_content_the_weights_of_a_row_are_geometric() {
        let place = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8);
        let device = Device::flex();
        let mut attention = AnyMechanism::from(AlibiConfig::default()).init(&place, &RandomKey::from_seed(1), &device);
        attention.logits_mut::<Alibi>().unwrap().query.weight = Param::from_tensor(Tensor::zeros([4, 4], &device));
        let mut weights = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(shown) = observation {
                weights = read(shown.slice([0..1, 0..2, 6..7, 0..7]).reshape([14])).try_to_vec::<f32>().unwrap();
            }
        };
        let x = Tensor::random([1, 7, 4], burn::tensor::Distribution::Default, &device);
        attention.forward(AttentionInput::self_attention(x), &mut Probe::listening(&mut listener));
        for (head, slope) in slopes(2).into_iter().enumerate() {
            let sum: f64 = (0..7).map(|distance| (-slope * f64::from(distance)).exp()).sum();
            for j in 0..7 {
                let expected = (-slope * (6 - j) as f64).exp() / sum;
                assert!((f64::from(weights[head * 7 + j]) - expected).abs() < 1e-6, "head {head}, key {j}");
            }
        }
    }

    #[test]
    fn wrong_slopes_are_refused() {
        let place = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8);
        let refused = |slopes: Vec<f64>| AnyMechanism::from(AlibiConfig { slopes: Some(slopes) }).validate(&place).unwrap_err().to_string();
        assert!(refused(vec![0.5]).contains("one for each head"));
        assert!(refused(vec![0.5, -1.0]).contains("`slopes` is -1"));
    }
}
