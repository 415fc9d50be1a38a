//! The attention around a [recurrence](crate::engine::recurrence): what the mechanisms share whose past is a state that decays or is overwritten.
//!
//! A mechanism says what is written, read and kept ([`Mixer::recurrence`]) and what becomes of what is read ([`Mixer::output`]). Here are the executions,
//! padding, segments, decoding and the output projection. Positions that are not real neither write nor let the state decay, and the rows of a batch that begin
//! with padding begin with an empty state. A visibility that no recurrence has, such as a window or what differs between heads, hides pairs: there all pairs are
//! computed, and the state is none.

mod formula;

use burn::module::ModuleDisplay;

pub(super) use self::formula::{PlainRecurrence, real};
use crate::engine::dropout::dropout;
use crate::engine::recurrence::{Recurrence, RecurrentState, in_32_bits};
use crate::mechanisms::prelude::*;

/// Consecutive elements, and what a mechanism knows of their surroundings.
#[derive(Debug)]
pub struct Stretch<'a> {
    /// Position of the first element.
    pub start: usize,
    /// 1 for real elements, 0 for padding, `[B|1, N, 1]`; absent if all are real.
    pub real: Option<Tensor<3>>,
    /// What a convolution needs of the elements before, `[B, 1, taps - 1, channels]`, and what it leaves for the elements behind; nothing before the first one.
    pub tail: &'a mut Option<Tensor<4>>,
}

/// Widths of one head.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// Of queries and keys.
    pub key: usize,
    /// Of values.
    pub value: usize,
    /// Whether the channels of the keys decay apart.
    pub channels_decay: bool,
    /// Whether the delta rule writes.
    pub delta: bool,
}

/// What a mixer makes of elements.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// What is written, read and kept.
    pub recurrence: Recurrence,
    /// What an element adds to what it reads, `[B, H, N, V]`, and leaves to no other.
    pub skip: Option<Tensor<4>>,
}

impl From<Recurrence> for Mixed {
    fn from(recurrence: Recurrence) -> Self {
        Self { recurrence, skip: None }
    }
}

/// What is read from the past and written to it.
pub trait Mixer: Module + ModuleDisplay + 'static {
    /// The recurrence over elements `[B, N, C]`.
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed;

    /// What is given to the output projection, `[B, N, H V]`, of what was read, `[B, H, N, V]`, by elements `[B, N, C]`. Where nothing was read, it is 0.
    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3>;

    /// Widths of one head.
    fn widths(&self) -> Widths;
}

/// Attention by a recurrence.
#[derive(Module, Debug)]
pub struct RecurrentAttention<M: Mixer> {
    /// What is read from the past and written to it.
    pub mixer: M,
    /// Output projection `[H V, C]`.
    pub output: Linear,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

impl<M: Mixer> RecurrentAttention<M> {
    /// Puts the output projection, which has no bias, behind `mixer`.
    pub fn new(mixer: M, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let width = spec.heads * mixer.widths().value;
        Self {
            mixer,
            output: init::linear(width, spec.d_model, false, &key.named("output"), device),
            heads: spec.heads,
            dropout: spec.dropout,
            limit: spec.limit(),
        }
    }

    /// With another output projection `[H V, C]`.
    pub(super) fn with_output(self, output: Linear) -> Self {
        Self { output, ..self }
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>, random: Option<RandomKey>) -> AttentionOutput {
        let key = random.map(|key| key.named("output"));
        let read = dropout(self.mixer.output(context, x), self.dropout, key.as_ref());
        AttentionOutput::new(linear(read, &self.output))
    }
}

/// So many times the width of a head, rounded up.
pub(super) fn expanded(spec: &LayerSpec, times: f64) -> usize {
    // Of a width that is a product of powers of two nothing is rounded.
    (spec.d_head() as f64 * times).ceil() as usize
}

/// Flags `[B|1, N]` as factors `[B|1, N, 1]`, if there is padding.
pub(super) fn factors(real: &[bool], x: &Tensor<3>) -> Option<Tensor<3>> {
    if real.iter().all(|&real| real) {
        return None;
    }
    let length = x.dims()[1];
    let flags = TensorData::new(real.iter().map(|&real| if real { 1.0f32 } else { 0.0 }).collect(), [real.len() / length, length, 1]);
    Some(Tensor::from_data(flags, (&x.device(), x.dtype())))
}

/// What was read and what real elements add to it.
fn plus(context: Tensor<4>, skip: Option<Tensor<4>>, real: Option<Tensor<3>>) -> Tensor<4> {
    let Some(skip) = skip else { return context };
    let skip = in_32_bits(skip);
    match real {
        Some(real) => context + skip * in_32_bits(real.unsqueeze_dim::<4>(1)),
        None => context + skip,
    }
}

impl<M: Mixer> Attention for RecurrentAttention<M> {
    type State = RecurrentState;

    fn abilities(&self) -> Abilities {
        // No weights are shown: what positions weigh has signs.
        Abilities::new(Causality::ByConstruction)
    }

    /// # Panics
    /// If there is a memory that does not end with the queries.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let x = memory.unwrap_or_else(|| query.clone());
        let length = x.dims()[1];
        assert_eq!(
            length,
            positions.start + queries,
            "a recurrence attends to what precedes its sequence and to nothing else: {length} positions"
        );
        let real = visibility.real_positions(length, self.heads);
        let flags = real.as_ref().and_then(|real| factors(real, &x));
        let Mixed { recurrence, skip } = self.mixer.recurrence(&x, Stretch { start: 0, real: flags.clone(), tail: &mut None });
        let recurrence = match &real {
            Some(real) => recurrence.in_32_bits().of_real(real),
            None => recurrence.in_32_bits(),
        };
        let is_dense = real.is_none() || engine == Engine::Reference;
        probe.executed(if is_dense { Executed::Reference } else { Executed::Sums });
        let context = if !is_dense {
            recurrence.execute(None).context
        } else {
            let mask = visibility.mask(Span::whole(length, length), self.heads, recurrence.values.dtype(), &recurrence.values.device());
            recurrence.weigh(mask, &mut Probe::off())
        };
        let context = plus(context, skip, flags);
        let context = if queries == length { context } else { context.narrow(2, length - queries, queries) };
        self.output(context, &query, random)
    }

    /// # Panics
    /// If a memory is given: a recurrence goes along one sequence.
    fn state(&self, start: &DecodingStart) -> RecurrentState {
        assert!(start.memory().is_none(), "a recurrence does not attend to another sequence");
        RecurrentState::new(start)
    }

    /// # Panics
    /// If a position sees something else than the real ones up to itself.
    fn step(&self, query: Tensor<3>, state: &mut RecurrentState, probe: &mut Probe) -> AttentionOutput {
        probe.executed(Executed::Sums);
        let start = state.position();
        let real = state.real_of_step(query.clone(), self.heads);
        let flags = factors(&real, &query);
        let Mixed { recurrence, skip } = self.mixer.recurrence(&query, Stretch { start, real: flags.clone(), tail: state.tail() });
        let context = state.recur(recurrence.in_32_bits().of_real(&real));
        self.output(plus(context, skip, flags), &query, None)
    }

    fn select(&self, state: &mut RecurrentState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &RecurrentState) -> Option<usize> {
        Some(state.bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let Widths { key, value, channels_decay, delta } = self.mixer.widths();
        (pairs.heads * Recurrence::multiplications(pairs.queries.len(), key, value, channels_decay, delta)) as f64
    }
}
