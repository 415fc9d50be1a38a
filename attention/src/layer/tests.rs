use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{Module, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use burn::tensor::{Bool, Device, Tensor, TensorData};

use super::*;
use crate::contract::error::ConfigError;
use crate::contract::visibility::{Span, Visibility};
use crate::description::AnyMechanism;
use crate::mechanisms::lsh::LshConfig;
use crate::prelude::{LightweightConvConfig, LinformerConfig, SoftCapConfig};
use crate::tensors::read::read;

const BATCH: usize = 2;
const HEADS: usize = 2;
const WIDTH: usize = 8;
/// Minimum length for fused execution.
const LENGTH: usize = 20;
const ENGINES: [Engine; 3] = [Engine::Auto, Engine::Fused, Engine::Reference];

fn device() -> Device {
    Device::flex()
}

/// Devices other than flex.
#[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and its line with it")]
fn other_devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
        #[cfg(feature = "wgpu")]
        crate::conformance::test_device(),
    ]
}

fn config(mechanism: impl Into<Choice>) -> AttentionConfig {
    AttentionConfig::new(mechanism, WIDTH, HEADS).with_seed(3).with_max_length(LENGTH)
}

fn random(shape: [usize; 3], name: &str) -> Tensor<3> {
    let numbers = crate::contract::init::Init::Normal(1.0);
    numbers.tensor(shape, &RandomKey::from_seed(5).named(name), &device())
}

fn sequence() -> Tensor<3> {
    random([BATCH, LENGTH, WIDTH], "sequence")
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    read(x).iter::<f32>().collect()
}

fn far<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    assert_eq!(a.dims(), b.dims());
    numbers((a - b).abs().max())[0]
}

fn booleans<const D: usize>(shape: [usize; D], is: impl Fn([usize; D]) -> bool) -> Tensor<D, Bool> {
    let count = shape.iter().product::<usize>();
    let at = |mut index: usize| {
        let mut place = [0; D];
        for dim in (0..D).rev() {
            place[dim] = index % shape[dim];
            index /= shape[dim];
        }
        place
    };
    Tensor::from_data(TensorData::new((0..count).map(|index| is(at(index))).collect(), shape), &device())
}

/// Context, and gradients of a loss with respect to the input and all parameters.
fn outcome(layer: &AttentionLayer, mask: &Mask) -> (Tensor<3>, Vec<Tensor<1>>) {
    struct Gradients<'a>(&'a burn::tensor::Gradients, Vec<Tensor<1>>);
    impl burn::module::ModuleVisitor for Gradients<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(param.val().grad(self.0).map(|gradient| gradient.flatten(0, D as isize - 1)));
        }
    }
    let place = |x: Tensor<3>| Tensor::from_inner(x.to_device(&layer.devices()[0].clone().inner()));
    let x = place(sequence()).require_grad();
    let y = layer.forward(x.clone(), mask);
    let weights = place(random([BATCH, LENGTH, WIDTH], "loss"));
    let gradients = (y.clone() * weights).sum().backward();
    let mut found = Gradients(&gradients, vec![x.grad(&gradients).expect("the input has a gradient").flatten(0, 2)]);
    layer.visit(&mut found);
    (y.inner(), found.1)
}

/// Masks from tensors, and equal masks from the host.
fn pairs_of_masks() -> Vec<(&'static str, Mask, Mask)> {
    let is_pad = |[b, j]: [usize; 2]| j >= LENGTH - 7 * b || j == 4;
    // The last query of the first row sees nothing, and query 3 sees only future keys.
    let sees = |[b, h, i, j]: [usize; 4]| !(i + 2 * j + b + h).is_multiple_of(3) && (i < LENGTH - 1 || b > 0) && (i != 3 || j > 3);
    let host = |visible: Tensor<4, Bool>| Mask::from(Visibility::explicit(visible));
    let keys = booleans([BATCH, LENGTH], is_pad);
    let of_heads = |rows, heads| booleans([rows, heads, LENGTH, LENGTH], sees);
    let hidden = booleans([BATCH, LENGTH, LENGTH], |[b, i, j]| !sees([b, 0, i, j]));
    let host_keys = || Mask::from(Visibility::pattern(|_, _, j| j != 4)).and(Mask::padding(&[LENGTH, LENGTH - 7], LENGTH));
    vec![
        ("keys", Mask::from(keys.clone()), host_keys()),
        ("pairs", Mask::from(hidden.clone()), host(of_heads(BATCH, 1))),
        ("heads", Mask::visible_pairs(of_heads(1, HEADS)), host(of_heads(1, HEADS))),
        ("both", Mask::from(keys).and(Mask::visible_pairs(of_heads(BATCH, HEADS))), host_keys().and(host(of_heads(BATCH, HEADS)))),
        (
            "either",
            Visibility::given(of_heads(BATCH, 1)).or(Visibility::window(1, 0)).into(),
            Visibility::explicit(of_heads(BATCH, 1)).or(Visibility::window(1, 0)).into(),
        ),
        ("left padding", Mask::left_padding(&[0, 5]).and(Mask::from(hidden)), Mask::left_padding(&[0, 5]).and(host(of_heads(BATCH, 1)))),
    ]
}

#[test]
fn masks_of_tensors_hide_what_the_same_masks_from_the_host_hide() {
    let mut checked = 0;
    for mechanism in AnyMechanism::all() {
        for causal in [false, true] {
            for engine in ENGINES {
                let config = config(mechanism.clone()).with_causal(causal).with_engine(engine);
                let Ok(layer) = config.init(&device().autodiff()) else { continue };
                for (name, given, host) in pairs_of_masks() {
                    let what = format!("{mechanism}, causal {causal}, {engine:?}, {name}");
                    let [given, host] = [given, host].map(|mask| catch_unwind(AssertUnwindSafe(|| outcome(&layer, &mask))));
                    let (Ok(given), Ok(host)) = (&given, &host) else {
                        assert!(given.is_err() && host.is_err(), "{what}: one of them is refused");
                        assert!(!mechanism.can_be_causal() && name != "keys", "{what} is refused");
                        continue;
                    };
                    checked += 1;
                    assert!(far(given.0.clone(), host.0.clone()) < 1e-5, "{what}: contexts differ");
                    assert_eq!(given.1.len(), host.1.len(), "{what}: gradients are missing");
                    for (index, (a, b)) in given.1.iter().zip(&host.1).enumerate() {
                        assert!(far(a.clone(), b.clone()) < 1e-4, "{what}: gradient {index} differs by {}", far(a.clone(), b.clone()));
                    }
                }
            }
        }
    }
    assert!(checked > 500, "{checked} masks were compared");
}

/// For devices without kernels for tensor masks, fused execution uses tensor operations, and patterns run in blocks.
#[test]
fn masks_go_to_the_device_of_the_layer() {
    for other in other_devices() {
        for name in ["dot-product", "local-1d", "lightweight-conv"] {
            for engine in ENGINES {
                let layer = |device: Device| config(name).with_causal(true).with_engine(engine).init(&device.autodiff()).unwrap();
                for (what, given, _) in pairs_of_masks() {
                    let [wanted, found] = [device(), other.clone()].map(|device| outcome(&layer(device), &given));
                    let near = |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
                    assert!(near(&numbers(found.0), &numbers(wanted.0)), "{name}, {engine:?}, {what}, {other:?}: context");
                    for (index, (a, b)) in found.1.into_iter().zip(wanted.1).enumerate() {
                        assert!(near(&numbers(a), &numbers(b)), "{name}, {engine:?}, {what}, {other:?}: gradient {index}");
                    }
                }
            }
        }
    }
}

#[test]
fn masks_that_are_on_the_device_stay_there() {
    for other in other_devices() {
        let pairs = booleans([BATCH, LENGTH, LENGTH], |[b, i, j]| (i + 2 * j + b).is_multiple_of(3) || i == 5);
        let own = Tensor::<3, Bool>::from_data(read(pairs.clone()), &other);
        let (given, wanted) = (Mask::from(own), Mask::from(pairs));
        for engine in ENGINES {
            let run = |device: &Device, mask: &Mask| {
                let layer = config("dot-product").with_causal(true).with_engine(engine).init(device).unwrap();
                numbers(layer.forward(sequence().to_device(device), mask))
            };
            let (found, wanted) = (run(&other, &given), run(&device(), &wanted));
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{other:?}, {engine:?}");
        }
        assert!(!given.visibility().is_read(), "{other:?}");
    }
}

#[test]
fn dense_softmax_reads_no_mask_and_convolutions_read_it_once() {
    let pad = Mask::from(booleans([BATCH, LENGTH], |[_, j]| j > 9));
    for engine in ENGINES {
        config("dot-product").with_engine(engine).with_causal(true).init(&device()).unwrap().forward(sequence(), &pad);
        config("local-1d").with_engine(engine).init(&device()).unwrap().forward(sequence(), &pad);
        assert!(!pad.visibility().is_read(), "{engine:?}");
    }
    config(LightweightConvConfig::default()).init(&device()).unwrap().forward(sequence(), &pad);
    assert!(pad.visibility().is_read());
}

#[test]
fn all_layers_share_what_is_made_of_a_mask() {
    let mask = Mask::from(booleans([BATCH, LENGTH], |[_, j]| j > 9)).and(Mask::padding(&[LENGTH, 7], LENGTH));
    let tiles = |mask: &Mask| mask.without_future().known().tiles(Span::whole(LENGTH, LENGTH), HEADS);
    assert!(Arc::ptr_eq(&tiles(&mask), &tiles(&mask.clone())));
    let layer = config("dot-product").with_causal(true).init(&device()).unwrap();
    let seen_by = |mask: &Mask| layer.own(sequence(), mask).visibility;
    assert!(Arc::ptr_eq(&tiles(&mask), &seen_by(&mask).known().tiles(Span::whole(LENGTH, LENGTH), HEADS)));
}

#[test]
fn tensors_mean_what_they_mean_in_burn() {
    let mha = MultiHeadAttentionConfig::new(WIDTH, HEADS).with_dropout(0.0).init(&device());
    let layer = config("dot-product").init(&device()).unwrap();
    let pad = booleans([BATCH, LENGTH], |[b, j]| j >= LENGTH - 3 * (b + 1));
    let pairs = booleans([BATCH, LENGTH, LENGTH], |[b, i, j]| j > i + b);
    let x = sequence();
    let theirs = [
        mha.forward(MhaInput::self_attn(x.clone()).mask_pad(pad.clone())).weights,
        mha.forward(MhaInput::self_attn(x.clone()).mask_attn(pairs.clone())).weights,
    ];
    for (theirs, mask) in theirs.into_iter().zip([Mask::from(pad), Mask::from(pairs)]) {
        let ours = layer.forward_with_weights(x.clone(), &mask).1;
        let zeros = |x: Tensor<4>| numbers(x).iter().map(|&weight| weight == 0.0).collect::<Vec<_>>();
        let zeros = (zeros(theirs), zeros(ours));
        assert!(zeros.0.contains(&true) && zeros.0.contains(&false));
        assert_eq!(zeros.0, zeros.1);
    }
}

#[test]
fn numbers_are_added_to_logits_and_minus_infinity_hides() {
    let shape = [1, HEADS, LENGTH, LENGTH];
    let bias = random([HEADS, LENGTH, LENGTH], "bias").unsqueeze_dim::<4>(0);
    let hidden = booleans(shape, |[_, h, i, j]| (i + j + h) % 4 == 0);
    let bias = bias.mask_fill(hidden.clone(), f32::NEG_INFINITY);
    let mask = Mask::additive(bias.clone()).and(Mask::from(booleans([BATCH, LENGTH], |[b, j]| j + 5 * b >= LENGTH)));
    for engine in ENGINES {
        for name in ["dot-product", "synthesizer-dense+dot-product", "local-1d", "adaptive-span", "soft-cap", "synthesizer-random@soft-cap"]
        {
            let layer = config(name).with_engine(engine).init(&device()).unwrap();
            let plain = Mask::visible_pairs(hidden.clone().bool_not()).and(Mask::padding(&[LENGTH, LENGTH - 5], LENGTH));
            let weights = layer.forward_with_weights(sequence(), &plain).1 * bias.clone().mask_fill(hidden.clone(), 0.0).exp();
            let sums = weights.clone().sum_dim(3);
            let wanted = weights / (sums.clone() + sums.equal_elem(0.0).float());
            let (context, found) = layer.forward_with_weights(sequence(), &mask);
            assert!(far(found, wanted) < 1e-5, "{name}, {engine:?}: weights");
            assert!(far(context, layer.forward(sequence(), &mask)) < 1e-6, "{name}, {engine:?}: a look changed the context");
            let reference = config(name).with_engine(Engine::Reference).init(&device()).unwrap();
            assert!(far(reference.forward(sequence(), &mask), layer.forward(sequence(), &mask)) < 1e-5, "{name}, {engine:?}: context");
        }
    }
}

#[test]
fn gradients_reach_what_is_added_to_logits() {
    let gradient = |engine, mechanism| {
        let layer = config(mechanism).with_causal(true).with_engine(engine).init(&device().autodiff()).unwrap();
        let bias = Tensor::from_inner(random([HEADS, LENGTH, LENGTH], "bias")).unsqueeze_dim::<4>(0).require_grad();
        let y = layer.forward(Tensor::from_inner(sequence()), &Mask::additive(bias.clone()));
        bias.grad(&(y * Tensor::from_inner(random([BATCH, LENGTH, WIDTH], "loss"))).sum().backward()).expect("the bias has a gradient")
    };
    for mechanism in [AnyMechanism::default(), SoftCapConfig::default().with_cap(0.5).into()] {
        let wanted = gradient(Engine::Reference, mechanism.clone());
        assert!(far(wanted.clone(), wanted.clone() * 0.0) > 1e-3);
        assert!(far(gradient(Engine::Fused, mechanism), wanted) < 1e-4);
    }
}

#[test]
fn mechanisms_without_logits_refuse_numbers() {
    let mask = Mask::additive(random([1, LENGTH, LENGTH], "bias").unsqueeze_dim(0));
    for name in ["lightweight-conv", "dynamic-conv", "lsh", "linformer", "gaussian"] {
        for engine in ENGINES {
            let layer = config(name).with_engine(engine).init(&device()).unwrap();
            let panic = catch_unwind(AssertUnwindSafe(|| layer.forward(sequence(), &mask))).expect_err(name);
            let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(message.contains("give it a mask of booleans or lengths"), "{name}: {message}");
        }
    }
}

#[test]
fn steps_give_what_the_whole_sequence_gives() {
    // If LSH attention hashes, later tokens shift the borders of chunks.
    let all_pairs = |mechanism: AnyMechanism| match mechanism.get::<LshConfig>() {
        Some(lsh) => lsh.clone().with_full_attention_below(LENGTH).into(),
        None => mechanism,
    };
    for mechanism in AnyMechanism::all().into_iter().map(all_pairs) {
        let Ok(layer) = config(mechanism.clone()).with_causal(true).init(&device()) else { continue };
        for mask in [Mask::none(), Mask::left_padding(&[0, 5]), Mask::from(booleans([BATCH, LENGTH], |[_, j]| j == 3))] {
            if mechanism.to_string().starts_with("lsh") && mask.padding_before().is_none() && !mask.hides_nothing() {
                continue;
            }
            let whole = layer.forward(sequence(), &mask);
            let mut cache = layer.cache_with(BATCH, LENGTH, &mask);
            let mut steps = Vec::new();
            for added in [1, 4, 1, LENGTH - 6] {
                steps.push(layer.step(sequence().narrow(1, cache.position(), added), &mut cache));
            }
            assert_eq!(cache.position(), LENGTH);
            let steps = Tensor::cat(steps, 1);
            let lengths = if mask.padding_before().is_some() { [LENGTH, LENGTH - 5] } else { [LENGTH; 2] };
            for (row, length) in lengths.into_iter().enumerate() {
                let real = |x: &Tensor<3>| x.clone().narrow(0, row, 1).narrow(1, LENGTH - length, length);
                assert!(far(real(&steps), real(&whole)) < 1e-5, "{mechanism}, {mask:?}, row {row}");
            }
        }
    }
}

#[test]
fn steps_of_cross_attention_see_what_the_mask_shows() {
    let memory = random([BATCH, 7, WIDTH], "memory");
    for name in ["dot-product", "linformer", "uniform"] {
        let layer = config(name).with_cross(true).init(&device()).unwrap();
        for mask in [Mask::padding(&[7, 2], 7), Mask::from(booleans([BATCH, 7], |[b, j]| j == b))] {
            let whole = layer.cross(sequence(), memory.clone(), &mask);
            let mut cache = layer.cache_cross(memory.clone(), &mask);
            let steps = [1, LENGTH - 1].map(|added| layer.step(sequence().narrow(1, cache.position(), added), &mut cache));
            assert!(far(Tensor::cat(steps.to_vec(), 1), whole.clone()) < 1e-5, "{name}");
            assert!(far(layer.cross(sequence(), memory.clone(), &Mask::none()), whole) > 1e-3, "{name}: the mask hides nothing");
        }
    }
}

#[test]
fn selected_rows_go_on_as_they_began() {
    let layer = config("dot-product").with_causal(true).init(&device()).unwrap();
    let mask = Mask::from(booleans([BATCH, LENGTH], |[b, j]| j == 2 * b + 1));
    let mut cache = layer.cache_with(BATCH, LENGTH, &mask);
    layer.step(sequence().narrow(1, 0, 9), &mut cache);
    layer.select(&mut cache, &[1, 1, 0]);
    assert_eq!((cache.batch(), cache.position()), (3, 9));
    let [first, second] = [0, 1].map(|row| sequence().narrow(0, row, 1));
    let next = Tensor::cat(vec![second.clone(), second, first], 0).narrow(1, 9, 1);
    let found = layer.step(next, &mut cache);
    let whole = layer.forward(sequence().narrow(1, 0, LENGTH), &mask).narrow(1, 9, 1);
    let wanted = Tensor::cat([1, 1, 0].map(|row| whole.clone().narrow(0, row, 1)).to_vec(), 0);
    assert!(far(found, wanted) < 1e-5);
}

/// Panic message of `run`.
fn refusal<T>(run: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { panic!("nothing was refused") };
    let message = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|message| (*message).to_owned()));
    message.expect("a panic has a message")
}

#[test]
fn wrong_calls_are_refused_with_the_remedy() {
    let init = |config: AttentionConfig| config.init(&device()).unwrap();
    let (encoder, cross) = (init(config("dot-product")), init(config("dot-product").with_cross(true)));
    let decoder = init(config("dot-product").with_causal(true));
    let (x, none) = (sequence, Mask::none());
    assert!(refusal(|| encoder.cache(1, 4)).contains("with_causal(true)"));
    assert!(refusal(|| cross.cache(1, 4)).contains("cache_cross"));
    assert!(refusal(|| encoder.cache_cross(x(), &none)).contains("with_cross(true)"));
    assert!(refusal(|| encoder.cross(x(), x(), &none)).contains("with_cross(true)"));
    assert!(refusal(|| cross.forward(x(), &none)).contains("`cross`"));
    assert!(refusal(|| encoder.forward(x().narrow(2, 0, 4), &none)).contains("width 8"));
    assert!(refusal(|| encoder.forward(x(), &Mask::padding(&[3], 5))).contains("the mask has 5 keys"));
    assert!(refusal(|| encoder.forward(x(), &Mask::padding(&[1; 3], LENGTH))).contains("the mask has 3 rows"));
    assert!(refusal(|| Mask::padding(&[6], 5)).contains("exceed"));
    assert!(refusal(|| Mask::padding(&[5], 5).and(Mask::padding(&[5], 6))).contains("masks of 5 and 6 keys"));
    let mut cache = decoder.cache(BATCH, 2);
    assert!(refusal(|| init(config("dot-product").with_causal(true)).step(x(), &mut cache)).contains("another layer"));
    assert!(refusal(|| decoder.step(x(), &mut cache)).contains("exceed the capacity 2"));
    assert!(refusal(|| decoder.step(random([1, 1, WIDTH], "x"), &mut cache)).contains("1 rows"));
    assert!(refusal(|| decoder.select(&mut cache, &[2])).contains("a cache of 2"));
    let synthesizer = init(config("synthesizer-random").with_causal(true));
    assert!(refusal(|| synthesizer.cache(1, LENGTH + 1)).contains("maximal length 20"));
}

#[test]
fn dropout_is_on_in_training_and_draws_new_numbers_at_each_call() {
    let train = device().autodiff();
    let build = || config("dot-product").with_dropout(0.5).init(&train).unwrap();
    let x = || Tensor::from_inner(sequence());
    let run = |layer: &AttentionLayer| layer.forward(x(), &Mask::none()).inner();
    let (layer, same) = (build(), build());
    let (first, second) = (run(&layer), run(&layer));
    assert!(far(first.clone(), second.clone()) > 1e-2, "two calls drop the same");
    assert_eq!(numbers(first), numbers(run(&same)), "the same calls give other numbers");
    assert_eq!(numbers(second), numbers(run(&same.clone())), "a clone goes on in the same stream");
    let quiet = layer.valid().forward(sequence(), &Mask::none());
    let undropped = config("dot-product").init(&device()).unwrap().forward(sequence(), &Mask::none());
    assert_eq!(numbers(quiet.clone()), numbers(undropped));
    assert!(far(quiet.clone(), run(&layer.valid().train())) > 1e-2, "training is on again");
    assert!(far(run(&layer.freeze()), quiet) < 1e-6, "a frozen layer drops");
}

#[test]
fn a_stream_begun_anew_repeats_itself() {
    let layer = config("dot-product").with_dropout(0.5).init(&device().autodiff()).unwrap();
    let key = RandomKey::from_seed(9);
    let run = |layer: &AttentionLayer| numbers(layer.forward(Tensor::from_inner(sequence()), &Mask::none()));
    let first = run(&layer.clone().with_random(&key));
    assert_ne!(first, run(&layer));
    assert_eq!(first, run(&layer.with_random(&key)));
}

#[test]
fn layers_of_a_stack_share_what_their_mechanism_shares() {
    use crate::mechanisms::linformer::Sharing;

    let sharing = LinformerConfig { sharing: Sharing::Layerwise, ..Default::default() };
    let [first, second] = [0, 1].map(|layer| config(sharing.clone()).with_layer(layer, 2).init(&device()).unwrap());
    let identities = |layer: &AttentionLayer| burn::module::list_param_ids(layer);
    let shared = second.clone().sharing_with(&first);
    let common = |layer: &AttentionLayer| identities(layer).iter().filter(|id| identities(&first).contains(id)).count();
    assert_eq!((common(&second), common(&shared)), (0, 1));
}

#[test]
fn auxiliary_losses_are_handed_out() {
    let layer = config("adaptive-span").init(&device()).unwrap();
    let (context, losses) = layer.forward_with_losses(sequence(), &Mask::none());
    assert!(losses.total().is_some());
    assert_eq!(numbers(context), numbers(layer.forward(sequence(), &Mask::none())));
}

#[test]
fn mechanisms_are_given_by_name_or_by_configuration() {
    let linformer = LinformerConfig { rank: Some(3), ..Default::default() };
    let run = |config: AttentionConfig| numbers(config.init(&device()).unwrap().forward(sequence(), &Mask::none()));
    let any: AnyMechanism = linformer.clone().into();
    assert_eq!(run(config(linformer.clone())), run(config(any)));
    assert_ne!(run(config(linformer)), run(config("linformer")));
    assert_eq!(run(config("uniform")), run(config("uniform".to_owned())));
    assert_ne!(run(config("uniform").with_layer(0, 2)), run(config("uniform").with_layer(1, 2)));
    assert_ne!(run(AttentionConfig { seed: None, ..config("uniform") }), run(AttentionConfig { seed: None, ..config("uniform") }));
}

#[test]
fn impossible_configurations_are_errors() {
    let error = |config: AttentionConfig| config.init(&device()).expect_err("the configuration is impossible").to_string();
    assert!(matches!(config("dot-prodct").init(&device()), Err(ConfigError::UnknownAttention { .. })));
    assert!(error(config("linformer").with_causal(true)).contains("causal"));
    assert!(error(config("lsh").with_cross(true)).contains("cross-attention"));
    assert!(error(config("uniform").with_cross(true).with_causal(true)).contains("`causal`"));
    assert!(error(config("uniform").with_layer(2, 2)).contains("`layer`"));
    assert!(error(config("uniform").with_dropout(1.0)).contains("`dropout`"));
    assert!(error(config("uniform").with_max_length(0)).contains("`max_length`"));
    assert!(error(AttentionConfig::new("uniform", 8, 3)).contains("`heads`"));
}

#[test]
fn configurations_are_written_and_read() {
    for mechanism in [Choice::from("relative"), LinformerConfig { rank: Some(3), ..Default::default() }.into()] {
        let config = config(mechanism).with_engine(Engine::Reference);
        let text = serde_json::to_string(&config).unwrap();
        let read: AttentionConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(text, serde_json::to_string(&read).unwrap());
        let run = |config: AttentionConfig| numbers(config.init(&device()).unwrap().forward(sequence(), &Mask::none()));
        assert_eq!(run(read), run(config));
    }
    let short: AttentionConfig = toml::from_str("mechanism = 'local-1d'\nd_model = 8\nn_heads = 2\ncausal = true").unwrap();
    assert!(short.init(&device()).unwrap().is_causal());
    assert!(toml::from_str::<AttentionConfig>("mechanism = 'local-1d'\nd_model = 8\nn_heads = 2\nheads = 2").is_err());
}

#[test]
fn a_misspelt_option_of_a_mechanism_is_named() {
    let read = |mechanism: &str| {
        let text = format!("{{\"mechanism\": {mechanism}, \"d_model\": 8, \"n_heads\": 2}}");
        serde_json::from_str::<AttentionConfig>(&text).map_err(|error| error.to_string())
    };
    for (mechanism, says) in [
        ("{\"name\": \"local-1d\", \"query_blok\": 4}", &["query_blok", "query_block"][..]),
        ("{\"name\": \"local-1d\", \"query_block\": \"four\"}", &["four"]),
        ("{\"query_block\": 4}", &["`name`", "query_block"]),
        ("{\"name\": \"lokal\"}", &["lokal", "local-1d"]),
        ("7", &["name of an attention"]),
        ("{\"name\": \"lightweight-conv\", \"kernel\": \"wide\"}", &["number of taps"]),
    ] {
        let error = read(mechanism).unwrap_err();
        assert!(says.iter().all(|part| error.contains(part)) && !error.contains("did not match any variant"), "{mechanism}: {error}");
    }
    for mechanism in ["\"local-1d\"", "{\"name\": \"local-1d\", \"query_block\": 4}"] {
        let config = read(mechanism).unwrap();
        let again: AttentionConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{config:?}"));
    }
}
