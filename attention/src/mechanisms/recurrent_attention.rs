//! Attention around a [recurrence](crate::engine::recurrence): shared code of mechanisms with a decaying or overwritten state.
//!
//! A mechanism defines the recurrence ([`Mixer::recurrence`]) and the map of its reads to outputs ([`Mixer::output`]). This module supplies execution, padding,
//! segments, decoding and the output projection. Padding neither writes nor decays the state, and batch rows that begin with padding start with an empty state.
//! Visibilities that no recurrence supports, such as windows or visibilities that differ between heads, hide pairs: then all pairs are computed, without a
//! state.

mod formula;

use burn::module::ModuleDisplay;

pub(super) use self::formula::{PlainRecurrence, real};
use crate::engine::dropout::dropout;
use crate::engine::recurrence::{Recurrence, RecurrentState, in_32_bits};
use crate::mechanisms::prelude::*;

/// Consecutive tokens, and their context for a mechanism.
#[derive(Debug)]
pub struct Stretch<'a> {
    /// Position of the first token.
    pub start: usize,
    /// 1 for real tokens, 0 for padding, `[B|1, N, 1]`; absent if all are real.
    pub real: Option<Tensor<3>>,
    /// Convolution inputs before the stretch, `[B, 1, taps - 1, channels]`, replaced by those for the next stretch; `None` before the first token.
    pub tail: &'a mut Option<Tensor<4>>,
}

/// Widths of one head.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// Width of queries and keys.
    pub key: usize,
    /// Width of values.
    pub value: usize,
    /// Whether each key channel has its own decay.
    pub channels_decay: bool,
    /// Whether writes use the delta rule.
    pub delta: bool,
}

/// Output of a mixer for a stretch of tokens.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// The recurrence.
    pub recurrence: Recurrence,
    /// Direct contribution of a token to its own output, `[B, H, N, V]`.
    pub skip: Option<Tensor<4>>,
}

impl From<Recurrence> for Mixed {
    fn from(recurrence: Recurrence) -> Self {
        Self { recurrence, skip: None }
    }
}

/// Rule that reads and writes the state.
pub trait Mixer: Module + ModuleDisplay + 'static {
    /// The recurrence over inputs `[B, N, C]`.
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed;

    /// Input of the output projection, `[B, N, H V]`, from reads `[B, H, N, V]` and inputs `[B, N, C]`. It is 0 where nothing was read.
    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3>;

    /// Widths of one head.
    fn widths(&self) -> Widths;
}

/// Attention by a recurrence.
#[derive(Module, Debug)]
pub struct RecurrentAttention<M: Mixer> {
    /// Rule that reads and writes the state.
    pub mixer: M,
    /// Output projection `[H V, C]`.
    pub output: Linear,
    heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
}

impl<M: Mixer> RecurrentAttention<M> {
    /// Adds the output projection, without bias, after `mixer`.
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

    /// Replaces the output projection `[H V, C]`.
    pub(super) fn with_output(self, output: Linear) -> Self {
        Self { output, ..self }
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>, random: Option<RandomKey>) -> AttentionOutput {
        let key = random.map(|key| key.named("output"));
        let read = dropout(self.mixer.output(context, x), self.dropout, key.as_ref());
        AttentionOutput::new(linear(read, &self.output))
    }
}

/// The head width times `times`, rounded up.
pub(super) fn expanded(spec: &LayerSpec, times: f64) -> usize {
    // For widths that are products of powers of two, no rounding occurs.
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

/// Reads plus the direct contributions of real tokens.
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
        // A probe observes no weights: the weights of positions can be negative.
        Abilities::new(Causality::ByConstruction)
    }

    /// # Panics
    /// If the memory does not end with the queries.
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
    /// If a memory is given: a recurrence runs along one sequence.
    fn state(&self, start: &DecodingStart) -> RecurrentState {
        assert!(start.memory().is_none(), "a recurrence does not attend to another sequence");
        RecurrentState::new(start)
    }

    /// # Panics
    /// If a position does not see exactly the real positions up to itself.
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
