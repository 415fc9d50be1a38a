//! Attention to what is near: `logits_h[i, j] = -softplus(s_h) |i - j|` with a trained slope `s` for each head, whatever the content.

use burn::module::{Module, Param};
use burn::tensor::activation::softplus;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::description::Formula;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

/// Options: `--set mechanisms.recency.init_std=0.5`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecencyConfig {
    /// Standard deviation of the initial slopes.
    pub init_std: f32,
}

impl Default for RecencyConfig {
    fn default() -> Self {
        Self { init_std: 1.0 }
    }
}

#[derive(Module, Debug)]
pub struct Recency {
    slope: Param<Tensor<1>>,
}

impl Mechanism for RecencyConfig {
    type Module = LogitsOf<Recency>;
    const NAME: &'static str = "recency";
    const CARD: Card = Card {
        variant: "Recency",
        description: "Attends to what is near, at a trained rate for each head.",
        source: "this example",
        state: "n d",
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Recency {
        Recency { slope: Init::Normal(self.init_std).parameter([spec.heads], &key.named("slope"), device) }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        let rate = |slope: f64| slope.exp().ln_1p();
        Some(Formula::default().logit(move |query, key| -rate(query.parameter("slope").at(&[query.head])) * query.distance(key) as f64))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "H")]))
    }
}

impl Logits for Recency {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities::default()
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, _positions: &Positions) -> LogitTerms {
        // One number for each distance, farthest first, as `LogitTerms::relative` wants them.
        let farthest = (span.query_start + span.queries) as f32 - 1.0 - span.key_start as f32;
        let distances: Vec<f32> = (0..span.queries + span.keys - 1).map(|column| (farthest - column as f32).abs()).collect();
        let distances = Tensor::<4>::from_data(TensorData::new(distances, [1, 1, span.queries + span.keys - 1, 1]), &query.device());
        let rate = softplus(self.slope.val(), 1.0).neg().reshape([1, -1, 1, 1]);
        let heads = rate.dims()[1];
        let queries = Tensor::ones([1, heads, span.queries, 1], &query.device()) * rate;
        LogitTerms { relative: Some(Content { queries, keys: distances }), ..LogitTerms::default() }
    }
}
