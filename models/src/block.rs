//! The block of all Transformers in this crate: self-attention, optional cross-attention and an optional feed-forward network, each with a residual connection.
//!
//! Without cross-attention it is a layer of an encoder or a language model, with it a layer of a translation decoder (Vaswani et al. 2017, section 3.1).

pub mod auxiliary;
pub(crate) mod builders;
#[cfg(test)]
pub(crate) mod gradient_tests;
pub mod halting;
pub mod initialisation;
pub mod layer_sharing;
pub mod layout;
pub mod recomputation;
pub(crate) mod reversible;
pub mod segment;
pub mod stack;

mod active_positions;
mod config;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

pub(crate) use self::active_positions::Running;
pub use self::config::{BlockConfig, FeedForwardIn};
use crate::kernels::unpadding::Unpadding;
use crate::parts::feed_forward::{FeedForward, FeedForwardState, Neighbours};
use crate::parts::residual::Residual;

/// Sublayers in parallel on the same states, `x + Σ f_i(norm_i(x))` (Wang and Komatsuzaki 2021; Chowdhery et al. 2022, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parallel {
    /// One shared normalisation (GPT-J, PaLM, Falcon 7B).
    SharedNorm,
    /// A separate normalisation for each sublayer (GPT-NeoX, Falcon 40B).
    OwnNorms,
}

/// Self-attention, optional cross-attention, and a feed-forward network.
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
    /// Feed-forward network, if the block has one.
    pub feed_forward: Option<FeedForward>,
    /// Residual connection around the feed-forward network.
    pub feed_forward_residual: Option<Residual>,
    #[module(skip)]
    parallel: Option<Parallel>,
}

/// Shared inputs of the layers of a stack in one forward pass.
#[derive(Clone, Debug)]
pub struct Context {
    /// Visible keys of self-attention. [`Block::step`] ignores it and uses the state's.
    pub visibility: Visibility,
    /// Positions of the input.
    pub positions: Positions,
    /// End of the real tokens in each row, if followed by padding. It hides nothing; `visibility` does.
    pub lengths: Option<Arc<[usize]>>,
    /// Layer inputs of earlier segments `[B, M, C]`, to which self-attention also attends. [`Block::step`] ignores it and uses the state's.
    pub carried: Option<Tensor<3>>,
    /// Memory `[B, K, C]` of cross-attention. [`Block::step`] ignores it and uses the state's.
    pub memory: Option<Tensor<3>>,
    /// Visible keys of cross-attention. [`Block::step`] ignores it and uses the state's.
    pub memory_visibility: Visibility,
    /// Real positions, to which feed-forward networks are restricted. A stack with [`BlockConfig::unpadded`] sets it.
    pub unpadding: Option<Unpadding>,
}

impl Context {
    /// A stand-alone sequence, from position 0.
    pub fn new(visibility: Visibility) -> Self {
        Self {
            visibility,
            positions: Positions::default(),
            lengths: None,
            carried: None,
            memory: None,
            memory_visibility: Visibility::all(),
            unpadding: None,
        }
    }

    /// Sets the end of the real tokens in each row.
    pub fn lengths(mut self, lengths: &[usize]) -> Self {
        self.lengths = Some(lengths.into());
        self
    }

    /// Flags of real tokens, for each of `batch` rows of `length`.
    pub(crate) fn real(&self, batch: usize, length: usize) -> Vec<bool> {
        let Positions { start, left_padding, .. } = &self.positions;
        let row = |row: usize| {
            let begin = left_padding.as_ref().map_or(0, |counts| counts[row]);
            let end = self.lengths.as_ref().map_or(usize::MAX, |lengths| lengths[row]);
            (*start..start + length).map(move |index| (begin..end).contains(&index))
        };
        (0..batch).flat_map(row).collect()
    }

    /// Whether padding is declared.
    fn is_padded(&self) -> bool {
        self.lengths.is_some() || self.positions.left_padding.is_some()
    }

    /// The same for `batch` rows of `length` without computing padding, if any.
    pub(crate) fn unpadded(&self, batch: usize, length: usize) -> Self {
        let unpadding = self.is_padded().then(|| Unpadding::new(&self.real(batch, length), [batch, length])).flatten();
        if unpadding.is_none() {
            return self.clone();
        }
        let ends = self.lengths.clone().unwrap_or_else(|| vec![self.positions.start + length; batch].into());
        Self { unpadding, positions: self.positions.clone().with_ends(ends), ..self.clone() }
    }
}

/// Hidden states and the auxiliary losses of the pass.
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
    /// State of self-attention.
    pub self_attention: S,
    /// State of cross-attention.
    pub cross_attention: Option<S>,
    /// State of the feed-forward network.
    pub feed_forward: FeedForwardState,
}

/// A part of a block with its own residual connection.
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
    /// Passes `x` `[B, N, C]` through the block. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If the block has cross-attention and the context no memory, or an attention does not support the input.
    pub fn forward(&self, x: Tensor<3>, context: &Context, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        self.pass(x, context, random, None, probe)
    }

    /// State before the first step, from the starts of self-attention and cross-attention.
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
    /// If the state's capacity is exceeded, or the state belongs to another block.
    pub fn step(&self, x: Tensor<3>, context: &Context, state: &mut BlockState<A::State>, probe: &mut Probe) -> Hidden {
        self.pass(x, context, None, Some(state), probe)
    }

    /// Bytes of the numbers stored in a state, at 4 bytes per number; `None` if an attention does not report it.
    pub fn state_bytes(&self, state: &BlockState<A::State>) -> Option<usize> {
        let own = self.self_attention.state_bytes(&state.self_attention)?;
        let cross = match (&self.cross_attention, &state.cross_attention) {
            (Some(attention), Some(state)) => attention.state_bytes(state)?,
            _ => 0,
        };
        Some(own + cross + state.feed_forward.bytes())
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
        x: Tensor<3>,
        context: &Context,
        random: Option<RandomKey>,
        mut state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) -> Hidden {
        let mut losses = Losses::default();
        let given = self.parallel.map(|parallel| match parallel {
            Parallel::SharedNorm => self.self_attention_residual.input(x.clone()),
            Parallel::OwnNorms => x.clone(),
        });
        let mut stream = x;
        for sublayer in self.sublayers() {
            let (name, residual) = self.residual(sublayer);
            let key = random.map(|key| key.named(sublayer.name()));
            let mut run = |x, probe: &mut Probe| {
                let output = self.sublayer(sublayer, x, context, key, state.as_deref_mut(), probe);
                losses.extend(output.losses);
                output.context
            };
            stream = match given.clone() {
                Some(given) => {
                    let is_normalised = self.parallel == Some(Parallel::SharedNorm);
                    let output = self.of_real(sublayer, given, context, |x| {
                        let input = if is_normalised { x } else { residual.input(x) };
                        residual.output(run(input, probe), key)
                    });
                    stream + output
                }
                None => {
                    let output = self.of_real(sublayer, stream.clone(), context, |x| residual.branch(x, key, probe, run));
                    residual.joined(name, stream, output, probe)
                }
            };
        }
        probe.observe(|| Observation::Activation(stream.clone()));
        Hidden { states: stream, losses }
    }

    /// The sublayers in their order.
    pub(crate) fn sublayers(&self) -> impl DoubleEndedIterator<Item = Sublayer> + use<A> {
        let cross_attention = self.cross_attention.is_some().then_some(Sublayer::CrossAttention);
        let feed_forward = self.feed_forward.is_some().then_some(Sublayer::FeedForward);
        [Some(Sublayer::SelfAttention), cross_attention, feed_forward].into_iter().flatten()
    }

    /// Branch output of a sublayer for its residual connection with `x` `[B, N, C]`: see [`Residual::branch`]. The state is that of decoding.
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
        let run = |x, probe: &mut Probe| {
            let output = self.sublayer(sublayer, x, context, key, state, probe);
            losses = output.losses;
            output.context
        };
        let states = self.of_real(sublayer, x, context, |x| self.residual(sublayer).1.branch(x, key, probe, run));
        Hidden { states, losses }
    }

    /// Applies `branch` to `x` `[B, N, C]`: for position-wise sublayers in an unpadded batch only to real positions, with 0 elsewhere.
    fn of_real(&self, sublayer: Sublayer, x: Tensor<3>, context: &Context, branch: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
        let is_by_position = sublayer == Sublayer::FeedForward && self.feed_forward.as_ref().is_some_and(|network| !network.is_separable());
        match context.unpadding.as_ref().filter(|_| is_by_position) {
            Some(unpadding) => unpadding.padded(branch(unpadding.unpadded(x))),
            None => branch(x),
        }
    }

    fn residual(&self, sublayer: Sublayer) -> (&'static str, &Residual) {
        match sublayer {
            Sublayer::SelfAttention => ("self_attention_residual", &self.self_attention_residual),
            Sublayer::CrossAttention => {
                ("cross_attention_residual", self.cross_attention_residual.as_ref().expect("cross-attention has a residual connection"))
            }
            Sublayer::FeedForward => {
                ("feed_forward_residual", self.feed_forward_residual.as_ref().expect("a feed-forward network has a residual connection"))
            }
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
            Sublayer::FeedForward => {
                let network = self.feed_forward.as_ref().expect("only a block with a feed-forward network has this sublayer");
                if !network.is_separable() {
                    return AttentionOutput::new(network.forward(x, random, Neighbours::default()));
                }
                let [batch, length, _] = x.dims();
                let real = context.is_padded().then(|| {
                    let real: Vec<f32> = context.real(batch, length).into_iter().map(f32::from).collect();
                    Tensor::from_data(TensorData::new(real, [batch, length, 1]), (&x.device(), x.dtype()))
                });
                let past = state.map(|state| &mut state.feed_forward);
                AttentionOutput::new(network.forward(x, random, Neighbours { real, past }))
            }
        }
    }
}
