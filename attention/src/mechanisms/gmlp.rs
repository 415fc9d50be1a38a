//! gMLP: a spatial gating unit (Liu et al. 2021, section 2).
//!
//! `Z = gelu(x U + c)`, split into halves `Z1, Z2` of the same width; `y_i = (Z1_i ⊙ (sum_j W_ij norm(Z2_j) + b_i)) V + e`. One learned matrix over positions,
//! shared by all channels, mixes one half; the other half gates it. Weights depend only on positions, can be negative and need not sum to 1: a gated random
//! Synthesizer without softmax. At first `W` is near 0 and `b` is 1, so that a layer starts as a position-wise map.
//!
//! Hidden positions have weight 0, without renormalisation: causal layers use the lower triangle of the weights, as in the paper's appendix. If a query sees no
//! position, the mixed half is 0. The maximal length limits the positions.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/gmlp.svg")]

use rand::RngExt;

use crate::engine::gelu::{by_error_function, plain_gelu};
use crate::engine::{AttentionProgram, Dropout, Weighting, columns_from, reference};
use crate::mechanisms::prelude::*;
use crate::mechanisms::qk_norm::{HeadNorm, QkNorm, normalised};
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::softmax_attention::logits::{rows_at, starts};

/// Epsilon added to variances.
const EPSILON: f64 = 1e-6;

/// Configuration of [`Gmlp`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct GmlpConfig {
    /// Width of each half as a multiple of the model width, at least 1 (default: 1; the paper, whose blocks have no other feed-forward layer, uses 3).
    pub expansion: usize,
    /// Bound of the initial position weights, times the maximal length; at least 0 (default: 0.001).
    pub init_scale: f64,
}

impl Default for GmlpConfig {
    fn default() -> Self {
        Self { expansion: 1, init_scale: 1e-3 }
    }
}

/// A spatial gating unit.
///
/// Should be created with [`GmlpConfig`].
#[derive(Module, Debug)]
pub struct Gmlp {
    /// `U` `[C, 2 E]` with its bias: the gating half, then the mixed half.
    pub expansion: Linear,
    /// Layer normalisation of the mixed half, `[E]`.
    pub mixed_norm: Option<HeadNorm>,
    /// `W`, `[L, L]`.
    pub position_weight: Param<Tensor<2>>,
    /// `b`, `[L]`.
    pub position_bias: Param<Tensor<1>>,
    /// `V` `[E, C]` with its bias.
    pub output: Linear,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

impl Mechanism for GmlpConfig {
    type Module = AttentionOf<Gmlp>;
    const NAME: &'static str = "gmlp";
    const CARD: Card = Card {
        variant: "Gmlp",
        description: "Mixes positions by one trained matrix, shared by all channels and inputs, and gates the sum by the query (gMLP).",
        source: "Liu et al. 2021, section 2",
        links: &["https://arxiv.org/abs/2105.08050"],
        kind: Kind::Whole,
        time: "n^2 d",
        state: "n d",
        differences: &[
            "The paper's unit is a whole block, with halves of width 3 `d`. Here it replaces attention only: the block keeps its feed-forward layer, and halves have width `d`.",
            "The block supplies the norm before the unit and the residual sum after it.",
            "The norm has ε = 1e-6; implementations by others have 1e-5. The authors published no code.",
            "The small attention of the paper's aMLP models is not implemented.",
            "Dropout acts on position weights; the paper applies none there.",
        ],
        tensors: &[
            ("expansion.weight", "projection to both halves [d_in, d_out]: the gating half, then the mixed half"),
            ("expansion.bias", "bias of the projection to both halves"),
            ("mixed_norm.gamma", "gain of the norm of the mixed half"),
            ("mixed_norm.beta", "shift of the norm of the mixed half"),
            ("position_weight", "weights of pairs of positions [query position, key position]"),
            ("position_bias", "bias of the sum over positions [query position]"),
        ],
        without_decay: &[r"Gmlp\.position_bias$"],
        has_engines: false,
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { init_scale: 1.0, ..self }
    }

    /// # Errors
    /// If the expansion is 0, or the scale is negative or not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one("expansion", self.expansion)?;
        check.non_negative("init_scale", self.init_scale)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Gmlp {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let width = self.expansion * d_model;
        let bound = self.init_scale as f32 / max_length as f32;
        let mut rng = key.named("position_weight").rng();
        let weights: Vec<f32> = (0..max_length * max_length).map(|_| rng.random_range(-bound..=bound)).collect();
        let norm = QkNorm::Layer.init(Some(EPSILON), &spec.with_head_width(Some(width)), key, device);
        Gmlp {
            expansion: init::linear(d_model, 2 * width, true, &key.named("expansion"), device),
            mixed_norm: norm,
            position_weight: Param::from_data(TensorData::new(weights, [max_length, max_length]), device),
            position_bias: Init::Constant(1.0).parameter([max_length], key, device),
            output: init::linear(width, d_model, true, &key.named("output"), device),
            heads,
            dropout: spec.dropout,
            limit: spec.limit(),
        }
    }

    /// Liu et al. 2021, equations 1 to 4.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query: &Query| {
            let width = self.expansion * query.element().len();
            let own = query.head * (width / query.spec().heads)..(query.head + 1) * (width / query.spec().heads);
            let half = |x: &[f64], start: usize| -> Vec<f64> {
                query.mapped("expansion", x)[start..start + width].iter().map(|&z| plain_gelu(z)).collect()
            };
            let seen: Vec<usize> = (0..query.keys()).filter(|&key| query.sees(key)).collect();
            if seen.is_empty() {
                return vec![0.0; own.len()];
            }
            let (weight, bias) = (query.parameter("position_weight"), query.parameter("position_bias"));
            let mut mixed = vec![bias.at(&[query.position()]); own.len()];
            for key in seen {
                let normal = QkNorm::Layer.formula(Some(EPSILON), query, "mixed_norm", half(query.attended(key), width));
                let weight = weight.at(&[query.position(), query.position_of(key)]);
                mixed.iter_mut().zip(&normal[own.clone()]).for_each(|(sum, z)| *sum += weight * z);
            }
            half(query.element(), 0)[own].iter().zip(mixed).map(|(gate, mixed)| gate * mixed).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let halves = self.expansion;
        Some(ParameterFormula::trained(&[
            (halves.saturating_mul(3), "d^2"),
            (halves.saturating_mul(4).saturating_add(1), "d"),
            (1, "L^2"),
            (1, "L"),
        ]))
    }
}

impl Gmlp {
    /// Gating half and mixed half, `[B, H, N, E / H]`.
    fn halves(&self, x: Tensor<3>) -> [Tensor<4>; 2] {
        let expanded = by_error_function(linear(x, &self.expansion));
        let width = expanded.dims()[2] / 2;
        let [gates, mixed] = [0, width].map(|start| expanded.clone().narrow(2, start, width));
        [gates, normalised(mixed, &self.mixed_norm)].map(|half| split_heads(half, self.heads))
    }

    /// `gates` belong to the queries; `mixed` covers all positions from the start of the span on.
    fn gate(&self, gates: Tensor<4>, mixed: Tensor<4>, call: Call, probe: &mut Probe) -> AttentionOutput {
        let Call { span, visibility, positions, random } = call;
        let dtype = mixed.dtype();
        let rows = |table: Tensor<4>| rows_at(table, span.query_start, span.queries, &positions);
        let weights = columns_from(rows(self.position_weight.val().unsqueeze::<4>()), &starts(span, &positions), span.keys);
        let bias = rows(self.position_bias.val().reshape([1, 1, -1, 1])).cast(dtype);
        let mask = visibility.mask(span, self.heads, dtype, &mixed.device());
        let has_key = mask.as_ref().and_then(|mask| mask.has_key.clone());
        let program = AttentionProgram {
            weighting: Weighting::Density { weights: weights.cast(dtype), renormalise: false },
            mask,
            soft_span: None,
            values: mixed,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let signed = |observation| match observation {
            Observation::Weights(weights) => Observation::SignedWeights(weights),
            other => other,
        };
        let gated = gates * (probe.changing(signed, |probe| reference::attend(program, probe)) + bias);
        let gated = match has_key {
            Some(has_key) => gated * has_key,
            None => gated,
        };
        AttentionOutput::new(linear(merge_heads(gated), &self.output))
    }
}

/// One call: visibility, span and randomness.
struct Call {
    span: Span,
    visibility: Visibility,
    positions: Positions,
    random: Option<RandomKey>,
}

impl Attention for Gmlp {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        // A probe observes no weights: they can be negative.
        Abilities { max_length: Some(self.position_weight.dims()[0]), ..Abilities::new(Causality::Masked) }
    }

    /// # Panics
    /// If the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, .. } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let [gates, mixed] = self.halves(memory.unwrap_or(query));
        let keys = mixed.dims()[2];
        assert_eq!(
            keys,
            positions.start + queries,
            "a spatial gating unit mixes its sequence with what precedes it and with nothing else: {keys} positions"
        );
        let gates = if queries == keys { gates } else { gates.narrow(2, keys - queries, queries) };
        let span = Span { query_start: positions.start, queries, key_start: 0, keys };
        self.gate(gates, mixed, Call { span, visibility, positions, random }, probe)
    }

    /// # Panics
    /// If a memory is given.
    fn state(&self, start: &DecodingStart) -> KeyValueState {
        assert!(start.memory().is_none(), "a spatial gating unit does not attend to another sequence");
        KeyValueState::growing(start)
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, .. } = state.advance(query);
        let queries = query.dims()[1];
        let [gates, mixed] = self.halves(query);
        state.push(None, mixed);
        let mixed = state.values();
        let span = Span { query_start: positions.start, queries, key_start: state.start(), keys: mixed.dims()[2] };
        self.gate(gates, mixed, Call { span, visibility, positions, random }, probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let expansion = self.output.weight.dims()[0] / (pairs.heads * pairs.d_head);
        pairs.dense() * pairs.d_head() * expansion as f64
    }
}
