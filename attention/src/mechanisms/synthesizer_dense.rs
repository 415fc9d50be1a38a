//! Dense Synthesizer (Tay et al. 2021, section 3.1).
//!
//! `logits_h[i, 0..k] = (relu(x_i W1^h) W2^h)[0..k]`: each token predicts its attention to each *position* from its own content. There are no keys. The paper
//! indexes `W2` by head.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/synthesizer-dense.svg")]

use burn::tensor::activation::relu;

use crate::mechanisms::prelude::*;
use crate::mechanisms::synthesizer_random::TABLES_WITHOUT_DECAY;
use crate::softmax_attention::logits::rows_at;

/// Configuration of [`SynthesizerDense`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SynthesizerDenseConfig {
    /// Whether each head has its own second layer `W2` (default, as in the paper) or all heads share one (the released code).
    pub per_head_output: bool,
}

impl Default for SynthesizerDenseConfig {
    fn default() -> Self {
        Self { per_head_output: true }
    }
}

/// Logits of the Dense Synthesizer.
///
/// Should be created with [`SynthesizerDenseConfig`].
#[derive(Module, Debug)]
pub struct SynthesizerDense {
    /// `W1` of all heads, `[C, C]`.
    pub hidden: Linear,
    /// `W2` transposed, `[H | 1, L, D]`: row `j` belongs to position `j`.
    pub position: Param<Tensor<3>>,
    heads: usize,
    max_length: usize,
}

impl Mechanism for SynthesizerDenseConfig {
    type Module = LogitsOf<SynthesizerDense>;
    const NAME: &'static str = "synthesizer-dense";
    const CARD: Card = Card {
        variant: "SynthesizerDense",
        description: "Predicts the logits of each query only from its own token.",
        source: "Tay et al. 2021, section 3.1",
        links: &[
            "https://arxiv.org/abs/2005.00743",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/attention.py",
        ],
        state: "n d",
        differences: &[
            "The released code (`dense_minus`) shares `W2` between the heads and uses the query projection as `W1`.",
            "`W2` starts Xavier-uniform; the released code draws it truncated normal with deviation `D^-0.5`.",
        ],
        aliases: &[("dense", "synthesizer-dense")],
        tensors: &[
            ("hidden.weight", "first layer of the synthesizer [d_in, d_out]; heads lie side by side in d_out"),
            ("position", "second layer of the dense synthesizer, transposed: [heads (1 if shared), key position, d_head]"),
        ],
        without_decay: &[TABLES_WITHOUT_DECAY],
        free_heads: true,
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> SynthesizerDense {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let position = Init::XavierUniform { fan_in: spec.d_head(), fan_out: max_length };
        let outputs = if self.per_head_output { heads } else { 1 };
        SynthesizerDense {
            hidden: init::linear(d_model, spec.query_width(), false, &key.named("hidden"), device),
            position: position.parameter([outputs, max_length, spec.d_head()], &key.named("position"), device),
            heads,
            max_length,
        }
    }

    /// Tay et al. 2021, section 3.1: element `j` of the output of the query's layers.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let hidden: Vec<f64> = query.projected("hidden", query.element()).into_iter().map(|x| x.max(0.0)).collect();
            let head = if self.per_head_output { query.head } else { 0 };
            dot(&hidden, query.parameter("position").row(&[head, query.position_of(key)]))
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d q"), (1, if self.per_head_output { "q L" } else { "D L" })]))
    }
}

impl Logits for SynthesizerDense {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: Some(self.max_length), remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let queries = split_heads(relu(linear(query, &self.hidden)), self.heads);
        let keys = rows_at(self.position.val().unsqueeze_dim(0), span.key_start, span.keys, positions);
        let [rows, _, length, width] = keys.dims();
        LogitTerms::content(queries, keys.expand([rows, self.heads, length, width]))
    }
}
