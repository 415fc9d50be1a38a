//! A stack of blocks: the encoder or the decoder of a Transformer.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::LayerNorm;
use burn::tensor::{Device, Tensor};
use heedful_attention::any::AnyAttention;
use heedful_attention::contract::{Attention, Losses, Positions};
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::Visibility;

use crate::block::{Block, BlockConfig, BlockState, Context, Hidden};
use crate::fused::normalise;
use crate::residual::layer_norm;

/// Sizes and options of a [`Stack`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Role of self-attention.
    pub role: Role,
    /// What all blocks share.
    pub block: BlockConfig,
    /// For each layer the number of heads of cross-attention, or `None` where the layer has none.
    pub cross_heads: Vec<Option<usize>>,
}

impl StackConfig {
    /// Where the attentions stand, in the order in which they are built.
    pub fn placements(&self) -> impl Iterator<Item = Placement> {
        let layers = self.cross_heads.len();
        self.cross_heads.iter().enumerate().flat_map(move |(layer, cross)| {
            let own = self.block.placement(self.role, layer, layers, self.block.heads);
            let cross = cross.map(|heads| self.block.placement(Role::Cross, layer, layers, heads));
            [Some(own), cross].into_iter().flatten()
        })
    }

    /// Initialises the stack with attentions made by `build` from their place and key, which then share among layers what they ask to share.
    pub fn init_with<A: Attention>(
        &self,
        key: &RandomKey,
        device: &Device,
        build: &impl Fn(&Placement, &RandomKey, &Device) -> A,
    ) -> Stack<A> {
        let layers = self.cross_heads.len();
        let mut blocks: Vec<Block<A>> = Vec::with_capacity(layers);
        for (layer, cross_heads) in self.cross_heads.iter().enumerate() {
            let key = key.named("layers").numbered(layer as u64);
            let own = self.block.placement(self.role, layer, layers, self.block.heads);
            let self_attention = build(&own, &key.named("self_attention"), device);
            let self_attention = blocks.iter().map(|block| &block.self_attention).fold(self_attention, A::sharing_with);
            let cross_attention = cross_heads.map(|heads| {
                let place = self.block.placement(Role::Cross, layer, layers, heads);
                let cross_attention = build(&place, &key.named("cross_attention"), device);
                blocks.iter().filter_map(|block| block.cross_attention.as_ref()).fold(cross_attention, A::sharing_with)
            });
            blocks.push(self.block.init(self_attention, cross_attention, &key, device));
        }
        Stack { layers: blocks, norm: self.block.has_final_norm().then(|| layer_norm(self.block.d_model, device)) }
    }
}

/// A stack of blocks.
///
/// Should be created with [`StackConfig`].
#[derive(Module, Debug)]
pub struct Stack<A: Attention = AnyAttention> {
    /// The blocks.
    pub layers: Vec<Block<A>>,
    /// Last normalisation, of pre-norm stacks.
    pub norm: Option<LayerNorm>,
}

/// State of stepwise decoding: what the attentions remember, and where the sequences stand.
#[derive(Clone, Debug)]
pub struct StackState<S> {
    layers: Vec<BlockState<S>>,
    next: usize,
    capacity: usize,
    left_padding: Option<Arc<[usize]>>,
    memory_lengths: Option<Vec<usize>>,
}

impl<S> StackState<S> {
    /// Positions of the next step.
    pub fn positions(&self) -> Positions {
        Positions { start: self.next, left_padding: self.left_padding.clone() }
    }

    /// How many more positions the state can take.
    pub fn remaining(&self) -> usize {
        self.capacity - self.next
    }
}

impl<A: Attention> Stack<A> {
    /// Passes `x` `[B, N, C]` through all layers. Dropout is on exactly if a key is given.
    ///
    /// # Panics
    /// If a layer has cross-attention and the context no memory, or an attention cannot take the input.
    pub fn forward(&self, x: Tensor<3>, context: &Context, random: Option<RandomKey>, probe: &mut Probe) -> Hidden {
        let _span = tracing::trace_span!("stack", layers = self.layers.len(), states = ?x.dims()).entered();
        self.pass(x, probe, |layer, block, x, probe| {
            block.forward(x, context, random.map(|key| key.named("layers").numbered(layer as u64)), probe)
        })
    }

    /// A state before the first step. Row `b` begins with `left_padding[b]` padding elements (an empty slice: none does). `memory` is the other sequence
    /// `[B, K, C]` and the number of real elements of each of its rows.
    ///
    /// # Panics
    /// If a layer has cross-attention and there is no memory, or the counts are not one for each row.
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
        StackState {
            layers: self.layers.iter().map(|block| block.state(batch, capacity, memory.as_ref().map(|(memory, _)| memory))).collect(),
            next: 0,
            capacity,
            left_padding: Positions::default().with_left_padding(left_padding).left_padding,
            memory_lengths: memory.map(|(_, lengths)| lengths),
        }
    }

    /// Passes the next positions `x` `[B, N, C]` of causal sequences through all layers, without dropout.
    ///
    /// # Panics
    /// If the state's capacity is exceeded.
    pub fn step(&self, x: Tensor<3>, state: &mut StackState<A::State>, probe: &mut Probe) -> Hidden {
        let _span = tracing::trace_span!("stack step", layers = self.layers.len(), states = ?x.dims()).entered();
        let length = x.dims()[1];
        assert!(length <= state.remaining(), "{length} more positions exceed the state's capacity {}", state.capacity);
        let positions = state.positions();
        let context = Context {
            visibility: causal(&positions),
            positions,
            memory: None,
            memory_visibility: state.memory_lengths.clone().map_or_else(Visibility::all, Visibility::padding),
        };
        state.next += length;
        self.pass(x, probe, |layer, block, x, probe| block.step(x, &context, &mut state.layers[layer], probe))
    }

    /// Keeps the given batch rows of a state, in the given order.
    pub fn select(&self, state: &mut StackState<A::State>, rows: &[usize]) {
        for (block, state) in self.layers.iter().zip(&mut state.layers) {
            block.select(state, rows);
        }
        state.left_padding = state.left_padding.as_ref().map(|counts| rows.iter().map(|&row| counts[row]).collect());
        state.memory_lengths = state.memory_lengths.as_ref().map(|lengths| rows.iter().map(|&row| lengths[row]).collect());
    }

    fn pass(&self, mut x: Tensor<3>, probe: &mut Probe, mut run: impl FnMut(usize, &Block<A>, Tensor<3>, &mut Probe) -> Hidden) -> Hidden {
        let mut losses = Losses::default();
        for (layer, block) in self.layers.iter().enumerate() {
            let hidden = probe.within("layers", Some(layer), |probe| run(layer, block, x, probe));
            losses.extend(hidden.losses);
            x = hidden.states;
        }
        let states = match &self.norm {
            Some(norm) => normalise(x, norm),
            None => x,
        };
        Hidden { states, losses }
    }
}

/// Causal visibility, without the padding at the left.
pub(crate) fn causal(positions: &Positions) -> Visibility {
    match &positions.left_padding {
        Some(counts) => Visibility::causal().and(Visibility::left_padding(counts.to_vec())),
        None => Visibility::causal(),
    }
}
