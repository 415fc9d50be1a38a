//! Multi-head softmax attention over any logits.
//!
//! `output = concat_h( softmax(logits_h + mask) · V_h ) W_O`, `V = memory W_V`: the shared projections, masks, softmax, dropout and decoding state of the
//! mechanisms of Vaswani et al. 2017 (section 3.2) and Tay et al. 2021. Projections have no biases, as in the reference code of both, unless the layer
//! specification or the logits request them. `H` query heads may share `G` key and value heads, of any width `D`. Gates of the logits, if any, multiply the
//! head outputs before `W_O`.

mod heads;
pub mod kv_cache;
pub mod logits;
pub mod pattern;
pub(crate) mod sink_columns;

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use heedful_random::RandomKey;

pub use self::heads::{HeadCall, Heads};
pub(crate) use self::heads::{LatestVisibility, seen_pairs, tiled_or_dense};
use crate::contract::abilities::{Abilities, Causality};
use crate::contract::decoding_position::DecodingStart;
use crate::contract::init;
use crate::contract::layer_spec::LayerSpec;
use crate::contract::probe::Probe;
use crate::contract::visibility::Visibility;
use crate::contract::{Attention, AttentionInput, AttentionOutput, Losses, Positions, QueryKeyPairs};
use crate::engine::heads::{merge_heads, split_heads};
use crate::engine::linear::linear_at;
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::softmax_attention::logits::LogitAbilities;

/// Multi-head softmax attention over the logits `L`, or over another source of heads.
#[derive(Module, Debug)]
pub struct SoftmaxAttention<L: Heads> {
    /// The scores.
    pub logits: L,
    /// Value projection `[C, G D]`, split into value heads.
    pub value: Linear,
    /// Output projection `[H D, C]`.
    pub output: Linear,
    /// Logits of the sinks, `[H]`, if any ([`Logits::sink`](logits::Logits::sink)).
    pub sink: Option<Param<Tensor<1>>>,
    heads: usize,
    kv_heads: usize,
    dropout: f64,
    #[module(skip)]
    limit: Visibility,
    #[module(skip)]
    latest: LatestVisibility,
}

impl<L: Heads> SoftmaxAttention<L> {
    /// Adds the shared projections around `logits`.
    pub fn new(logits: L, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let (d_model, bias) = (spec.d_model, logits.scores().iter().any(|scores| scores.projections_have_biases()));
        let sink = logits.head_sink().map(|init| init.parameter([spec.heads], &key.named("sink"), device));
        Self {
            logits,
            sink,
            value: init::linear(d_model, spec.key_width(), bias || spec.qkv_bias, &key.named("value"), device),
            output: init::linear(spec.query_width(), d_model, bias || spec.output_bias, &key.named("output"), device),
            heads: spec.heads,
            kv_heads: spec.n_kv_heads(),
            dropout: spec.dropout,
            limit: spec.limit(),
            latest: Arc::default(),
        }
    }

    /// Keys `[B, G, K, R]` and values `[B, G, K, D]` of inputs `[B, K, C]` at these positions.
    fn remembered(&self, memory: Tensor<3>, positions: &Positions) -> (Option<Tensor<4>>, Tensor<4>) {
        let values = split_heads(linear_at(memory.clone(), &self.value, positions), self.kv_heads);
        let scores = self.logits.scores().into_iter();
        let mut keys: Vec<_> = scores.filter_map(|scores| scores.keys(memory.clone(), positions)).collect();
        let keys = if keys.len() > 1 { Some(Tensor::cat(keys, 3)) } else { keys.pop() };
        (keys, values)
    }

    /// Maximum distance at which a key can have weight, if limited.
    fn reach(&self) -> Option<usize> {
        let farther = |one: Option<usize>, other: Option<usize>| Some(one?.max(other?));
        self.logits.scores().into_iter().map(|scores| scores.reach()).reduce(farther)?
    }

    fn attend(
        &self,
        input: AttentionInput,
        keys: Option<Tensor<4>>,
        values: Tensor<4>,
        key_start: usize,
        probe: &mut Probe,
    ) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, engine, .. } = input;
        let mut losses = Losses::default();
        self.logits.scores().into_iter().for_each(|scores| losses.extend(scores.losses(&query)));
        let (Self { latest, .. }, heads, dropout) = (self, self.heads, self.dropout);
        let at = positions.clone();
        let sink = self.sink.as_ref().map(|sink| sink.val().reshape([1, heads, 1, 1]).cast(values.dtype()));
        let call = HeadCall { query, keys, values, key_start, visibility, positions, random, engine, heads, dropout, sink, latest };
        AttentionOutput { context: linear_at(merge_heads(self.logits.attend(call, probe)), &self.output, &at), losses }
    }
}

impl<L: Heads> Attention for SoftmaxAttention<L> {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        let abilities = self.logits.scores().into_iter().map(|scores| scores.abilities()).reduce(LogitAbilities::joined);
        let abilities = abilities.expect("heads come from logits");
        Abilities {
            cross_attention: abilities.cross_attention,
            causality: Causality::Masked,
            steps: true,
            weights: self.logits.have_weights(),
            max_length: abilities.max_length,
            auxiliary_losses: abilities.auxiliary_losses,
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
                // Keys out of reach of all queries are not even projected.
                let start = self.reach().map_or(0, |reach| positions.start.saturating_sub(reach));
                let length = memory.dims()[1];
                // Nor are keys that no query sees, if padding is skipped.
                let is_unpadded = positions.ends.is_some() && positions.left_padding.is_none();
                let ends = is_unpadded.then(|| visibility.key_ends(memory.dims()[0])).flatten();
                (memory.narrow(1, start, length - start), start, ends)
            }
            None => (query.clone(), 0, positions.ends.clone()),
        };
        let key_positions = Positions { start: key_start, ends, ..positions.clone() };
        let (keys, values) = self.remembered(memory, &key_positions);
        let input = AttentionInput { query, memory: None, visibility, positions, random, engine };
        self.attend(input, keys, values, key_start, probe)
    }

    fn state(&self, start: &DecodingStart) -> KeyValueState {
        match start.memory() {
            Some(memory) => {
                let (keys, values) = self.remembered(memory.clone(), &Positions::default());
                KeyValueState::fixed(start, keys, values)
            }
            None => match self.logits.scores().first().and_then(|scores| scores.cache()) {
                Some(cache) if !start.hides_more() => KeyValueState::growing(start).keeping(cache),
                _ => KeyValueState::growing(start).reaching(self.reach()),
            },
        }
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let mut input = state.advance(query);
        if !state.is_fixed() {
            let (keys, values) = self.remembered(input.query.clone(), &input.positions);
            state.push(keys, values);
        }
        let gap = state.gap();
        input.positions.start -= gap.len();
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

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        self.logits.head_multiplications(pairs)
    }
}
