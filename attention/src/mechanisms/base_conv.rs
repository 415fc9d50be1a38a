//! BaseConv, a gated convolution (Arora et al. 2023, arXiv 2312.04927, section 4), with short kernels.
//!
//! `y_t = (W u_t + b) ⊙ sum_(j < k) c_j ⊙ u_(t - k + 1 + j)`: a causal depthwise convolution over the latest `k` tokens, gated by a linear map of the current
//! token. The kernel does not depend on position or input. The paper studies this layer in place of other gated convolutions, such as Hyena. The layer compares
//! no tokens, so it cannot look up content. As a first layer it supplies other mechanisms with local context, as in the models of Arora et al. 2024 (Based).
//! Positions before the sequence and padding count as 0. A head is only a group of channels with the same visibility.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/base-conv.svg")]

use crate::contract::visibility::DenseMask;
use crate::engine::dropout::dropout;
use crate::engine::recurrence::RecurrentState;
use crate::engine::transposed;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::factors;

/// Configuration of [`BaseConv`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct BaseConvConfig {
    /// Taps of the convolution, at least 1 (default: 3).
    pub taps: usize,
}

impl Default for BaseConvConfig {
    fn default() -> Self {
        Self { taps: 3 }
    }
}

/// A gated convolution.
///
/// Should be created with [`BaseConvConfig`].
#[derive(Module, Debug)]
pub struct BaseConv {
    /// `W`, `[C, C]`, and `b`.
    pub gate: Linear,
    /// Kernel of each channel, earliest token first, `[taps, C]`.
    pub weight: Param<Tensor<2>>,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

impl Mechanism for BaseConvConfig {
    type Module = AttentionOf<BaseConv>;
    const NAME: &'static str = "base-conv";
    const CARD: Card = Card {
        variant: "BaseConv",
        description: "Gated causal convolution with a trained short kernel per channel, in decoders.",
        source: "Arora et al. 2023 (2312.04927), section 4",
        links: &["https://arxiv.org/abs/2312.04927", "https://github.com/HazyResearch/zoology"],
        kind: Kind::Whole,
        time: "n w d",
        state: "w d",
        letters: &[("w", "taps of short convolutions, option `taps`")],
        differences: &[
            "The convolution has no bias, so that a token without visible inputs returns 0.",
            "Kernels are short in all layers; some kernels of the paper's models are as long as the sequence, which rules out decoding with a small state.",
            "The released code adds the input to the product, in addition to the residual connection around the layer; here only the residual connection adds it.",
            "Dropout acts on the outputs; the released code applies none there.",
        ],
        tensors: &[("weight", "kernel of each channel, earliest token first [taps, C]")],
        sees_ahead: false,
        has_engines: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If `taps` is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one("taps", self.taps)
    }

    /// Initialises the layer. The kernel is uniform on `±taps^-1/2`, as in PyTorch.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> BaseConv {
        let width = spec.d_model;
        // Half the sum of fans is three times the taps: a bound of sqrt(6 / (6 taps)).
        let uniform = Init::XavierUniform { fan_in: 3 * self.taps, fan_out: 3 * self.taps };
        BaseConv {
            gate: init::linear(width, width, true, &key.named("gate"), device),
            weight: uniform.parameter([self.taps, width], &key.named("weight"), device),
            heads: spec.heads,
            dropout: spec.dropout,
            limit: spec.limit(),
        }
    }

    /// Arora et al. 2023, section 4, channel by channel.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query| {
            let gate = query.mapped("gate", query.element());
            let weight = query.parameter("weight");
            let seen = |key: &usize| query.sees(*key) && query.position_of(*key) <= query.position() && query.distance(*key) < self.taps;
            let seen: Vec<usize> = (0..query.keys()).filter(seen).collect();
            let own = query.spec().d_head();
            let output = |channel: usize| {
                let term = |&key: &usize| weight.at(&[self.taps - 1 - query.distance(key), channel]) * query.attended(key)[channel];
                gate[channel] * seen.iter().map(term).sum::<f64>()
            };
            (query.head * own..(query.head + 1) * own).map(output).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(1, "d^2"), (1, "d"), (1, "d w")]))
    }

    fn letters(&self, _max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("w", self.taps)]
    }
}

impl BaseConv {
    /// Convolution `[B, N, C]` of inputs `[B, N, C]` that follow the inputs in `tail`, `[B, 1, taps - 1, C]`; stores the new tail.
    fn convolved(&self, x: Tensor<3>, tail: &mut Option<Tensor<4>>) -> Tensor<3> {
        let ([batch, length, width], taps) = (x.dims(), self.weight.dims()[0]);
        let weight = self.weight.val();
        let tap = |tap: usize| weight.clone().narrow(0, tap, 1).reshape([1, 1, width]);
        if taps == 1 {
            return x * tap(0);
        }
        let before = tail.take().map(|tail| tail.squeeze_dim::<3>(1));
        let before = before.unwrap_or_else(|| Tensor::zeros([batch, taps - 1, width], (&x.device(), x.dtype())));
        let x = Tensor::cat(vec![before, x], 1);
        *tail = Some(x.clone().narrow(1, length, taps - 1).detach().unsqueeze_dim(1));
        (1..taps).fold(x.clone().narrow(1, 0, length) * tap(0), |sum, index| sum + x.clone().narrow(1, index, length) * tap(index))
    }

    /// Convolution `[B, Q, C]` of inputs `[B, K, C]` under an arbitrary mask of pairs.
    fn pair_by_pair(&self, x: Tensor<3>, mask: Option<DenseMask>, span: Span) -> Tensor<3> {
        let ([batch, keys, width], taps, device) = (x.dims(), self.weight.dims()[0], x.device());
        // The 0 behind the weights is for pairs that are too far apart.
        let weight = Tensor::cat(vec![self.weight.val(), Tensor::zeros([1, width], (&device, x.dtype()))], 0);
        let which = |i: usize| (0..keys).map(move |j| i.checked_sub(j).filter(|&lag| lag < taps).map_or(taps, |lag| taps - 1 - lag) as i32);
        let which: Vec<i32> = (span.query_start..span.query_start + span.queries).flat_map(which).collect();
        let which = Tensor::<1, Int>::from_data(TensorData::new(which, [span.queries * keys]), &device);
        let weights = weight.select(0, which).reshape([1, span.queries, keys, width]).permute([0, 3, 1, 2]);
        let weights = match mask {
            Some(DenseMask { bias, .. }) => {
                let is_seen = bias.equal_elem(0.0).float().cast(x.dtype());
                let [rows, heads, ..] = is_seen.dims();
                let each = width / heads;
                let is_seen = is_seen.unsqueeze_dim::<5>(2).expand([rows, heads, each, span.queries, keys]);
                weights * is_seen.reshape([rows, width, span.queries, keys])
            }
            None => weights,
        };
        let rows = weights.dims()[0];
        let weights = if rows == batch { weights } else { weights.expand([batch, width, span.queries, keys]) };
        let sums = weights.matmul(x.swap_dims(1, 2).unsqueeze_dim::<4>(3));
        transposed(sums.squeeze_dim::<3>(3))
    }

    /// Sums `[B, Q, C]`, gated by the query inputs.
    fn gated(&self, sums: Tensor<3>, query: Tensor<3>, random: Option<RandomKey>) -> AttentionOutput {
        let key = random.map(|key| key.named("output"));
        AttentionOutput::new(dropout(linear(query, &self.gate) * sums, self.dropout, key.as_ref()))
    }
}

impl Attention for BaseConv {
    type State = RecurrentState;

    fn abilities(&self) -> Abilities {
        // A probe observes no weights: each channel has its own.
        Abilities::new(Causality::ByConstruction)
    }

    /// # Panics
    /// If the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, _: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, .. } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let x = memory.unwrap_or_else(|| query.clone());
        let length = x.dims()[1];
        assert_eq!(
            length,
            positions.start + queries,
            "a convolution is over what precedes its sequence and over nothing else: {length} positions"
        );
        let sums = match visibility.real_positions(length, self.heads) {
            Some(real) => {
                let x = match factors(&real, &x) {
                    Some(real) => x * real,
                    None => x,
                };
                self.convolved(x, &mut None).narrow(1, length - queries, queries)
            }
            None => {
                let span = Span { query_start: length - queries, queries, key_start: 0, keys: length };
                let mask = visibility.mask(span, self.heads, x.dtype(), &x.device());
                self.pair_by_pair(x, mask, span)
            }
        };
        self.gated(sums, query, random)
    }

    /// # Panics
    /// If a memory is given.
    fn state(&self, start: &DecodingStart) -> RecurrentState {
        assert!(start.memory().is_none(), "a convolution is not over another sequence");
        RecurrentState::new(start)
    }

    /// # Panics
    /// If a position does not see exactly the real positions up to itself.
    fn step(&self, query: Tensor<3>, state: &mut RecurrentState, _: &mut Probe) -> AttentionOutput {
        let real = state.real_of_step(query.clone(), self.heads);
        let x = match factors(&real, &query) {
            Some(real) => query.clone() * real,
            None => query.clone(),
        };
        let sums = self.convolved(x, state.tail());
        self.gated(sums, query, None)
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &RecurrentState) -> Option<usize> {
        Some(state.bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        // Per tap, and for the gate.
        let taps = self.weight.dims()[0] as f64;
        (pairs.queries.len() * pairs.heads) as f64 * pairs.d_head() * (taps + 1.0)
    }
}
