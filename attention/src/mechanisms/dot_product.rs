//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).
//!
//! `logits_h[i, j] = (x_i W_Q^h) · (m_j W_K^h) / sqrt(D)`: every query is compared with every key.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/dot-product.svg")]

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use derive_setters::Setters;
use serde::{Deserialize, Serialize};

use crate::conformance::formula::{Formula, dot};
use crate::contract::Positions;
use crate::engine::LogitTerms;
use crate::heads::split_heads;
use crate::init;
use crate::linear::linear;
use crate::logits::{LogitFacts, Logits};
use crate::parameter_formula::ParameterFormula;
use crate::placement::Placement;
use crate::random::RandomKey;
use crate::registry::{AnyLogits, Card, Kind, Mechanism};
use crate::visibility::Span;

/// Configuration of [`DotProduct`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct DotProductConfig {
    /// Whether the projections of queries, keys, values and output have biases (default: no, as in the paper; `torch.nn.MultiheadAttention` has them).
    // Left out where it is false: layers of configuration put another mechanism's name into the table of the default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bias: bool,
}

/// Logits of scaled dot-product attention.
///
/// Should be created with [`DotProductConfig`].
#[derive(Module, Debug)]
pub struct DotProduct {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into the heads of keys.
    pub key: Linear,
    heads: usize,
    kv_heads: usize,
}

impl DotProductConfig {
    /// Initialises the logits.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> DotProduct {
        let linear = |name, width| init::linear(placement.d_model, width, self.bias, &key.named(name), device);
        DotProduct {
            query: linear("query", placement.query_width()),
            key: linear("key", placement.key_width()),
            heads: placement.heads,
            kv_heads: placement.n_kv_heads(),
        }
    }
}

impl Mechanism for DotProductConfig {
    const NAME: &'static str = "dot-product";

    fn card() -> Card {
        Card {
            variant: "DotProduct",
            description: "Compares every query with every key by a scaled scalar product.",
            source: "Vaswani et al. 2017, section 3.2.1",
            kind: Kind::Scores,
            cross: true,
            causal: true,
            time: "n^2 d",
            state: "2 n d",
            letters: &[],
            differences: &[],
        }
    }

    fn projections_have_biases(&self) -> bool {
        self.bias
    }

    fn has_free_heads(&self) -> bool {
        true
    }

    fn logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Some(AnyLogits::new(self.init(placement, key, device)))
    }

    /// Vaswani et al. 2017, section 3.2.1.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            dot(&q, &k) / (q.len() as f64).sqrt()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let weights = ParameterFormula::trained(&[(1, "d q"), (1, "d g")]);
        Some(if self.bias { weights.plus(ParameterFormula::trained(&[(1, "q"), (1, "g")])) } else { weights })
    }
}

impl Logits for DotProduct {
    fn facts(&self) -> LogitFacts {
        LogitFacts { cross_attention: true, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    fn projections_have_biases(&self) -> bool {
        self.query.bias.is_some()
    }

    fn keys(&self, memory: Tensor<3>, _positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(linear(memory, &self.key), self.kv_heads))
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, _span: Span, _positions: &Positions) -> LogitTerms {
        let keys = keys.expect("dot-product logits are given the keys that they asked for");
        let scale = (keys.dims()[3] as f64).powf(-0.5);
        LogitTerms::content(split_heads(linear(query, &self.query) * scale, self.heads), keys)
    }
}
