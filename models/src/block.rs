//! The block of all Transformers here: self-attention, possibly cross-attention, and a feed-forward network, each with a residual connection.
//!
//! Without cross-attention it is an encoder's layer or a language model's, with it a translation decoder's (Vaswani et al. 2017, section 3.1).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::contract::{Attention, AttentionInput, AttentionOutput, Losses, Positions};
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::progress::DecodingStart;
use heedful_attention::random::RandomKey;
use heedful_attention::registry::AnyAttention;
use heedful_attention::visibility::Visibility;
use serde::{Deserialize, Serialize};

use crate::error::{Check, ConfigError};
use crate::feed_forward::{Activation, FeedForward, FeedForwardConfig, FeedForwardState, Neighbours};
use crate::gate::GateConfig;
use crate::residual::{NormOrder, Residual, ResidualConfig};

/// Sizes and options of a [`Block`], shared by the blocks of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlockConfig {
    /// Width of the model (default 512).
    pub d_model: usize,
    /// Heads of self-attention, a divisor of `d_model` unless `head_width` is given (default 8).
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`, which share them in groups (default: as many as heads).
    pub kv_heads: Option<usize>,
    /// Width of a head (default: `d_model / heads`).
    pub head_width: Option<usize>,
    /// Hidden units of the feed-forward network (default 2048).
    pub d_ff: usize,
    /// Non-linearity of the feed-forward network (default: ReLU).
    pub activation: Activation,
    /// Whether the hidden units of the feed-forward network are multiplied by a second map of its input (default: no).
    pub gated_feed_forward: bool,
    /// Positions that pass the feed-forward network at once, at least 1 (default: all).
    pub feed_forward_chunk: Option<usize>,
    /// Whether a convolution over the positions around, or before, precedes each map of the feed-forward networks (default: no).
    pub separable_feed_forward: bool,
    /// Where layer normalisation stands (default: after the residual sum).
    pub norm_order: NormOrder,
    /// What joins the stream and a sublayer's output (default: their sum). Gates need layer normalisation before the sublayer.
    pub gate: Option<GateConfig>,
    /// Whether sublayer outputs pass a ReLU before they join the stream, as in TrXL-I and GTrXL (default: no).
    pub relu_before_residual: bool,
    /// Whether a block's activations are not kept for the backward pass but computed again in it (default: no): memory for one tensor each block, at the
    /// price of a second forward pass.
    pub checkpoint: bool,
    /// Whether the stack's output is normalised (default: where layer normalisation stands before the sublayers; TrXL-I and GTrXL do without).
    pub final_norm: Option<bool>,
    /// Dropout of sublayer outputs and of the model's embeddings (default 0.1).
    pub dropout: f64,
    /// Dropout of attention weights (default 0, as in the paper; tensor2tensor has 0.1).
    pub attention_dropout: f64,
    /// Dropout of the feed-forward network's hidden units (default 0, as in the paper; tensor2tensor has 0.1).
    pub feed_forward_dropout: f64,
    /// Longest sequence in tokens, those that frame it included (default 512).
    pub max_length: usize,
    /// Greatest offset by which the positions of a batch are moved in training, within `max_length` (default 0: they are not).
    pub position_offset: usize,
}

impl Default for BlockConfig {
    /// The base model of Vaswani et al. 2017, table 3.
    fn default() -> Self {
        Self {
            d_model: 512,
            heads: 8,
            kv_heads: None,
            head_width: None,
            d_ff: 2048,
            activation: Activation::default(),
            gated_feed_forward: false,
            feed_forward_chunk: None,
            separable_feed_forward: false,
            norm_order: NormOrder::default(),
            gate: None,
            relu_before_residual: false,
            checkpoint: false,
            final_norm: None,
            dropout: 0.1,
            attention_dropout: 0.0,
            feed_forward_dropout: 0.0,
            max_length: 512,
            position_offset: 0,
        }
    }
}

impl BlockConfig {
    pub(crate) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        for (option, value) in [("d_model", self.d_model), ("heads", self.heads), ("d_ff", self.d_ff), ("max_length", self.max_length)] {
            check.at_least_one(option, value)?;
        }
        if self.head_width.is_none() && !self.d_model.is_multiple_of(self.heads) {
            return Err(check.wrong("heads", self.heads, format!("give a divisor of d_model = {}", self.d_model)));
        }
        if self.feed_forward_chunk == Some(0) {
            return Err(check.wrong("feed_forward_chunk", 0, "give a number of at least 1, or leave it out"));
        }
        if let (Some(chunk), true) = (self.feed_forward_chunk, self.separable_feed_forward) {
            return Err(check.wrong("feed_forward_chunk", chunk, "leave it out: a separable network needs the positions around each"));
        }
        if let Some(gate) = &self.gate {
            gate.validate(check)?;
            if self.norm_order == NormOrder::Post {
                let remedy = "give pre: a gate keeps the stream as it is, which a normalisation after it would not";
                return Err(check.wrong("norm_order", "post", remedy));
            }
        }
        check.probability("dropout", self.dropout)?;
        check.probability("attention_dropout", self.attention_dropout)?;
        check.probability("feed_forward_dropout", self.feed_forward_dropout)
    }

    /// Whether the output of a stack of such blocks is normalised.
    pub fn has_final_norm(&self) -> bool {
        self.final_norm.unwrap_or(self.norm_order == NormOrder::Pre)
    }

    /// Where an attention of the block `layer` of `layers` stands. If it has another number of heads than the block, each of them has keys and values of its
    /// own and the usual width.
    pub fn placement(&self, role: Role, layer: usize, layers: usize, heads: usize) -> Placement {
        let Self { d_model, kv_heads, head_width, max_length, attention_dropout: dropout, .. } = *self;
        let place = Placement::new(role, d_model, heads);
        let place = if heads == self.heads { place.with_kv_heads(kv_heads).with_head_width(head_width) } else { place };
        place.at_layer(layer, layers).with_max_length(max_length).with_dropout(dropout)
    }

    /// A block around attentions that are initialised already, in a stack whose self-attention has the role `role`.
    pub fn init<A: Attention>(
        &self,
        role: Role,
        self_attention: A,
        cross_attention: Option<A>,
        key: &RandomKey,
        device: &Device,
    ) -> Block<A> {
        let Self { d_model, norm_order, gate, relu_before_residual: relu, dropout, .. } = *self;
        let config = ResidualConfig { d_model, norm_order, gate, relu, dropout };
        let residual = |name: &str| config.init(&key.named(name), device);
        let feed_forward = FeedForwardConfig {
            d_model,
            d_ff: self.d_ff,
            activation: self.activation,
            gated: self.gated_feed_forward,
            chunk: self.feed_forward_chunk,
            separable: self.separable_feed_forward,
            causal: role == Role::Decoder,
            dropout: self.feed_forward_dropout,
        };
        Block {
            self_attention,
            self_attention_residual: residual("self_attention_residual"),
            cross_attention_residual: cross_attention.is_some().then(|| residual("cross_attention_residual")),
            cross_attention,
            feed_forward: feed_forward.init(&key.named("feed_forward"), device),
            feed_forward_residual: residual("feed_forward_residual"),
        }
    }
}

/// Self-attention, possibly cross-attention, and a feed-forward network.
///
/// Should be created with [`BlockConfig`].
#[derive(Module, Debug)]
pub struct Block<A: Attention = AnyAttention> {
    /// Self-attention.
    pub self_attention: A,
    /// Residual connection around self-attention.
    pub self_attention_residual: Residual,
    /// Attention to another sequence.
    pub cross_attention: Option<A>,
    /// Residual connection around cross-attention.
    pub cross_attention_residual: Option<Residual>,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
    /// Residual connection around the feed-forward network.
    pub feed_forward_residual: Residual,
}

/// What the layers of a stack share in one forward pass.
#[derive(Clone, Debug)]
pub struct Context {
    /// Which keys of its own sequence a query sees. [`Block::step`] does not use it: the state has it.
    pub visibility: Visibility,
    /// Positions of the input.
    pub positions: Positions,
    /// Where the real elements of each row end, if padding follows them. It hides nothing: that is for `visibility`.
    pub lengths: Option<Arc<[usize]>>,
    /// Inputs of the layer in earlier segments `[B, M, C]`, to which self-attention attends too. [`Block::step`] does not use it: the state has it.
    pub carried: Option<Tensor<3>>,
    /// The other sequence `[B, K, C]`, for cross-attention. [`Block::step`] does not use it: the state has it.
    pub memory: Option<Tensor<3>>,
    /// Which elements of the other sequence a query sees. [`Block::step`] does not use it: the state has it.
    pub memory_visibility: Visibility,
}

impl Context {
    /// A sequence on its own, from position 0.
    pub fn new(visibility: Visibility) -> Self {
        Self {
            visibility,
            positions: Positions::default(),
            lengths: None,
            carried: None,
            memory: None,
            memory_visibility: Visibility::all(),
        }
    }

    /// Sets where the real elements of each row end.
    pub fn lengths(mut self, lengths: &[usize]) -> Self {
        self.lengths = Some(lengths.into());
        self
    }

    /// Whether elements are real, for each of `batch` rows of `length`.
    pub(crate) fn real(&self, batch: usize, length: usize) -> Vec<bool> {
        let Positions { start, left_padding } = &self.positions;
        let row = |row: usize| {
            let begin = left_padding.as_ref().map_or(0, |counts| counts[row]);
            let end = self.lengths.as_ref().map_or(usize::MAX, |lengths| lengths[row]);
            (*start..start + length).map(move |index| (begin..end).contains(&index))
        };
        (0..batch).flat_map(row).collect()
    }
}

/// Hidden states and the auxiliary losses on the way to them.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// `[B, N, C]`.
    pub states: Tensor<3>,
    /// Auxiliary losses of all attentions passed.
    pub losses: Losses,
}

/// Decoding state of a [`Block`].
#[derive(Clone, Debug)]
pub struct BlockState<S> {
    /// Of self-attention.
    pub self_attention: S,
    /// Of cross-attention.
    pub cross_attention: Option<S>,
    /// Of the feed-forward network.
    pub feed_forward: FeedForwardState,
}

/// A part of a block with a residual connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sublayer {
    SelfAttention,
    CrossAttention,
    FeedForward,
}

impl Sublayer {
    fn name(self) -> &'static str {
        match self {
            Self::SelfAttention => "self_attention",
            Self::CrossAttention => "cross_attention",
            Self::FeedForward => "feed_forward",
        }
    }
}

impl<A: Attention> Block<A> {
    /// Passes `x` `[B, N, C]` through the block. Dropout is on exactly if a key is given.
    ///
    /// # Panics
    /// If the block has cross-attention and the context no memory, or an attention cannot take the input.
    pub fn forward(&self, x: Tensor<3>, context: &Context, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        self.pass(x, context, random, None, probe)
    }

    /// A state before the first step, with what its self-attention and its cross-attention begin with.
    ///
    /// # Panics
    /// If the block has cross-attention and there is no memory.
    pub fn state(&self, own: &DecodingStart, memory: Option<&DecodingStart>) -> BlockState<A::State> {
        BlockState {
            self_attention: self.self_attention.state(own),
            cross_attention: self
                .cross_attention
                .as_ref()
                .map(|attention| attention.state(memory.expect("a block with cross-attention is given a memory"))),
            feed_forward: FeedForwardState::default(),
        }
    }

    /// Passes the next positions `x` `[B, N, C]` through the block.
    ///
    /// # Panics
    /// If the state's capacity is exceeded or the state is that of another block.
    pub fn step(&self, x: Tensor<3>, context: &Context, state: &mut BlockState<A::State>, probe: &mut Probe) -> Hidden {
        self.pass(x, context, None, Some(state), probe)
    }

    /// Keeps the given batch rows of a state, in the given order.
    pub fn select(&self, state: &mut BlockState<A::State>, rows: &[usize]) {
        self.self_attention.select(&mut state.self_attention, rows);
        if let (Some(attention), Some(state)) = (&self.cross_attention, &mut state.cross_attention) {
            attention.select(state, rows);
        }
        state.feed_forward.select(rows);
    }

    fn pass(
        &self,
        mut x: Tensor<3>,
        context: &Context,
        random: Option<RandomKey>,
        mut state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) -> Hidden {
        let mut losses = Losses::default();
        for sublayer in self.sublayers() {
            let (name, residual) = self.residual(sublayer);
            let key = random.map(|key| key.named(sublayer.name()));
            x = residual.forward(name, x, key, probe, |x, probe| {
                let output = self.sublayer(sublayer, x, context, key, state.as_deref_mut(), probe);
                losses.extend(output.losses);
                output.context
            });
        }
        probe.observe(|| Observation::Activation(x.clone()));
        Hidden { states: x, losses }
    }

    /// The sublayers in their order.
    pub(crate) fn sublayers(&self) -> impl DoubleEndedIterator<Item = Sublayer> + use<A> {
        let cross_attention = self.cross_attention.is_some().then_some(Sublayer::CrossAttention);
        [Some(Sublayer::SelfAttention), cross_attention, Some(Sublayer::FeedForward)].into_iter().flatten()
    }

    /// What a sublayer's residual connection joins with `x` `[B, N, C]`: see [`Residual::branch`]. The state is that of stepwise decoding.
    pub(crate) fn branch(
        &self,
        sublayer: Sublayer,
        x: Tensor<3>,
        context: &Context,
        random: Option<RandomKey>,
        state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) -> Hidden {
        let mut losses = Losses::default();
        let key = random.map(|key| key.named(sublayer.name()));
        let states = self.residual(sublayer).1.branch(x, key, probe, |x, probe| {
            let output = self.sublayer(sublayer, x, context, key, state, probe);
            losses = output.losses;
            output.context
        });
        Hidden { states, losses }
    }

    fn residual(&self, sublayer: Sublayer) -> (&'static str, &Residual) {
        match sublayer {
            Sublayer::SelfAttention => ("self_attention_residual", &self.self_attention_residual),
            Sublayer::CrossAttention => {
                ("cross_attention_residual", self.cross_attention_residual.as_ref().expect("cross-attention has a residual connection"))
            }
            Sublayer::FeedForward => ("feed_forward_residual", &self.feed_forward_residual),
        }
    }

    fn sublayer(
        &self,
        sublayer: Sublayer,
        x: Tensor<3>,
        context: &Context,
        random: Option<RandomKey>,
        state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) -> AttentionOutput {
        let input = |visibility: &Visibility| {
            AttentionInput::self_attention(x.clone()).visibility(visibility.clone()).positions(context.positions.clone()).random(random)
        };
        match sublayer {
            Sublayer::SelfAttention => {
                let (attention, input) = (&self.self_attention, input(&context.visibility));
                probe.within(sublayer.name(), None, |probe| match state {
                    Some(state) => attention.step(input.query, &mut state.self_attention, probe),
                    None => {
                        let carried = context.carried.clone().map(|carried| self.self_attention_residual.input(carried));
                        let memory = carried.map(|carried| Tensor::cat(vec![carried, input.query.clone()], 1));
                        attention.forward(AttentionInput { memory, ..input }, probe)
                    }
                })
            }
            Sublayer::CrossAttention => {
                let attention = self.cross_attention.as_ref().expect("only a block with cross-attention has this sublayer");
                let input = input(&context.memory_visibility);
                probe.within(sublayer.name(), None, |probe| match state {
                    Some(state) => {
                        let state = state.cross_attention.as_mut().expect("the state of a block with cross-attention holds one for it");
                        attention.step(input.query, state, probe)
                    }
                    None => {
                        let memory = context.memory.clone().expect("a block with cross-attention is given a memory");
                        attention.forward(AttentionInput { memory: Some(memory), ..input }, probe)
                    }
                })
            }
            Sublayer::FeedForward if self.feed_forward.is_separable() => {
                let [batch, length, _] = x.dims();
                let is_padded = context.lengths.is_some() || context.positions.left_padding.is_some();
                let real = is_padded.then(|| {
                    let real: Vec<f32> = context.real(batch, length).into_iter().map(f32::from).collect();
                    Tensor::from_data(TensorData::new(real, [batch, length, 1]), (&x.device(), x.dtype()))
                });
                let past = state.map(|state| &mut state.feed_forward);
                AttentionOutput::new(self.feed_forward.forward(x, random, Neighbours { real, past }))
            }
            Sublayer::FeedForward => AttentionOutput::new(self.feed_forward.forward(x, random, Neighbours::default())),
        }
    }
}
