//! Token mixing of MLP-Mixer (Tolstikhin et al. 2021, section 2).
//!
//! `Y = W2 gelu(W1 X + b1) + b2`, along the positions: an MLP with one hidden layer that all channels share. Weights depend only on positions. The layer has no
//! channel projections: the block's feed-forward layer is the paper's channel mixing, and the block also supplies norm and residual sum.
//!
//! The matrices have the width of the maximal length; a shorter sequence uses the first columns and rows. Hidden positions are set to 0 before the mixing,
//! since the MLP allows no later mask. All queries must see the same tokens; a causal form and decoding are impossible. The output is 0 if a query sees no
//! token. The number of heads has no effect.
//!
//! Sensitivity of each output (rows) of an untrained layer to each input position (columns), for one sequence of 32 tokens.
//!
#![doc = include_str!("../../pictures/mlp-mixer.svg")]

use crate::engine::columns_from;
use crate::engine::dropout::dropout;
use crate::engine::gelu::{by_error_function, plain_gelu};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::{rows_at, starts};

/// Configuration of [`MlpMixer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct MlpMixerConfig {
    /// Width of the hidden layer, at least 1 (default: half the model width, as in all models of the paper).
    pub hidden: Option<usize>,
}

/// An MLP along the positions.
///
/// Should be created with [`MlpMixerConfig`].
#[derive(Module, Debug)]
pub struct MlpMixer {
    /// `W1`, `[h, L]`.
    pub hidden_weight: Param<Tensor<2>>,
    /// `b1`, `[h]`.
    pub hidden_bias: Param<Tensor<1>>,
    /// `W2`, `[L, h]`.
    pub mixing_weight: Param<Tensor<2>>,
    /// `b2`, `[L]`.
    pub mixing_bias: Param<Tensor<1>>,
    heads: usize,
    dropout: f64,
}

impl MlpMixerConfig {
    fn hidden_at(&self, spec: &LayerSpec) -> usize {
        self.hidden.unwrap_or((spec.d_model / 2).max(1))
    }
}

impl Mechanism for MlpMixerConfig {
    type Module = AttentionOf<MlpMixer>;
    const NAME: &'static str = "mlp-mixer";
    const CARD: Card = Card {
        variant: "MlpMixer",
        description: "Mixes positions by an MLP along the sequence that all channels share, in encoders.",
        source: "Tolstikhin et al. 2021, section 2",
        links: &[
            "https://arxiv.org/abs/2105.01601",
            "https://github.com/google-research/vision_transformer/blob/main/vit_jax/models_mixer.py",
        ],
        kind: Kind::Whole,
        causal: false,
        time: "n d h",
        state: "0",
        letters: &[("h", "width of the hidden layer over positions, option `hidden`")],
        differences: &[
            "The paper's sequences always have the full width of the matrices; here a shorter sequence uses part of them.",
            "Matrices start Xavier-uniform and GELU is exact; the authors' code has LeCun-normal matrices and the tanh approximation.",
            "Dropout acts on the outputs; the authors' code applies none there.",
        ],
        tensors: &[
            ("hidden_weight", "W1, from positions to the hidden layer [hidden, position]"),
            ("hidden_bias", "b1, of the hidden layer"),
            ("mixing_weight", "W2, from the hidden layer to positions [position, hidden]"),
            ("mixing_bias", "b2 [position]"),
        ],
        without_decay: &[r"MlpMixer\.(hidden|mixing)_bias$"],
        has_engines: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the width of the hidden layer is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one_if_given("hidden", self.hidden)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> MlpMixer {
        let (length, hidden) = (spec.max_length, self.hidden_at(spec));
        let weight = Init::XavierUniform { fan_in: length, fan_out: hidden };
        let zeros = Init::Constant(0.0);
        MlpMixer {
            hidden_weight: weight.parameter([hidden, length], &key.named("hidden_weight"), device),
            hidden_bias: zeros.parameter([hidden], key, device),
            mixing_weight: weight.parameter([length, hidden], &key.named("mixing_weight"), device),
            mixing_bias: zeros.parameter([length], key, device),
            heads: spec.heads,
            dropout: spec.dropout,
        }
    }

    /// Tolstikhin et al. 2021, equation 1, without norm and residual sum.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query: &Query| {
            let own = query.spec().d_head();
            let channels = query.head * own..(query.head + 1) * own;
            let seen: Vec<usize> = (0..query.keys()).filter(|&key| query.sees(key)).collect();
            if seen.is_empty() {
                return vec![0.0; own];
            }
            let [w1, b1, w2, b2] = ["hidden_weight", "hidden_bias", "mixing_weight", "mixing_bias"].map(|name| query.parameter(name));
            let output = |channel: usize| {
                let hidden = |unit: usize| {
                    let sum: f64 = seen.iter().map(|&key| w1.at(&[unit, query.position_of(key)]) * query.attended(key)[channel]).sum();
                    plain_gelu(sum + b1.at(&[unit]))
                };
                let mixed: f64 = (0..w1.shape[0]).map(|unit| w2.at(&[query.position(), unit]) * hidden(unit)).sum();
                mixed + b2.at(&[query.position()])
            };
            channels.map(output).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(2, "h L"), (1, "h"), (1, "L")]))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        vec![("h", self.hidden_at(spec))]
    }
}

impl Attention for MlpMixer {
    /// Decoding steps are not supported.
    type State = ();

    fn abilities(&self) -> Abilities {
        Abilities { steps: false, max_length: Some(self.mixing_bias.dims()[0]), ..Abilities::new(Causality::Impossible) }
    }

    /// # Panics
    /// If queries do not all see the same tokens, or the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, _: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, .. } = input;
        let queries = query.dims()[1];
        let x = memory.unwrap_or(query);
        let [batch, length, _] = x.dims();
        assert_eq!(
            length,
            positions.start + queries,
            "a network along a sequence takes what precedes it and nothing else: {length} positions"
        );
        let span = Span { query_start: positions.start, queries, key_start: 0, keys: length };
        let seen = visibility.common_keys(span, self.heads).unwrap_or_else(|| {
            panic!("mlp-mixer mixes elements before queries see them: every query must see the same ones, and causal attention is impossible ({visibility:?})")
        });
        let flags = |flags: Vec<f32>, length: usize| {
            let rows = flags.len() / length;
            Tensor::<3>::from_data(TensorData::new(flags, [rows, length, 1]), (&x.device(), x.dtype()))
        };
        let of_rows = |table: Tensor<4>| {
            let [rows, _, outputs, inputs] = table.dims();
            let table = table.squeeze_dim::<3>(1).cast(x.dtype());
            if rows == batch { table } else { table.expand([batch, outputs, inputs]) }
        };
        let real =
            if seen.contains(&false) { x.clone() * flags(seen.iter().map(|&seen| f32::from(seen)).collect(), length) } else { x.clone() };
        let columns = columns_from(self.hidden_weight.val().unsqueeze::<4>(), &starts(span, &positions), length);
        let hidden = of_rows(columns).matmul(real) + self.hidden_bias.val().reshape([1, -1, 1]).cast(x.dtype());
        let rows = |table: Tensor<4>| of_rows(rows_at(table, span.query_start, queries, &positions));
        let bias = rows(self.mixing_bias.val().reshape([1, 1, -1, 1]));
        let mixed = rows(self.mixing_weight.val().unsqueeze::<4>()).matmul(by_error_function(hidden)) + bias;
        let has_element: Vec<bool> = seen.chunks(length).map(|seen| seen.contains(&true)).collect();
        let mixed =
            if has_element.contains(&false) { mixed * flags(has_element.iter().map(|&has| f32::from(has)).collect(), 1) } else { mixed };
        let key = random.map(|key| key.named("output"));
        AttentionOutput::new(dropout(mixed, self.dropout, key.as_ref()))
    }

    /// # Panics
    /// Always: decoding steps are not supported.
    fn state(&self, _start: &DecodingStart) {
        panic!("mlp-mixer takes no steps: an output depends on all elements of its sequence");
    }

    /// # Panics
    /// Always: decoding steps are not supported.
    fn step(&self, _query: Tensor<3>, _state: &mut (), _probe: &mut Probe) -> AttentionOutput {
        panic!("mlp-mixer takes no steps: an output depends on all elements of its sequence");
    }

    fn select(&self, _state: &mut (), _rows: &[usize]) {}

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let hidden = self.hidden_bias.dims()[0];
        ((pairs.keys + pairs.queries.len()) * hidden * pairs.heads * pairs.d_head) as f64
    }
}
