//! Linformer: attention to low-rank projections of keys and values (Wang et al. 2020).
//!
//! `head_h = softmax(Q_h (E K_h)^T / sqrt(D)) (F V_h)`: `E` and `F` `[k, n]` project the `n` positions of keys and values to `k` slots, and every query attends
//! to the slots. The matrices have as many columns as the maximal length `L`; a shorter sequence uses the first columns.
//!
//! Masked keys are set to 0 **before** the projection, since the `n x k` weight matrix allows no later mask. For the same reason, causal attention and
//! visibilities that differ between queries or heads are refused. Decoding steps support only cross-attention; their state stores the projected keys and
//! values.
//!
//! Section 4 of the paper also names general projections. With the option `projection`, slots are means or maxima of windows of `L / k` successive positions,
//! rounded up. Alternatively they are a convolution over these windows, with a stride equal to its kernel. A window without visible positions is not a slot.
//! Ranks can differ between layers, for example lower ranks in upper layers: `[linformer{rank=64},linformer{rank=32}]`.
//!
//! Sensitivity of each output (rows) of an untrained layer to each input position (columns), for one sequence of 32 tokens.
//!
#![doc = include_str!("../../pictures/linformer.svg")]

mod formula;

use std::sync::Arc;

use crate::contract::visibility::hidden_logit;
use crate::engine::fused::Part;
use crate::engine::{AttentionProgram, Dropout, Weighting, fused, reference};
use crate::mechanisms::prelude::*;
use crate::mechanisms::sequence_projection::{ProjectionInit, ProjectionKind, SequenceProjection, window_of};
use crate::softmax_attention::kv_cache::KeyValueState;

/// Sharing of sequence projections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// `E` and `F` per head and layer.
    None,
    /// `E` and `F` per layer, as in the authors' code.
    #[default]
    Headwise,
    /// `E = F` per layer.
    KeyValue,
    /// `E = F` shared by all layers of a stack with the same role and size.
    Layerwise,
}

/// Configuration of [`Linformer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LinformerConfig {
    /// Number of slots `k`, from 1 to the maximal length (default: 64, or a quarter of the maximal length if that is less). With windows it is the maximum
    /// number.
    pub rank: Option<usize>,
    /// Projection of positions to slots: `linear` (default), `mean-pooling`, `max-pooling` or `convolution`.
    pub projection: ProjectionKind,
    /// Sharing of projections (default: headwise). Pooling has no projections.
    pub sharing: Sharing,
    /// Whether the projections are trained (default) or keep their initial values. Frozen projections are saved with the model.
    pub trainable: bool,
    /// Initialisation of linear projections (default: xavier).
    pub init: ProjectionInit,
}

impl Default for LinformerConfig {
    fn default() -> Self {
        Self { rank: None, projection: ProjectionKind::Linear, sharing: Sharing::Headwise, trainable: true, init: ProjectionInit::Xavier }
    }
}

/// Attention to low-rank projections of keys and values.
///
/// Should be created with [`LinformerConfig`].
#[derive(Module, Debug)]
pub struct Linformer {
    /// Query projection `[C, C]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, C]`, split into heads.
    pub key: Linear,
    /// Value projection `[C, C]`, split into heads.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    /// `E`.
    pub key_slots: SequenceProjection,
    /// `F`; absent if it equals `E`, and for pooling.
    pub value_slots: Option<SequenceProjection>,
    heads: usize,
    dropout: f64,
    cross: bool,
    layerwise: bool,
}

impl Mechanism for LinformerConfig {
    type Module = AttentionOf<Linformer>;
    const NAME: &'static str = "linformer";
    const SIZE: Option<Size<Self>> = Some(Size {
        option: "rank",
        given: |own| own.rank,
        with: |own, rank| Self { rank: Some(rank), ..own },
        default: |max_length| quarter(max_length, 64),
        drawn: 8,
    });
    const CARD: Card = Card {
        variant: "Linformer",
        description: "Projects keys and values to a fixed number of positions, in encoders and cross-attention.",
        source: "Wang et al. 2020",
        links: &["https://arxiv.org/abs/2006.04768", "https://github.com/facebookresearch/fairseq/tree/main/examples/linformer"],
        kind: Kind::Whole,
        cross: true,
        causal: false,
        time: "n k d",
        state: "2 k d",
        letters: &[("k", "the option `rank`, by default at most `L / 4`")],
        differences: &[
            "The authors' code sets `k` as a ratio of `L`; here it is a number.",
            "In the authors' code all projections except `E` and `F` have biases; here they have none, as in the other mechanisms.",
        ],
        sizes: &["rank"],
        tensors: &[
            (
                "key_slots.matrix",
                "E, over positions [matrices, slots, position]; of a convolution, over windows [matrices, position and channel, channel]",
            ),
            ("key_slots.frozen_matrix", "E at its initial value, over positions [matrices, slots, position]"),
            (
                "value_slots.matrix",
                "F, over positions [matrices, slots, position]; of a convolution, over windows [matrices, position and channel, channel]",
            ),
            ("value_slots.frozen_matrix", "F at its initial value, over positions [matrices, slots, position]"),
        ],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the rank is 0 or more than the maximal length, or an option does not apply to this kind of projection.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let (rank, check) = (self.size(spec.max_length), spec.check(Self::NAME));
        if !(1..=spec.max_length).contains(&rank) {
            let remedy = format!("give a number from 1 to the maximal length {}", spec.max_length);
            return Err(check.refuse("rank", rank, remedy));
        }
        let usual = Self::default();
        let given = [
            ("sharing", self.sharing != usual.sharing, format!("{:?}", self.sharing)),
            ("trainable", self.trainable != usual.trainable, self.trainable.to_string()),
            ("init", self.init != usual.init, format!("{:?}", self.init)),
        ];
        let idle = given.into_iter().find(|(option, is_given, _)| *is_given && self.without_effect(option, spec.role).is_some());
        idle.map_or(Ok(()), |(option, _, value)| Err(check.refuse(option, value, "leave it out, or set projection to linear")))
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        match option {
            "sharing" | "trainable" if self.projection.is_pooling() => Some("pooling has no projections"),
            "init" if self.projection.has_windows() => Some("init is for projection = \"linear\""),
            _ => None,
        }
    }

    fn idle(&self, spec: &LayerSpec, length: usize) -> Option<Idle> {
        let idle = Idle { what: "has as many slots as there are positions", sizes: Self::CARD.sizes, options: &[] };
        (self.size(spec.max_length) >= length).then_some(idle)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Linformer {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let rank = self.size(spec.max_length);
        let matrices = if self.sharing == Sharing::None { heads } else { 1 };
        let shape = [matrices, rank, max_length];
        let slots = |name| match self.projection {
            ProjectionKind::Linear => SequenceProjection::new(shape, self.init, self.trainable, &key.named(name), device),
            kind => SequenceProjection::of_windows(kind, shape, spec.d_head(), self.trainable, &key.named(name), device),
        };
        let has_own_values = matches!(self.sharing, Sharing::None | Sharing::Headwise) && !self.projection.is_pooling();
        let linear = |name| init::linear(d_model, d_model, false, &key.named(name), device);
        Linformer {
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: linear("output"),
            key_slots: slots("key_slots"),
            value_slots: has_own_values.then(|| slots("value_slots")),
            heads,
            dropout: spec.dropout,
            cross: spec.role == Role::Cross,
            layerwise: self.sharing == Sharing::Layerwise,
        }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(formula::of(self))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let [of_heads, of_all] = match self.projection {
            ProjectionKind::Linear => ["H k L", "k L"],
            ProjectionKind::Convolution => ["H s_k D^2", "s_k D^2"],
            ProjectionKind::MeanPooling | ProjectionKind::MaxPooling => return Some(ParameterFormula::trained(&[(4, "d^2")])),
        };
        let matrices = [match self.sharing {
            Sharing::None => (2, of_heads),
            Sharing::Headwise => (2, of_all),
            Sharing::KeyValue | Sharing::Layerwise => (1, of_all),
        }];
        let slots = if self.trainable { ParameterFormula::trained(&matrices) } else { ParameterFormula::fixed(&matrices) };
        Some(ParameterFormula::trained(&[(4, "d^2")]).plus(slots))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        let rank = self.size(max_length);
        vec![("k", rank), ("s_k", window_of(max_length, rank))]
    }
}

impl Linformer {
    /// Keys visible to each of `batch` rows.
    fn seen(&self, visibility: &Visibility, span: Span, batch: usize) -> Vec<Vec<bool>> {
        let seen = visibility.common_keys(span, self.heads).unwrap_or_else(|| {
            panic!("linformer mixes keys before queries see them: every query must see the same keys, and causal attention is impossible ({visibility:?})")
        });
        let rows: Vec<_> = seen.chunks(span.keys).map(<[bool]>::to_vec).collect();
        (0..batch).map(|row| rows[if rows.len() == 1 { 0 } else { row }].clone()).collect()
    }

    /// Keys and values of memory windows, `[B, H, w, D]`. If some windows show nothing, keys have one extra channel that hides them: `[B, H, w, D + 1]`.
    fn slots_of_windows(&self, memory: Tensor<3>, seen: &[Vec<bool>], positions: &Positions) -> [Tensor<4>; 2] {
        let [keys, values] = [&self.key, &self.value].map(|map| split_heads(linear(memory.clone(), map), self.heads));
        let (keys, counts) = self.key_slots.forward_windows(keys, seen, positions);
        let (values, _) = self.value_slots.as_ref().unwrap_or(&self.key_slots).forward_windows(values, seen, positions);
        if counts.iter().all(|&count| count > 0.0) {
            return [keys, values];
        }
        let [batch, heads, windows, _] = keys.dims();
        let hidden = hidden_logit(keys.dtype());
        let biases: Vec<f32> = counts.into_iter().map(|count| if count > 0.0 { 0.0 } else { hidden }).collect();
        let biases = Tensor::<4>::from_data(TensorData::new(biases, [batch, 1, windows, 1]), (&keys.device(), keys.dtype()));
        [Tensor::cat(vec![keys, biases.expand([batch, heads, windows, 1])], 3), values]
    }

    /// Keys and values of the memory, projected to slots, `[B, H, k, D]`.
    fn slots(&self, memory: Tensor<3>, seen: &[Vec<bool>], positions: &Positions) -> [Tensor<4>; 2] {
        if self.key_slots.kind().has_windows() {
            return self.slots_of_windows(memory, seen, positions);
        }
        let [matrices, rank, _] = self.key_slots.shape();
        let maps = [&self.key, &self.value];
        let in_heads = |x: Tensor<4>| split_heads(merge_heads(x), self.heads);
        if matrices > 1 || rank >= memory.dims()[1] {
            let [keys, values] = maps.map(|map| split_heads(linear(memory.clone(), map), matrices));
            let values = self.value_slots.as_ref().unwrap_or(&self.key_slots).forward(values, seen, positions);
            return [self.key_slots.forward(keys, seen, positions), values].map(in_heads);
        }
        // E (x W) = (E x) W; the second form projects a few slots instead of all positions.
        let mixed = |slots: &SequenceProjection| slots.forward(memory.clone().unsqueeze_dim(1), seen, positions);
        let keys = mixed(&self.key_slots);
        let values = self.value_slots.as_ref().map_or_else(|| keys.clone(), mixed);
        let [key, value] = maps;
        [linear(keys, key), linear(values, value)].map(in_heads)
    }

    fn attend(
        &self,
        query: Tensor<3>,
        [keys, values]: [Tensor<4>; 2],
        (random, engine): (Option<RandomKey>, Engine),
        probe: &mut Probe,
    ) -> AttentionOutput {
        let (width, key_width) = (values.dims()[3], keys.dims()[3]);
        let scale = (width as f64).powf(-0.5);
        let span = Span::whole(query.dims()[1], keys.dims()[2]);
        let queries = split_heads(linear(query, &self.query) * scale, self.heads);
        let queries = if key_width > width {
            let [batch, heads, count, _] = queries.dims();
            let ones = Tensor::ones([batch, heads, count, key_width - width], (&queries.device(), queries.dtype()));
            Tensor::cat(vec![queries, ones], 3)
        } else {
            queries
        };
        let program = AttentionProgram {
            weighting: Weighting::softmax(LogitTerms::content(queries, keys)),
            mask: None,
            soft_span: None,
            values,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        // The engine reports weights of slots, not of keys.
        let of_slots = |observation| match observation {
            Observation::Weights(weights) => Observation::SlotWeights(weights),
            other => other,
        };
        let is_fused = fused::can_attend(&program, engine);
        probe.executed(if is_fused { Executed::Fused } else { Executed::Reference });
        let context = if is_fused {
            if probe.is_listening() {
                // Only a probe reads the weight matrix; the output is computed without it.
                let shown = AttentionProgram { dropout: None, ..program.clone() };
                probe.changing(of_slots, |probe| reference::attend(shown, probe));
            }
            fused::attend(program, Arc::new([Part::in_order(Visibility::all().tiles(span, self.heads))]))
        } else {
            probe.changing(of_slots, |probe| reference::attend(program, probe))
        };
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }
}

impl Attention for Linformer {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        Abilities {
            cross_attention: true,
            steps: self.cross,
            max_length: Some(self.key_slots.shape()[2]),
            ..Abilities::new(Causality::Impossible)
        }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, engine } = input;
        let memory = memory.unwrap_or_else(|| query.clone());
        let [batch, queries, _] = query.dims();
        let span = Span { query_start: positions.start, queries, key_start: 0, keys: memory.dims()[1] };
        let seen = self.seen(&visibility, span, batch);
        // Columns belong to keys, and another sequence does not share the queries' padding.
        let positions = if self.cross { Positions::default() } else { positions };
        let slots = self.slots(memory, &seen, &positions);
        self.attend(query, slots, (random, engine), probe)
    }

    /// # Panics
    /// Without a memory: self-attention has no decoding steps.
    fn state(&self, start: &DecodingStart) -> KeyValueState {
        let memory = start.memory().expect("linformer takes steps as cross-attention only: give its state a memory");
        let seen = self.seen(start.visibility(), Span::whole(1, memory.dims()[1]), start.batch());
        let [keys, values] = self.slots(memory.clone(), &seen, &Positions::default());
        KeyValueState::fixed(start, Some(keys), values)
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let keys = state.keys().expect("the state holds slots of keys");
        let AttentionInput { query, engine, .. } = state.advance(query);
        self.attend(query, [keys, state.values()], (None, engine), probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        if self.layerwise && earlier.layerwise && self.key_slots.is_like(&earlier.key_slots) {
            return Self { key_slots: earlier.key_slots.clone(), ..self };
        }
        self
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let [_, rank, max_length] = self.key_slots.shape();
        // Keys and values to slots, then scores and sums over slots.
        let (slots, mapped) = match self.key_slots.kind() {
            ProjectionKind::Linear => (rank, pairs.keys * rank),
            ProjectionKind::MeanPooling | ProjectionKind::MaxPooling => (pairs.keys.div_ceil(window_of(max_length, rank)), 0),
            ProjectionKind::Convolution => (pairs.keys.div_ceil(window_of(max_length, rank)), pairs.keys * pairs.d_head),
        };
        (2 * (mapped + pairs.queries.len() * slots) * pairs.heads * pairs.d_head) as f64
    }
}
