//! Attention Free Transformer (Zhai et al. 2021, section 3).
//!
//! `y_i = σ(q_i) ⊙ sum_j exp(k_j + w_ij) ⊙ v_j / sum_j exp(k_j + w_ij)`, without products of queries and keys. Each channel weighs the visible positions by its
//! own key and by a learned position bias `w_ij`, which all channels share. The query only gates the mean. `full` has biases for all pairs of positions, as a
//! product of thin factors `w = u v^T` or as a table. `local` has biases for positions less than a window apart, and 0 beyond, where keys still count. `simple`
//! has no biases. A head is only a group of channels with the same visibility.
//!
//! The largest scores are subtracted before the exponential, so keys of any magnitude are safe. For full and causal visibility the weights of the channels are
//! never materialised: time is `n^2 d` with biases, `n d` without. Any other visibility, such as a window, materialises a number per pair and channel. Decoding
//! caches keys and values; without biases it stores only one mean and its weight, for any length.
//!
//! Sensitivity of each output (rows) of an untrained layer to each of 32 random input tokens (columns).
//!
#![doc = include_str!("../../pictures/aft.svg")]

mod config;
mod means;

use burn::tensor::activation::sigmoid;

pub use self::config::{AftConfig, AftForm};
use self::means::{HIDDEN, over_all, over_pairs, over_past};
use crate::engine::columns_from;
use crate::engine::dropout::dropout;
use crate::engine::recurrence::{RecurrentState, in_32_bits};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::softmax_attention::logits::{rows_at, starts};

/// Attention without query-key products.
///
/// Should be created with [`AftConfig`].
#[derive(Module, Debug)]
pub struct Aft {
    /// Projection to the gate logits, `[C, C]`.
    pub query: Linear,
    /// Key projection `[C, C]`.
    pub key: Linear,
    /// Value projection `[C, C]`.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    /// `u`, `[L, k]`.
    pub query_position: Option<Param<Tensor<2>>>,
    /// `v`, `[L, k]`.
    pub key_position: Option<Param<Tensor<2>>>,
    /// Biases for all pairs of positions, `[L, L]`.
    pub position_table: Option<Param<Tensor<2>>>,
    /// Smallest distance without a bias.
    window: Option<usize>,
    max_length: Option<usize>,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

impl Aft {
    /// Biases for the pairs of a span, `[B|1, Q, K]`, if the form has any.
    fn biases(&self, span: Span, positions: &Positions) -> Option<Tensor<3>> {
        let rows = |table: &Param<Tensor<2>>, start, length| rows_at(table.val().unsqueeze::<4>(), start, length, positions);
        let of_queries = |table| rows(table, span.query_start, span.queries);
        let biases = match (&self.query_position, &self.key_position, &self.position_table) {
            (Some(of_query), Some(of_key), _) => of_queries(of_query).matmul(rows(of_key, span.key_start, span.keys).swap_dims(2, 3)),
            (_, _, Some(table)) => columns_from(of_queries(table), &starts(span, positions), span.keys),
            _ => return None,
        };
        let biases = in_32_bits(biases.squeeze_dim::<3>(1));
        Some(match self.window {
            Some(window) => biases * near(span, window, &self.query.weight.device()),
            None => biases,
        })
    }

    /// Keys and values `[B, K, C]`.
    fn keys_and_values(&self, x: Tensor<3>) -> [Tensor<3>; 2] {
        [linear(x.clone(), &self.key), linear(x, &self.value)].map(in_32_bits)
    }

    /// Gated means `[B, Q, C]` after the output projection.
    fn output(&self, means: Tensor<3>, query: Tensor<3>, random: Option<RandomKey>) -> AttentionOutput {
        let gated = sigmoid(linear(query.clone(), &self.query)) * means.cast(query.dtype());
        let key = random.map(|key| key.named("output"));
        AttentionOutput::new(linear(dropout(gated, self.dropout, key.as_ref()), &self.output))
    }

    /// Means for arbitrary pairs: keys and values `[B, H, K, D]`.
    fn pair_by_pair(&self, [keys, values]: [Tensor<4>; 2], visibility: &Visibility, span: Span, positions: &Positions) -> Tensor<3> {
        let mask = visibility.mask(span, self.heads, keys.dtype(), &keys.device());
        merge_heads(over_pairs(keys, values, self.biases(span, positions), mask, span.queries))
    }
}

/// 1 for pairs less than a window apart, otherwise 0, `[1, Q, K]`.
fn near(span: Span, window: usize, device: &Device) -> Tensor<3> {
    let keys = span.key_start..span.key_start + span.keys;
    let is_near = |i: usize| keys.clone().map(move |j| if i.abs_diff(j) < window { 1.0f32 } else { 0.0 });
    let flags = (span.query_start..span.query_start + span.queries).flat_map(is_near).collect();
    Tensor::from_data(TensorData::new(flags, [1, span.queries, span.keys]), device)
}

/// Keys `[B, K, C]` with padding hidden by the flags `[B|1, K]` of real positions.
fn of_real(keys: Tensor<3>, real: &[bool]) -> Tensor<3> {
    if real.iter().all(|&real| real) {
        return keys;
    }
    let length = keys.dims()[1];
    let scores = real.iter().map(|&real| if real { 0.0 } else { HIDDEN }).collect();
    let scores = Tensor::<3>::from_data(TensorData::new(scores, [real.len() / length, length, 1]), (&keys.device(), keys.dtype()));
    keys + scores
}

/// Decoding state.
#[derive(Clone, Debug)]
pub enum AftState {
    /// Keys and values of all positions, whose biases depend on the query.
    Positions(Box<KeyValueState>),
    /// Without biases: the running mean, and the score of a single key with the same weight, `[B, 1, 2, C]`.
    Mean(Box<RecurrentState>),
}

impl Attention for Aft {
    type State = AftState;

    fn abilities(&self) -> Abilities {
        // A probe observes no weights: each channel has its own.
        Abilities { max_length: self.max_length, ..Abilities::new(Causality::Masked) }
    }

    /// # Panics
    /// If the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let memory = memory.unwrap_or_else(|| query.clone());
        let length = memory.dims()[1];
        assert_eq!(
            length,
            positions.start + queries,
            "this attention is to what precedes its sequence and to nothing else: {length} positions"
        );
        let [keys, values] = self.keys_and_values(memory);
        let span = Span { query_start: positions.start, queries, key_start: 0, keys: length };
        let is_reference = engine == Engine::Reference;
        let mut executed = Executed::Sums;
        let means = if let Some(real) = visibility.real_positions(length, self.heads).filter(|_| !is_reference) {
            let means = over_past(of_real(keys, &real), values, self.biases(Span::whole(length, length), &positions)).values;
            if queries == length { means } else { means.narrow(1, length - queries, queries) }
        } else if let Some(seen) = visibility.common_keys(span, self.heads).filter(|_| !is_reference) {
            over_all(of_real(keys, &seen), values, self.biases(span, &positions))
        } else {
            executed = Executed::Reference;
            self.pair_by_pair([keys, values].map(|x| split_heads(x, self.heads)), &visibility, span, &positions)
        };
        probe.executed(executed);
        self.output(means, query, random)
    }

    /// # Panics
    /// If a memory is given.
    fn state(&self, start: &DecodingStart) -> AftState {
        assert!(start.memory().is_none(), "this attention is not to another sequence");
        match self.max_length {
            Some(_) => AftState::Positions(Box::new(KeyValueState::growing(start))),
            None => AftState::Mean(Box::new(RecurrentState::new(start))),
        }
    }

    fn step(&self, query: Tensor<3>, state: &mut AftState, probe: &mut Probe) -> AttentionOutput {
        let [keys, values] = self.keys_and_values(query.clone());
        let means = match state {
            AftState::Positions(state) => {
                let AttentionInput { query, visibility, positions, .. } = state.advance(query.clone());
                state.push(Some(split_heads(keys, self.heads)), split_heads(values, self.heads));
                let remembered = [state.keys().expect("keys are remembered with values"), state.values()];
                let span = Span {
                    query_start: positions.start,
                    queries: query.dims()[1],
                    key_start: state.start(),
                    keys: remembered[0].dims()[2],
                };
                probe.executed(Executed::Reference);
                self.pair_by_pair(remembered, &visibility, span, &positions)
            }
            AftState::Mean(state) => {
                probe.executed(Executed::Sums);
                let real = state.real_of_step(query.clone(), self.heads);
                let [mut keys, mut values] = [of_real(keys, &real), values];
                let steps = keys.dims()[1];
                if let Some(before) = state.tail().take() {
                    // The past counts as one more key.
                    let [mean, score] = [0, 1].map(|part| before.clone().narrow(2, part, 1).squeeze_dim::<3>(1));
                    (keys, values) = (Tensor::cat(vec![score, keys], 1), Tensor::cat(vec![mean, values], 1));
                }
                let means = over_past(keys, values, None);
                let length = means.values.dims()[1];
                let last = [means.values.clone(), means.score()].map(|x| x.narrow(1, length - 1, 1).unsqueeze_dim::<4>(1));
                *state.tail() = Some(Tensor::cat(last.to_vec(), 2).detach());
                means.values.narrow(1, length - steps, steps)
            }
        };
        self.output(means, query, None)
    }

    fn select(&self, state: &mut AftState, rows: &[usize]) {
        match state {
            AftState::Positions(state) => state.select(rows),
            AftState::Mean(state) => state.select(rows),
        }
    }

    fn state_bytes(&self, state: &AftState) -> Option<usize> {
        Some(match state {
            AftState::Positions(state) => state.held_bytes(),
            AftState::Mean(state) => state.bytes(),
        })
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        // Numerator and denominator; without biases each position adds to them once.
        let each = if self.max_length.is_some() { pairs.dense() } else { (pairs.queries.len() * pairs.heads) as f64 };
        2.0 * each * pairs.d_head()
    }
}
