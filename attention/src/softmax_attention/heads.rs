//! Computation of heads: one softmax for logits, combinations of several for other mechanisms.

use std::sync::{Arc, Mutex};

use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use heedful_random::RandomKey;

use crate::contract::engine::{Engine, Executed};
use crate::contract::init::Init;
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::{DenseMask, Span, Visibility};
use crate::contract::{Positions, QueryKeyPairs};
use crate::engine::blocked::{Blocks, attend_parts};
use crate::engine::fused::Part;
use crate::engine::heads::repeat_heads;
use crate::engine::{AttentionProgram, Dropout, LogitTerms, Weighting, fused, reference};
use crate::softmax_attention::logits::{Logits, LogitsRef};

/// Number of queries at which the visible keys of a pattern are counted; the average applies to all others.
const SAMPLED_QUERIES: usize = 128;

/// Visibility of the latest call. Training steps repeat it, and it caches its masks and tiles.
pub(crate) type LatestVisibility = Arc<Mutex<Option<Visibility>>>;

/// Computation of the heads of a [`SoftmaxAttention`](super::SoftmaxAttention) from cached keys and values.
///
/// All [`Logits`] are heads: sums of values weighted by their scores. A type that computes heads differently, such as from several logits, implements this
/// trait and reuses the projections, masks and decoding state.
pub trait Heads: Module + ModuleDisplay + 'static {
    /// Logits of the heads, at least one. Their abilities, biases, reach, cache and losses apply to the heads, and their keys are cached side by side.
    fn scores(&self) -> Vec<LogitsRef<'_>>;

    /// Head outputs, `[B, H, Q, D]`.
    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4>;

    /// Whether the heads have key weights that a probe can observe: not negative, and 0 if hidden. Default: no.
    fn have_weights(&self) -> bool {
        false
    }

    /// As [`Logits::sink`]. Default: none.
    fn head_sink(&self) -> Option<Init> {
        None
    }

    /// As [`Logits::sharing_with`]. Default: nothing is shared.
    fn heads_sharing_with(self, _earlier: &Self) -> Self {
        self
    }

    /// As [`Logits::takes_any_queries`]. Default: no.
    fn head_takes_any_queries(&self) -> bool {
        false
    }

    /// Multiplications of scores and weighted sums for one sequence. Default: a score and a weighted value per pair.
    fn head_multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        pairs.dense() * 2.0 * pairs.d_head()
    }
}

impl<L: Logits> Heads for L {
    fn scores(&self) -> Vec<LogitsRef<'_>> {
        vec![self]
    }

    fn have_weights(&self) -> bool {
        true
    }

    fn head_sink(&self) -> Option<Init> {
        Logits::sink(self)
    }

    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4> {
        let gate = self.gate(&call.query);
        if let Some(open) = &gate {
            probe.observe(|| Observation::HeadGates(open.clone()));
        }
        let context = call.weighed_by(self, probe);
        match gate {
            Some(open) => context * open,
            None => context,
        }
    }

    fn heads_sharing_with(self, earlier: &Self) -> Self {
        Logits::sharing_with(self, earlier)
    }

    fn head_takes_any_queries(&self) -> bool {
        Logits::takes_any_queries(self)
    }

    fn head_multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let d_head = pairs.d_head();
        seen_pairs(pairs, self) * (Logits::multiplications(self, d_head) + d_head)
    }
}

/// Inputs of the heads: queries, cached keys and values, and their visibility.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeadCall<'a> {
    /// `[B, Q, C]`.
    pub query: Tensor<3>,
    /// Cached keys of the [logits](Heads::scores), `[B, G, K, R]`.
    pub keys: Option<Tensor<4>>,
    /// `[B, G, K, D]`.
    pub values: Tensor<4>,
    /// Index of the first key.
    pub key_start: usize,
    /// Visible keys of each query, before any restriction by the logits.
    pub visibility: Visibility,
    /// Positions of the queries.
    pub positions: Positions,
    /// Key of the random numbers of this call; dropout is active if and only if it is present.
    pub random: Option<RandomKey>,
    /// Requested engine.
    pub engine: Engine,
    pub(super) heads: usize,
    pub(super) dropout: f64,
    /// Logits of the sinks, `[1, H, 1, 1]`.
    pub(super) sink: Option<Tensor<4>>,
    pub(super) latest: &'a LatestVisibility,
}

impl<'a> HeadCall<'a> {
    /// Values weighted by the scores of logits, `[B, H, Q, D]`, without gates. The keys must be those of the logits.
    pub fn weighed_by<L: Logits>(self, logits: &L, probe: &mut Probe) -> Tensor<4> {
        let span = self.span();
        let (visibility, added) = self.seen_through(logits).without_additive(span);
        let Self { query, keys, values, key_start, positions, random, engine, heads, dropout, sink, .. } = self;
        if let Some(spans) = probe.is_listening().then(|| logits.spans(&query)).flatten() {
            probe.observe(|| Observation::Spans(spans));
        }
        let soft_span = logits.soft_span(&query, span);
        let terms = logits.terms(query, keys, span, &positions);
        let terms = match added {
            Some(bias) => terms.plus(LogitTerms::bias(bias.to_device(&values.device()).cast(values.dtype()))),
            None => terms,
        };
        let terms = LogitTerms { sink, ..terms };
        // Logits shared by all heads do not specify the number of heads.
        let values = if terms.heads() < heads { repeat_heads(values, heads) } else { values };
        let program = AttentionProgram {
            weighting: Weighting::Scores(terms, logits.normaliser()),
            mask: None,
            soft_span,
            values,
            dropout: random.map(|key| Dropout { probability: dropout, key: key.named("weights") }),
        };
        let masked = |program: AttentionProgram| {
            let mask = visibility.mask(span, heads, program.values.dtype(), &program.values.device());
            AttentionProgram { mask, ..program }
        };
        // Tensor masks on the device are not part of tiles and blocks: they are added to the scores.
        let given = visibility.is_given().then(|| visibility.mask(span, heads, program.values.dtype(), &program.values.device())).flatten();
        let scored = given.as_ref().map(|mask| hidden_by_scores(program.clone(), mask.bias.clone()));
        let execution = execution(logits, engine, scored.as_ref().unwrap_or(&program), &visibility.known(), (span, heads), &positions);
        if probe.is_listening() && !matches!(execution, SoftmaxExecution::Reference) {
            // Only a probe reads the weight matrix; the output is computed without it.
            let shown = AttentionProgram { dropout: None, ..masked(program.clone()) };
            probe.with_keys_before(key_start, |probe| reference::attend(shown, probe));
        }
        probe.executed(match execution {
            SoftmaxExecution::Fused(_) => Executed::Fused,
            SoftmaxExecution::Blocked(_) => Executed::Blocked,
            SoftmaxExecution::Reference => Executed::Reference,
        });
        match execution {
            SoftmaxExecution::Fused(parts) => of_those_with_a_key(fused::attend(scored.unwrap_or(program), parts), given),
            SoftmaxExecution::Blocked(blocks) => of_those_with_a_key(attend_parts(scored.unwrap_or(program), &blocks).context, given),
            SoftmaxExecution::Reference => probe.with_keys_before(key_start, |probe| reference::attend(masked(program), probe)),
        }
    }

    /// Values weighted by the scores of logits, and with a listener, the weights `[B|1, H, Q, K]` of all keys of the sequence before dropout. Only the
    /// execution is reported to the probe.
    pub(crate) fn weighed_and_shown<L: Logits>(self, logits: &L, probe: &mut Probe) -> (Tensor<4>, Option<Tensor<4>>) {
        if !probe.is_listening() {
            return (self.weighed_by(logits, &mut Probe::off()), None);
        }
        let mut weights = None;
        let mut listener = |_: &str, observation: Observation| match observation {
            Observation::Weights(found) => weights = Some(found),
            Observation::Executed(executed) => probe.executed(executed),
            _ => {}
        };
        let context = self.weighed_by(logits, &mut Probe::listening(&mut listener));
        (context, weights)
    }

    /// The same with its own cached visibility for the next call.
    pub(crate) fn keeping(self, latest: &'a LatestVisibility) -> Self {
        Self { latest, ..self }
    }

    /// Visible keys of the queries under the restriction of the logits.
    pub(crate) fn seen_through<L: Logits>(&self, logits: &L) -> Visibility {
        let Some(own) = logits.visibility() else { return self.visibility.clone() };
        let own = match &self.positions.left_padding {
            None => own,
            Some(counts) => own.shifted(counts.clone()),
        };
        let joint = self.visibility.clone().and(own);
        let mut latest = self.latest.lock().expect("no panic happens while the latest visibility is locked");
        latest.take_if(|latest| !latest.equals(&joint));
        latest.get_or_insert(joint).clone()
    }

    /// Part of the plane of queries and keys that the call covers.
    pub fn span(&self) -> Span {
        Span { query_start: self.positions.start, queries: self.query.dims()[1], key_start: self.key_start, keys: self.values.dims()[2] }
    }

    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Dropout probability of a weight if the call has a key of random numbers.
    pub fn dropout(&self) -> f64 {
        self.dropout
    }
}

/// Execution of a program.
enum SoftmaxExecution {
    Fused(Arc<[Part]>),
    Blocked(Vec<Blocks>),
    Reference,
}

/// Chooses the execution for the scores of logits.
fn execution<L: Logits>(
    logits: &L,
    engine: Engine,
    program: &AttentionProgram,
    visibility: &Visibility,
    (span, heads): (Span, usize),
    positions: &Positions,
) -> SoftmaxExecution {
    if engine == Engine::Reference {
        return SoftmaxExecution::Reference;
    }
    let is_fused = fused::can_attend(program, engine);
    if is_fused
        && fused::can_attend_in_parts(program)
        && let Some(parts) = logits.parts(visibility, span, positions, heads)
    {
        return SoftmaxExecution::Fused(parts);
    }
    // A few queries score all keys, rather than gathering blocks of keys.
    if engine == Engine::Auto && span.queries < fused::FEWEST_QUERIES {
        return SoftmaxExecution::Reference;
    }
    let in_order = || SoftmaxExecution::Fused(Arc::new([Part::in_order(visibility.tiles_of(span, heads, positions))]));
    if is_fused && fused::has_kernels(program) {
        return in_order();
    }
    match logits.blocks(visibility, span, positions, heads, &program.values) {
        Some(blocks) => SoftmaxExecution::Blocked(blocks),
        None if is_fused => in_order(),
        None => SoftmaxExecution::Reference,
    }
}

/// Executes a program over all pairs by the fused engine if possible, otherwise by the reference, and reports the choice.
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
    // Tensor masks on the device are not part of tiles: they are added to the scores.
    let given = visibility.is_given().then(|| visibility.mask(span, heads, dtype, &device)).flatten();
    let scored = given.as_ref().map(|mask| hidden_by_scores(program.clone(), mask.bias.clone()));
    let masked = |program: AttentionProgram| AttentionProgram { mask: visibility.mask(span, heads, dtype, &device), ..program };
    if !fused::can_attend(scored.as_ref().unwrap_or(&program), engine) {
        probe.executed(Executed::Reference);
        return reference::attend(masked(program), probe);
    }
    if probe.is_listening() {
        // Only a probe reads the weight matrix; the output is computed without it.
        reference::attend(AttentionProgram { dropout: None, ..masked(program.clone()) }, probe);
    }
    probe.executed(Executed::Fused);
    let part = Part::in_order(visibility.known().tiles(span, heads));
    of_those_with_a_key(fused::attend(scored.unwrap_or(program), Arc::new([part])), given)
}

/// The program with additional biases on its logits.
fn hidden_by_scores(program: AttentionProgram, bias: Tensor<4>) -> AttentionProgram {
    let weighting = match program.weighting {
        Weighting::Scores(terms, normaliser) => Weighting::Scores(terms.plus(LogitTerms::bias(bias)), normaliser),
        other => other,
    };
    AttentionProgram { weighting, ..program }
}

/// Sets the context to 0 for queries without visible keys; a softmax over only hidden keys would weight them equally.
fn of_those_with_a_key(context: Tensor<4>, given: Option<DenseMask>) -> Tensor<4> {
    match given.and_then(|mask| mask.has_key) {
        Some(has_key) => context * has_key,
        None => context,
    }
}

/// Pairs of all heads that these logits leave visible.
pub(crate) fn seen_pairs(pairs: &QueryKeyPairs, logits: &impl Logits) -> f64 {
    let QueryKeyPairs { queries, heads, .. } = pairs;
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
