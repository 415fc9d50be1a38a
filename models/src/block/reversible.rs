//! Forward and backward passes of a reversible stack (see [`crate::block::layer_sharing`]).

use burn::module::Module;
use burn::tensor::Tensor;
use heedful_attention::prelude::*;

use crate::block::auxiliary::LayerLosses;
use crate::block::recomputation::{ParameterGradients, ReplayedGradients, backward, gradient_of, is_recorded, replayed};
use crate::block::{Block, BlockState, Context, Hidden, Sublayer};

/// A block of a reversible stack in one pass: index, block, and key of its random numbers.
type Layer<'a, A> = (usize, &'a Block<A>, Option<RandomKey>);

/// Passes `x` `[B, N, C]` through `passes` layers, cycling through the blocks if there are fewer. Layer outputs may have losses.
pub(crate) fn forward<A: Attention + 'static>(
    (blocks, passes): (&Vec<Block<A>>, usize),
    x: Tensor<3>,
    context: &Context,
    of_layers: Option<&LayerLosses>,
    random: Option<RandomKey>,
    probe: &mut Probe,
) -> Hidden {
    let inputs: Vec<_> = std::iter::once(x).chain(context.memory.clone()).collect();
    if !is_recorded(&inputs) {
        return merged(run(layers(blocks, passes, random), inputs[0].clone(), context, of_layers, probe));
    }
    let plain_context = Context { memory: context.memory.clone().map(Tensor::inner), ..context.clone() };
    let module = (blocks.clone(), of_layers.map(|losses| losses.classifiers.clone()));
    let (plain, classifiers) = module.valid();
    let of_plain_layers = of_layers.zip(classifiers).map(|(losses, classifiers)| losses.with_classifiers(classifiers));
    let layers_of_plain = layers(&plain, passes, random);
    let (streams, losses) = run(layers_of_plain, inputs[0].clone().inner(), &plain_context, of_plain_layers.as_ref(), probe);
    let length = inputs[0].dims()[1];
    let both = Hidden { states: Tensor::cat(streams.to_vec(), 1), losses };
    let hidden = replayed(&module, inputs, both, move |gradient| {
        let of_streams = halves(gradient.states(), length);
        let back = Backwards { streams, of_streams, of_memory: None, parameters: ParameterGradients::default() };
        let of_layers = of_plain_layers.map(|losses| losses.with_classifiers(losses.classifiers.clone().train()));
        back.run(layers(&plain, passes, random).collect(), &plain_context, of_layers.as_ref(), gradient.losses())
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
        streams.pass((at, &blocks[at % blocks.len()], None), context, None, Some(state), probe);
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

fn merged((streams, losses): ([Tensor<3>; 2], Losses)) -> Hidden {
    Hidden { states: mean(streams), losses }
}

fn mean([first, second]: [Tensor<3>; 2]) -> Tensor<3> {
    (first + second) * 0.5
}

fn run<'a, A: Attention + 'a>(
    layers: impl Iterator<Item = Layer<'a, A>>,
    x: Tensor<3>,
    context: &Context,
    of_layers: Option<&LayerLosses>,
    probe: &mut Probe,
) -> ([Tensor<3>; 2], Losses) {
    let mut streams = Streams::new(x);
    layers.for_each(|layer| streams.pass(layer, context, of_layers, None, probe));
    (streams.streams, streams.losses)
}

/// Both streams in the forward pass.
struct Streams {
    streams: [Tensor<3>; 2],
    /// Stream to which the next sublayer adds.
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
        of_layers: Option<&LayerLosses>,
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
        if let Some(of_layers) = of_layers {
            self.losses.extend(of_layers.of_layer(at, &mean(self.streams.clone())));
        }
    }
}

/// Both streams and their gradients in the backward pass.
struct Backwards {
    streams: [Tensor<3>; 2],
    of_streams: [Tensor<3>; 2],
    of_memory: Option<Tensor<3>>,
    parameters: ParameterGradients,
}

impl Backwards {
    fn run<A: Attention>(
        mut self,
        layers: Vec<Layer<A>>,
        context: &Context,
        of_layers: Option<&LayerLosses>,
        mut of_losses: Vec<Tensor<1>>,
    ) -> ReplayedGradients {
        let mut sublayers = layers.iter().map(|(_, block, _)| block.sublayers().count()).sum::<usize>();
        for (at, block, random) in layers.into_iter().rev() {
            if let Some(of_layers) = of_layers {
                self.back_through_losses(at, of_layers, &mut of_losses);
            }
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

    /// Adds the gradients of the losses of a layer's output.
    fn back_through_losses(&mut self, layer: usize, of_layers: &LayerLosses, of_losses: &mut Vec<Tensor<1>>) {
        let output = Tensor::from_inner(mean(self.streams.clone())).require_grad();
        let losses = of_layers.of_layer(layer, &output);
        let own = of_losses.split_off(of_losses.len() - losses.iter().count());
        let weighed = losses.iter().zip(own).map(|((_, loss), gradient)| loss.clone() * Tensor::from_inner(gradient));
        let Some(total) = weighed.reduce(|a, b| a + b) else { return };
        let mut gradients = total.backward();
        let of_each = gradient_of(&output, &mut gradients) * 0.5;
        self.of_streams = self.of_streams.clone().map(|gradient| gradient + of_each.clone());
        self.parameters.add(&of_layers.classifiers, &mut gradients);
    }

    /// Reverses a sublayer that added to the stream `to`.
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
    use burn::module::{ModuleVisitor, Param};
    use burn::tensor::{Device, Int, TensorData};

    use crate::block::BlockConfig;
    use crate::block::auxiliary::AuxiliaryLossesConfig;
    use crate::block::layer_sharing::DepthConfig;
    use crate::block::stack::{Stack, StackConfig};
    use crate::parts::position::PositionConfig;
    use crate::parts::residual::NormOrder;

    /// A softmax rounds differently with gradients, because flex uses a separate operation without them.
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

    /// Flattened gradients of a module's parameters and of the inputs of a pass, and its output.
    fn gradients(module: &impl Module, cross: bool, pass: impl Fn(Tensor<3>, &Context) -> Hidden) -> (Vec<f32>, Vec<f32>) {
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
        module.visit(&mut collect);
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
                    merged(run(layers(&stack.layers, 3, Some(RandomKey::from_seed(4))), x, context, None, &mut Probe::off()))
                };
                let (wanted, states) = gradients(&stack.layers, cross, ordinary);
                let (found, same_states) = gradients(&stack.layers, cross, pass(4));
                assert!(largest_difference((&states, &same_states)) < 1e-5, "{attention}");
                let difference = largest_difference((&wanted, &found));
                // Change of the gradients if the states change by the rounding of their reconstruction.
                let (moved, _) = gradients(&stack.layers, cross, |x: Tensor<3>, context: &Context| ordinary(x * (1.0 + 1e-6), context));
                let tolerance = TOLERANCE.max(largest_difference((&wanted, &moved)));
                assert!(difference < tolerance && tolerance < 1e-3, "{attention}, cross-attention {cross}: {difference} of {tolerance}");
                let (other, _) = gradients(&stack.layers, cross, pass(5));
                assert!(largest_difference((&wanted, &other)) > 1e-2, "{attention}: other dropout would not be seen");
            }
        }
    }

    #[test]
    fn losses_of_layers_have_the_gradients_of_ordinary_back_propagation() {
        let device = Device::flex().autodiff();
        let block = BlockConfig { final_norm: Some(false), ..BlockConfig::default() };
        let stack = stack(&AnyMechanism::default(), true, DepthConfig::Reversible, block, &device);
        let classifiers = AuxiliaryLossesConfig { targets: 3, ..Default::default() }.init(3, 8, 7, &RandomKey::from_seed(8), &device);
        let targets: Vec<i32> = (0..24).map(|n| n * 5 % 7).collect();
        let targets = Tensor::<2, Int>::from_data(TensorData::new(targets, [2, 12]), &device);
        let module = (stack.layers.clone(), classifiers.clone());
        let random = Some(RandomKey::from_seed(4));
        let mut earlier: Vec<Vec<f32>> = Vec::new();
        // The first layer stops after a sixth of training, the second after a third.
        for (progress, count) in [(0.0, 3 + 3 + 2), (0.2, 3 + 2), (0.9, 2)] {
            let of_layers = LayerLosses::new(&classifiers, targets.clone(), progress);
            let (wanted, states) = gradients(&module, true, |x, context| {
                merged(run(layers(&stack.layers, 3, random), x, context, Some(&of_layers), &mut Probe::off()))
            });
            let (found, same_states) = gradients(&module, true, |x, context| {
                let hidden = forward((&stack.layers, 3), x, context, Some(&of_layers), random, &mut Probe::off());
                assert_eq!(hidden.losses.iter().count(), count);
                hidden
            });
            assert!(largest_difference((&states, &same_states)) < 1e-5);
            let difference = largest_difference((&wanted, &found));
            assert!(difference < TOLERANCE, "at {progress} of training: {difference}");
            assert!(earlier.iter().all(|earlier| largest_difference((earlier, &found)) > 1e-2), "at {progress} of training");
            earlier.push(found);
        }
        let (plain, _) = gradients(&module, true, |x, context| forward((&stack.layers, 3), x, context, None, random, &mut Probe::off()));
        assert!(earlier.iter().all(|earlier| largest_difference((earlier, &plain)) > 1e-2));
    }

    #[test]
    fn checkpointed_blocks_have_the_gradients_of_ordinary_ones() {
        let device = Device::flex().autodiff();
        for attention in mechanisms() {
            for cross in [false, true] {
                let [(wanted, states), (found, same_states)] = [false, true].map(|checkpoint| {
                    let block = BlockConfig { checkpoint, ..BlockConfig::default() };
                    let stack = stack(&attention, cross, DepthConfig::Stacked, block, &device);
                    gradients(&stack.layers, cross, |x, context| {
                        stack.forward(x, context, Some(RandomKey::from_seed(4)), &mut Probe::off())
                    })
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
