//! Multi-head softmax attention over any logits.
//!
//! `output = concat_h( softmax(logits_h + mask) · V_h ) W_O`, `V = memory W_V`: the projections, masks, softmax, dropout and decoding state that
//! the mechanisms of Vaswani et al. 2017 (section 3.2) and Tay et al. 2021 share. Projections have no bias, as in the reference code of both.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use crate::abilities::{Abilities, Causality};
use crate::contract::{Attention, AttentionInput, AttentionOutput, Positions};
use crate::engine::blocked::attend_parts;
use crate::engine::{AttentionProgram, Dropout, Weighting, reference};
use crate::heads::{merge_heads, split_heads};
use crate::init;
use crate::logits::Logits;
use crate::memory::KeyValueState;
use crate::placement::Placement;
use crate::probe::{Observation, Probe};
use crate::random::RandomKey;
use crate::visibility::{Span, Visibility};

/// Multi-head softmax attention over the logits `L`.
#[derive(Module, Debug)]
pub struct SoftmaxAttention<L: Logits> {
    /// The scores.
    pub logits: L,
    /// Value projection `[C, C]`, split into heads.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    heads: usize,
    dropout: f64,
}

impl<L: Logits> SoftmaxAttention<L> {
    /// Puts the shared projections around `logits`.
    pub fn new(logits: L, placement: &Placement, key: &RandomKey, device: &Device) -> Self {
        let d_model = placement.d_model;
        Self {
            logits,
            value: init::linear(d_model, d_model, false, &key.named("value"), device),
            output: init::linear(d_model, d_model, false, &key.named("output"), device),
            heads: placement.heads,
            dropout: placement.dropout,
        }
    }

    fn attend(&self, input: Query, keys: Option<Tensor<4>>, values: Tensor<4>, key_start: usize, probe: &mut Probe) -> AttentionOutput {
        let Query { query, visibility, positions, random } = input;
        let span = Span { query_start: positions.start, queries: query.dims()[1], key_start, keys: values.dims()[2] };
        let visibility = match (self.logits.visibility(), &positions.left_padding) {
            (None, _) => visibility,
            (Some(own), None) => visibility.and(own),
            (Some(own), Some(counts)) => visibility.and(own.shifted(counts.clone())),
        };
        let blocks = self.logits.blocks(&visibility, span, &positions, &values);
        let mask = if blocks.is_none() || probe.is_listening() {
            visibility.mask(span, self.heads, values.dtype(), &values.device())
        } else {
            None
        };
        let losses = self.logits.losses(&query);
        if let Some(spans) = probe.is_listening().then(|| self.logits.spans(&query)).flatten() {
            probe.observe(|| Observation::Spans(spans));
        }
        let soft_span = self.logits.soft_span(&query, span);
        let terms = self.logits.terms(query, keys, span, &positions);
        let program = AttentionProgram {
            weighting: Weighting::Softmax(terms),
            mask,
            soft_span,
            values,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let context = match blocks {
            None => reference::attend(program, probe),
            Some(blocks) => {
                // The matrix of all weights exists only for somebody who looks at it; the output is computed as if nobody did.
                if probe.is_listening() {
                    reference::attend(AttentionProgram { dropout: None, ..program.clone() }, probe);
                }
                attend_parts(AttentionProgram { mask: None, ..program }, &blocks).context
            }
        };
        AttentionOutput { context: self.output.forward(merge_heads(context)), losses }
    }
}

/// An [`AttentionInput`] without its memory.
struct Query {
    query: Tensor<3>,
    visibility: Visibility,
    positions: Positions,
    random: Option<RandomKey>,
}

impl<L: Logits> Attention for SoftmaxAttention<L> {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        let facts = self.logits.facts();
        Abilities {
            cross_attention: facts.cross_attention,
            causality: Causality::Masked,
            steps: true,
            weights: true,
            max_length: facts.max_length,
            auxiliary_losses: facts.auxiliary_losses,
            randomness: false,
            time: self.logits.time(),
            state: if facts.remembers_keys { "keys and values, 2 n d" } else { "values, n d" },
        }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random } = input;
        let (memory, key_start) = match memory {
            Some(memory) => {
                // What no query reaches is not even projected.
                let start = self.logits.reach().map_or(0, |reach| positions.start.saturating_sub(reach));
                let length = memory.dims()[1];
                (memory.narrow(1, start, length - start), start)
            }
            None => (query.clone(), 0),
        };
        let values = split_heads(self.value.forward(memory.clone()), self.heads);
        let keys = self.logits.keys(memory);
        self.attend(Query { query, visibility, positions, random }, keys, values, key_start, probe)
    }

    fn state(&self, _batch: usize, capacity: usize, memory: Option<Tensor<3>>) -> KeyValueState {
        match memory {
            Some(memory) => {
                let values = split_heads(self.value.forward(memory.clone()), self.heads);
                KeyValueState::fixed(self.logits.keys(memory), values)
            }
            None => KeyValueState::growing(capacity).reaching(self.logits.reach()),
        }
    }

    fn step(&self, chunk: AttentionInput, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, .. } = chunk;
        if !state.is_fixed() {
            let values = split_heads(self.value.forward(query.clone()), self.heads);
            state.push(self.logits.keys(query.clone()), values);
        }
        self.attend(Query { query, visibility, positions, random }, state.keys(), state.values(), state.start(), probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }
}
