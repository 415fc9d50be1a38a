//! Models that skip padding, against the same models that compute it.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients};
use heedful_attention::prelude::*;

use super::*;
use crate::architectures::classifier::{ClassifierConfig, Pooling, Sentences};
use crate::architectures::language_model::LanguageModelConfig;
use crate::architectures::policy::PolicyConfig;
use crate::architectures::seq2seq::{Padded, Seq2SeqConfig};
use crate::architectures::vision::VisionConfig;
use crate::block::halting::HaltingConfig;
use crate::block::layer_sharing::{DepthConfig, SharedConfig};
use crate::block::layout::AttentionLayout;
use crate::block::stack::StackConfig;
use crate::block::{BlockConfig, Context, Parallel};
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;
use crate::parts::residual_gate::{GateConfig, GateKind};

const BATCH: usize = 4;
/// More than one tile of queries; some rows use only the first.
const LENGTH: usize = 70;
const LENGTHS: [usize; BATCH] = [70, 3, 66, 30];
const MEMORY: [usize; BATCH] = [9, 4, 1, 9];
const WIDTH: usize = 8;

fn block() -> BlockConfig {
    BlockConfig {
        d_model: WIDTH,
        heads: 2,
        d_ff: 16,
        max_length: LENGTH,
        norm_order: NormOrder::Pre,
        dropout: 0.0,
        ..BlockConfig::default()
    }
}

/// A stack of a role in a batch of rows of these lengths.
struct Case {
    attention: AnyMechanism,
    role: Role,
    depth: DepthConfig,
    lengths: [usize; BATCH],
    random: Option<RandomKey>,
}

/// States of a pass, row after row, and the gradients of the parameters and the inputs.
struct Results {
    states: Vec<f32>,
    gradients: Vec<Vec<f32>>,
}

impl Case {
    fn new(attention: AnyMechanism) -> Self {
        Self { attention, role: Role::Encoder, depth: DepthConfig::Stacked, lengths: LENGTHS, random: None }
    }

    /// Results of a block under a loss that reads only real positions. A decoder also attends to a memory.
    fn results(&self, block: BlockConfig) -> Results {
        let Self { attention, role, depth, lengths, random } = self;
        let device = Device::flex().autodiff();
        let is_decoder = *role == Role::Decoder;
        let positions = if matches!(depth, DepthConfig::Shared(_)) { PositionConfig::Sinusoidal } else { PositionConfig::None };
        let config = StackConfig::new(*role, block, 2, *depth, positions);
        let config = StackConfig { cross_heads: vec![is_decoder.then_some(2); config.cross_heads.len()], ..config };
        let stack = config.init_with(&RandomKey::from_seed(3), &device, &|place, key, device| {
            let attention = if place.role == Role::Cross { &AnyMechanism::default() } else { attention };
            attention.init(place, key, device)
        });
        let [x, memory, slopes] = [(5, LENGTH), (6, 9), (7, LENGTH)]
            .map(|(seed, length)| Init::Normal(1.0).tensor::<3>([BATCH, length, WIDTH], &RandomKey::from_seed(seed), &device));
        let (x, memory) = (x.require_grad(), memory.require_grad());
        let visibility = if is_decoder { Visibility::causal() } else { Visibility::padding(lengths.to_vec()) };
        let context = Context {
            memory: is_decoder.then(|| memory.clone()),
            memory_visibility: Visibility::padding(MEMORY.to_vec()),
            ..Context::new(visibility).lengths(lengths)
        };
        let states = stack.forward(x.clone(), &context, *random, &mut Probe::off()).states;
        let real: Vec<f32> = real(lengths).into_iter().map(f32::from).collect();
        let real = Tensor::<3>::from_data(TensorData::new(real, [BATCH, LENGTH, 1]), &device);
        let mut found = (states.clone() * slopes * real).sum().backward();
        let mut gradients = gradients(&stack, &found);
        gradients.push(numbers(x.grad_remove(&mut found).unwrap()));
        if is_decoder {
            gradients.push(numbers(memory.grad_remove(&mut found).unwrap()));
        }
        Results { states: numbers(states), gradients }
    }

    /// With and without the option, real positions have equal states and all parameters equal gradients. States of padding differ and are excluded.
    #[track_caller]
    fn check(&self, block: BlockConfig, name: &str) {
        let [all, some] = [false, true].map(|unpadded| self.results(BlockConfig { unpadded, ..block }));
        let states = |results: &Results, wanted: bool| {
            let positions = results.states.chunks(WIDTH).zip(real(&self.lengths));
            positions.filter(|(_, real)| *real == wanted).flat_map(|(state, _)| state.to_vec()).collect::<Vec<f32>>()
        };
        let difference = |wanted| largest_difference(&states(&all, wanted), &states(&some, wanted));
        assert!(difference(true) < 1e-4, "{name}: states differ by {}", difference(true));
        // Padding takes no halting steps, and is 0 in any case.
        let halts = matches!(self.depth, DepthConfig::Shared(SharedConfig { halting: Some(_), .. }));
        assert!(halts || difference(false) > 1e-3, "{name}: padding is computed");
        check_gradients(&some.gradients, &all.gradients, name);
    }
}

fn real(lengths: &[usize; BATCH]) -> Vec<bool> {
    lengths.iter().flat_map(|&length| (0..LENGTH).map(move |at| at < length)).collect()
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Gradients of each parameter, or zeros.
fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Vec<Vec<f32>> {
    struct Collect<'a>(Vec<Vec<f32>>, &'a Gradients);

    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let zeros = || param.val().inner().zeros_like();
            self.0.push(numbers(param.val().grad(self.1).unwrap_or_else(zeros)));
        }
    }

    let mut collect = Collect(Vec::new(), gradients);
    module.visit(&mut collect);
    collect.0
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |largest, number| largest.max(number.abs()))
}

/// Infinite if a number is NaN.
fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |largest, difference| if difference.is_nan() { f32::INFINITY } else { largest.max(difference) })
}

/// Gradients agree up to rounding, relative to their largest number and to cancellation in the whole model.
#[track_caller]
fn check_gradients(found: &[Vec<f32>], expected: &[Vec<f32>], name: &str) {
    assert_eq!(found.len(), expected.len());
    let of_all = expected.iter().fold(0.0, |all: f32, own| all.max(largest(own)));
    assert!(of_all > 0.1, "{name}: gradients of at most {of_all} would show nothing");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (difference, tolerance) = (largest_difference(found, expected), 1e-3 * largest(expected) + 1e-5 * of_all);
        assert!(difference <= tolerance, "{name}, parameter {at}: {difference} of {tolerance}");
    }
}

#[test]
fn real_positions_go_into_one_row_and_back() {
    let device = Device::flex();
    let x = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]]], &device);
    let unpadding = Unpadding::new(&[true, false, false, false, true, true], [2, 3]).unwrap();
    let row = unpadding.unpadded(x);
    assert_eq!((row.dims(), numbers(row.clone())), ([1, 3, 2], vec![1.0, 2.0, 9.0, 10.0, 11.0, 12.0]));
    let back = unpadding.padded(row);
    assert_eq!((back.dims(), numbers(back)), ([2, 3, 2], vec![1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 10.0, 11.0, 12.0]));
}

#[test]
fn without_padding_and_without_anything_else_there_is_nothing_to_leave_out() {
    assert!(Unpadding::new(&[true; 6], [2, 3]).is_none());
    assert!(Unpadding::new(&[false; 6], [2, 3]).is_none());
    assert!(Unpadding::new(&[true, true, true, true, true, false], [2, 3]).is_some());
}

#[test]
fn every_mechanism_gives_real_positions_what_it_gives_them_with_padding() {
    for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_see_ahead) {
        let name = attention.name();
        Case::new(attention).check(block(), &name);
    }
}

#[test]
fn all_kinds_of_blocks_can_leave_out_padding() {
    let orders = [NormOrder::Post, NormOrder::Pre, NormOrder::Sandwich, NormOrder::BranchOutput];
    let mut blocks: Vec<BlockConfig> = orders.iter().map(|&norm_order| BlockConfig { norm_order, ..block() }).collect();
    blocks.extend([
        BlockConfig { parallel: Some(Parallel::SharedNorm), ..block() },
        BlockConfig { parallel: Some(Parallel::OwnNorms), ..block() },
        BlockConfig { gate: Some(GateConfig { kind: GateKind::Gru, bias: Some(0.5) }), relu_before_residual: true, ..block() },
        BlockConfig { gated_feed_forward: true, feed_forward_bias: false, ..block() },
        BlockConfig { feed_forward_chunk: Some(17), ..block() },
        BlockConfig { checkpoint: true, ..block() },
        BlockConfig { qkv_bias: true, attention_output_bias: true, kv_heads: Some(1), ..block() },
    ]);
    for block in blocks {
        for role in [Role::Encoder, Role::Decoder] {
            Case { role, ..Case::new(AnyMechanism::default()) }.check(block, &format!("{role:?}, {block:?}"));
        }
    }
}

#[test]
fn stacks_of_all_depths_can_leave_out_padding() {
    let shared = |halting| DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() });
    // About half of the positions halt after the first of the two steps.
    let skipping = HaltingConfig { bias: 0.0, epsilon: 0.5, skip_in_training: true, ..HaltingConfig::default() };
    for depth in [DepthConfig::Reversible, shared(None), shared(Some(HaltingConfig::default())), shared(Some(skipping))] {
        for role in [Role::Encoder, Role::Decoder] {
            Case { role, depth, ..Case::new(AnyMechanism::default()) }.check(block(), &format!("{role:?}, {depth:?}"));
        }
    }
}

#[test]
fn outputs_of_single_layers_are_those_of_all_layers_too() {
    let device = Device::flex();
    let config = StackConfig::new(Role::Encoder, BlockConfig { unpadded: true, ..block() }, 2, DepthConfig::Stacked, PositionConfig::None);
    let stack = config.init_with(&RandomKey::from_seed(3), &device, &|place, key, device| AnyMechanism::default().init(place, key, device));
    let x = Init::Normal(1.0).tensor::<3>([BATCH, LENGTH, WIDTH], &RandomKey::from_seed(5), &device);
    let context = Context::new(Visibility::padding(LENGTHS.to_vec())).lengths(&LENGTHS);
    let whole = stack.forward(x.clone(), &context, None, &mut Probe::off()).states;
    let (each, outputs) = stack.forward_each(x, &context, None, &mut Probe::off());
    assert_eq!((numbers(each.states), outputs.len()), (numbers(whole), 2));
}

#[test]
fn a_batch_without_padding_is_computed_as_ever() {
    let block = BlockConfig { dropout: 0.2, attention_dropout: 0.2, feed_forward_dropout: 0.2, ..block() };
    let results = |lengths| {
        let case = Case { lengths, random: Some(RandomKey::from_seed(4)), ..Case::new(AnyMechanism::default()) };
        [false, true].map(|unpadded| case.results(BlockConfig { unpadded, ..block }))
    };
    let [all, some] = results([LENGTH; BATCH]);
    assert!(all.states == some.states && all.gradients == some.gradients, "another way was taken");
    let [all, some] = results(LENGTHS);
    // It is left-padded; without padding it has other places.
    let third_row = |results: &Results| results.states[2 * LENGTH * WIDTH..][..LENGTHS[2] * WIDTH].to_vec();
    assert!(largest_difference(&third_row(&all), &third_row(&some)) > 0.1, "dropout falls on other numbers where padding is left out");
}

fn tokens([batch, length]: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i32> = (0..batch * length).map(|index| (index * 7 % 10) as i32 + 1).collect();
    Tensor::from_data(TensorData::new(ids, [batch, length]), device)
}

/// A model has the same output, and its parameters the same gradients, with and without the option.
#[track_caller]
fn check_learnt<M: Module, const D: usize>(name: &str, pass: impl Fn(BlockConfig) -> (M, Tensor<D>)) {
    let [all, some] = [false, true].map(|unpadded| {
        let (model, output) = pass(BlockConfig { unpadded, ..block() });
        let slopes = Init::Normal(1.0).tensor::<D>(output.dims(), &RandomKey::from_seed(2), &output.device());
        let found = (output.clone() * slopes).sum().backward();
        (numbers(output), gradients(&model, &found))
    });
    assert!(largest_difference(&all.0, &some.0) < 1e-4, "{name}");
    check_gradients(&some.1, &all.1, name);
}

#[test]
fn classifiers_of_sentences_of_mixed_lengths_learn_the_same() {
    let device = Device::flex().autodiff();
    for (pooling, causal) in [(Pooling::ClassToken, false), (Pooling::Mean, false), (Pooling::LastToken, true)] {
        check_learnt(&format!("{pooling:?}"), |block| {
            let config = ClassifierConfig { layers: 2, block, pooling, causal, ..ClassifierConfig::new(11, 3) };
            config.validate().unwrap();
            let model = config.init(&RandomKey::from_seed(1), &device);
            let sentences = Sentences { tokens: tokens([BATCH, LENGTH], &device), segments: None, lengths: &LENGTHS };
            let logits = model.forward_with(sentences, None, &mut Probe::off()).logits;
            (model, logits)
        });
    }
}

#[test]
fn encoder_decoders_of_pairs_of_mixed_lengths_learn_the_same() {
    let device = Device::flex().autodiff();
    let target_lengths = [20, 70, 5, 64];
    for checkpoint in [false, true] {
        check_learnt(&format!("checkpointed {checkpoint}"), |block| {
            let block = BlockConfig { checkpoint, ..block };
            let config = Seq2SeqConfig { attention: AttentionLayout::default(), block, ..Seq2SeqConfig::new(11, 11).with_layers(2) };
            config.validate().unwrap();
            let model = config.init(&RandomKey::from_seed(1), &device);
            let source = Padded { tokens: tokens([BATCH, LENGTH], &device), lengths: &LENGTHS };
            let target = Padded { tokens: tokens([BATCH, LENGTH], &device), lengths: &target_lengths };
            let states = model.hidden(source, target, None, &mut Probe::off()).states;
            (model, crate::parts::loss::real_states(states, &target_lengths))
        });
    }
}

#[test]
fn language_models_of_rows_that_are_padded_on_the_left_learn_the_same() {
    let device = Device::flex().autodiff();
    let left_padding = LENGTHS.map(|length| LENGTH - length);
    check_learnt("left padding", |block| {
        let config = LanguageModelConfig { vocabulary: 11, layers: 2, block, ..LanguageModelConfig::default() };
        config.validate().unwrap();
        let model = config.init(&RandomKey::from_seed(1), &device);
        let states = model.hidden(tokens([BATCH, LENGTH], &device), &left_padding, None, &mut Probe::off()).states;
        let real = left_padding.iter().flat_map(|&count| (0..LENGTH).map(move |at| f32::from(at >= count))).collect::<Vec<_>>();
        let real = Tensor::<3>::from_data(TensorData::new(real, [BATCH, LENGTH, 1]), &device);
        (model, states * real)
    });
}

#[test]
fn where_it_is_impossible_or_in_vain_it_is_refused() {
    let unpadded = || BlockConfig { unpadded: true, ..block() };
    let separable = BlockConfig { separable_feed_forward: true, ..unpadded() };
    let errors = [
        ClassifierConfig { block: separable, ..ClassifierConfig::new(11, 3) }.validate().unwrap_err(),
        VisionConfig { block: unpadded(), ..VisionConfig::new(3).with_image(8, 8, 3).with_patch(4) }.validate().unwrap_err(),
        PolicyConfig { observation: 3, layers: 1, block: unpadded(), ..PolicyConfig::default() }.validate().unwrap_err(),
    ];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("`unpadded`") && error.contains("leave it out"), "{error}");
    }
    assert!(ClassifierConfig { block: unpadded(), ..ClassifierConfig::new(11, 3) }.validate().is_ok());
}
