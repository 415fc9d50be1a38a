//! Multi-head latent attention (DeepSeek-AI 2024, section 2.1).
//!
//! `c_j = norm(m_j W_DKV)` is a low-rank latent of a token, from which keys and values are projected: `k_j^h = c_j W_UK^h` and `v_j^h = c_j W_UV^h`. Separate
//! channels carry positions: `logits_h[i, j] = (q_i^h · k_j^h + R_i r_i^h · R_j (m_j W_KR)) / sqrt(D + d_r)`, where `R_p` rotates neighbouring channels by the
//! position `p` and all heads share the rotated key. Queries `q_i^h` and `r_i^h` are projected from the token, or from a query latent. The option `scaling`
//! slows the angles down for sequences longer than the training length; DeepSeek's YaRN also scales all scores (`mscale_all_dim`).
//!
//! Decoding caches latents and rotated keys: `d_c + d_r` numbers per position, for any number of heads. It never materialises keys and values:
//! `q · (c W_UK) = (q W_UK^T) · c`, so queries are projected to the latent width. All heads then attend to the latents as to one shared head, and `W_UV` maps
//! the weighted sums to values.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/mla.svg")]

mod config;

use std::sync::Arc;

pub use self::config::MlaConfig;
use super::rotary::tables::Tables;
use crate::engine::rotation::{PairLayout, rotated};
use crate::engine::{AttentionProgram, Dropout, Weighting};
use crate::mechanisms::prelude::*;
use crate::mechanisms::qk_norm::{HeadNorm, normalised};
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::softmax_attention::tiled_or_dense;

/// Attention to keys and values projected from a latent.
///
/// Should be created with [`MlaConfig`].
#[derive(Module, Debug)]
pub struct Mla {
    /// Projection to the query latent `[C, d_q]`, if configured.
    pub query_latent: Option<Linear>,
    /// Norm of the query latent.
    pub query_latent_norm: Option<HeadNorm>,
    /// Projection from tokens or query latents to queries, `[C | d_q, H (D + d_r)]`; per head, the channels for latent keys come first.
    pub query: Linear,
    /// `W_DKV` `[C, d_c]`.
    pub latent: Linear,
    /// Norm of the latent of keys and values.
    pub latent_norm: Option<HeadNorm>,
    /// `W_KR` `[C, d_r]`, if channels are rotated.
    pub rotary_key: Option<Linear>,
    /// `W_UK` `[d_c, H D]`.
    pub key: Linear,
    /// `W_UV` `[d_c, H D]`.
    pub value: Linear,
    /// Output projection `[H D, C]`.
    pub output: Linear,
    #[module(skip)]
    tables: Arc<Tables>,
    /// Score factor in addition to the root of the score width.
    score_factor: f64,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

/// Terms of a score: content by the latent, and positions, which may be absent.
struct Parts {
    of_latent: Tensor<4>,
    of_positions: Option<Tensor<4>>,
}

impl Parts {
    fn joined(self) -> Tensor<4> {
        match self.of_positions {
            Some(of_positions) => Tensor::cat(vec![self.of_latent, of_positions], 3),
            None => self.of_latent,
        }
    }
}

impl Mla {
    /// `[B, H, N, d_r]` rotated by the positions from `start` on.
    fn turned(&self, x: Tensor<4>, start: usize) -> Tensor<4> {
        let [cos, sin] = self.tables.of(start..start + x.dims()[2], &x.device(), x.dtype());
        rotated(x.swap_dims(1, 2), cos, sin, PairLayout::Interleaved).swap_dims(1, 2)
    }

    /// Queries `[B, H, N, D]` and `[B, H, N, d_r]` of tokens from position `start` on, divided by the root of the score width.
    fn queries(&self, x: Tensor<3>, start: usize) -> Parts {
        let x = match &self.query_latent {
            Some(latent) => normalised(linear(x, latent), &self.query_latent_norm),
            None => x,
        };
        let queries = split_heads(linear(x, &self.query), self.heads);
        let joint = queries.dims()[3];
        let queries = queries * ((joint as f64).powf(-0.5) * self.score_factor);
        let width = self.head_width();
        if width == joint {
            return Parts { of_latent: queries, of_positions: None };
        }
        let of_positions = self.turned(queries.clone().narrow(3, width, joint - width), start);
        Parts { of_latent: queries.narrow(3, 0, width), of_positions: Some(of_positions) }
    }

    /// Latents `[B, 1, N, d_c]` and rotated keys `[B, 1, N, d_r]` of tokens from position `start` on.
    fn remembered(&self, x: Tensor<3>, start: usize) -> Parts {
        let latents = normalised(linear(x.clone(), &self.latent), &self.latent_norm).unsqueeze_dim::<4>(1);
        let rotary = self.rotary_key.as_ref().map(|map| self.turned(linear(x, map).unsqueeze_dim::<4>(1), start));
        Parts { of_latent: latents, of_positions: rotary }
    }

    fn head_width(&self) -> usize {
        self.key.weight.dims()[1] / self.heads
    }

    /// Projection from the latent to heads, `[1, H, d_c, D]`.
    fn by_head(&self, map: &Linear) -> Tensor<4> {
        let [latent, width] = map.weight.dims();
        map.weight.val().reshape([1, latent, self.heads, width / self.heads]).swap_dims(1, 2)
    }
}

impl Attention for Mla {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        Abilities { weights: true, ..Abilities::new(Causality::Masked) }
    }

    /// # Panics
    /// If the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let memory = memory.unwrap_or_else(|| query.clone());
        let [batch, length, _] = memory.dims();
        assert_eq!(
            length,
            positions.start + queries,
            "latent attention is to what precedes its sequence and to nothing else: {length} positions"
        );
        let Parts { of_latent, of_positions } = self.remembered(memory, 0);
        let latents = of_latent.squeeze_dim::<3>(1);
        let [keys, values] = [&self.key, &self.value].map(|map| split_heads(linear(latents.clone(), map), self.heads));
        let of_positions = of_positions.map(|keys| {
            let width = keys.dims()[3];
            keys.expand([batch, self.heads, length, width])
        });
        let keys = Parts { of_latent: keys, of_positions }.joined();
        let program = AttentionProgram {
            weighting: Weighting::softmax(LogitTerms::content(self.queries(query, positions.start).joined(), keys)),
            mask: None,
            soft_span: None,
            values,
            dropout: random.map(|key: RandomKey| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let span = Span { query_start: positions.start, queries, key_start: 0, keys: length };
        let context = tiled_or_dense(program, &visibility, (span, self.heads), engine, probe);
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }

    /// # Panics
    /// If a memory is given.
    fn state(&self, start: &DecodingStart) -> KeyValueState {
        assert!(start.memory().is_none(), "latent attention is not to another sequence");
        KeyValueState::growing(start)
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, engine, .. } = state.advance(query);
        let [batch, steps, _] = query.dims();
        let heads = self.heads;
        state.push(None, self.remembered(query.clone(), positions.start).joined());
        let keys = state.values();
        let [_, _, length, width] = keys.dims();
        let latent = self.latent.weight.dims()[1];
        let Parts { of_latent, of_positions } = self.queries(query, positions.start);
        let [to_keys, to_values] = [&self.key, &self.value].map(|map| {
            let [_, _, rows, columns] = self.by_head(map).dims();
            self.by_head(map).expand([batch, heads, rows, columns])
        });
        let asking = Parts { of_latent: of_latent.matmul(to_keys.swap_dims(2, 3)), of_positions }.joined();
        let span = Span { query_start: positions.start, queries: steps, key_start: state.start(), keys: length };
        let values = if latent == width { keys.clone() } else { keys.clone().narrow(3, 0, latent) };
        // All heads share the latents, which act as keys and values of one head.
        let weighting = Weighting::softmax(LogitTerms::content(asking, keys));
        let program = AttentionProgram { weighting, mask: None, soft_span: None, values, dropout: None };
        let context = tiled_or_dense(program, &visibility, (span, self.heads), engine, probe).matmul(to_values);
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let joint = self.query.weight.dims()[1] / pairs.heads;
        pairs.dense() * (joint as f64 + pairs.d_head())
    }
}
