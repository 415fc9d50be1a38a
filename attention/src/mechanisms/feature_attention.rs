//! Attention by features: what the mechanisms share whose weights are products of features of queries and of keys (Katharopoulos et al. 2020).
//!
//! `o_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)`: because the weights are products, the sums over keys can be formed before any query is
//! known, `S = sum_j phi(k_j) v_j^T` and `z = sum_j phi(k_j)`. Without an order all queries read from one sum; causal attention is a
//! [recurrence](crate::engine::recurrence) whose state is the sum up to a position. Other visibilities, such as windows or what differs between heads, have no
//! such sums: there all pairs are computed.

use burn::module::{Module, ModuleDisplay};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};

use crate::abilities::{Abilities, Causality};
use crate::contract::{Attention, AttentionInput, AttentionOutput, Pairs, Positions};
use crate::dropout::dropout;
use crate::engine::recurrence::{Recurrence, RecurrentState, in_32_bits};
use crate::engine::{Engine, Executed};
use crate::heads::{merge_heads, split_heads};
use crate::init;
use crate::linear::linear;
use crate::placement::{Placement, Role};
use crate::probe::Probe;
use crate::progress::DecodingStart;
use crate::random::RandomKey;
use crate::visibility::{Span, Visibility};

/// What is mapped to features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Queries: a factor that all features of a query share changes no normalised weight.
    Queries,
    /// Keys: a factor that all features of all keys share changes no normalised weight.
    Keys,
}

/// What queries and keys are mapped to.
pub trait Features: Module + ModuleDisplay + 'static {
    /// Width `R` of the features of a head of width `d_head`.
    fn width(&self, d_head: usize) -> usize;

    /// Features `[B, H, N, R]` of queries or keys `[B, H, N, D]` at these positions. The weights that they make are not negative.
    fn features(&self, x: Tensor<4>, side: Side, positions: &Positions) -> Tensor<4>;

    /// Features of a training call of its own, where calls draw anew.
    fn redrawn(&self, _: &RandomKey) -> Option<Self> {
        None
    }

    /// Whether calls with a random key draw anew.
    fn draws(&self) -> bool {
        false
    }

    /// Longest sequence that there are features for, if they end.
    fn max_length(&self) -> Option<usize> {
        None
    }

    /// Multiplications for the features of one element of a head.
    fn multiplications(&self, _d_head: usize) -> usize {
        0
    }
}

/// Attention whose weights are products of features.
#[derive(Module, Debug)]
pub struct FeatureAttention<F: Features> {
    /// The map of queries and keys to features.
    pub features: F,
    /// Query projection `[C, C]`.
    pub query: Linear,
    /// Key projection `[C, C]`.
    pub key: Linear,
    /// Value projection `[C, C]`.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    normalised: bool,
    heads: usize,
    dropout: f64,
    cross: bool,
    #[module(skip)]
    limit: Visibility,
}

/// How the sums over keys are formed.
enum Execution {
    /// All queries of a row see the same keys, `[B, K]`.
    Sum(Vec<bool>),
    /// Each real position, `[B, N]`, sees the real ones up to itself.
    Recurrence(Vec<bool>),
    /// Pair by pair.
    Pairs,
}

impl<F: Features> FeatureAttention<F> {
    /// Puts the projections, which have no biases, around `features`.
    pub fn new(features: F, normalised: bool, placement: &Placement, key: &RandomKey, device: &Device) -> Self {
        let linear = |name| init::linear(placement.d_model, placement.d_model, false, &key.named(name), device);
        Self {
            features,
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: linear("output"),
            normalised,
            heads: placement.heads,
            dropout: placement.dropout,
            cross: placement.role == Role::Cross,
            limit: placement.limit(),
        }
    }

    fn heads_of(&self, x: Tensor<3>, map: &Linear) -> Tensor<4> {
        split_heads(linear(x, map), self.heads)
    }

    fn check_length(&self, length: usize) {
        if let Some(limit) = self.features.max_length() {
            assert!(length <= limit, "{length} positions exceed the maximal length {limit} of the features");
        }
    }

    fn queries(&self, query: Tensor<3>, positions: &Positions) -> Tensor<4> {
        in_32_bits(self.features.features(self.heads_of(query, &self.query), Side::Queries, positions))
    }

    /// Of queries at these positions and of what they attend to, whose first element stands at `first`.
    fn recurrence(&self, (query, positions): (Tensor<3>, &Positions), (memory, first): (Tensor<3>, usize), features: &F) -> Recurrence {
        let recurrence = Recurrence {
            queries: features.features(self.heads_of(query, &self.query), Side::Queries, positions),
            keys: features.features(self.heads_of(memory.clone(), &self.key), Side::Keys, &at(first)),
            values: self.heads_of(memory, &self.value),
            log_decay: None,
            strengths: None,
            normalised: self.normalised,
        };
        // The sum of the keys would stop growing in 16 bits.
        recurrence.in_32_bits()
    }

    fn execution(&self, visibility: &Visibility, span: Span, engine: Engine) -> Execution {
        if engine == Engine::Reference {
            return Execution::Pairs;
        }
        let follows_itself = !self.cross && span.keys == span.query_start + span.queries;
        if follows_itself && let Some(real) = visibility.real_positions(span.keys, self.heads) {
            return Execution::Recurrence(real);
        }
        visibility.common_keys(span, self.heads).map_or(Execution::Pairs, Execution::Sum)
    }

    fn output(&self, context: Tensor<4>, random: Option<RandomKey>) -> AttentionOutput {
        let key = random.map(|key| key.named("output"));
        let context = merge_heads(context).cast(self.output.weight.dtype());
        AttentionOutput::new(linear(dropout(context, self.dropout, key.as_ref()), &self.output))
    }
}

/// Positions from `start` on.
fn at(start: usize) -> Positions {
    Positions::from_start(start)
}

/// The recurrence with the queries behind the first `before` as they are, and 0 in the place of queries before: what was carried over from earlier segments
/// asks nothing.
fn led_by(recurrence: Recurrence, before: usize) -> Recurrence {
    if before == 0 {
        return recurrence;
    }
    let [batch, heads, _, width] = recurrence.queries.dims();
    let none = Tensor::zeros([batch, heads, before, width], (&recurrence.queries.device(), recurrence.queries.dtype()));
    Recurrence { queries: Tensor::cat(vec![none, recurrence.queries], 2), ..recurrence }
}

/// 0 in the place of the keys that are not seen, `[B|1, K]`: the features of an element that is 0 need not be 0.
fn of_seen(recurrence: Recurrence, seen: &[bool]) -> Recurrence {
    if seen.iter().all(|&seen| seen) {
        return recurrence;
    }
    let keys = recurrence.keys.dims()[2];
    let flags = TensorData::new(seen.iter().map(|&seen| if seen { 1.0f32 } else { 0.0 }).collect(), [seen.len() / keys, 1, keys, 1]);
    let flags = Tensor::<4>::from_data(flags, (&recurrence.keys.device(), recurrence.keys.dtype()));
    Recurrence { keys: recurrence.keys * flags, ..recurrence }
}

impl<F: Features> Attention for FeatureAttention<F> {
    type State = RecurrentState;

    fn abilities(&self) -> Abilities {
        Abilities {
            cross_attention: true,
            causality: Causality::Masked,
            steps: true,
            weights: true,
            max_length: self.features.max_length(),
            auxiliary_losses: false,
            randomness: self.features.draws(),
        }
    }

    /// # Panics
    /// If a sequence is longer than the features reach.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        self.check_length(positions.start + queries);
        self.check_length(memory.as_ref().unwrap_or(&query).dims()[1]);
        let drawn = random.and_then(|key| self.features.redrawn(&key.named("features")));
        let features = drawn.as_ref().unwrap_or(&self.features);
        // Within one sequence both sides count padding, which changes no distance.
        let asking = if self.cross { positions.clone() } else { at(positions.start) };
        let recurrence = self.recurrence((query.clone(), &asking), (memory.unwrap_or(query), 0), features);
        let keys = recurrence.keys.dims()[2];
        let span = Span { query_start: positions.start, queries, key_start: 0, keys };
        let by_pairs = |probe: &mut Probe| {
            let mask = visibility.mask(span, self.heads, recurrence.values.dtype(), &recurrence.values.device());
            recurrence.clone().relate(mask, probe)
        };
        let execution = self.execution(&visibility, span, engine);
        if probe.is_listening() && !matches!(execution, Execution::Pairs) {
            // The matrix of weights is computed for a probe only, and does not change how the output is computed.
            by_pairs(probe);
        }
        probe.executed(if matches!(execution, Execution::Pairs) { Executed::Reference } else { Executed::Sums });
        let context = match execution {
            Execution::Pairs => by_pairs(probe),
            Execution::Sum(seen) => {
                let asking = recurrence.queries.clone();
                Recurrence::read(asking, of_seen(recurrence, &seen).written(), self.normalised)
            }
            Execution::Recurrence(real) => {
                let before = keys - queries;
                let context = led_by(recurrence, before).of_real(&real).execute(None).context;
                if before == 0 { context } else { context.narrow(2, before, queries) }
            }
        };
        self.output(context, random)
    }

    fn state(&self, start: &DecodingStart) -> RecurrentState {
        let Some(memory) = start.memory() else { return RecurrentState::new(start) };
        let span = Span::whole(1, memory.dims()[1]);
        let seen = start.visibility().common_keys(span, self.heads).unwrap_or_else(|| {
            panic!("steps read one sum over keys: all heads must see the same ones ({:?})", start.visibility());
        });
        let recurrence = self.recurrence((memory.clone().narrow(1, 0, 1), &at(0)), (memory.clone(), 0), &self.features);
        RecurrentState::fixed(start, of_seen(recurrence, &seen).written())
    }

    /// # Panics
    /// If a position sees something else than the real ones up to itself: the state is their sum. If the features end before it.
    fn step(&self, query: Tensor<3>, state: &mut RecurrentState, _: &mut Probe) -> AttentionOutput {
        let start = state.position();
        self.check_length(start + query.dims()[1]);
        if let Some(written) = state.written() {
            let AttentionInput { query, positions, .. } = state.advance(query);
            return self.output(Recurrence::read(self.queries(query, &positions), written, self.normalised), None);
        }
        let recurrence = self.recurrence((query.clone(), &at(start)), (query.clone(), start), &self.features);
        let real = state.real_of_step(query, self.heads);
        self.output(state.recur(recurrence.of_real(&real)), None)
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &RecurrentState) -> Option<usize> {
        Some(state.bytes())
    }

    fn multiplications(&self, pairs: &Pairs) -> f64 {
        let width = self.features.width(pairs.d_head);
        let per_head = if pairs.causal {
            Recurrence::multiplications(pairs.queries.len(), width, pairs.d_head, false, false)
        } else {
            (pairs.queries.len() + pairs.keys) * width * pairs.d_head
        };
        let of_features = (pairs.queries.len() + pairs.keys) * self.features.multiplications(pairs.d_head);
        (pairs.heads * (per_head + of_features)) as f64
    }
}
