//! Universal Transformers with encoder and decoder: one shared block per stack.

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::prelude::*;

use super::*;
use crate::block::BlockConfig;
use crate::block::halting::HaltingConfig;
use crate::block::layer_sharing::{DepthConfig, SharedConfig};
use crate::block::layout::AttentionLayout;
use crate::generation::BeamSearch;
use crate::parts::position::PositionConfig;
use crate::training::weights;

/// Positions take one to four steps.
fn halting() -> HaltingConfig {
    HaltingConfig { bias: -1.0, ..HaltingConfig::default() }
}

fn config(layout: &str, halting: Option<HaltingConfig>) -> Seq2SeqConfig {
    let config = Seq2SeqConfig {
        source_vocabulary: 11,
        target_vocabulary: 11,
        attention: AttentionLayout::named(layout).unwrap(),
        encoder_layers: 4,
        decoder_layers: 3,
        block: BlockConfig { d_model: 8, heads: 2, d_ff: 16, max_length: 16, dropout: 0.0, ..BlockConfig::default() },
        depth: DepthConfig::Shared(SharedConfig { halting, ..SharedConfig::default() }),
        ..Seq2SeqConfig::default()
    };
    config.validate().unwrap();
    config
}

fn built(halting: Option<HaltingConfig>) -> Seq2SeqTransformer {
    config("base", halting).init(&RandomKey::from_seed(5), &Device::flex())
}

fn tokens<const B: usize, const N: usize>(rows: [[i32; N]; B], device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(rows, device)
}

fn sources(device: &Device) -> Padded<'static> {
    Padded { tokens: tokens([[5, 7, 1, 9, 3], [8, 8, 4, 0, 0]], device), lengths: &[5, 3] }
}

fn logits(model: &Seq2SeqTransformer, source: Padded, target: Tensor<2, Int>) -> Tensor<3> {
    let [rows, length] = target.dims();
    let target = Padded { tokens: target, lengths: &vec![length; rows] };
    model.forward_with(source, target, None, &mut Probe::off()).logits
}

fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
    (a - b).abs().max().into_scalar()
}

#[test]
fn steps_are_parts_of_the_whole_with_and_without_halting() {
    let device = Device::flex();
    let target = tokens([[2, 5, 7, 1, 9, 3, 4], [2, 6, 2, 8, 8, 10, 6]], &device);
    for layout in ["base", "hc-sa", "hc-all"] {
        for halting in [None, Some(halting()), Some(HaltingConfig { bias: -1.0, ..HaltingConfig::released() })] {
            let model = config(layout, halting).init(&RandomKey::from_seed(5), &device);
            assert_eq!([model.encoder.layers.len(), model.decoder.layers.len()], [1, 1]);
            let whole = logits(&model, sources(&device), target.clone());
            for chunk in [1, 3, 7] {
                let mut state = model.start(sources(&device));
                let parts = (0..7).step_by(chunk).map(|start| {
                    let part = target.clone().narrow(1, start, chunk.min(7 - start));
                    model.step(part, &mut state, &mut Probe::off()).logits
                });
                let found = difference(Tensor::cat(parts.collect(), 1), whole.clone());
                assert!(found < 1e-4, "{layout}, {halting:?}, steps of {chunk}: {found}");
            }
        }
    }
}

#[test]
fn positions_of_both_stacks_halt_on_their_own_and_cost_ponder_time() {
    let device = Device::flex();
    let model = built(Some(halting()));
    let mut steps = Vec::new();
    let mut listener = |path: &str, observation: Observation| {
        if let Observation::HaltingSteps(taken) = observation {
            steps.push((path.to_owned(), taken.into_data().try_to_vec::<f32>().unwrap()));
        }
    };
    let target = Padded { tokens: tokens([[2, 5, 7], [2, 6, 0]], &device), lengths: &[3, 2] };
    let hidden = model.hidden(sources(&device), target, None, &mut Probe::listening(&mut listener));
    let [(encoder, of_source), (decoder, of_target)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!([encoder.as_str(), decoder.as_str()], ["encoder", "decoder"]);
    for (steps, real, most) in [(of_source, [5, 3], 4.0), (of_target, [3, 2], 3.0)] {
        let length = steps.len() / 2;
        for (row, &real) in real.iter().enumerate() {
            let row = &steps[row * length..][..length];
            assert!(row[..real].iter().all(|steps| (1.0..=most).contains(steps)), "{row:?}");
            assert!(row[real..].iter().all(|&steps| steps == 0.0), "{row:?}");
        }
    }
    assert!(of_source.iter().chain(of_target).any(|&steps| steps > 1.0), "{of_source:?}, {of_target:?}");
    let names: Vec<_> = hidden.losses.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["ponder"; 2]);
}

#[test]
fn translations_of_a_beam_have_the_probability_of_the_forward_pass() {
    let device = Device::flex();
    for halting in [None, Some(halting())] {
        let model = built(halting);
        let beam = BeamSearch { beam: 3, ..BeamSearch::default() };
        let config = GenerationConfig::new(6).with_beam(beam).with_end(2);
        let found = model.generate(sources(&device).tokens, &Mask::padding(&[5, 3], 5), 1, &config);
        for (row, hypothesis) in found.iter().enumerate() {
            let mut sequence: Vec<i32> = std::iter::once(1).chain(hypothesis.tokens.iter().map(|&token| token as i32)).collect();
            sequence.extend(hypothesis.finished.then_some(2));
            let length = sequence.len() - 1;
            let ids = |ids: &[i32]| Tensor::<1, Int>::from_data(ids, &device).reshape([1, length]);
            let (input, output) = (ids(&sequence[..length]), ids(&sequence[1..]));
            let Padded { tokens, lengths } = sources(&device);
            let source = Padded { tokens: tokens.narrow(0, row, 1), lengths: &lengths[row..row + 1] };
            let logs = log_softmax(logits(&model, source, input), 2).gather(2, output.reshape([1, length, 1]));
            let wanted: f32 = logs.sum().into_scalar();
            assert!((f64::from(wanted) - hypothesis.log_probability).abs() < 1e-3, "{hypothesis:?}: {wanted}");
        }
    }
}

#[test]
fn weights_that_were_saved_give_the_same_model() {
    let device = Device::flex();
    let target = || tokens([[2, 5, 7], [2, 6, 4]], &device);
    for halting in [None, Some(halting())] {
        let model = built(halting);
        let other = config("base", halting).init(&RandomKey::from_seed(6), &device);
        let again = weights::from_bytes(other.clone(), weights::to_bytes(&model), weights::Match::Exact).unwrap();
        let wanted = logits(&model, sources(&device), target());
        assert_eq!(logits(&again, sources(&device), target()).into_data(), wanted.clone().into_data());
        assert!(difference(logits(&other, sources(&device), target()), wanted) > 1e-3);
    }
}

#[test]
fn every_parameter_is_trained() {
    let device = Device::flex().autodiff();
    let depth = DepthConfig::Shared(SharedConfig { step_signal: PositionConfig::Learned, halting: Some(halting()) });
    let model = Seq2SeqConfig { depth, ..config("base", None) }.init(&RandomKey::from_seed(1), &device);
    let target = Padded { tokens: tokens([[2, 4, 6], [2, 3, 0]], &device), lengths: &[3, 2] };
    let hidden = model.hidden(sources(&device), target, Some(RandomKey::from_seed(2)), &mut Probe::off());
    let loss = model.project(hidden.states).powi_scalar(2).mean() + hidden.losses.total().unwrap();
    let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
    let (attention, feed_forward, norm, coordinates, unit) = (4, 4, 2, 1, 2);
    let encoder = attention + feed_forward + 2 * norm + coordinates + unit;
    let decoder = 2 * attention + feed_forward + 3 * norm + coordinates + unit;
    assert_eq!(gradients.len(), 1 + encoder + decoder);
    assert_eq!(model.num_params(), Seq2SeqConfig { depth, ..config("base", None) }.parameters().unwrap().trained as usize);
}
