//! The passes of a reversible stack (see [`crate::depth`]), up and down.

use burn::module::Module;
use burn::tensor::Tensor;
use heedful_attention::contract::{Attention, Losses};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;

use crate::block::{Block, BlockState, Context, Hidden, Sublayer};
use crate::recomputation::{ParameterGradients, ReplayedGradients, backward, gradient_of, is_recorded, replayed};

/// A block of a reversible stack in one pass: its number, itself, and the key of its random numbers.
type Layer<'a, A> = (usize, &'a Block<A>, Option<RandomKey>);

/// Passes `x` `[B, N, C]` through `passes` layers, for which there are as many blocks or fewer, again and again.
pub(crate) fn forward<A: Attention + 'static>(
    blocks: &Vec<Block<A>>,
    passes: usize,
    x: Tensor<3>,
    context: &Context,
    random: Option<RandomKey>,
    probe: &mut Probe,
) -> Hidden {
    let inputs: Vec<_> = std::iter::once(x).chain(context.memory.clone()).collect();
    if !is_recorded(&inputs) {
        return merged(run(layers(blocks, passes, random), inputs[0].clone(), context, probe));
    }
    let plain_context = Context { memory: context.memory.clone().map(Tensor::inner), ..context.clone() };
    let plain = blocks.valid();
    let (streams, losses) = run(layers(&plain, passes, random), inputs[0].clone().inner(), &plain_context, probe);
    let length = inputs[0].dims()[1];
    let both = Hidden { states: Tensor::cat(streams.to_vec(), 1), losses };
    let hidden = replayed(blocks, inputs, both, move |gradient| {
        let of_streams = halves(gradient.states(), length);
        let back = Backwards { streams, of_streams, of_memory: None, parameters: ParameterGradients::default() };
        back.run(layers(&plain, passes, random).collect(), &plain_context, gradient.losses())
    });
    merged((halves(hidden.states, length), hidden.losses))
}

/// Passes the next positions `x` `[B, N, C]` through the layers.
pub(crate) fn step<A: Attention>(
    blocks: &[Block<A>],
    x: Tensor<3>,
    context: &Context,
    states: &mut [BlockState<A::State>],
    probe: &mut Probe,
) -> Hidden {
    let mut streams = Streams::new(x);
    for (at, state) in states.iter_mut().enumerate() {
        streams.pass((at, &blocks[at % blocks.len()], None), context, Some(state), probe);
    }
    merged((streams.streams, streams.losses))
}

fn layers<A: Attention>(blocks: &[Block<A>], passes: usize, random: Option<RandomKey>) -> impl Iterator<Item = Layer<'_, A>> {
    let key = move |at: usize| random.map(|key| key.named("layers").numbered(at as u64));
    blocks.iter().cycle().take(passes).enumerate().map(move |(at, block)| (at, block, key(at)))
}

fn halves(both: Tensor<3>, length: usize) -> [Tensor<3>; 2] {
    [0, length].map(|start| both.clone().narrow(1, start, length))
}

fn merged(([first, second], losses): ([Tensor<3>; 2], Losses)) -> Hidden {
    Hidden { states: (first + second) * 0.5, losses }
}

fn run<'a, A: Attention + 'a>(
    layers: impl Iterator<Item = Layer<'a, A>>,
    x: Tensor<3>,
    context: &Context,
    probe: &mut Probe,
) -> ([Tensor<3>; 2], Losses) {
    let mut streams = Streams::new(x);
    layers.for_each(|layer| streams.pass(layer, context, None, probe));
    (streams.streams, streams.losses)
}

/// Both streams on their way up.
struct Streams {
    streams: [Tensor<3>; 2],
    /// Which stream the next sublayer adds to.
    next: usize,
    losses: Losses,
}

impl Streams {
    fn new(x: Tensor<3>) -> Self {
        Self { streams: [x.clone(), x], next: 0, losses: Losses::default() }
    }

    fn pass<A: Attention>(
        &mut self,
        (at, block, random): Layer<A>,
        context: &Context,
        mut state: Option<&mut BlockState<A::State>>,
        probe: &mut Probe,
    ) {
        probe.within("layers", Some(at), |probe| {
            for sublayer in block.sublayers() {
                let source = self.streams[1 - self.next].clone();
                let output = block.branch(sublayer, source, context, random, state.as_deref_mut(), probe);
                self.streams[self.next] = self.streams[self.next].clone() + output.states;
                self.losses.extend(output.losses);
                self.next = 1 - self.next;
            }
        });
    }
}

/// Both streams and their gradients on their way down.
struct Backwards {
    streams: [Tensor<3>; 2],
    of_streams: [Tensor<3>; 2],
    of_memory: Option<Tensor<3>>,
    parameters: ParameterGradients,
}

impl Backwards {
    fn run<A: Attention>(mut self, layers: Vec<Layer<A>>, context: &Context, mut of_losses: Vec<Tensor<1>>) -> ReplayedGradients {
        let mut sublayers = layers.iter().map(|(_, block, _)| block.sublayers().count()).sum::<usize>();
        for (_, block, random) in layers.into_iter().rev() {
            let block = block.clone().train();
            for sublayer in block.sublayers().rev() {
                sublayers -= 1;
                self.back(&block, sublayer, sublayers % 2, context, random, &mut of_losses);
            }
        }
        let [first, second] = self.of_streams;
        let inputs = std::iter::once(first + second)
            .chain(context.memory.as_ref().map(|memory| self.of_memory.unwrap_or_else(|| memory.zeros_like())));
        ReplayedGradients { inputs: inputs.collect(), parameters: self.parameters }
    }

    /// Undoes a sublayer that added to the stream `to`.
    fn back<A: Attention>(
        &mut self,
        block: &Block<A>,
        sublayer: Sublayer,
        to: usize,
        context: &Context,
        random: Option<RandomKey>,
        of_losses: &mut Vec<Tensor<1>>,
    ) {
        let source = Tensor::from_inner(self.streams[1 - to].clone()).require_grad();
        let memory = context.memory.clone().map(|memory| Tensor::from_inner(memory).require_grad());
        let recorded = Context { memory: memory.clone(), ..context.clone() };
        let output = block.branch(sublayer, source.clone(), &recorded, random, None, &mut Probe::off());
        self.streams[to] = self.streams[to].clone() - output.states.clone().inner();
        let own = of_losses.split_off(of_losses.len() - output.losses.iter().count());
        let mut gradients = backward(output, self.of_streams[to].clone(), &own);
        self.of_streams[1 - to] = self.of_streams[1 - to].clone() + gradient_of(&source, &mut gradients);
        if let Some(of_memory) = memory.and_then(|memory| memory.grad_remove(&mut gradients)) {
            self.of_memory = Some(match self.of_memory.take() {
                Some(sum) => sum + of_memory,
                None => of_memory,
            });
        }
        self.parameters.add(block, &mut gradients);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::ModuleVisitor;
    use burn::module::Param;
    use burn::tensor::Device;
    use heedful_attention::init::Init;
    use heedful_attention::placement::Role;
    use heedful_attention::registry::AnyMechanism;
    use heedful_attention::visibility::Visibility;

    use crate::block::BlockConfig;
    use crate::depth::DepthConfig;
    use crate::position::PositionConfig;
    use crate::residual::NormOrder;
    use crate::stack::{Stack, StackConfig};

    /// A softmax rounds otherwise where gradients are recorded, because flex has an operation of its own where they are not.
    const TOLERANCE: f32 = 1e-4;

    fn stack(attention: &AnyMechanism, cross: bool, depth: DepthConfig, block: BlockConfig, device: &Device) -> Stack {
        let block = BlockConfig {
            d_model: 8,
            heads: 2,
            d_ff: 16,
            max_length: 32,
            norm_order: NormOrder::Pre,
            dropout: 0.2,
            attention_dropout: 0.2,
            feed_forward_dropout: 0.2,
            ..block
        };
        let cross_heads = vec![cross.then_some(2); 3];
        let config = StackConfig { cross_heads, ..StackConfig::new(Role::Decoder, block, 3, depth, PositionConfig::None) };
        config.init_with(&RandomKey::from_seed(3), device, &|place, key, device| {
            let attention = if place.role == Role::Cross { &AnyMechanism::default() } else { attention };
            attention.init(place, key, device)
        })
    }

    /// Gradients of a stack's parameters and inputs, flat, and its output.
    fn gradients(stack: &Stack, cross: bool, pass: impl Fn(Tensor<3>, &Context) -> Hidden) -> (Vec<f32>, Vec<f32>) {
        struct Collect<'a>(Vec<f32>, &'a burn::tensor::Gradients);

        impl ModuleVisitor for Collect<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let zeros = || param.val().inner().zeros_like();
                let gradient = param.val().grad(self.1).unwrap_or_else(zeros);
                self.0.extend(gradient.into_data().iter::<f32>());
            }
        }

        let device = Device::flex().autodiff();
        let [x, memory, weights] = [(5, 12), (6, 4), (7, 12)]
            .map(|(seed, length)| Init::Normal(1.0).tensor::<3>([2, length, 8], &RandomKey::from_seed(seed), &device).require_grad());
        let memory_visibility = Visibility::padding(vec![4, 2]);
        let context = Context { memory: cross.then(|| memory.clone()), memory_visibility, ..Context::new(Visibility::causal()) };
        let hidden = pass(x.clone(), &context);
        let states = hidden.states.clone().into_data().iter::<f32>().collect();
        let loss = (hidden.states * weights).sum();
        let loss = hidden.losses.iter().fold(loss, |sum, (_, loss)| sum + loss.clone() * 3.0);
        let mut found = loss.backward();
        let mut collect = Collect(Vec::new(), &found);
        stack.layers.visit(&mut collect);
        let mut all = collect.0;
        all.extend(x.grad_remove(&mut found).unwrap().into_data().iter::<f32>());
        if cross {
            all.extend(memory.grad_remove(&mut found).unwrap().into_data().iter::<f32>());
        }
        (all, states)
    }

    fn largest_difference((a, b): (&[f32], &[f32])) -> f32 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| (a - b).abs() / (1.0 + a.abs())).fold(0.0, f32::max)
    }

    fn mechanisms() -> impl Iterator<Item = AnyMechanism> {
        AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal)
    }

    #[test]
    fn gradients_are_those_of_ordinary_back_propagation() {
        let device = Device::flex().autodiff();
        for attention in mechanisms() {
            for cross in [false, true] {
                let stack = stack(
                    &attention,
                    cross,
                    DepthConfig::Reversible,
                    BlockConfig { final_norm: Some(false), ..BlockConfig::default() },
                    &device,
                );
                let pass = |seed: u64| {
                    let stack = &stack;
                    move |x: Tensor<3>, context: &Context| stack.forward(x, context, Some(RandomKey::from_seed(seed)), &mut Probe::off())
                };
                let ordinary = |x: Tensor<3>, context: &Context| {
                    merged(run(layers(&stack.layers, 3, Some(RandomKey::from_seed(4))), x, context, &mut Probe::off()))
                };
                let (wanted, states) = gradients(&stack, cross, ordinary);
                let (found, same_states) = gradients(&stack, cross, pass(4));
                assert!(largest_difference((&states, &same_states)) < 1e-5, "{attention}");
                let difference = largest_difference((&wanted, &found));
                // By how much the gradients change if the states do by what their reconstruction rounds.
                let (moved, _) = gradients(&stack, cross, |x: Tensor<3>, context: &Context| ordinary(x * (1.0 + 1e-6), context));
                let tolerance = TOLERANCE.max(largest_difference((&wanted, &moved)));
                assert!(difference < tolerance && tolerance < 1e-3, "{attention}, cross-attention {cross}: {difference} of {tolerance}");
                let (other, _) = gradients(&stack, cross, pass(5));
                assert!(largest_difference((&wanted, &other)) > 1e-2, "{attention}: other dropout would not be seen");
            }
        }
    }

    #[test]
    fn checkpointed_blocks_have_the_gradients_of_ordinary_ones() {
        let device = Device::flex().autodiff();
        for attention in mechanisms() {
            for cross in [false, true] {
                let [(wanted, states), (found, same_states)] = [false, true].map(|checkpoint| {
                    let block = BlockConfig { checkpoint, ..BlockConfig::default() };
                    let stack = stack(&attention, cross, DepthConfig::Stacked, block, &device);
                    gradients(&stack, cross, |x, context| stack.forward(x, context, Some(RandomKey::from_seed(4)), &mut Probe::off()))
                });
                assert!(largest_difference((&states, &same_states)) < 1e-5, "{attention}");
                let difference = largest_difference((&wanted, &found));
                assert!(difference < TOLERANCE, "{attention}, cross-attention {cross}: {difference}");
                assert!(wanted.iter().any(|gradient| gradient.abs() > 0.1));
            }
        }
    }

    #[test]
    fn steps_of_a_reversible_stack_are_parts_of_the_whole() {
        let device = Device::flex();
        for attention in mechanisms() {
            let stack = stack(&attention, false, DepthConfig::Reversible, BlockConfig::default(), &device);
            let x = Init::Normal(1.0).tensor::<3>([2, 6, 8], &RandomKey::from_seed(5), &device);
            let whole = stack.forward(x.clone(), &Context::new(Visibility::causal()), None, &mut Probe::off()).states;
            let mut state = stack.state(2, 6, &[], None);
            let parts = [0..3, 3..4, 4..6]
                .map(|part| stack.step(x.clone().narrow(1, part.start, part.len()), &mut state, &mut Probe::off()).states);
            let difference: f32 = (Tensor::cat(parts.to_vec(), 1) - whole).abs().max().into_scalar();
            assert!(difference < 1e-4, "{attention}: {difference}");
        }
    }
}
