//! Trains three steps of a language model on flex and on wgpu, and asks the mechanisms of this crate for all that models rely on, on ndarray too; or times a
//! layer: `third-party time 512 2048`.

#[path = "../../../attention/examples/layer_time.rs"]
mod layer_time;

use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, DeviceKind, Int, Tensor};
use heedful_attention::conformance::Subject;
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::contract::probe::Probe;
use heedful_attention::contract::random::RandomKey;
use heedful_attention::description::AnyMechanism;
use heedful_models::architectures::language_model::LanguageModelConfig;
use heedful_models::block::BlockConfig;
use heedful_models::parts::loss::cross_entropy;

/// Mechanisms that take the kernels of a device, terms that they leave to tensor operations, and those of this crate.
const MECHANISMS: [&str; 15] = [
    "dot-product",
    "local-1d",
    "synthesizer-random+dot-product",
    "relative",
    "soft-cap",
    "sigmoid",
    "softmax-plus-one",
    "learned-sink",
    "softpick",
    "entmax",
    "relu-squared",
    "recency",
    "recency+dot-product",
    "recency@local-1d",
    "distance-power",
];

/// By how much losses of two backends may differ: three steps of rounding.
const TOLERANCE: f32 = 1e-4;

/// Losses per token before each of three steps of training, and after them.
fn train(attention: &AnyMechanism, device: &Device) -> Vec<f32> {
    let device = device.clone().autodiff();
    let config = LanguageModelConfig {
        vocabulary: 7,
        attention: attention.clone().into(),
        layers: 2,
        block: BlockConfig { d_model: 32, heads: 4, d_ff: 64, max_length: 96, ..BlockConfig::default() },
        ..LanguageModelConfig::default()
    };
    config.validate().expect("the model is possible");
    let key = RandomKey::from_seed(3);
    let mut model = config.init(&key, &device);
    let mut optimiser = AdamWConfig::new().init();
    let tokens = (0..2 * 97).map(|index| index * index % 7).collect::<Vec<i32>>();
    let part = |from: usize| tokens.chunks(97).flat_map(move |row| row[from..from + 96].iter().copied()).collect::<Vec<_>>();
    let input = Tensor::<1, Int>::from_data(part(0).as_slice(), &device).reshape([2, 96]);
    let targets = Tensor::<1, Int>::from_data(part(1).as_slice(), &device);
    let mut losses = Vec::new();
    for step in 0..4 {
        let random = (step < 3).then(|| key.named("dropout").numbered(step));
        let logits = model.forward_with(input.clone(), &[], random, &mut Probe::off()).logits.reshape([2 * 96, 7]);
        let loss = cross_entropy(logits, targets.clone(), None, 0.0).loss / (2.0 * 96.0);
        losses.push(loss.clone().into_scalar());
        if random.is_some() {
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimiser.step(0.01, model, gradients);
        }
    }
    losses
}

/// Asks a mechanism for all that models rely on, with heads that share keys and values.
fn conforms(name: &str, device: &Device) {
    let place = LayerSpec::new(Role::Decoder, 8, 4).with_kv_heads(Some(2)).with_max_length(8).with_dropout(0.3);
    let mechanism: AnyMechanism = name.parse().expect("it is registered");
    match Subject::of(&mechanism, place, device).check() {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("time") {
        return layer_time::main();
    }
    third_party::register();
    let (flex, wgpu) = (Device::flex(), Device::wgpu(DeviceKind::DefaultDevice));
    for name in MECHANISMS {
        let attention: AnyMechanism = name.parse().expect("there is such a mechanism");
        let [expected, found] = [&flex, &wgpu].map(|device| train(&attention, device));
        println!("{name}: flex {expected:?}, wgpu {found:?}");
        assert!(expected[3] < expected[0], "{name} does not learn");
        let differs = expected.iter().zip(&found).any(|(expected, found)| (expected - found).abs() > TOLERANCE);
        assert!(!differs, "{name}: the losses of flex and wgpu differ");
    }
    #[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and its line with it")]
    let ndarray = Device::ndarray();
    for device in [&flex, &ndarray, &wgpu] {
        ["recency", "distance-power"].iter().for_each(|name| conforms(name, device));
    }
}
