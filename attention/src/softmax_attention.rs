//! Multi-head softmax attention over any logits.
//!
//! `output = concat_h( softmax(logits_h + mask) · V_h ) W_O`, `V = memory W_V`: the projections, masks, softmax, dropout and decoding state that
//! the mechanisms of Vaswani et al. 2017 (section 3.2) and Tay et al. 2021 share. Projections have no biases, as in the reference code of
//! both, unless the place or the logits ask for them. `H` heads of queries may share `G` heads of keys and values, of any width `D`. Gates of the logits, if they
//! have any, multiply what the heads give before `W_O`.

mod heads;
pub mod logits;
pub mod memory;
pub mod pattern;
pub(crate) mod sink_columns;

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use heedful_random::RandomKey;

pub(crate) use self::heads::Latest;
pub use self::heads::{HeadCall, Heads};
use crate::contract::abilities::{Abilities, Causality};
use crate::contract::engine::{Engine, Executed};
use crate::contract::init;
use crate::contract::placement::Placement;
use crate::contract::probe::{Observation, Probe};
use crate::contract::progress::DecodingStart;
use crate::contract::visibility::{Mask, Span, Visibility};
use crate::contract::{Attention, AttentionInput, AttentionOutput, Pairs, Positions};
use crate::engine::blocked::{Blocks, attend_parts};
use crate::engine::fused::Part;
use crate::engine::heads::{merge_heads, repeat_heads, split_heads};
use crate::engine::linear::linear_at;
use crate::engine::{AttentionProgram, Dropout, LogitTerms, Weighting, fused, reference};
use crate::softmax_attention::logits::Logits;
use crate::softmax_attention::memory::KeyValueState;

/// Queries at which the visible keys of a pattern are counted; all others are taken to see as many on average.
const SAMPLED_QUERIES: usize = 128;

/// Multi-head softmax attention over the logits `L`, or over what else gives heads.
#[derive(Module, Debug)]
pub struct SoftmaxAttention<L: Heads> {
    /// The scores.
    pub logits: L,
    /// Value projection `[C, G D]`, split into the heads of values.
    pub value: Linear,
    /// Output projection `[H D, C]`.
    pub output: Linear,
    /// Logits of the sinks, `[H]`, if there are any ([`Logits::sink`]).
    pub sink: Option<Param<Tensor<1>>>,
    heads: usize,
    kv_heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
    #[module(skip)]
    latest: Latest,
}

impl<L: Heads> SoftmaxAttention<L> {
    /// Puts the shared projections around `logits`.
    pub fn new(logits: L, placement: &Placement, key: &RandomKey, device: &Device) -> Self {
        let (d_model, bias) = (placement.d_model, logits.head_biases());
        let sink = logits.head_sink().map(|init| init.parameter([placement.heads], &key.named("sink"), device));
        Self {
            logits,
            sink,
            value: init::linear(d_model, placement.key_width(), bias || placement.qkv_bias, &key.named("value"), device),
            output: init::linear(placement.query_width(), d_model, bias || placement.output_bias, &key.named("output"), device),
            heads: placement.heads,
            kv_heads: placement.n_kv_heads(),
            dropout: placement.dropout,
            limit: placement.limit(),
            latest: Arc::default(),
        }
    }

    /// Keys `[B, G, K, R]` and values `[B, G, K, D]` of elements `[B, K, C]` at these positions.
    fn remembered(&self, memory: Tensor<3>, positions: &Positions) -> (Option<Tensor<4>>, Tensor<4>) {
        let values = split_heads(linear_at(memory.clone(), &self.value, positions), self.kv_heads);
        (self.logits.head_keys(memory, positions), values)
    }

    fn attend(&self, input: Query, keys: Option<Tensor<4>>, values: Tensor<4>, key_start: usize, probe: &mut Probe) -> AttentionOutput {
        let Query { query, visibility, positions, random, engine } = input;
        let losses = self.logits.head_losses(&query);
        let (Self { latest, .. }, heads, dropout) = (self, self.heads, self.dropout);
        let at = positions.clone();
        let sink = self.sink.as_ref().map(|sink| sink.val().reshape([1, heads, 1, 1]).cast(values.dtype()));
        let call = HeadCall { query, keys, values, key_start, visibility, positions, random, engine, heads, dropout, sink, latest };
        AttentionOutput { context: linear_at(merge_heads(self.logits.attend(call, probe)), &self.output, &at), losses }
    }
}

/// Values weighed by the scores of logits.
struct Weighing<'a, L> {
    logits: &'a L,
    heads: usize,
    dropout: f64,
    latest: &'a Latest,
}

impl<L: Logits> Weighing<'_, L> {
    /// What is seen of the keys that `given` shows.
    fn seen(&self, given: Visibility, positions: &Positions) -> Visibility {
        let Some(own) = self.logits.visibility() else { return given };
        let own = match &positions.left_padding {
            None => own,
            Some(counts) => own.shifted(counts.clone()),
        };
        let joint = given.and(own);
        let mut latest = self.latest.lock().expect("no panic happens while the latest visibility is locked");
        latest.take_if(|latest| !latest.equals(&joint));
        latest.get_or_insert(joint).clone()
    }

    fn execution(
        &self,
        engine: Engine,
        program: &AttentionProgram,
        visibility: &Visibility,
        span: Span,
        positions: &Positions,
    ) -> Execution {
        if engine == Engine::Reference {
            return Execution::Reference;
        }
        let is_fused = fused::can_attend(program, engine);
        if is_fused
            && fused::can_attend_in_parts(program)
            && let Some(parts) = self.logits.parts(visibility, span, positions, self.heads)
        {
            return Execution::Fused(parts);
        }
        // A few queries score all keys before blocks of keys are gathered.
        if engine == Engine::Auto && span.queries < fused::FEWEST_QUERIES {
            return Execution::Reference;
        }
        let in_order = || Execution::Fused(Arc::new([Part::in_order(visibility.tiles_of(span, self.heads, positions))]));
        if is_fused && fused::has_kernels(program) {
            return in_order();
        }
        match self.logits.blocks(visibility, span, positions, self.heads, &program.values) {
            Some(blocks) => Execution::Blocked(blocks),
            None if is_fused => in_order(),
            None => Execution::Reference,
        }
    }

    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4> {
        let span = call.span();
        let HeadCall { query, keys, values, key_start, visibility, positions, random, engine, sink, .. } = call;
        let (visibility, added) = self.seen(visibility, &positions).without_additive(span);
        if let Some(spans) = probe.is_listening().then(|| self.logits.spans(&query)).flatten() {
            probe.observe(|| Observation::Spans(spans));
        }
        let soft_span = self.logits.soft_span(&query, span);
        let terms = self.logits.terms(query, keys, span, &positions);
        let terms = match added {
            Some(bias) => terms.plus(LogitTerms::bias(bias.to_device(&values.device()).cast(values.dtype()))),
            None => terms,
        };
        let terms = LogitTerms { sink, ..terms };
        // Logits that all heads share do not say how many heads there are.
        let values = if terms.heads() < self.heads { repeat_heads(values, self.heads) } else { values };
        let program = AttentionProgram {
            weighting: Weighting::Scores(terms, self.logits.normaliser()),
            mask: None,
            soft_span,
            values,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let masked = |program: AttentionProgram| {
            let mask = visibility.mask(span, self.heads, program.values.dtype(), &program.values.device());
            AttentionProgram { mask, ..program }
        };
        // What only a tensor on the device knows is no part of tiles and blocks: it goes into the scores.
        let given =
            visibility.is_given().then(|| visibility.mask(span, self.heads, program.values.dtype(), &program.values.device())).flatten();
        let scored = given.as_ref().map(|mask| hidden_by_scores(program.clone(), mask.bias.clone()));
        let execution = self.execution(engine, scored.as_ref().unwrap_or(&program), &visibility.known(), span, &positions);
        if probe.is_listening() && !matches!(execution, Execution::Reference) {
            // The matrix of all weights is computed for a probe only, and does not change how the output is computed.
            let shown = AttentionProgram { dropout: None, ..masked(program.clone()) };
            probe.with_keys_before(key_start, |probe| reference::attend(shown, probe));
        }
        probe.executed(match execution {
            Execution::Fused(_) => Executed::Fused,
            Execution::Blocked(_) => Executed::Blocked,
            Execution::Reference => Executed::Reference,
        });
        match execution {
            Execution::Fused(parts) => of_those_with_a_key(fused::attend(scored.unwrap_or(program), parts), given),
            Execution::Blocked(blocks) => of_those_with_a_key(attend_parts(scored.unwrap_or(program), &blocks).context, given),
            Execution::Reference => probe.with_keys_before(key_start, |probe| reference::attend(masked(program), probe)),
        }
    }
}

/// Executes a program of logits of all pairs: by the fused engine where it can, else by the reference. Says which it was.
pub(crate) fn tiled_or_dense(
    program: AttentionProgram,
    visibility: &Visibility,
    (span, heads): (Span, usize),
    engine: Engine,
    probe: &mut Probe,
) -> Tensor<4> {
    let (dtype, device) = (program.values.dtype(), program.values.device());
    let (visibility, added) = visibility.without_additive(span);
    let program = match added {
        Some(bias) => hidden_by_scores(program, bias.to_device(&device).cast(dtype)),
        None => program,
    };
    // What only a tensor on the device knows is no part of tiles: it goes into the scores.
    let given = visibility.is_given().then(|| visibility.mask(span, heads, dtype, &device)).flatten();
    let scored = given.as_ref().map(|mask| hidden_by_scores(program.clone(), mask.bias.clone()));
    let masked = |program: AttentionProgram| AttentionProgram { mask: visibility.mask(span, heads, dtype, &device), ..program };
    if !fused::can_attend(scored.as_ref().unwrap_or(&program), engine) {
        probe.executed(Executed::Reference);
        return reference::attend(masked(program), probe);
    }
    if probe.is_listening() {
        // The matrix of all weights is computed for a probe only, and does not change how the output is computed.
        reference::attend(AttentionProgram { dropout: None, ..masked(program.clone()) }, probe);
    }
    probe.executed(Executed::Fused);
    let part = Part::in_order(visibility.known().tiles(span, heads));
    of_those_with_a_key(fused::attend(scored.unwrap_or(program), Arc::new([part])), given)
}

/// The program with numbers that are added to its logits.
pub(crate) fn hidden_by_scores(program: AttentionProgram, bias: Tensor<4>) -> AttentionProgram {
    let weighting = match program.weighting {
        Weighting::Scores(terms, normaliser) => Weighting::Scores(terms.plus(LogitTerms::bias(bias)), normaliser),
        other => other,
    };
    AttentionProgram { weighting, ..program }
}

/// A softmax over nothing but hidden keys weighs all of them the same: 0 instead.
pub(crate) fn of_those_with_a_key(context: Tensor<4>, given: Option<Mask>) -> Tensor<4> {
    match given.and_then(|mask| mask.has_key) {
        Some(has_key) => context * has_key,
        None => context,
    }
}

/// Pairs of all heads that these logits let be seen.
pub(crate) fn seen_pairs(pairs: &Pairs, logits: &impl Logits) -> f64 {
    let Pairs { queries, heads, .. } = pairs;
    let Some(pattern) = logits.pattern() else {
        let Some(reach) = logits.reach() else { return pairs.dense() };
        let within = |query: usize| pairs.seen(query).end.min(query + reach + 1).saturating_sub(query.saturating_sub(reach));
        return queries.clone().map(within).sum::<usize>() as f64 * *heads as f64;
    };
    let step = queries.len().div_ceil(SAMPLED_QUERIES);
    let sampled: Vec<usize> = queries.clone().skip(step / 2).step_by(step).collect();
    let of_query = |head: usize, query: usize| pairs.seen(query).filter(|&key| pattern.sees(head, query, key)).count();
    let found: usize = (0..*heads).map(|head| sampled.iter().map(|&query| of_query(head, query)).sum::<usize>()).sum();
    found as f64 * queries.len() as f64 / sampled.len() as f64
}

/// How a program is executed.
enum Execution {
    Fused(Arc<[Part]>),
    Blocked(Vec<Blocks>),
    Reference,
}

/// An [`AttentionInput`] without its memory.
struct Query {
    query: Tensor<3>,
    visibility: Visibility,
    positions: Positions,
    random: Option<RandomKey>,
    engine: Engine,
}

impl<L: Heads> Attention for SoftmaxAttention<L> {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        let facts = self.logits.head_facts();
        Abilities {
            cross_attention: facts.cross_attention,
            causality: Causality::Masked,
            steps: true,
            weights: self.logits.have_weights(),
            max_length: facts.max_length,
            auxiliary_losses: facts.auxiliary_losses,
            randomness: false,
        }
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        Self { logits: self.logits.heads_sharing_with(&earlier.logits), ..self }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let (memory, key_start, ends) = match memory {
            Some(memory) => {
                // What no query reaches is not even projected.
                let start = self.logits.head_reach().map_or(0, |reach| positions.start.saturating_sub(reach));
                let length = memory.dims()[1];
                // Nor is what no query sees, where padding is left out.
                let is_unpadded = positions.ends.is_some() && positions.left_padding.is_none();
                let ends = is_unpadded.then(|| visibility.key_ends(memory.dims()[0])).flatten();
                (memory.narrow(1, start, length - start), start, ends)
            }
            None => (query.clone(), 0, positions.ends.clone()),
        };
        let key_positions = Positions { start: key_start, ends, ..positions.clone() };
        let (keys, values) = self.remembered(memory, &key_positions);
        self.attend(Query { query, visibility, positions, random, engine }, keys, values, key_start, probe)
    }

    fn state(&self, start: &DecodingStart) -> KeyValueState {
        match start.memory() {
            Some(memory) => {
                let (keys, values) = self.remembered(memory.clone(), &Positions::default());
                KeyValueState::fixed(start, keys, values)
            }
            None => match self.logits.head_cache() {
                Some(cache) if !start.hides_more() => KeyValueState::growing(start).keeping(cache),
                _ => KeyValueState::growing(start).reaching(self.logits.head_reach()),
            },
        }
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, engine, .. } = state.advance(query);
        if !state.is_fixed() {
            let (keys, values) = self.remembered(query.clone(), &positions);
            state.push(keys, values);
        }
        let gap = state.gap();
        let positions = Positions { start: positions.start - gap.len(), ..positions };
        let input = Query { query, visibility, positions, random, engine };
        let attend = |probe: &mut Probe| self.attend(input, state.keys(), state.values(), state.start(), probe);
        probe.with_keys_between(gap.start, gap.len(), attend)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn any_queries(&self) -> Option<Visibility> {
        self.logits.head_takes_any_queries().then(|| self.limit.clone())
    }

    fn multiplications(&self, pairs: &Pairs) -> f64 {
        self.logits.head_multiplications(pairs)
    }
}
