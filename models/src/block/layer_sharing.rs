//! Depth of a stack: layers with separate weights, one shared layer, or reversible layers.
//!
//! A Universal Transformer (Dehghani et al. 2018, section 2.1) applies one block to all positions, once per layer of the stack. Before each step `t` it adds
//! coordinates, the position vectors and a step vector: `H_t = block(H_{t-1} + P + T_t)`, so the residual connections carry them too. With halting, each
//! position decides how many steps it needs ([`crate::block::halting`]), up to the number of layers. Halted positions are skipped as far as the block supports
//! it: in inference and, with [`HaltingConfig::skip_in_training`], in training. Self-attention still computes a key and a value from a halted state, visible to
//! other queries.
//!
//! A reversible stack (Gomez et al. 2017; Kitaev et al. 2020, section 3) updates two streams in turn, both initially the stack's input:
//! `y_1 = x_1 + Attention(LN(x_2))`, `y_2 = x_2 + FeedForward(LN(y_1))`. The input of a layer can be recomputed from its output, so training keeps only the
//! last layer's activations. The stack's output is the mean of the streams, as in reformer-pytorch; the paper concatenates them. Inputs are reconstructed up to
//! rounding, with the same dropout, at the cost of a second forward pass.
//!
//! Dehghani et al. count positions from 1, this code and the released code from 0, which shifts all sinusoids equally. Steps count from 1.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_attention::contract::unit_variant::without_options;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::block::halting::HaltingConfig;
use crate::block::{BlockConfig, FeedForwardIn};
use crate::parts::position::{PositionConfig, PositionEncoding};
use crate::parts::residual::NormOrder;

/// Depth of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DepthConfig {
    /// Each layer has its own weights.
    #[default]
    #[serde(deserialize_with = "without_options")]
    Stacked,
    /// One block, applied once per layer: the Universal Transformer. The model's position vectors are added before each step instead of to the embedded tokens.
    Shared(SharedConfig),
    /// Each layer has its own weights and is reversible: activation memory does not grow with depth. Requires unnormalised streams, no gates and sequential
    /// sublayers.
    #[serde(deserialize_with = "without_options")]
    Reversible,
}

/// Options of one shared block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SharedConfig {
    /// Step vectors (default: sinusoidal, as in the paper; learned in tensor2tensor).
    pub step_signal: PositionConfig,
    /// Halting of single positions (default: none, all positions take all steps).
    pub halting: Option<HaltingConfig>,
}

impl DepthConfig {
    pub(crate) fn validate(&self, check: &Check, block: &BlockConfig, positions: PositionConfig) -> Result<(), ConfigError> {
        if positions == PositionConfig::PerLayer && *self != Self::Stacked {
            let remedy = "give another: layers that share a block are told apart by its step_signal, and reversible ones add nothing but what they compute";
            return Err(check.refuse("positions", "per-layer", remedy));
        }
        match self {
            Self::Stacked => Ok(()),
            Self::Shared(SharedConfig { step_signal, halting }) => {
                if matches!(step_signal, PositionConfig::Grid(_) | PositionConfig::PerLayer) {
                    let given = if *step_signal == PositionConfig::PerLayer { "per-layer" } else { "grid" };
                    return Err(check.refuse("step_signal", given, "give sinusoidal, learned or none: steps have one coordinate"));
                }
                step_signal.validate(check, block.d_model, block.max_length)?;
                halting.map_or(Ok(()), |halting| halting.validate(check))
            }
            Self::Reversible if block.norm_order == NormOrder::Post => {
                let remedy = "give pre: a reversible layer adds to its streams, and a sum that is normalised cannot be undone";
                Err(check.refuse("norm_order", "post", remedy))
            }
            Self::Reversible if block.gate.is_some() => {
                Err(check.refuse("gate", "given", "leave it out: a reversible layer adds to its streams, and a gate cannot be undone"))
            }
            Self::Reversible if block.parallel.is_some() => {
                let remedy = "leave it out: the sublayers of a reversible layer follow each other, each on another stream";
                Err(check.refuse("parallel", "given", remedy))
            }
            Self::Reversible if block.feed_forward_in != FeedForwardIn::All => {
                let remedy = "give all: the sublayers of a reversible layer change its two streams in turn";
                Err(check.refuse("feed_forward_in", "given", remedy))
            }
            Self::Reversible if block.checkpoint => {
                Err(check.refuse("checkpoint", true, "leave it out: a reversible stack keeps no activations of its blocks anyway"))
            }
            Self::Reversible => Ok(()),
        }
    }

    /// Number of blocks in a stack of `layers` layers.
    pub fn blocks(&self, layers: usize) -> usize {
        match self {
            Self::Stacked | Self::Reversible => layers,
            Self::Shared(_) => 1,
        }
    }

    /// Position vectors added to the embedded tokens.
    pub fn embedded_positions(&self, positions: PositionConfig) -> PositionConfig {
        match self {
            Self::Stacked | Self::Reversible if positions != PositionConfig::PerLayer => positions,
            _ => PositionConfig::None,
        }
    }
}

/// Position and step vectors added before each step.
#[derive(Module, Debug)]
pub struct Coordinates {
    /// Position vectors.
    pub positions: PositionEncoding,
    /// Step vectors.
    pub steps: PositionEncoding,
}

impl Coordinates {
    pub(crate) fn new(
        positions: PositionConfig,
        steps: (PositionConfig, usize),
        max_length: usize,
        d_model: usize,
        key: &RandomKey,
        device: &Device,
    ) -> Self {
        let (signal, count) = steps;
        Self {
            positions: positions.init(max_length, d_model, &key.named("positions"), device),
            steps: signal.init_from(1, count, d_model, &key.named("steps"), device),
        }
    }

    /// Sets the maximum random offset of positions in training.
    pub(crate) fn with_offset(mut self, offset: usize) -> Self {
        self.positions = self.positions.with_offset(offset);
        self
    }

    /// Adds the vectors of its positions and of the step, counted from 0 here, to `x` `[B, N, C]`.
    ///
    /// # Panics
    /// If a position exceeds the maximal length, or the step the number of steps.
    pub fn forward(&self, x: Tensor<3>, positions: &Positions, step: usize) -> Tensor<3> {
        let x = self.positions.forward(x, positions);
        match self.steps.vectors(step..step + 1) {
            Some(vector) => x.clone() + vector.cast(x.dtype()).unsqueeze(),
            None => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::Int;

    use crate::architectures::language_model::tests::all_pairs;
    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::Context;
    use crate::block::halting::Blend;
    use crate::block::layout::LayerAttention;
    use crate::block::stack::{Stack, StackConfig};
    use crate::generation::StepDecoder;
    use crate::parts::feed_forward::counted_positions;

    fn block() -> BlockConfig {
        BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..BlockConfig::default() }
    }

    fn shared(halting: Option<HaltingConfig>) -> DepthConfig {
        DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() })
    }

    /// Halts after one to four steps at various positions.
    fn halting() -> HaltingConfig {
        HaltingConfig { bias: -1.0, ..HaltingConfig::default() }
    }

    fn stack(depth: DepthConfig, layers: usize) -> Stack {
        let config = StackConfig::new(Role::Encoder, block(), layers, depth, PositionConfig::Sinusoidal);
        config.init_with(&RandomKey::from_seed(3), &Device::flex(), &|place, key, device| AnyMechanism::default().init(place, key, device))
    }

    fn input(rows: usize) -> Tensor<3> {
        heedful_attention::contract::init::Init::Normal(1.0).tensor([rows, 5, 8], &RandomKey::from_seed(9), &Device::flex())
    }

    fn context(lengths: &[usize]) -> Context {
        Context::new(Visibility::padding(lengths.to_vec())).lengths(lengths)
    }

    fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
        (a - b).abs().max().into_scalar()
    }

    fn steps_taken(stack: &Stack, x: Tensor<3>, lengths: &[usize]) -> (Vec<f32>, Tensor<3>, f32) {
        let mut steps = Vec::new();
        let mut listener = |path: &str, observation: Observation| {
            if let Observation::HaltingSteps(taken) = observation {
                assert_eq!(path, "");
                steps.extend(taken.into_data().try_to_vec::<f32>().unwrap());
            }
        };
        let hidden = stack.forward(x, &context(lengths), None, &mut Probe::listening(&mut listener));
        (steps, hidden.states, hidden.losses.total().unwrap().into_scalar())
    }

    #[test]
    fn a_shared_block_is_a_stack_of_equal_layers_with_coordinates_before_each() {
        let stack = stack(shared(None), 3);
        assert_eq!(stack.layers.len(), 1);
        let context = context(&[5]);
        let states = stack.forward(input(1), &context, None, &mut Probe::off()).states;
        let coordinates = stack.coordinates.as_ref().unwrap();
        let sinusoids = PositionConfig::Sinusoidal.init(16, 8, &RandomKey::from_seed(0), &Device::flex()).vectors(0..16).unwrap();
        let by_hand = (0..3).fold(input(1), |x, step| {
            let places = sinusoids.clone().narrow(0, 0, 5) + sinusoids.clone().narrow(0, step + 1, 1);
            assert!(difference(coordinates.forward(x.clone(), &Positions::default(), step), x.clone() + places.clone().unsqueeze()) < 1e-6);
            stack.layers[0].forward(x + places.unsqueeze(), &context, None, &mut Probe::off()).states
        });
        assert!(difference(states, by_hand) < 1e-5);
    }

    #[test]
    fn a_unit_that_always_halts_leaves_one_plain_block() {
        let once = stack(shared(Some(HaltingConfig { bias: 50.0, ..halting() })), 4);
        let plain = stack(shared(None), 1);
        let [a, b] = [once, plain].map(|stack| stack.forward(input(1), &context(&[5]), None, &mut Probe::off()).states);
        assert!(difference(a, b) < 1e-6);
    }

    #[test]
    fn a_unit_that_never_halts_takes_the_last_state() {
        let never = stack(shared(Some(HaltingConfig { bias: -50.0, ..halting() })), 3);
        let (steps, states, _) = steps_taken(&never, input(1), &[5]);
        assert_eq!(steps, [3.0; 5]);
        let plain = stack(shared(None), 3).forward(input(1), &context(&[5]), None, &mut Probe::off()).states;
        assert!(difference(states, plain) < 1e-6);
    }

    #[test]
    fn rows_ponder_on_their_own_and_padding_does_not() {
        let stack = stack(shared(Some(halting())), 9);
        let x = input(3);
        let (together, states, _) = steps_taken(&stack, x.clone(), &[5, 3, 4]);
        assert!(together.iter().any(|&steps| steps > 1.0), "{together:?}");
        let mut costs = 0.0;
        for (row, length) in [5, 3, 4].into_iter().enumerate() {
            let (alone, single, cost) = steps_taken(&stack, x.clone().narrow(0, row, 1), &[length]);
            assert_eq!(alone, together[row * 5..(row + 1) * 5]);
            assert!(alone[length..].iter().all(|&steps| steps == 0.0) && alone[..length].iter().all(|&steps| steps >= 1.0));
            assert!(difference(single.narrow(1, 0, length), states.clone().slice([row..row + 1, 0..length])) < 1e-5);
            costs += cost * length as f32 / 12.0;
        }
        let (_, _, cost) = steps_taken(&stack, x, &[5, 3, 4]);
        assert!((cost - costs).abs() < 1e-6, "the ponder cost is a mean over real positions: {cost}, {costs}");
    }

    #[test]
    fn no_more_positions_are_computed_than_have_not_halted() {
        for norm_order in [NormOrder::Post, NormOrder::Pre] {
            let block = BlockConfig { norm_order, ..block() };
            let config = StackConfig::new(Role::Encoder, block, 9, shared(Some(halting())), PositionConfig::Sinusoidal);
            let stack = config.init_with(&RandomKey::from_seed(3), &Device::flex(), &|place, key, device| {
                AnyMechanism::default().init(place, key, device)
            });
            let lengths = [5, 3, 4];
            let pass = || stack.forward(input(3), &context(&lengths), None, &mut Probe::off());
            let ((steps, shown, _), all) = counted_positions(|| steps_taken(&stack, input(3), &lengths));
            let (hidden, computed) = counted_positions(pass);
            // A listener sees all positions in as many layers as the slowest position takes.
            let most = steps.iter().copied().fold(0.0, f32::max) as usize;
            assert!(most > 1, "{steps:?}");
            assert_eq!(all, 15 * most);
            assert_eq!(computed as f32, steps.iter().sum::<f32>(), "{steps:?}");
            assert!(difference(hidden.states, shown) < 1e-5);
        }
    }

    /// The model with a halting unit that reads only the first channel, whose coordinate differs most between positions: some halt before others.
    fn with_early_positions(mut model: LanguageModel, device: &Device) -> LanguageModel {
        let weight = Tensor::<2>::from_data([[5.0f32], [0.0], [0.0], [0.0], [0.0], [0.0], [0.0], [0.0]], device);
        model.decoder.halting.as_mut().unwrap().unit.weight = Param::from_tensor(weight);
        model
    }

    #[test]
    fn steps_of_decoding_compute_no_position_that_has_halted() {
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 3, 8], [4, 9, 4, 4, 6, 2]], &Device::flex());
        let model = model(AnyMechanism::default(), shared(Some(HaltingConfig { bias: 0.0, ..halting() })));
        let model = with_early_positions(model, &Device::flex());
        let mut steps = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::HaltingSteps(taken) = observation {
                steps.extend(taken.into_data().try_to_vec::<f32>().unwrap());
            }
        };
        let whole = model.forward_with(tokens.clone(), &[], None, &mut Probe::listening(&mut listener)).logits;
        assert!(steps.iter().any(|&steps| steps > 1.0) && steps.iter().sum::<f32>() < 36.0, "{steps:?}");
        let mut state = model.start(2, &[]);
        let (logits, computed) = counted_positions(|| {
            let parts = (0..6).map(|at| model.step(tokens.clone().narrow(1, at, 1), &mut state, &mut Probe::off()).logits);
            Tensor::cat(parts.collect(), 1)
        });
        assert_eq!(computed as f32, steps.iter().sum::<f32>());
        assert!(difference(logits, whole) < 1e-4);
    }

    #[test]
    fn what_is_left_out_changes_nothing_with_any_mechanism() {
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 3, 8], [0, 9, 4, 4, 6, 2]], &Device::flex());
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal) {
            let model = model(attention.clone(), shared(Some(halting())));
            let skipped = model.forward_with(tokens.clone(), &[0, 1], None, &mut Probe::off()).logits;
            let mut listener = |_: &str, _: Observation| {};
            let shown = model.forward_with(tokens.clone(), &[0, 1], None, &mut Probe::listening(&mut listener)).logits;
            let found = difference(skipped.narrow(1, 1, 5), shown.narrow(1, 1, 5));
            assert!(found < 1e-4, "{attention}: {found}");
        }
    }

    #[test]
    fn training_leaves_out_halted_positions_where_it_is_told_to() {
        let device = Device::flex().autodiff();
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 3, 8], [4, 9, 4, 4, 6, 2]], &device);
        for checkpoint in [false, true] {
            let gradients = |skip_in_training: bool| {
                let depth = shared(Some(HaltingConfig { bias: 0.0, skip_in_training, ..halting() }));
                let block = BlockConfig { checkpoint, ..block() };
                let config = LanguageModelConfig { vocabulary: 11, layers: 6, block, depth, ..LanguageModelConfig::default() };
                config.validate().unwrap();
                let model = with_early_positions(config.init(&RandomKey::from_seed(1), &device), &device);
                let pass = || model.forward_with(tokens.clone(), &[], Some(RandomKey::from_seed(2)), &mut Probe::off());
                let (scores, positions) = counted_positions(pass);
                let loss = scores.logits.clone().powi_scalar(2).mean() + scores.losses.total().unwrap();
                let gradients = loss.backward();
                let network = model.decoder.layers[0].feed_forward.as_ref().unwrap().input.weight.grad(&gradients).unwrap();
                let unit = model.decoder.halting.as_ref().unwrap().unit.weight.grad(&gradients).unwrap();
                let vectors = model.embedding.tokens.weight.grad(&gradients).unwrap();
                (positions, scores.logits, [network, unit, vectors])
            };
            let (all, logits, wanted) = gradients(false);
            let (computed, same_logits, found) = gradients(true);
            assert!(all % 12 == 0 && computed < all, "{computed} of {all}");
            assert!(difference(logits, same_logits) < 1e-4);
            for (wanted, found) in wanted.into_iter().zip(found) {
                let largest: f32 = wanted.clone().abs().max().into_scalar();
                assert!(difference(wanted, found) < 1e-4 * (1.0 + largest));
            }
        }
    }

    #[test]
    fn a_limit_beyond_what_is_needed_changes_nothing() {
        let [(few, a, _), (many, b, _)] = [9, 30].map(|limit| {
            let stack = stack(shared(Some(HaltingConfig { bias: 0.0, ..halting() })), limit);
            steps_taken(&stack, input(2), &[5, 4])
        });
        assert!(few.iter().all(|&steps| steps < 9.0), "{few:?}");
        assert_eq!(few, many);
        assert!(difference(a, b) < 1e-6);
    }

    fn model(attention: AnyMechanism, depth: DepthConfig) -> LanguageModel {
        let block = BlockConfig { norm_order: NormOrder::Pre, ..block() };
        let config =
            LanguageModelConfig { vocabulary: 11, attention: attention.into(), layers: 3, block, depth, ..LanguageModelConfig::default() };
        config.validate().unwrap();
        config.init(&RandomKey::from_seed(5), &Device::flex())
    }

    #[test]
    fn steps_are_parts_of_the_whole_for_every_causal_mechanism() {
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 3, 8], [0, 9, 4, 4, 6, 2]], &Device::flex());
        let released = HaltingConfig { bias: -1.0, ..HaltingConfig::released() };
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).map(all_pairs) {
            for depth in [shared(None), shared(Some(halting())), shared(Some(released))] {
                let model = model(attention.clone(), depth);
                let whole = model.forward_with(tokens.clone(), &[0, 1], None, &mut Probe::off()).logits;
                let mut state = model.start(2, &[0, 1]);
                let parts = [0..3, 3..4, 4..6].map(|part| {
                    let part = tokens.clone().narrow(1, part.start, part.len());
                    model.step(part, &mut state, &mut Probe::off()).logits
                });
                let stepped = Tensor::cat(parts.to_vec(), 1);
                let found = difference(stepped.narrow(1, 1, 5), whole.narrow(1, 1, 5));
                assert!(found < 1e-4, "{attention}, {depth:?}: {found}");
            }
        }
    }

    #[test]
    fn states_of_a_shared_block_can_be_reordered() {
        let model = model(AnyMechanism::default(), shared(Some(halting())));
        let device = Device::flex();
        let mut state = model.start(2, &[]);
        model.step(Tensor::from_data([[2, 5], [3, 9]], &device), &mut state, &mut Probe::off());
        StepDecoder::select(&model, &mut state, &[1, 1, 0]);
        let stepped = model.step(Tensor::from_data([[4], [6], [7]], &device), &mut state, &mut Probe::off()).logits;
        let whole = model.forward_with(Tensor::from_data([[3, 9, 4], [3, 9, 6], [2, 5, 7]], &device), &[], None, &mut Probe::off()).logits;
        assert!(difference(stepped, whole.narrow(1, 2, 1)) < 1e-5);
    }

    #[test]
    fn every_parameter_of_a_shared_block_is_trained() {
        let device = Device::flex().autodiff();
        let depth = DepthConfig::Shared(SharedConfig { step_signal: PositionConfig::Learned, halting: Some(halting()) });
        let config = LanguageModelConfig { vocabulary: 11, layers: 3, block: block(), depth, ..LanguageModelConfig::default() };
        let model = config.init(&RandomKey::from_seed(1), &device);
        let scores = model.forward_with(Tensor::from_data([[2, 5, 7]], &device), &[], Some(RandomKey::from_seed(2)), &mut Probe::off());
        let loss = scores.logits.powi_scalar(2).mean() + scores.losses.total().unwrap();
        let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
        let (layer, embedding, steps, unit) = (4 + 4 + 2 + 2, 1, 1, 2);
        assert_eq!(gradients.len(), layer + embedding + steps + unit);
    }

    #[test]
    fn options_survive_toml_and_impossible_ones_are_refused() {
        let text =
            "vocabulary = 11\ndepth = { kind = 'shared', step_signal = 'learned', halting = { epsilon = 0.1, blend = 'interpolated' } }";
        let config: LanguageModelConfig = toml::from_str(text).unwrap();
        let halting = HaltingConfig { epsilon: 0.1, blend: Blend::Interpolated, ..HaltingConfig::default() };
        assert_eq!(config.depth, DepthConfig::Shared(SharedConfig { step_signal: PositionConfig::Learned, halting: Some(halting) }));
        assert_eq!(toml::from_str::<LanguageModelConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        assert!(toml::from_str::<LanguageModelConfig>("depth = { kind = 'shared', epsilon = 0.1 }").is_err());

        let refused = |depth, attention: LayerAttention| {
            LanguageModelConfig { depth, attention, ..config.clone() }.validate().unwrap_err().to_string()
        };
        let one = || LayerAttention::default();
        let two = LayerAttention::Each(vec![AnyMechanism::default(); 2]);
        assert!(refused(shared(None), two).contains("`attention`"));
        assert!(refused(shared(Some(HaltingConfig { epsilon: 1.0, ..halting })), one()).contains("`epsilon`"));
        assert!(refused(shared(Some(HaltingConfig { bias: f64::NAN, ..halting })), one()).contains("`bias`"));
        assert!(refused(shared(Some(HaltingConfig { ponder_weight: -1.0, ..halting })), one()).contains("`ponder_weight`"));
        let skipping = HaltingConfig { freeze: false, skip_in_training: true, ..halting };
        assert!(refused(shared(Some(skipping)), one()).contains("`skip_in_training`"));
    }
}
