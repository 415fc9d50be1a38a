//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).
//!
//! `logits_h[i, j] = (x_i W_Q^h) · (m_j W_K^h) / sqrt(D)`: every query is compared with every key. The option `qk_norm` normalises both first.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/dot-product.svg")]

use super::qk_norm::{HeadNorm, QkNorm, normalised};
use crate::mechanisms::prelude::*;

/// Configuration of [`DotProduct`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct DotProductConfig {
    /// Whether the projections of queries, keys, values and output have biases (default: no, as in the paper; `torch.nn.MultiheadAttention` has them).
    // Options at their defaults are skipped: layered configurations insert another mechanism's name into the default's table.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bias: bool,
    /// Normalisation of queries and keys before the product: `none` (default), `rms` or `layer`, with a gain per channel that all heads share.
    #[serde(skip_serializing_if = "QkNorm::is_none")]
    pub qk_norm: QkNorm,
    /// Epsilon that these norms add to the mean of squares, greater than 0 (default: 1e-6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_norm_epsilon: Option<f64>,
}

/// Logits of scaled dot-product attention.
///
/// Should be created with [`DotProductConfig`].
#[derive(Module, Debug)]
pub struct DotProduct {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Norm of queries.
    pub query_norm: Option<HeadNorm>,
    /// Norm of keys.
    pub key_norm: Option<HeadNorm>,
    heads: usize,
    kv_heads: usize,
    all_biases: bool,
}

impl Mechanism for DotProductConfig {
    type Module = LogitsOf<DotProduct>;
    const NAME: &'static str = "dot-product";
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "DotProduct",
        description: "Scores every key by its scaled dot product with the query.",
        source: "Vaswani et al. 2017, section 3.2.1",
        links: &[
            "https://arxiv.org/abs/1706.03762",
            "https://github.com/tensorflow/tensor2tensor/blob/master/tensor2tensor/layers/common_attention.py",
        ],
        cross: true,
        positioning: Some(Positioning::None),
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the ε of a norm is out of range, or is given without a norm.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        self.qk_norm.validate(self.qk_norm_epsilon, &spec.check(Self::NAME))
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        self.qk_norm.without_effect(option)
    }

    fn projections_have_biases(&self) -> bool {
        self.bias
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> DotProduct {
        let linear = |name, width| init::linear(spec.d_model, width, self.bias || spec.qkv_bias, &key.named(name), device);
        let norm = |name| self.qk_norm.init(self.qk_norm_epsilon, spec, &key.named(name), device);
        DotProduct {
            query: linear("query", spec.query_width()),
            key: linear("key", spec.key_width()),
            query_norm: norm("query_norm"),
            key_norm: norm("key_norm"),
            heads: spec.heads,
            kv_heads: spec.n_kv_heads(),
            all_biases: self.bias,
        }
    }

    /// Vaswani et al. 2017, section 3.2.1.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let norm = |name, x| self.qk_norm.formula(self.qk_norm_epsilon, query, name, x);
            let q = norm("query_norm", query.projected("query", query.element()));
            let k = norm("key_norm", query.projected("key", query.attended(key)));
            dot(&q, &k) / (q.len() as f64).sqrt()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let weights = ParameterFormula::query_key().plus(self.qk_norm.parameters());
        Some(if self.bias { weights.plus(ParameterFormula::query_key_biases()) } else { weights })
    }

    fn query_key_biases(&self) -> Option<ParameterFormula> {
        Some(if self.bias { ParameterFormula::none() } else { ParameterFormula::query_key_biases() })
    }
}

impl Logits for DotProduct {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: true, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    fn projections_have_biases(&self) -> bool {
        self.all_biases
    }

    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        Some(split_heads(normalised(linear_at(memory, &self.key, positions), &self.key_norm), self.kv_heads))
    }

    fn takes_any_queries(&self) -> bool {
        true
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, _span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("dot-product logits are given the keys that they asked for");
        let scale = (keys.dims()[3] as f64).powf(-0.5);
        let queries = normalised(linear_at(query, &self.query, positions), &self.query_norm) * scale;
        LogitTerms::content(split_heads(queries, self.heads), keys)
    }
}
