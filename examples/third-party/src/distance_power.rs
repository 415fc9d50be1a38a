//! Dot products less a power of the distance: `logits_h[i, j] = q_i · k_j / sqrt(D) - s_h ln(1 + |i - j|)` with a trained `s_h >= 0` for each head.
//!
//! Before the softmax divides it, the weight of a key is `exp(q_i · k_j / sqrt(D)) (1 + |i - j|)^-s_h`: it falls with a power of the distance, where ALiBi has an
//! exponential. With `s_h = 0` it is dot-product attention.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::activation::softplus;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::contract::init;
use heedful_attention::description::Formula;
use heedful_attention::description::formula::dot;
use heedful_attention::engine::heads::split_heads;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

/// Options: `--set mechanisms.distance-power.mean=-1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DistancePowerConfig {
    /// Mean of the initial powers, before softplus (default 0).
    pub mean: f64,
}

/// Logits that compare content and fall with the distance.
#[derive(Module, Debug)]
pub struct DistancePower {
    /// Query projection `[C, H D]`, split into heads.
    query: Linear,
    /// Key projection `[C, G D]`, split into the heads of keys.
    key: Linear,
    /// The powers before softplus, `[H]`.
    power: Param<Tensor<1>>,
    kv_heads: usize,
}

impl Mechanism for DistancePowerConfig {
    type Module = LogitsOf<DistancePower>;
    const NAME: &'static str = "distance-power";
    /// There are projections `query` and `key` of the usual widths, so that heads may share keys and have any width.
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "DistancePower",
        description: "Scores content, and lowers weights by a learned power of the distance.",
        source: "this example",
        tensors: &[("power", "powers of the distance before softplus [heads]")],
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> DistancePower {
        let linear = |name, width| init::linear(spec.d_model, width, spec.qkv_bias, &key.named(name), device);
        let power = Init::Normal(1.0).tensor([spec.heads], &key.named("power"), device) + self.mean;
        DistancePower {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            power: Param::from_tensor(power),
            kv_heads: spec.n_kv_heads(),
        }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let power = query.parameter("power").at(&[query.head]).exp().ln_1p();
            dot(&q, &k) / (q.len() as f64).sqrt() - power * (query.distance(key) as f64).ln_1p()
        }))
    }

    /// Both projections, and a number for each of the `H` heads.
    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::query_key().plus(ParameterFormula::trained(&[(1, "H")])))
    }
}

impl Logits for DistancePower {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default().with_keys()
    }

    /// `[B, G, K, D]`: what decoding remembers.
    fn keys(&self, memory: Tensor<3>, _positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(self.key.forward(memory), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let [heads] = self.power.dims();
        let scale = (keys.dims()[3] as f64).powf(-0.5);
        let queries = split_heads(self.query.forward(query) * scale, heads);
        // One number for each signed distance of a query from a key, in descending order, and for each query its power.
        let greatest = (span.query_start + span.queries) as f32 - 1.0 - span.key_start as f32;
        let columns = span.queries + span.keys - 1;
        let logarithms: Vec<f32> = (0..columns).map(|column| (greatest - column as f32).abs().ln_1p()).collect();
        let logarithms = Tensor::from_data(TensorData::new(logarithms, [1, 1, columns, 1]), &queries.device());
        let powers = softplus(self.power.val(), 1.0).neg().reshape([1, heads, 1, 1]).expand([1, heads, span.queries, 1]);
        LogitTerms { relative: Some(Content { queries: powers, keys: logarithms }), ..LogitTerms::content(queries, keys) }
    }
}
