//! Attention by feature maps: shared code of mechanisms whose weights are products of query features and key features (Katharopoulos et al. 2020).
//!
//! `o_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)`: because the weights are products, the sums over keys do not depend on the query,
//! `S = sum_j phi(k_j) v_j^T` and `z = sum_j phi(k_j)`. In bidirectional attention all queries read one sum. Causal attention is a
//! [recurrence](crate::engine::recurrence) whose state is the running sum. Other visibilities, such as windows or visibilities that differ between heads,
//! require all pairs.

mod range;

use burn::module::ModuleDisplay;

use self::range::Logarithms;
use crate::contract::visibility::{DenseMask, selected};
use crate::engine::dropout::dropout;
use crate::engine::recurrence::{Recurrence, RecurrentState, in_32_bits, weights_of_logits};
use crate::mechanisms::prelude::*;

/// Operand of a feature map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Queries: a factor common to all features of a query cancels in normalised weights.
    Queries,
    /// Keys: a factor common to all features of all keys cancels in normalised weights.
    Keys,
}

/// Map from queries or keys `[B, H, N, D]` at these positions to log features, `[B, H, N, R]`.
pub type OfLogarithms<'a> = Box<dyn Fn(Tensor<4>, Side, &Positions) -> Tensor<4> + 'a>;

/// Feature map of queries and keys.
pub trait Features: Module + ModuleDisplay + 'static {
    /// Width `R` of the features of a head of width `d_head`.
    fn width(&self, d_head: usize) -> usize;

    /// Features `[B, H, N, R]` of queries or keys `[B, H, N, D]` at these positions. Their products, the weights, are not negative.
    fn features(&self, x: Tensor<4>, side: Side, positions: &Positions) -> Tensor<4>;

    /// Map to log features, for features that are never 0 and can exceed the range of 32-bit floats. For queries it may omit a constant per query. With this
    /// map, normalised weights are correct for inputs of any magnitude.
    fn logarithms(&self) -> Option<OfLogarithms<'_>> {
        None
    }

    /// Newly drawn features for a training call, if calls draw anew.
    fn redrawn(&self, _: &RandomKey) -> Option<Self> {
        None
    }

    /// Whether calls with a random key draw anew.
    fn draws(&self) -> bool {
        false
    }

    /// Longest supported sequence, if limited.
    fn max_length(&self) -> Option<usize> {
        None
    }

    /// Multiplications for the features of one token and head.
    fn multiplications(&self, _d_head: usize) -> usize {
        0
    }
}

/// Attention with products of features as weights.
#[derive(Module, Debug)]
pub struct FeatureAttention<F: Features> {
    /// Feature map of queries and keys.
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

/// Queries and keys before the feature map, with their positions, `[B, H, N, D]`, and values.
struct Asked<'a, F: Features> {
    features: &'a F,
    normalised: bool,
    queries: (Tensor<4>, Positions),
    keys: (Tensor<4>, Positions),
    values: Tensor<4>,
}

impl<F: Features> Asked<'_, F> {
    fn plain(&self) -> Recurrence {
        let recurrence = Recurrence {
            queries: self.features.features(self.queries.0.clone(), Side::Queries, &self.queries.1),
            keys: self.features.features(self.keys.0.clone(), Side::Keys, &self.keys.1),
            values: self.values.clone(),
            log_decay: None,
            strengths: None,
            normalised: self.normalised,
        };
        recurrence.in_32_bits()
    }

    /// Whether features can exceed the range of 32-bit floats. Unnormalised attention is exempt, as are maps whose features stay in range.
    fn may_leave_range(&self) -> bool {
        let is_empty = [&self.queries.0, &self.values].into_iter().any(|x| x.dims().contains(&0));
        self.normalised && !is_empty && self.features.logarithms().is_some()
    }

    /// Log features, for a map that supports them.
    fn logarithms(&self) -> Logarithms {
        let map = self.features.logarithms().expect("features that may leave the range have logarithms");
        let of = |(x, positions): &(Tensor<4>, Positions), side| in_32_bits(map(x.clone(), side, positions));
        Logarithms { queries: of(&self.queries, Side::Queries), keys: of(&self.keys, Side::Keys) }
    }

    /// The same for some batch rows.
    fn of_rows(&self, rows: &[usize]) -> Self {
        let of = |(x, positions): &(Tensor<4>, Positions)| {
            let left_padding = positions.left_padding.as_ref().map(|counts| match counts.len() {
                1 => counts.clone(),
                _ => rows.iter().map(|&row| counts[row]).collect(),
            });
            (selected(x, rows), Positions { left_padding, ..positions.clone() })
        };
        Self { queries: of(&self.queries), keys: of(&self.keys), values: selected(&self.values, rows), ..*self }
    }

    /// Results of `plain` for batch rows within range and of `scaled` for the others, for any number of rows.
    fn by_rows(
        &self,
        within: &[bool],
        plain: impl Fn(&Self, Option<&[usize]>) -> Tensor<4>,
        scaled: impl Fn(&Self, Option<&[usize]>) -> Tensor<4>,
    ) -> Tensor<4> {
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..within.len()).partition(|&row| within[row]);
        if outside.is_empty() {
            return plain(self, None);
        }
        if inside.is_empty() {
            return scaled(self, None);
        }
        let joined = Tensor::cat(vec![plain(&self.of_rows(&inside), Some(&inside)), scaled(&self.of_rows(&outside), Some(&outside))], 0);
        let mut order = vec![0; within.len()];
        inside.iter().chain(&outside).enumerate().for_each(|(at, &row)| order[row] = at);
        selected(&joined, &order)
    }

    /// Contexts of real positions `[B|1, K]` under causal visibility.
    fn causal(&self, real: &[bool]) -> Tensor<4> {
        let before = self.values.dims()[2] - self.queries.0.dims()[2];
        let contexts = |recurrence: Recurrence, real: &[bool]| {
            let queries = recurrence.queries.dims()[2];
            let context = led_by(recurrence, before).of_real(real).execute(None).context;
            if before == 0 { context } else { context.narrow(2, before, queries) }
        };
        let plain = self.plain();
        if !self.may_leave_range() {
            return contexts(plain, real);
        }
        let within = range::are_within(&plain.queries, &plain.keys, range::first_real(&plain.keys, real));
        let length = plain.keys.dims()[2];
        self.by_rows(
            &within,
            |_, rows| contexts(of_rows(&plain, rows), &flags_of(real, length, rows)),
            |asked, rows| {
                let real = flags_of(real, length, rows);
                contexts(asked.logarithms().causal(asked.values.clone(), &real, None).0, &real)
            },
        )
    }

    /// Contexts of queries that all see the same keys of a row, `[B|1, K]`.
    fn of_sum(&self, seen: &[bool]) -> Tensor<4> {
        let contexts = |recurrence: Recurrence, seen: &[bool]| {
            let (asking, normalised) = (recurrence.queries.clone(), recurrence.normalised);
            Recurrence::read(asking, of_seen(recurrence, seen).written(), normalised)
        };
        let plain = self.plain();
        if !self.may_leave_range() {
            return contexts(plain, seen);
        }
        let within = range::are_within(&plain.queries, &plain.keys, range::greatest_seen(&plain.keys, seen));
        let length = plain.keys.dims()[2];
        self.by_rows(
            &within,
            |_, rows| contexts(of_rows(&plain, rows), &flags_of(seen, length, rows)),
            |asked, rows| {
                let seen = flags_of(seen, length, rows);
                let Logarithms { queries, keys } = asked.logarithms();
                let (keys, scales) = Logarithms::seen(keys, &seen);
                contexts(Recurrence { queries: range::scaled_queries(queries, scales), keys, ..asked.plain() }, &seen)
            },
        )
    }

    /// State written by the visible keys, `[B|1, K]`, and its missing scales, if any.
    fn written(&self, seen: &[bool]) -> (Tensor<4>, Option<Tensor<4>>) {
        let plain = self.plain();
        let is_plain = !self.may_leave_range() || range::keys_are_within(&plain.keys, range::greatest_seen(&plain.keys, seen));
        let (recurrence, scales) = if is_plain {
            (plain, None)
        } else {
            let (keys, scales) = Logarithms::seen(self.logarithms().keys, seen);
            (Recurrence { keys, ..plain }, Some(scales))
        };
        (of_seen(recurrence, seen).written(), scales)
    }

    /// Contexts from the weights of all pairs, which the probe observes.
    fn by_pairs(&self, mask: Option<DenseMask>, probe: &mut Probe) -> Tensor<4> {
        let plain = self.plain();
        if !self.may_leave_range() {
            return plain.relate(mask, probe);
        }
        let mask = mask.as_ref();
        let within = range::sums_are_within(plain.sums_of_pairs(mask), mask.and_then(|mask| mask.has_key.as_ref()));
        let of = |rows: Option<&[usize]>| mask.map(|mask| mask_of(mask, rows));
        let weights = self.by_rows(
            &within,
            |_, rows| of_rows(&plain, rows).weights_of_pairs(of(rows).as_ref()),
            |asked, rows| weights_of_logits(asked.logarithms().of_pairs(), of(rows).as_ref()),
        );
        probe.observe(|| Observation::Weights(weights.clone()));
        weights.matmul(self.values.clone())
    }

    /// Contexts of the next positions, with flags `[B|1, N]` of real positions; reads and updates a state.
    fn step(&self, state: &mut RecurrentState, real: &[bool]) -> Tensor<4> {
        let plain = self.plain();
        let scales = state.scales().take();
        let is_plain = match (&scales, state.is_empty()) {
            _ if !self.may_leave_range() => true,
            (Some(_), _) => false,
            // A row without a previous key would start at the others' scale.
            (None, true) => {
                range::all_have_one(real, plain.keys.dims()[2])
                    && range::are_within(&plain.queries, &plain.keys, range::first_real(&plain.keys, real)).iter().all(|&within| within)
            }
            (None, false) => range::step_is_within(&plain.queries, &plain.keys),
        };
        if is_plain {
            return state.recur(plain.of_real(real));
        }
        let logarithms = self.logarithms();
        // A state of plain features has no missing scales.
        let scales = scales.or_else(|| (!state.is_empty()).then(|| logarithms.keys.clone().narrow(2, 0, 1).zeros_like()));
        let (recurrence, scales) = logarithms.causal(plain.values, real, scales);
        *state.scales() = Some(scales);
        state.recur(recurrence.of_real(real))
    }
}

/// Recurrence of plain features in some batch rows, or in all. Rows are selected after the feature map, so their bits do not change.
fn of_rows(plain: &Recurrence, rows: Option<&[usize]>) -> Recurrence {
    let Some(rows) = rows else { return plain.clone() };
    let of = |x: &Tensor<4>| selected(x, rows);
    Recurrence { queries: of(&plain.queries), keys: of(&plain.keys), values: of(&plain.values), ..plain.clone() }
}

/// Flags `[B|1, K]` of some batch rows, or of all.
fn flags_of(flags: &[bool], length: usize, rows: Option<&[usize]>) -> Vec<bool> {
    match rows {
        Some(rows) if flags.len() > length => rows.iter().flat_map(|row| &flags[row * length..(row + 1) * length]).copied().collect(),
        _ => flags.to_vec(),
    }
}

/// Mask of some batch rows, or of all.
fn mask_of(mask: &DenseMask, rows: Option<&[usize]>) -> DenseMask {
    let of = |x: &Tensor<4>| match rows {
        Some(rows) if x.dims()[0] > 1 => selected(x, rows),
        _ => x.clone(),
    };
    DenseMask { bias: of(&mask.bias), has_key: mask.has_key.as_ref().map(of) }
}

/// Execution of the sums over keys.
enum FeatureExecution {
    /// All queries of a row see the same keys, `[B, K]`.
    Sum(Vec<bool>),
    /// Each real position, `[B, N]`, sees the real ones up to itself.
    Recurrence(Vec<bool>),
    /// Explicit pairs.
    Pairs,
}

impl<F: Features> FeatureAttention<F> {
    /// Adds the projections, without biases, around `features`.
    pub fn new(features: F, normalised: bool, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let linear = |name| init::linear(spec.d_model, spec.d_model, false, &key.named(name), device);
        Self {
            features,
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: linear("output"),
            normalised,
            heads: spec.heads,
            dropout: spec.dropout,
            cross: spec.role == Role::Cross,
            limit: spec.limit(),
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

    /// Queries at these positions, and keys and values whose first token stands at `first`.
    fn asked<'a>(&self, features: &'a F, (query, positions): (Tensor<3>, &Positions), (memory, first): (Tensor<3>, usize)) -> Asked<'a, F> {
        let map = |x, map: &Linear| self.heads_of(x, map);
        Asked {
            features,
            normalised: self.normalised,
            queries: (map(query, &self.query), positions.clone()),
            keys: (map(memory.clone(), &self.key), at(first)),
            // In 16 bits the running sum over keys would saturate.
            values: in_32_bits(map(memory, &self.value)),
        }
    }

    /// Features of queries that read an earlier state with these missing scales.
    fn queries_of(&self, (x, positions): (Tensor<4>, Positions), scales: Option<Tensor<4>>) -> Tensor<4> {
        let plain = in_32_bits(self.features.features(x.clone(), Side::Queries, &positions));
        let map = self.features.logarithms().filter(|_| self.normalised && (scales.is_some() || !range::queries_are_within(&plain)));
        let Some(map) = map else { return plain };
        let logarithms = in_32_bits(map(x, Side::Queries, &positions));
        let scales = scales.unwrap_or_else(|| logarithms.clone().narrow(2, 0, 1).zeros_like());
        range::scaled_queries(logarithms, scales)
    }

    fn execution(&self, visibility: &Visibility, span: Span, engine: Engine) -> FeatureExecution {
        if engine == Engine::Reference {
            return FeatureExecution::Pairs;
        }
        let follows_itself = !self.cross && span.keys == span.query_start + span.queries;
        if follows_itself && let Some(real) = visibility.real_positions(span.keys, self.heads) {
            return FeatureExecution::Recurrence(real);
        }
        visibility.common_keys(span, self.heads).map_or(FeatureExecution::Pairs, FeatureExecution::Sum)
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

/// Recurrence with the queries before index `before` set to 0: memory from earlier segments supplies no queries.
fn led_by(recurrence: Recurrence, before: usize) -> Recurrence {
    if before == 0 {
        return recurrence;
    }
    let [batch, heads, _, width] = recurrence.queries.dims();
    let none = Tensor::zeros([batch, heads, before, width], (&recurrence.queries.device(), recurrence.queries.dtype()));
    Recurrence { queries: Tensor::cat(vec![none, recurrence.queries], 2), ..recurrence }
}

/// Sets keys outside `seen`, `[B|1, K]`, to 0: the features of a zero input need not be 0.
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
            weights: true,
            max_length: self.features.max_length(),
            randomness: self.features.draws(),
            ..Abilities::new(Causality::Masked)
        }
    }

    /// # Panics
    /// If a sequence exceeds the length that the features support.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        self.check_length(positions.start + queries);
        self.check_length(memory.as_ref().unwrap_or(&query).dims()[1]);
        let drawn = random.and_then(|key| self.features.redrawn(&key.named("features")));
        let features = drawn.as_ref().unwrap_or(&self.features);
        // Within one sequence queries and keys count padding alike, so distances do not change.
        let asking = if self.cross { positions.clone() } else { at(positions.start) };
        let asked = self.asked(features, (query.clone(), &asking), (memory.unwrap_or(query), 0));
        let keys = asked.values.dims()[2];
        let span = Span { query_start: positions.start, queries, key_start: 0, keys };
        let by_pairs = |probe: &mut Probe| {
            let mask = visibility.mask(span, self.heads, asked.values.dtype(), &asked.values.device());
            asked.by_pairs(mask, probe)
        };
        let execution = self.execution(&visibility, span, engine);
        if probe.is_listening() && !matches!(execution, FeatureExecution::Pairs) {
            // Only a probe reads the weight matrix; the output is computed without it.
            by_pairs(probe);
        }
        probe.executed(if matches!(execution, FeatureExecution::Pairs) { Executed::Reference } else { Executed::Sums });
        let context = match execution {
            FeatureExecution::Pairs => by_pairs(probe),
            FeatureExecution::Sum(seen) => asked.of_sum(&seen),
            FeatureExecution::Recurrence(real) => asked.causal(&real),
        };
        self.output(context, random)
    }

    fn state(&self, start: &DecodingStart) -> RecurrentState {
        let Some(memory) = start.memory() else { return RecurrentState::new(start) };
        let span = Span::whole(1, memory.dims()[1]);
        let seen = start.visibility().common_keys(span, self.heads).unwrap_or_else(|| {
            panic!("steps read one sum over keys: all heads must see the same ones ({:?})", start.visibility());
        });
        let (written, scales) = self.asked(&self.features, (memory.clone().narrow(1, 0, 1), &at(0)), (memory.clone(), 0)).written(&seen);
        let mut state = RecurrentState::fixed(start, written);
        *state.scales() = scales.map(Tensor::detach);
        state
    }

    /// # Panics
    /// If a position does not see exactly the real positions up to itself, since the state is their sum; or if the features do not reach the position.
    fn step(&self, query: Tensor<3>, state: &mut RecurrentState, probe: &mut Probe) -> AttentionOutput {
        probe.executed(Executed::Sums);
        let start = state.position();
        self.check_length(start + query.dims()[1]);
        if let Some(written) = state.written() {
            let scales = state.scales().clone();
            let AttentionInput { query, positions, .. } = state.advance(query);
            let queries = self.queries_of((self.heads_of(query, &self.query), positions), scales);
            return self.output(Recurrence::read(queries, written, self.normalised), None);
        }
        let asked = self.asked(&self.features, (query.clone(), &at(start)), (query.clone(), start));
        let real = state.real_of_step(query, self.heads);
        self.output(asked.step(state, &real), None)
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &RecurrentState) -> Option<usize> {
        Some(state.bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
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
