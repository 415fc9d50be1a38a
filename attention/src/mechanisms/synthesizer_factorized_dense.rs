//! Factorized Dense Synthesizer (Tay et al. 2021, section 3.1.1).
//!
//! `logits_h[i, j] = A_i[j div b] · B_i[j mod b]` with `A_i` of width `a`, `B_i` of width `b`, `a b >= L`. A two-layer map with a shared first layer predicts
//! both from token `i`. One factor is block-repeated, the other tiled, so that every position has a unique pair; tiling both would produce only `lcm(a, b)`
//! distinct pairs. With the option `separate_hidden` each factor has its own first layer, as in the paper's formula.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/synthesizer-factorized-dense.svg")]

use burn::tensor::activation::relu;

use crate::engine::Kronecker;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::starts;

/// Configuration of [`SynthesizerFactorizedDense`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SynthesizerFactorizedDenseConfig {
    /// Widths `[a, b]` of the block-repeated and the tiled factor, with `a b` at least the maximal length (default: about its square root each).
    pub factors: Option<[usize; 2]>,
    /// Whether each factor has its own first layer (default: no, both share one).
    pub separate_hidden: bool,
}

/// Logits of the Factorized Dense Synthesizer.
///
/// Should be created with [`SynthesizerFactorizedDenseConfig`].
#[derive(Module, Debug)]
pub struct SynthesizerFactorizedDense {
    /// First layer of all heads, `[C, H D]`; only for the block-repeated factor if the tiled one has its own.
    pub hidden: Linear,
    /// First layer of the tiled factor, `[C, H D]`; absent if the factors share one.
    pub tile_hidden: Option<Linear>,
    /// Second layer of the block-repeated factor, `[H, D, a]`.
    pub block: Param<Tensor<3>>,
    /// Second layer of the tiled factor, `[H, D, b]`.
    pub tile: Param<Tensor<3>>,
    heads: usize,
    max_length: usize,
}

impl SynthesizerFactorizedDenseConfig {
    fn widths(&self, max_length: usize) -> [usize; 2] {
        self.factors.unwrap_or_else(|| {
            let a = max_length.isqrt().max(1);
            [a, max_length.div_ceil(a)]
        })
    }
}

impl Mechanism for SynthesizerFactorizedDenseConfig {
    type Module = LogitsOf<SynthesizerFactorizedDense>;
    const NAME: &'static str = "synthesizer-factorized-dense";
    const CARD: Card = Card {
        variant: "SynthesizerFactorizedDense",
        description: "Predicts the logits of positions as products of two short vectors.",
        source: "Tay et al. 2021, section 3.1.1",
        links: &[
            "https://arxiv.org/abs/2005.00743",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/attention.py",
        ],
        state: "n d",
        letters: &[("a", "first of the option `factors`"), ("b", "second of the option `factors`")],
        aliases: &[("factorized-dense", "synthesizer-factorized-dense")],
        tensors: &[
            ("hidden.weight", "first layer of the synthesizer [d_in, d_out]; heads lie side by side in d_out"),
            (
                "tile_hidden.weight",
                "first layer of the tiled factor [d_in, d_out], if it has one of its own; heads lie side by side in d_out",
            ),
            ("block", "second layer of the block-repeated factor [heads, d_head, a]"),
            ("tile", "second layer of the tiled factor [heads, d_head, b]"),
        ],
        free_heads: true,
        ..Card::DEFAULT
    };

    fn resolved(self, max_length: usize) -> Self {
        Self { factors: Some(self.widths(max_length)), ..self }
    }

    /// # Errors
    /// If the factors' product is less than the maximal length.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let [a, b] = self.widths(spec.max_length);
        if a * b >= spec.max_length {
            return Ok(());
        }
        let remedy = format!("their product must be at least the maximal length {}", spec.max_length);
        Err(spec.check(Self::NAME).refuse("factors", format!("[{a}, {b}]"), remedy))
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> SynthesizerFactorizedDense {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let d_head = spec.d_head();
        let second = |name, width| {
            let layer = Init::XavierUniform { fan_in: d_head, fan_out: width };
            layer.parameter([heads, d_head, width], &key.named(name), device)
        };
        let first = |name| init::linear(d_model, spec.query_width(), false, &key.named(name), device);
        let [a, b] = self.widths(max_length);
        SynthesizerFactorizedDense {
            hidden: first("hidden"),
            tile_hidden: self.separate_hidden.then(|| first("tile_hidden")),
            block: second("block", a),
            tile: second("tile", b),
            heads,
            max_length,
        }
    }

    /// Tay et al. 2021, section 3.1.1: each of `a` outputs repeated `b` times, times `b` outputs repeated `a` times.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let output = |first: &str, second: &str, at: usize| {
                let hidden: Vec<f64> = query.projected(first, query.element()).into_iter().map(|x| x.max(0.0)).collect();
                let column: Vec<f64> = (0..hidden.len()).map(|d| query.parameter(second).at(&[query.head, d, at])).collect();
                dot(&hidden, &column)
            };
            let tile_hidden = if self.separate_hidden { "tile_hidden" } else { "hidden" };
            let (j, b) = (query.position_of(key), query.parameter("tile").shape[2]);
            output("hidden", "block", j / b) * output(tile_hidden, "tile", j % b)
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let first_layers = if self.separate_hidden { 2 } else { 1 };
        Some(ParameterFormula::trained(&[(first_layers, "d q"), (1, "q a"), (1, "q b")]))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        let [a, b] = self.widths(max_length);
        vec![("a", a), ("b", b)]
    }
}

impl Logits for SynthesizerFactorizedDense {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: Some(self.max_length), remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let end = span.key_start + span.keys;
        assert!(end <= self.max_length, "{end} keys lie beyond the maximal length {} of this attention", self.max_length);
        let first = |layer: &Linear| split_heads(relu(linear(query.clone(), layer)), self.heads);
        let hidden = first(&self.hidden);
        let tile_hidden = self.tile_hidden.as_ref().map_or_else(|| hidden.clone(), first);
        let second = |hidden: Tensor<4>, layer: &Param<Tensor<3>>| {
            let [batch, heads, _, width] = hidden.dims();
            let outputs = layer.dims()[2];
            hidden.matmul(layer.val().unsqueeze_dim::<4>(0).expand([batch, heads, width, outputs]))
        };
        let (left, right) = (second(hidden, &self.block), second(tile_hidden, &self.tile));
        LogitTerms::kronecker(Kronecker { left, right, starts: starts(span, positions), keys: span.keys })
    }

    fn multiplications(&self, _d_head: f64) -> f64 {
        1.0
    }
}
