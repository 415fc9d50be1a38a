//! LSH attention of Reformer (Kitaev, Kaiser and Levskaya 2020, section 2).
//!
//! One projection serves as query and key (shared QK): `logits_h[i, j] = q_i · q_j / (‖q_j‖ sqrt(D))`. In each of `r` rounds, position `i` is hashed to the
//! bucket `argmax([x R; -x R])` of its query. All positions are sorted by (bucket, position) and cut into chunks of `m`. A query sees the members of its bucket
//! in its own chunk and in `before` chunks back (and `after` ahead). The rounds are combined by their log-partitions. A pair that meets in `N` rounds has
//! `log N` subtracted from its logit, so the result is the softmax over the union of the rounds. A query sees its own position only if it sees no other key.
//! Sorting adds `r n log n` per head to the time below. The decoding state stores keys, values and the bucket of each position in each round.
//!
//! Bucket assignment has no gradient and, up to rounding, does not depend on the backend. Masked positions (padding) belong to no bucket and take no place in a
//! chunk; as queries they use the place where they would stand.
//!
//! In main memory, with the reference engine, and with the option `across_rounds`, positions are sorted on the host. Otherwise all data stays on the
//! accelerator, and training reads nothing back. Sorting then takes `r n²` comparisons per head. If a segment attends to a memory, the memory positions are
//! also computed as queries.
//!
//! **Influence of the future.** Under a causal visibility no query sees a later key. But a later token can shift chunk borders, which changes the members of a
//! bucket larger than `m` that a query misses. The output is independent of the future, and decoding steps equal the full pass, in two cases. Either there is
//! only one chunk, or queries are restricted to their buckets, look back at least one chunk, and no bucket has more than `m` members. A decoding step attends
//! to all earlier members of its buckets (without the bucket mask: to all earlier positions).
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/lsh.svg")]

mod buckets;
mod chunks;
mod config;
mod device;
mod formula;

use burn::module::RunningState;

pub use self::buckets::Hashing;
use self::buckets::{Buckets, Hash};
use self::chunks::Chunking;
pub use self::config::{BucketCount, LshConfig, Rotations};
use super::shared_qk::{Scale, scaled, unit};
use crate::contract::visibility::{DenseMask, hidden_logit};
use crate::engine::{AttentionProgram, Dropout, Weighting, fused, reference};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::softmax_attention::tiled_or_dense;

/// LSH attention.
///
/// Should be created with [`LshConfig`].
#[derive(Module, Debug)]
pub struct Lsh {
    /// Shared projection of queries and keys `[C, C]`, split into heads.
    pub query_key: Linear,
    /// Value projection `[C, C]`, split into heads.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    /// Random rotations `[rounds, H, D, b / 2]`, not trained; rotations of two factors are concatenated. They can be replaced, also by more rounds.
    pub rotations: RunningState<Tensor<4>>,
    #[module(skip)]
    hash: Hash,
    #[module(skip)]
    chunking: Chunking,
    #[module(skip)]
    scale: Scale,
    #[module(skip)]
    limit: Visibility,
    full_attention_below: usize,
    draws_per_call: bool,
    heads: usize,
    dropout: f64,
}

/// One attention call: the queries are the positions from `span.query_start` on.
struct Call {
    /// Scaled queries, `[B, H, Q, D]`.
    queries: Tensor<4>,
    /// Unit-length keys, `[B, H, K, D]`.
    keys: Tensor<4>,
    values: Tensor<4>,
    span: Span,
    visibility: Visibility,
    random: Option<RandomKey>,
    engine: Engine,
}

fn span(positions: &Positions, queries: usize, keys: usize) -> Span {
    let end = positions.start + queries;
    assert!(end <= keys, "queries up to {end} are not among the {keys} keys, with which they share their projection");
    Span { query_start: positions.start, queries, key_start: 0, keys }
}

impl Call {
    fn tensor<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), (&self.values.device(), self.values.dtype()))
    }
}

impl Lsh {
    /// The same weights with `rounds` rounds of hashing, at least 1: existing rounds are reused, and missing rounds are drawn from `key`.
    ///
    /// # Panics
    /// If `rounds` is 0.
    pub fn with_rounds(mut self, rounds: usize, key: &RandomKey) -> Self {
        assert!(rounds > 0, "there is at least one round");
        let rotations = self.rotations.value();
        let [own, heads, width, half] = rotations.dims();
        let rotations = match rounds.checked_sub(own) {
            None | Some(0) => rotations.narrow(0, 0, rounds),
            Some(more) => {
                let further = Init::Normal(1.0).tensor([more, heads, width, half], &key.named("rotations"), &rotations.device());
                Tensor::cat(vec![rotations, further], 0)
            }
        };
        self.rotations = RunningState::new(rotations);
        self
    }

    /// The same weights with another [`full_attention_below`](LshConfig::full_attention_below): 0 hashes every sequence, `usize::MAX` hashes none.
    pub fn with_full_attention_below(mut self, length: usize) -> Self {
        self.full_attention_below = length;
        self
    }

    fn dropout(&self, random: Option<RandomKey>) -> Option<Dropout> {
        random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") })
    }

    /// Attention of every query to all keys, or to the keys that share a bucket with it in some round.
    fn attend_all(&self, call: Call, buckets: Option<&Buckets>, probe: &mut Probe) -> Tensor<4> {
        let Call { span, visibility, .. } = &call;
        let dtype = call.values.dtype();
        let penalty = |i, j| if i == j { chunks::self_penalty(dtype) } else { 0.0 };
        let pairs = || (span.query_start..span.query_start + span.queries).flat_map(|i| (0..span.keys).map(move |j| (i, j)));
        let own = call.tensor(pairs().map(|(i, j)| penalty(i, j)).collect(), [1, 1, span.queries, span.keys]);
        let program = |mask| {
            let terms = LogitTerms::content(call.queries.clone(), call.keys.clone()).plus(LogitTerms::bias(own));
            let (values, dropout) = (call.values.clone(), self.dropout(call.random));
            AttentionProgram { weighting: Weighting::softmax(terms), mask, soft_span: None, values, dropout }
        };
        let Some(buckets) = buckets else {
            // Unhashed sequences are short: tiles are used only on request.
            let engine = if call.engine == Engine::Fused { Engine::Fused } else { Engine::Reference };
            return tiled_or_dense(program(None), visibility, (*span, self.heads), engine, probe);
        };
        let (batch, hidden) = (call.values.dims()[0], hidden_logit(dtype));
        let mut bias = Vec::with_capacity(batch * self.heads * span.queries * span.keys);
        for (row, head) in (0..batch).flat_map(|row| (0..self.heads).map(move |head| (row, head))) {
            for i in span.query_start..span.query_start + span.queries {
                let meetings = buckets.meetings(row, head, i).into_iter().enumerate();
                bias.extend(meetings.map(|(j, meetings)| match meetings {
                    0 => hidden,
                    _ if !visibility.is_visible(row % visibility.rows(), head, i, j) => hidden,
                    _ if !self.chunking.duplicate_correction => (meetings as f32).ln(),
                    _ => 0.0,
                }));
            }
        }
        let has_key = bias.chunks(span.keys).map(|row| if row.iter().any(|&bias| bias > hidden) { 1.0 } else { 0.0 }).collect();
        let has_key = Some(call.tensor(has_key, [batch, self.heads, span.queries, 1]));
        let mask = DenseMask { bias: call.tensor(bias, [batch, self.heads, span.queries, span.keys]), has_key };
        probe.executed(Executed::Reference);
        reference::attend(program(Some(mask)), probe)
    }

    /// Attention within chunks of positions sorted by bucket, in every round.
    fn attend_in_chunks(&self, call: Call, buckets: &Buckets, probe: &mut Probe) -> Tensor<4> {
        let Call { queries, keys, span, visibility, values, random, engine } = call;
        let dropout = self.dropout(random);
        let blocks = |values: &Tensor<4>| self.chunking.blocks(buckets, span, &visibility, values.dtype());
        let weighting = Weighting::softmax(LogitTerms::content(queries.clone(), keys.clone()));
        let program = AttentionProgram { weighting, mask: None, soft_span: None, values, dropout };
        let has_few_meetings = self.chunking.most_meetings(buckets.shape[2]) <= chunks::MOST_MEETINGS;
        let is_fused = has_few_meetings && fused::can_attend(&program, engine) && fused::can_attend_in_parts(&program);
        probe.executed(match (is_fused, engine) {
            (true, _) => Executed::Fused,
            (false, Engine::Reference) => Executed::Reference,
            (false, _) => Executed::Blocked,
        });
        if !is_fused {
            return blocks(&program.values).attend(queries, keys, program.values, dropout, probe);
        }
        if probe.is_listening() {
            // The matrix of all weights is computed for a probe only, and does not change how the output is computed.
            blocks(&program.values).attend(queries, keys, program.values.clone(), None, probe);
        }
        fused::attend(program, self.chunking.parts(buckets, span, &visibility))
    }

    fn project(&self, sequence: Tensor<3>) -> (Tensor<4>, Tensor<4>) {
        let shared = split_heads(linear(sequence.clone(), &self.query_key), self.heads);
        (shared, split_heads(linear(sequence, &self.value), self.heads))
    }

    fn output(&self, context: Tensor<4>) -> AttentionOutput {
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }
}

/// State of [`Lsh`].
#[derive(Clone, Debug)]
pub struct LshState {
    memory: KeyValueState,
    buckets: Option<Buckets>,
    capacity: usize,
}

impl Attention for Lsh {
    type State = LshState;

    fn abilities(&self) -> Abilities {
        Abilities { weights: true, randomness: self.draws_per_call, ..Abilities::new(Causality::Masked) }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let (shared, values) = self.project(memory.unwrap_or(query));
        let span = span(&positions, queries, shared.dims()[2]);
        let own = shared.clone().narrow(2, span.query_start, queries);
        let call = Call { queries: scaled(own, self.scale), keys: unit(shared.clone()), values, span, visibility, random, engine };
        if call.span.keys <= self.full_attention_below {
            let context = self.attend_all(call, None, probe);
            return self.output(context);
        }
        let rotations = self.rotations.value();
        let rotations = match random.filter(|_| self.draws_per_call) {
            Some(key) => Init::Normal(1.0).tensor(rotations.dims(), &key.named("rotations"), &rotations.device()),
            None => rotations,
        };
        let positions = Positions { start: 0, ..positions };
        let buckets = self.hash.buckets(shared, rotations, &positions);
        if device::can_attend(&call) && !self.chunking.across_rounds {
            probe.observe(|| Observation::Buckets(buckets.clone()));
            probe.executed(Executed::Fused);
            let dropout = self.dropout(call.random);
            let context = device::attend(call, buckets, &self.chunking, dropout, probe);
            return self.output(context);
        }
        let buckets = Buckets::read(buckets);
        probe.observe(|| Observation::Buckets(buckets.tensor(&call.values.device())));
        let context = self.attend_in_chunks(call, &buckets, probe);
        self.output(context)
    }

    fn state(&self, start: &DecodingStart) -> LshState {
        assert!(start.memory().is_none(), "LSH attention shares queries and keys, which another sequence does not");
        LshState { memory: KeyValueState::growing(start), buckets: None, capacity: start.capacity() }
    }

    fn step(&self, query: Tensor<3>, state: &mut LshState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, engine, .. } = state.memory.advance(query);
        let queries = query.dims()[1];
        let (shared, values) = self.project(query);
        state.memory.push(Some(unit(shared.clone())), values);
        if state.capacity > self.full_attention_below && self.chunking.bucket_mask {
            let new = Buckets::read(self.hash.buckets(shared.clone(), self.rotations.value(), &positions));
            let all = state.buckets.take().map_or_else(|| new.clone(), |old| old.followed_by(&new));
            probe.observe(|| Observation::Buckets(all.tensor(&state.memory.values().device())));
            state.buckets = Some(all);
        }
        let keys = state.memory.keys().expect("keys were pushed");
        let span = span(&positions, queries, keys.dims()[2]);
        let call = Call { queries: scaled(shared, self.scale), keys, values: state.memory.values(), span, visibility, random, engine };
        let context = self.attend_all(call, state.buckets.as_ref(), probe);
        self.output(context)
    }

    fn select(&self, state: &mut LshState, rows: &[usize]) {
        state.memory.select(rows);
        state.buckets = state.buckets.take().map(|buckets| buckets.select(rows));
    }

    fn state_bytes(&self, state: &LshState) -> Option<usize> {
        let buckets = state.buckets.as_ref().map_or(0, |buckets| buckets.shape.iter().product());
        Some(state.memory.held_bytes() + 4 * buckets)
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let d_head = pairs.d_head();
        if pairs.keys <= self.full_attention_below {
            return pairs.dense() * 2.0 * d_head;
        }
        let [rounds, heads, _, directions] = self.rotations.value().dims().map(|size| size as f64);
        let seen = ((1 + self.chunking.before + self.chunking.after) * self.chunking.size) as f64;
        heads * pairs.queries.len() as f64 * rounds * d_head * (directions + 2.0 * seen)
    }
}
