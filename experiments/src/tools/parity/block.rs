//! A block, a stack of blocks, and a stack that reads segments.

use burn::tensor::{Device, Tensor};
use heedful_attention::prelude::*;
use heedful_models::block::segment::SegmentMemory;
use heedful_models::block::stack::{Stack, StackConfig};
use heedful_models::block::{Block, Context};

use super::attention::{BATCH, KEYS, LENGTH, left_padding, losses, positions, shown};
use super::config::{NamedAttention, ParityConfig};
use super::inputs::{Input, Inputs};
use super::pass::{Pass, loss};
use super::runnable::{Output, Runnable};
use super::tensor_file::{Size, TensorFileError};

const MEMORY: Size = Size::Free("memory");

impl ParityConfig {
    /// The attention of a place.
    fn build(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        match (&self.cross, spec.role) {
            (Some(NamedAttention(cross)), Role::Cross) => cross.init(spec, key, device),
            _ => self.attention.init(spec, key, device),
        }
    }

    fn sequence(&self) -> [Size; 3] {
        [BATCH, LENGTH, Size::Is(self.d_model)]
    }

    /// What blocks read beside what is carried over.
    fn block_inputs(&self, keys: Size) -> Vec<Input> {
        let mut inputs = Vec::new();
        if self.cross.is_some() {
            let meaning = "the other sequence, to which cross-attention attends";
            inputs.push(Input::numbers("memory", &[BATCH, MEMORY, Size::Is(self.d_model)], meaning).with_gradient(true));
            let meaning = "how many elements of the rows of memory are real; padding follows them";
            inputs.push(Input::counts("memory_lengths", &[BATCH], meaning, &[4, 3]).optional());
        }
        let meaning = format!("where the real elements of the rows end, of {keys}; padding follows them");
        inputs.push(Input::counts("lengths", &[BATCH], &meaning, &[6, 5]).optional());
        inputs.push(left_padding());
        inputs
    }

    /// What the block of a layer shows.
    fn block_outputs(&self, block: &Block, before: &str, keys: Size) -> Vec<Output> {
        let mut outputs = Vec::new();
        let at = |name: &str| format!(".{before}{name}");
        outputs.extend(shown(&block.self_attention, self, false, keys, &at("self_attention")));
        if let Some(cross) = &block.cross_attention {
            outputs.extend(shown(cross, self, true, MEMORY, &at("cross_attention")));
        }
        if self.block.gate.is_some() {
            let cross = block.cross_attention.as_ref().map(|_| "cross_attention");
            for sublayer in [Some("self_attention"), cross, Some("feed_forward")].into_iter().flatten() {
                let name = format!("gate{}", at(&format!("{sublayer}_residual.gate")));
                outputs.push(Output::shown(&name, &self.sequence(), "how far the gate is open"));
            }
        }
        outputs
    }

    /// The losses of all blocks.
    fn loss_outputs<'a>(&self, blocks: impl IntoIterator<Item = &'a Block>, halts: bool) -> Vec<Output> {
        let attentions = blocks.into_iter().flat_map(|block| [Some(&block.self_attention), block.cross_attention.as_ref()]).flatten();
        let mut names: Vec<_> = attentions.flat_map(|attention| losses(attention, self.d_model)).collect();
        names.extend(halts.then_some("ponder"));
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| Output::new(&loss(name), &[Size::Is(1)], "auxiliary loss, of all layers")).collect()
    }

    /// Who sees what, and where the rows begin and end; `start` elements are carried over.
    fn context(&self, start: usize, memory: Option<Tensor<3>>, inputs: &Inputs) -> Context {
        let mut visibility = if self.role == Role::Decoder { Visibility::causal() } else { Visibility::all() };
        if let Some(counts) = inputs.counts("left_padding") {
            visibility = visibility.and(Visibility::left_padding(counts.to_vec()));
        }
        if let Some(lengths) = inputs.counts("lengths") {
            visibility = visibility.and(Visibility::padding(lengths.to_vec()));
        }
        let memory_visibility =
            inputs.counts("memory_lengths").map_or_else(Visibility::all, |lengths| Visibility::padding(lengths.to_vec()));
        let context = Context { positions: positions(start, inputs), memory, memory_visibility, ..Context::new(visibility) };
        match inputs.counts("lengths") {
            Some(lengths) => context.lengths(lengths),
            None => context,
        }
    }

    fn check_blocks(&self, inputs: &Inputs) -> Result<(), TensorFileError> {
        let keys = inputs.size("carried", 1) + inputs.size("x", 1);
        for (name, length) in [("x", keys), ("memory", if self.cross.is_some() { inputs.size("memory", 1) } else { 0 })] {
            if length > self.max_length {
                let problem = format!("{length} positions exceed max_length = {}; raise it in the configuration", self.max_length);
                return Err(inputs.refuse(name, problem));
            }
        }
        inputs.check_counts("lengths", 1, keys)?;
        inputs.check_counts("left_padding", 0, keys - 1)?;
        inputs.check_counts("memory_lengths", 1, inputs.size("memory", 1))
    }
}

/// [`Part::Block`](super::part::Part::Block).
pub(super) struct OneBlock<'a>(pub &'a ParityConfig);

impl Runnable for OneBlock<'_> {
    type Module = Block;

    fn module(&self, device: &Device) -> Block {
        let config = self.0;
        let key = config.key();
        let attention = config.build(&config.spec(config.role, config.layer), &key.named("self_attention"), device);
        let cross =
            config.cross.as_ref().map(|_| config.build(&config.spec(Role::Cross, config.layer), &key.named("cross_attention"), device));
        config.block_config().init(config.role, attention, cross, &key, device)
    }

    fn inputs(&self, _: &Block) -> Vec<Input> {
        let config = self.0;
        let meaning = match config.memory_gradient {
            true => "inputs of the block in an earlier segment, to which self-attention attends before x",
            false => {
                "inputs of the block in an earlier segment, to which self-attention attends before x; no gradient reaches them unless memory_gradient is set"
            }
        };
        let carried = Input::numbers("carried", &[BATCH, Size::Free("carried"), Size::Is(config.d_model)], meaning).optional();
        let mut inputs =
            vec![Input::numbers("x", &config.sequence(), "the stream").with_gradient(true), carried.with_gradient(config.memory_gradient)];
        inputs.extend(config.block_inputs(KEYS));
        inputs
    }

    fn outputs(&self, block: &Block) -> Vec<Output> {
        let config = self.0;
        let mut outputs = vec![Output::new("output", &config.sequence(), "the stream that goes on")];
        outputs.extend(config.block_outputs(block, "", KEYS));
        outputs.push(Output::shown("activation", &config.sequence(), "the same as the output"));
        outputs.extend(config.loss_outputs([block], false));
        outputs
    }

    fn check(&self, _: &Block, inputs: &Inputs) -> Result<(), TensorFileError> {
        self.0.check_blocks(inputs)
    }

    fn run(&self, block: &Block, pass: &mut Pass) {
        let (x, carried, memory) = (pass.tensor::<3>("x"), pass.given::<3>("carried"), pass.given::<3>("memory"));
        let start = carried.as_ref().map_or(0, |carried| carried.dims()[1]);
        let context = Context { carried, ..self.0.context(start, memory, pass.inputs()) };
        let [batch, length, _] = x.dims();
        let hidden = pass.listening([batch, length], |probe| block.forward(x, &context, None, probe));
        pass.output("output", hidden.states);
        pass.losses(&hidden.losses);
    }
}

/// The stacks of [`Part`](super::part::Part).
pub(super) struct OneStack<'a>(pub &'a ParityConfig);

impl OneStack<'_> {
    fn halts(&self, stack: &Stack) -> bool {
        stack.halting.is_some()
    }
}

impl Runnable for OneStack<'_> {
    type Module = Stack;

    fn module(&self, device: &Device) -> Stack {
        let config = self.0;
        let stack = StackConfig {
            cross_heads: vec![config.cross.is_some().then_some(config.heads); config.blocks()],
            ..StackConfig::new(config.self_role(), config.block_config(), config.layers, config.depth(), config.positions)
        };
        stack.init_with(&config.key(), device, &|spec, key, device| config.build(spec, key, device))
    }

    fn inputs(&self, _: &Stack) -> Vec<Input> {
        let config = self.0;
        let mut inputs = vec![Input::numbers("x", &config.sequence(), "the input of the first layer").with_gradient(true)];
        if !config.part.reads_segments() {
            inputs.extend(config.block_inputs(LENGTH));
            return inputs;
        }
        let meaning = "how many positions each segment has; they sum to length";
        inputs.push(Input::counts("segments", &[Size::Free("segments")], meaning, &[2, 4]));
        let shape = [Size::Is(config.layers), BATCH, Size::Free("remembered"), Size::Is(config.d_model)];
        let meaning = "what the layers remember before the first segment: their inputs in the positions before it; no gradient reaches it";
        inputs.push(Input::numbers("memory", &shape, meaning).optional());
        let meaning = "how many of the last positions of memory each row remembers (default: all); what it does not is padding";
        inputs.push(Input::counts("remembered", &[BATCH], meaning, &[3, 1]).optional());
        inputs
    }

    fn outputs(&self, stack: &Stack) -> Vec<Output> {
        let config = self.0;
        let mut outputs = vec![Output::new("output", &config.sequence(), "what the stack returns")];
        let reads_segments = config.part.reads_segments();
        for layer in 0..config.layers {
            let block = &stack.layers[layer % stack.layers.len()];
            let (before, keys) = match reads_segments {
                true => (format!("segments.NUMBER.layers.{layer}."), Size::Free("seen")),
                false => (format!("layers.{layer}."), LENGTH),
            };
            outputs.extend(config.block_outputs(block, &before, keys));
            if config.part != super::part::Part::StackReversible {
                let name = format!("activation.{}", before.trim_end_matches('.'));
                outputs.push(Output::shown(&name, &config.sequence(), "output of the layer, where it was reached"));
            }
        }
        if self.halts(stack) {
            let name = if reads_segments { "halting_steps.segments.NUMBER" } else { "halting_steps" };
            outputs.push(Output::shown(name, &[BATCH, LENGTH], "steps until each position halted"));
        }
        if reads_segments {
            let shape = [Size::Is(config.layers), BATCH, Size::Free("held"), Size::Is(config.d_model)];
            outputs.push(Output::shown("memory", &shape, "what the layers remember after the last segment, if anything"));
        }
        outputs.extend(config.loss_outputs(&stack.layers, self.halts(stack)));
        outputs
    }

    fn check(&self, _: &Stack, inputs: &Inputs) -> Result<(), TensorFileError> {
        let config = self.0;
        if !config.part.reads_segments() {
            return config.check_blocks(inputs);
        }
        inputs.check_parts("segments", inputs.size("x", 1))?;
        let held = inputs.size("memory", 2);
        if held > config.memory_length {
            return Err(inputs.refuse(
                "memory",
                format!("{held} positions exceed memory_length = {}; raise it in the configuration", config.memory_length),
            ));
        }
        if inputs.counts("remembered").is_some() && held == 0 {
            return Err(inputs.refuse("remembered", "counts positions of `memory`, which is missing; add it or leave this out"));
        }
        inputs.check_counts("remembered", 0, held)?;
        let mut before = held;
        for &segment in inputs.counts("segments").unwrap_or_default() {
            let reached = before + segment;
            if reached > config.max_length {
                let problem =
                    format!("a segment of {segment} after {before} remembered positions exceeds max_length = {}", config.max_length);
                return Err(inputs.refuse("segments", format!("{problem}; raise it in the configuration")));
            }
            before = reached.min(config.memory_length);
        }
        Ok(())
    }

    fn run(&self, stack: &Stack, pass: &mut Pass) {
        let x = pass.tensor::<3>("x");
        let [batch, length, _] = x.dims();
        if self.0.part.reads_segments() {
            return self.read_segments(stack, x, pass);
        }
        let memory = pass.given::<3>("memory");
        let context = self.0.context(0, memory, pass.inputs());
        let hidden = pass.listening([batch, length], |probe| stack.forward(x, &context, None, probe));
        pass.output("output", hidden.states);
        pass.losses(&hidden.losses);
    }
}

impl OneStack<'_> {
    fn read_segments(&self, stack: &Stack, x: Tensor<3>, pass: &mut Pass) {
        let inputs = pass.inputs();
        let [batch, _, width] = x.dims();
        let mut memory = match pass.given::<4>("memory") {
            Some(held) => {
                let [layers, _, positions, _] = held.dims();
                let of_layer = |layer| held.clone().narrow(0, layer, 1).reshape([batch, positions, width]);
                let remembered = inputs.counts("remembered").map_or_else(|| vec![positions; batch], <[usize]>::to_vec);
                SegmentMemory::holding(self.0.memory_length, (0..layers).map(of_layer).collect(), remembered)
            }
            None => SegmentMemory::new(batch, self.0.memory_length),
        };
        let (mut start, mut outputs, mut losses) = (0, Vec::new(), heedful_attention::contract::Losses::default());
        for (number, &length) in inputs.counts("segments").unwrap_or_default().iter().enumerate() {
            let segment = x.clone().narrow(1, start, length);
            let hidden = pass.listening([batch, length], |probe: &mut Probe| {
                probe.within("segments", Some(number), |probe| stack.segment(segment, &mut memory, None, probe))
            });
            outputs.push(hidden.states);
            losses.extend(hidden.losses);
            start += length;
        }
        pass.output("output", Tensor::cat(outputs, 1));
        pass.losses(&losses);
        if memory.held() > 0 {
            pass.show("memory", Tensor::stack::<4>(memory.layers().to_vec(), 0));
        }
    }
}
