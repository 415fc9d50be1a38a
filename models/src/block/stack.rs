//! A stack of blocks: the encoder or the decoder of a Transformer.

use std::borrow::Cow;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use heedful_attention::prelude::*;

use crate::block::auxiliary::LayerLosses;
use crate::block::halting::{Halting, HaltingConfig};
use crate::block::layer_sharing::{Coordinates, DepthConfig, SharedConfig};
use crate::block::layout::LayerAttention;
use crate::block::recomputation::checkpointed;
use crate::block::segment::SegmentMemory;
use crate::block::{Block, BlockConfig, BlockState, Context, Hidden, Running, reversible};
use crate::parts::feed_forward::FeedForward;
use crate::parts::norm::Norm;
use crate::parts::position::{PositionConfig, PositionEncoding};

/// Sizes and options of a [`Stack`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Role of self-attention.
    pub role: Role,
    /// Options shared by all blocks.
    pub block: BlockConfig,
    /// Number of cross-attention heads per block, or `None` without cross-attention.
    pub cross_heads: Vec<Option<usize>>,
    /// Number of layers in a pass: that of the blocks, or more if [`depth`](Self::depth) shares one.
    pub layers: usize,
    /// Depth options.
    pub depth: DepthConfig,
    /// Position vectors of the model, which a shared block adds before each step; layers can also have their own.
    pub positions: PositionConfig,
    /// Layers whose self-attention has no biases, overriding the block; empty for none.
    pub without_biases: Vec<usize>,
    /// Layers whose self-attention has separate keys and values per head and the usual width, overriding the block; empty for none.
    pub with_usual_heads: Vec<usize>,
}

impl StackConfig {
    /// Configuration of `layers` layers without cross-attention, all with the options of `block`.
    pub fn new(role: Role, block: BlockConfig, layers: usize, depth: DepthConfig, positions: PositionConfig) -> Self {
        let cross_heads = vec![None; depth.blocks(layers)];
        Self { role, block, cross_heads, layers, depth, positions, without_biases: Vec::new(), with_usual_heads: Vec::new() }
    }

    /// Removes the block's biases or head options from layers whose self-attention does not support them, if others do.
    pub(crate) fn fitted_to(self, attention: &LayerAttention) -> Self {
        let blocks = self.cross_heads.len();
        let without = |ability| attention.without(blocks, ability);
        Self {
            without_biases: without(AnyMechanism::has_biases_on_demand),
            with_usual_heads: without(AnyMechanism::has_free_heads),
            ..self
        }
    }

    /// Validates it with the self-attentions that it was [fitted to](Self::fitted_to).
    pub(crate) fn validate(&self, check: &Check, attention: &LayerAttention) -> Result<(), ConfigError> {
        let Self { block, depth, positions, .. } = self;
        block.validate(check)?;
        positions.validate(check, block.d_model, block.max_length)?;
        depth.validate(check, block, *positions)?;
        attention.validate_length(check, "attention", self.cross_heads.len())?;
        self.specs().try_for_each(|spec| attention.at(spec.layer).validate(&spec))
    }

    /// Place of a layer's self-attention.
    fn own_place(&self, layer: usize) -> LayerSpec {
        let place = self.block.spec(self.role, layer, self.cross_heads.len(), self.block.heads);
        let place = if self.without_biases.contains(&layer) { place.with_qkv_bias(false).with_output_bias(false) } else { place };
        if self.with_usual_heads.contains(&layer) { place.with_kv_heads(None).with_head_width(None) } else { place }
    }

    /// Places of the attentions, in build order.
    pub fn specs(&self) -> impl Iterator<Item = LayerSpec> {
        let layers = self.cross_heads.len();
        self.cross_heads.iter().enumerate().flat_map(move |(layer, cross)| {
            let own = self.own_place(layer);
            let cross = cross.map(|heads| self.block.spec(Role::Cross, layer, layers, heads));
            [Some(own), cross].into_iter().flatten()
        })
    }

    /// Initialises the stack with attentions that `build` creates from their place and key, then shares their cross-layer parameters.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: &impl Fn(&LayerSpec, &RandomKey, &Device) -> A,
    ) -> Stack<A> {
        let layers = self.cross_heads.len();
        let BlockConfig { d_model, max_length, position_offset, .. } = self.block;
        let mut blocks: Vec<Block<A>> = Vec::with_capacity(layers);
        for (layer, cross_heads) in self.cross_heads.iter().enumerate() {
            let key = key.named("layers").numbered(layer as u64);
            let own = self.own_place(layer);
            let self_attention = build(&own, &key.named("self_attention"), device);
            let self_attention = blocks.iter().map(|block| &block.self_attention).fold(self_attention, A::sharing_with);
            let cross_attention = cross_heads.map(|heads| {
                let place = self.block.spec(Role::Cross, layer, layers, heads);
                let cross_attention = build(&place, &key.named("cross_attention"), device);
                blocks.iter().filter_map(|block| block.cross_attention.as_ref()).fold(cross_attention, A::sharing_with)
            });
            blocks.push(self.block.init(self.role, self_attention, cross_attention, &key, device));
        }
        let norm = self.block.has_final_norm().then(|| self.block.norm.init(d_model, device));
        let (coordinates, halting) = match self.depth {
            DepthConfig::Stacked | DepthConfig::Reversible => (None, None),
            DepthConfig::Shared(SharedConfig { step_signal, halting }) => {
                let signal = (step_signal, self.layers);
                let coordinates = Coordinates::new(self.positions, signal, max_length, d_model, &key.named("coordinates"), device);
                (
                    Some(coordinates.with_offset(position_offset)),
                    halting.map(|halting| halting.init(d_model, &key.named("halting"), device)),
                )
            }
        };
        let positions = match self.positions {
            PositionConfig::PerLayer => {
                let key = key.named("positions");
                let table = |layer| self.positions.init(max_length, d_model, &key.numbered(layer), device).with_offset(position_offset);
                (0..layers as u64).map(table).collect()
            }
            _ => Vec::new(),
        };
        let reversible = self.depth == DepthConfig::Reversible;
        let BlockConfig { checkpoint, unpadded, .. } = self.block;
        Stack { layers: blocks, norm, positions, coordinates, halting, steps: self.layers, reversible, checkpoint, unpadded }
    }
}

/// A stack of blocks.
///
/// Should be created with [`StackConfig`].
#[derive(Module, Debug)]
pub struct Stack<A: Attention = AnyAttention> {
    /// Blocks: one per layer, or one for all.
    pub layers: Vec<Block<A>>,
    /// Final normalisation, except in stacks that normalise sums.
    pub norm: Option<Norm>,
    /// Position vectors of each layer, if layers have their own.
    pub positions: Vec<PositionEncoding>,
    /// Vectors that a shared block adds before each step.
    pub coordinates: Option<Coordinates>,
    /// Halting unit of a shared block.
    pub halting: Option<Halting>,
    steps: usize,
    reversible: bool,
    checkpoint: bool,
    unpadded: bool,
}

/// Decoding state: states of the attentions, and positions of the sequences.
#[derive(Clone, Debug)]
pub struct StackState<S> {
    layers: Vec<BlockState<S>>,
    next: usize,
    capacity: usize,
    left_padding: Option<Arc<[usize]>>,
}

impl<S> StackState<S> {
    /// Positions of the next step.
    pub fn positions(&self) -> Positions {
        Positions { left_padding: self.left_padding.clone(), ..Positions::from_start(self.next) }
    }

    /// Number of further positions that fit into the state.
    pub fn remaining(&self) -> usize {
        self.capacity - self.next
    }
}

impl<A: Attention> Stack<A> {
    /// Passes `x` `[B, N, C]` through all layers. Dropout is active if and only if a key is given.
    ///
    /// # Panics
    /// If a layer has cross-attention and the context no memory, or an attention does not support the input.
    pub fn forward(&self, x: Tensor<3>, context: &Context, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let _span = tracing::trace_span!("stack", layers = self.steps, states = ?x.dims()).entered();
        let context = &*self.in_context(&x, context);
        if self.reversible {
            return self.normalised(reversible::forward((&self.layers, self.steps), x, context, None, random, probe));
        }
        self.pass(x, context, Halt::Early, random, probe, |layer, block, x, running, probe| {
            self.layer((layer, block), x, context, running, random, probe)
        })
    }

    /// Like [`forward`](Self::forward), also returning the output of each layer `[B, N, C]`; the last one precedes the stack's final normalisation. There is
    /// one output per layer, even if all positions halt early.
    ///
    /// # Panics
    /// As [`forward`](Self::forward), and if the stack is reversible, which keeps none of them.
    pub fn forward_each(&self, x: Tensor<3>, context: &Context, random: Option<RandomKey>, probe: &mut Probe) -> (Hidden, Vec<Tensor<3>>) {
        assert!(!self.reversible, "a reversible stack keeps no outputs of its layers");
        let context = &*self.in_context(&x, context);
        let mut outputs = Vec::with_capacity(self.steps);
        let hidden = self.pass(x, context, Halt::Shown, random, probe, |layer, block, x, running, probe| {
            let hidden = self.layer((layer, block), x, context, running, random, probe);
            outputs.push(hidden.states.clone());
            hidden
        });
        (hidden, outputs)
    }

    /// Like [`forward`](Self::forward), with added losses of layer outputs.
    pub(crate) fn forward_with_losses(
        &self,
        x: Tensor<3>,
        context: &Context,
        of_layers: &LayerLosses,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> Hidden {
        if self.reversible {
            return self.normalised(reversible::forward((&self.layers, self.steps), x, context, Some(of_layers), random, probe));
        }
        let (mut hidden, outputs) = self.forward_each(x, context, random, probe);
        hidden.losses.extend(of_layers.of_layers(&outputs));
        hidden
    }

    /// Passes the next segment `x` `[B, N, C]` of causal sequences through all layers, which also attend to their memory, and stores it. Dropout is active if
    /// and only if a key is given.
    ///
    /// # Panics
    /// If the memory belongs to another batch or stack, the stack is reversible or its feed-forward networks separable, or an attention does not support the
    /// input.
    pub fn segment(&self, x: Tensor<3>, memory: &mut SegmentMemory, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        self.read_segment(x, memory, Halt::AtEnd, random, probe).0
    }

    /// Like [`segment`](Self::segment), also returning the output of each layer `[B, N, C]`, as in [`forward_each`](Self::forward_each).
    ///
    /// # Panics
    /// As [`segment`](Self::segment).
    pub fn segment_each(
        &self,
        x: Tensor<3>,
        memory: &mut SegmentMemory,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Hidden, Vec<Tensor<3>>) {
        self.read_segment(x, memory, Halt::Shown, random, probe)
    }

    fn read_segment(
        &self,
        x: Tensor<3>,
        memory: &mut SegmentMemory,
        halt: Halt,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Hidden, Vec<Tensor<3>>) {
        let _span = tracing::trace_span!("segment", layers = self.steps, states = ?x.dims(), held = memory.held()).entered();
        assert!(!self.reversible, "a reversible stack keeps no inputs of its layers that could be carried over to the next segment");
        let is_separable = self.layers.iter().any(|block| block.feed_forward.as_ref().is_some_and(FeedForward::is_separable));
        assert!(!is_separable, "separable feed-forward networks do not remember the segment before");
        memory.check(self.steps, &x);
        let positions = memory.positions();
        let context = Context { positions: positions.clone(), ..Context::new(causal(&positions)) };
        let (mut inputs, mut outputs) = (Vec::with_capacity(self.steps), Vec::with_capacity(self.steps));
        let hidden = self.pass(x, &context, halt, random, probe, |layer, block, x, running, probe| {
            inputs.push(x.clone());
            let context = Context { carried: memory.layer(layer), ..context.clone() };
            let hidden = self.layer((layer, block), x, &context, running, random, probe);
            if halt == Halt::Shown {
                outputs.push(hidden.states.clone());
            }
            hidden
        });
        memory.remember(inputs);
        (hidden, outputs)
    }

    /// Context for `x` `[B, N, C]`, without padding if the stack skips it.
    fn in_context<'a>(&self, x: &Tensor<3>, context: &'a Context) -> Cow<'a, Context> {
        let [batch, length, _] = x.dims();
        if self.unpadded { Cow::Owned(context.unpadded(batch, length)) } else { Cow::Borrowed(context) }
    }

    /// Passes `x` through the block of a layer: all positions, or the running ones.
    fn layer(
        &self,
        (layer, block): (usize, &Block<A>),
        x: Tensor<3>,
        context: &Context,
        running: Option<&Running>,
        random: Option<RandomKey>,
        probe: &mut Probe,
    ) -> Hidden {
        let random = random.map(|key| key.named("layers").numbered(layer as u64));
        if !self.checkpoint {
            return block.pass_running(x, context, running, random, None, probe);
        }
        let running = running.cloned();
        let inputs = [Some(x), context.memory.clone(), context.carried.clone()];
        let [_, has_memory, has_carried] = inputs.each_ref().map(Option::is_some);
        let others = Context { memory: None, carried: None, ..context.clone() };
        checkpointed(block, inputs.into_iter().flatten().collect(), probe, move |block, inputs, probe| {
            let mut inputs = inputs.iter().cloned();
            let x = inputs.next().expect("the first input is there always");
            let memory = if has_memory { inputs.next() } else { None };
            let carried = if has_carried { inputs.next() } else { None };
            block.pass_running(x, &Context { memory, carried, ..others.clone() }, running.as_ref(), random, None, probe)
        })
    }

    /// State before the first step. Row `b` begins with `left_padding[b]` padding tokens (an empty slice: no padding). `memory` is the other sequence
    /// `[B, K, C]` and the number of real tokens per row.
    ///
    /// # Panics
    /// If a layer has cross-attention without a memory, or the number of counts differs from the number of rows.
    pub fn state(
        &self,
        batch: usize,
        capacity: usize,
        left_padding: &[usize],
        memory: Option<(Tensor<3>, Vec<usize>)>,
    ) -> StackState<A::State> {
        assert!(left_padding.is_empty() || left_padding.len() == batch, "left padding of {} rows for {batch}", left_padding.len());
        if let Some((memory, lengths)) = &memory {
            assert_eq!([memory.dims()[0], lengths.len()], [batch; 2], "rows of memory and lengths for a batch of {batch}");
        }
        let own = DecodingStart::self_attention(batch, capacity).with_left_padding(left_padding);
        let of_memory =
            |(memory, lengths)| DecodingStart::cross_attention(memory, Visibility::padding(lengths)).with_left_padding(left_padding);
        let memory = memory.map(of_memory);
        StackState {
            layers: self.blocks().map(|block| block.state(&own, memory.as_ref())).collect(),
            next: 0,
            capacity,
            left_padding: Positions::default().with_left_padding(left_padding).left_padding,
        }
    }

    /// Passes the next positions `x` `[B, N, C]` of causal sequences through all layers, without dropout.
    ///
    /// # Panics
    /// If the state's capacity is exceeded.
    pub fn step(&self, x: Tensor<3>, state: &mut StackState<A::State>, probe: &mut Probe) -> Hidden {
        let _span = tracing::trace_span!("stack step", layers = self.steps, states = ?x.dims()).entered();
        let length = x.dims()[1];
        assert!(length <= state.remaining(), "{length} more positions exceed the state's capacity {}", state.capacity);
        let context = Context { positions: state.positions(), ..Context::new(Visibility::causal()) };
        state.next += length;
        let layers = &mut state.layers;
        if self.reversible {
            return self.normalised(reversible::step(&self.layers, x, &context, layers, probe));
        }
        self.pass(x, &context, Halt::AtEnd, None, probe, |layer, block, x, running, probe| {
            block.pass_running(x, &context, running, None, Some(&mut layers[layer]), probe)
        })
    }

    /// Bytes of the numbers stored in a state over all layers, at 4 bytes per number; `None` if an attention does not report it.
    pub fn state_bytes(&self, state: &StackState<A::State>) -> Option<usize> {
        self.blocks().zip(&state.layers).map(|(block, state)| block.state_bytes(state)).sum()
    }

    /// Keeps the given batch rows of a state, in the given order.
    pub fn select(&self, state: &mut StackState<A::State>, rows: &[usize]) {
        for (block, state) in self.blocks().zip(&mut state.layers) {
            block.select(state, rows);
        }
        state.left_padding = state.left_padding.as_ref().map(|counts| rows.iter().map(|&row| counts[row]).collect());
    }

    /// The block of each layer.
    fn blocks(&self) -> impl Iterator<Item = &Block<A>> {
        self.layers.iter().cycle().take(self.steps)
    }

    fn pass(
        &self,
        x: Tensor<3>,
        context: &Context,
        halt: Halt,
        random: Option<RandomKey>,
        probe: &mut Probe,
        mut run: impl FnMut(usize, &Block<A>, Tensor<3>, Option<&Running>, &mut Probe) -> Hidden,
    ) -> Hidden {
        let mut losses = Losses::default();
        let length = x.dims()[1];
        let shifted = |encoding: &PositionEncoding| encoding.shifted(&context.positions, length, random.as_ref());
        let located = |x, step: usize| match (&self.coordinates, self.positions.get(step)) {
            (Some(coordinates), _) => coordinates.forward(x, &shifted(&coordinates.positions), step),
            (None, Some(positions)) => positions.forward(x, &shifted(positions)),
            (None, None) => x,
        };
        let mut layer = |step: usize, block: &Block<A>, x, running: Option<&Running>, probe: &mut Probe| {
            let hidden = probe.within("layers", Some(step), |probe| run(step, block, x, running, probe));
            losses.extend(hidden.losses);
            hidden.states
        };
        let layers = self.blocks().enumerate();
        let x = match &self.halting {
            None => layers.fold(x, |x, (step, block)| layer(step, block, located(x, step), None, probe)),
            Some(halting) => {
                let [batch, length, _] = x.dims();
                let real = context.real(batch, length);
                let count = real.iter().filter(|&&real| real).count().max(1);
                // With a listener, or if layer outputs are requested, all positions are computed.
                let is_training = random.is_some() || x.is_autodiff();
                let HaltingConfig { freeze, skip_in_training, .. } = *halting.config();
                let is_skipping = freeze && halt != Halt::Shown && !probe.is_listening() && (skip_in_training || !is_training);
                let mut running = if is_skipping { Running::of(&real, length) } else { None };
                let real = Tensor::<3, Bool>::from_data(TensorData::new(real, [batch, length, 1]), &x.device());
                let mut pondering = halting.start(&x, Some(real), self.steps);
                let mut x = x;
                for (step, block) in layers {
                    if is_skipping && step > 0 {
                        running = Running::of(&pondering.running(), length);
                    }
                    let goes_on = || if is_skipping { !running.as_ref().is_some_and(Running::is_empty) } else { pondering.goes_on() };
                    if halt == Halt::Early && step > 0 && !goes_on() {
                        break;
                    }
                    let input = located(x.clone(), step);
                    x = halting.step(&mut pondering, x, input, |input| layer(step, block, input, running.as_ref(), probe));
                }
                probe.observe(|| Observation::HaltingSteps(pondering.steps().squeeze_dim(2)));
                losses.push("ponder", pondering.cost().sum() * (halting.config().ponder_weight / count as f64));
                pondering.blended()
            }
        };
        self.normalised(Hidden { states: x, losses })
    }

    fn normalised(&self, Hidden { states, losses }: Hidden) -> Hidden {
        let states = match &self.norm {
            Some(norm) => norm.forward(states),
            None => states,
        };
        Hidden { states, losses }
    }
}

/// Stop criterion of a stack with halting positions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Halt {
    /// As soon as all positions have halted.
    Early,
    /// After the last layer: later positions may need all keys.
    AtEnd,
    /// After the last layer, computing all positions in each: the caller takes the outputs.
    Shown,
}

/// Causal visibility without left padding.
pub(crate) fn causal(positions: &Positions) -> Visibility {
    match &positions.left_padding {
        Some(counts) => Visibility::causal().and(Visibility::left_padding(counts.to_vec())),
        None => Visibility::causal(),
    }
}
