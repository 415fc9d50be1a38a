//! The native kernels against the same attention in 32 bits on the processor: context and gradients, by type, widths and what is visible.

use std::process::ExitCode;
use std::sync::Arc;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::linear::linear;
use heedful_attention::engine::{AttentionProgram, Dropout, Weighting};
use heedful_attention::mechanisms::lsh::BucketCount;
use heedful_attention::tensors::read::read;
use heedful_backends::Backend;
use heedful_models::kernels::precision::cast;
use heedful_models::parts::loss::projected_cross_entropy;
use heedful_models::prelude::*;

/// Compare the native kernels of a GPU with the processor.
#[derive(Parser)]
#[command(name = "kernels")]
struct Options {
    /// The GPU's backend
    #[arg(long, value_name = "NAME")]
    backend: Backend,

    /// Types
    #[arg(long, value_name = "f32|f16|bf16[,...]", value_delimiter = ',', default_value = "f32,f16,bf16", value_parser = dtype)]
    dtype: Vec<FloatDType>,
}

fn dtype(name: &str) -> Result<FloatDType, String> {
    match name {
        "f32" => Ok(FloatDType::F32),
        "f16" => Ok(FloatDType::F16),
        "bf16" => Ok(FloatDType::BF16),
        _ => Err(format!("`{name}` is none of f32, f16 and bf16")),
    }
}

const BATCH: usize = 2;
const HEADS: usize = 3;

pub(crate) fn command() -> clap::Command {
    Options::command()
}

pub(crate) fn main(matches: &ArgMatches) -> ExitCode {
    let Options { backend, dtype: dtypes } = Options::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let device = match backend.device() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("kernels: {error}");
            return ExitCode::from(2);
        }
    };
    let visibilities = [
        ("all", Visibility::all(), Span::whole(64, 64)),
        ("all", Visibility::all(), Span::whole(70, 130)),
        ("causal", Visibility::causal(), Span::whole(64, 64)),
        ("causal", Visibility::causal(), Span::whole(200, 200)),
        ("padding", Visibility::padding(vec![129, 40]), Span::whole(65, 129)),
        ("nothing", Visibility::padding(vec![0, 70]), Span::whole(20, 70)),
    ];
    let mut failures = operations(&device) + lsh(&device);
    for dtype in dtypes {
        if !device.supports_dtype(dtype) {
            println!("{backend} {dtype:?}: not on this device");
            continue;
        }
        failures += layers(&device, dtype) + maps(&device, dtype);
        // Each width is compiled anew, so that it comes first.
        for widths in [[64, 64], [128, 128], [24, 40], [5, 7], [64, 192]] {
            for (name, visibility, span) in &visibilities {
                for dropout in [0.0, 0.3] {
                    let of = |device: &Device, number| results(device, dtype, number, visibility, *span, widths, dropout);
                    let (found, expected) = (of(&device, dtype), of(&Device::flex(), FloatDType::F32));
                    let differences: Vec<f64> = found.iter().zip(&expected).map(|(a, b)| difference(a, b)).collect();
                    let limit = match dtype {
                        FloatDType::F32 => 2e-5,
                        FloatDType::F16 => 4e-3,
                        _ => 3e-2,
                    };
                    let shown = differences.iter().map(|difference| format!("{difference:.1e}")).collect::<Vec<_>>().join(" ");
                    let bad = differences.iter().any(|&difference| difference.is_nan() || difference > limit);
                    failures += usize::from(bad);
                    if bad || (*name == "causal" && dropout > 0.0) {
                        let verdict = if bad { "WRONG" } else { "ok" };
                        println!("{backend} {dtype:?} {name} {span:?} widths {widths:?} dropout {dropout}: {shown} {verdict}");
                    }
                }
            }
        }
    }
    println!("{backend}: {failures} wrong");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Context and gradients of queries, keys and values, computed in `number` from inputs that `dtype` holds exactly.
fn results(
    device: &Device,
    dtype: FloatDType,
    number: FloatDType,
    visibility: &Visibility,
    span: Span,
    [factor, value]: [usize; 2],
    dropout: f64,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let leaf = |seed, length, width| {
        let drawn: Tensor<4> =
            Init::Normal(1.0).tensor([BATCH, HEADS, length, width], &RandomKey::from_seed(seed), &Device::flex().autodiff());
        let rounded = read(drawn.cast(dtype).cast(FloatDType::F32).detach());
        Tensor::<4>::from_data(rounded, &device).cast(number).detach().require_grad()
    };
    let (queries, keys, values) = (leaf(1, span.queries, factor), leaf(2, span.keys, factor), leaf(3, span.keys, value));
    let cotangent = leaf(4, span.queries, value).detach();
    let scaled = queries.clone().mul_scalar((factor as f64).powf(-0.5));
    let program = AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::content(scaled, keys.clone())),
        mask: None,
        soft_span: None,
        values: values.clone(),
        dropout: (dropout > 0.0).then(|| Dropout { probability: dropout, key: RandomKey::from_seed(5) }),
    };
    let context = fused::attend(program, Arc::new([Part::in_order(visibility.tiles(span, HEADS))]));
    let gradients = (context.clone() * cotangent).sum().backward();
    let plain = |x: Tensor<4>| read(x.cast(FloatDType::F32)).iter::<f64>().collect::<Vec<_>>();
    let gradient = |leaf: &Tensor<4>| plain(leaf.grad(&gradients).expect("the context depends on it"));
    [plain(context), gradient(&queries), gradient(&keys), gradient(&values)]
}

/// The largest difference, relative to the largest number.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(1e-30f64, |largest, number| largest.max(number.abs()));
    found.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest).fold(0.0, |a, b| if b.is_nan() { f64::NAN } else { a.max(b) })
}

/// Operations of the backend that mechanisms are composed of, over axes of few elements, against the processor.
fn operations(device: &Device) -> usize {
    let mut wrong = 0;
    for shape in [[1, 24, 1], [1, 7, 3], [1, 130, 5], [2, 24, 1], [1, 1, 5], [3, 1, 1]] {
        let results = |device: &Device| {
            let x: Tensor<3> = Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(7), device);
            let mut all = Vec::new();
            for dim in 0..3 {
                let softmax = burn::tensor::activation::softmax(x.clone(), dim);
                let arg = x.clone().argmax(dim).float();
                let named = [("sum", x.clone().sum_dim(dim)), ("max", x.clone().max_dim(dim)), ("softmax", softmax), ("argmax", arg)];
                all.extend(
                    named.map(|(name, x)| (format!("{name} over {dim}"), read(x.cast(FloatDType::F32)).iter::<f64>().collect::<Vec<_>>())),
                );
            }
            all
        };
        for ((name, found), (_, expected)) in results(device).into_iter().zip(results(&Device::flex())) {
            let difference = difference(&found, &expected);
            if difference.is_nan() || difference > 1e-6 {
                println!(
                    "{name} of {shape:?}: {difference:.1e} WRONG: {:?} for {:?}",
                    &found[..found.len().min(4)],
                    &expected[..expected.len().min(4)]
                );
                wrong += 1;
            }
        }
    }
    wrong
}

/// Layer normalisation and cross-entropy, and their gradients, in `dtype` on the device and in 32 bits on the processor.
fn layers(device: &Device, dtype: FloatDType) -> usize {
    let mut wrong = 0;
    for (rows, width, vocabulary) in [(3, 5, 7), (130, 96, 1000), (33, 64, 5003), (2048, 768, 5003)] {
        let of = |device: &Device, number: FloatDType| {
            let device = device.clone().autodiff();
            // Logits are of the size of 1: of larger ones the rounding to 16 bits changes probabilities by more than the kernels may.
            let leaf = |seed, shape: [usize; 2], deviation| {
                let drawn: Tensor<2> = Init::Normal(deviation).tensor(shape, &RandomKey::from_seed(seed), &Device::flex().autodiff());
                let rounded = read(drawn.cast(dtype).cast(FloatDType::F32).detach());
                Tensor::<2>::from_data(rounded, &device).cast(number).detach().require_grad()
            };
            let (x, matrix) = (leaf(1, [rows, width], 1.0), leaf(2, [vocabulary, width], (width as f32).powf(-0.5)));
            let norm = cast(NormConfig::default().init(width, &device), number);
            let targets: Vec<i32> = (0..rows).map(|row| (row * 23 % vocabulary) as i32).collect();
            let targets = Tensor::from_data(TensorData::new(targets, [rows]), &device);
            let normal = norm.forward(x.clone());
            let loss = projected_cross_entropy(normal.clone(), matrix.clone(), targets, Some(1), 0.1).loss;
            let gradients = (loss.clone() / rows as f64).backward();
            let plain = |x: Tensor<2>| read(x.cast(FloatDType::F32)).iter::<f64>().collect::<Vec<_>>();
            let gradient = |leaf: &Tensor<2>| plain(leaf.grad(&gradients).expect("the loss depends on it"));
            let scale = norm.gamma.val().grad(&gradients).expect("the loss depends on the scale");
            let loss = loss.unsqueeze();
            [
                ("normalised", plain(normal)),
                ("loss", plain(loss)),
                ("x", gradient(&x)),
                ("matrix", gradient(&matrix)),
                ("scale", plain(scale.unsqueeze())),
            ]
        };
        for ((name, found), (_, expected)) in of(device, dtype).into_iter().zip(of(&Device::flex(), FloatDType::F32)) {
            let difference = difference(&found, &expected);
            // Products of 32-bit floats on CUDA have factors of 11 bits (TF32).
            let limit = if dtype == FloatDType::BF16 { 3e-2 } else { 4e-3 };
            let bad = difference.is_nan() || difference > limit;
            wrong += usize::from(bad);
            println!(
                "{dtype:?} {name} of {rows} rows, width {width}, {vocabulary} words: {difference:.1e} {}",
                if bad { "WRONG" } else { "ok" }
            );
        }
    }
    wrong
}

/// Linear maps, and their gradients, of sizes that take other kernels than Burn's, in `dtype` on the device and in 32 bits on the processor.
fn maps(device: &Device, dtype: FloatDType) -> usize {
    let mut wrong = 0;
    for [rows, width, units] in [[4096, 768, 768], [4096, 256, 1024], [1000, 1000, 504], [2048, 768, 5003]] {
        let of = |device: &Device, number: FloatDType| {
            let device = device.clone().autodiff();
            let leaf = |seed, shape: [usize; 2]| {
                let drawn: Tensor<2> = Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(seed), &Device::flex().autodiff());
                let rounded = read(drawn.cast(dtype).cast(FloatDType::F32).detach());
                Tensor::<2>::from_data(rounded, &device).cast(number).detach().require_grad()
            };
            let (x, weight, bias) = (leaf(1, [rows, width]), leaf(2, [width, units]), leaf(3, [1, units]).reshape([units]));
            let (weight, bias) = (Param::from_tensor(weight.detach()), Param::from_tensor(bias.detach()));
            let map = Linear { weight, bias: Some(bias) };
            let output = linear(x.clone(), &map);
            let gradients = (output.clone() * leaf(4, [rows, units]).detach()).sum().backward();
            let plain = |x: Tensor<2>| read(x.cast(FloatDType::F32)).iter::<f64>().collect::<Vec<_>>();
            let gradient = |leaf: Tensor<2>| plain(leaf.grad(&gradients).expect("the output depends on it"));
            let bias = map.bias.as_ref().expect("the map has a bias").val().grad(&gradients).expect("the output depends on it");
            [("output", plain(output)), ("x", gradient(x)), ("weight", gradient(map.weight.val())), ("bias", plain(bias.unsqueeze()))]
        };
        for ((name, found), (_, expected)) in of(device, dtype).into_iter().zip(of(&Device::flex(), FloatDType::F32)) {
            let difference = difference(&found, &expected);
            let limit = if dtype == FloatDType::BF16 { 1e-2 } else { 2e-3 };
            let bad = difference.is_nan() || difference > limit;
            wrong += usize::from(bad);
            println!("{dtype:?} {name} of a map of {rows} rows, {width} to {units}: {difference:.1e} {}", if bad { "WRONG" } else { "ok" });
        }
    }
    wrong
}

/// LSH attention several times on the device and on the processor: buckets, weights and outputs.
fn lsh(device: &Device) -> usize {
    let mut wrong = 0;
    for (rounds, buckets, chunk) in [(1, 4, 8), (2, 4, 8), (1, 8, 3), (2, 8, 3)] {
        let config =
            LshConfig::default().with_chunk(chunk).with_rounds(rounds).with_full_attention_below(0).with_buckets(BucketCount::One(buckets));
        let config = AnyMechanism::from(config);
        let spec = LayerSpec::new(Role::Decoder, 6, 2).with_max_length(8);
        let of = |device: &Device, [batch, length]: [usize; 2]| {
            let attention = config.init(&spec, &RandomKey::from_seed(1), device);
            let x: Tensor<3> = Init::Normal(1.0).tensor([batch, length, 6], &RandomKey::from_seed(2), device);
            let mut seen = Vec::new();
            let mut look = |_: &str, observation: Observation| match observation {
                Observation::Buckets(buckets) => seen.push(("buckets", read(buckets.float()).iter::<f64>().collect::<Vec<_>>())),
                Observation::Weights(weights) => seen.push(("weights", read(weights).iter::<f64>().collect())),
                _ => {}
            };
            let input = || AttentionInput::self_attention(x.clone()).visibility(Visibility::causal());
            let context = attention.forward(input(), &mut Probe::listening(&mut look)).context;
            seen.push(("context", read(context).iter::<f64>().collect()));
            seen.push(("context without a probe", read(attention.forward(input(), &mut Probe::off()).context).iter::<f64>().collect()));
            seen
        };
        for size in [[1, 1], [1, 2], [2, 2], [1, 6], [2, 8]] {
            let expected = of(&Device::flex(), size);
            for run in 0..2 {
                for ((name, found), (_, expected)) in of(device, size).iter().zip(&expected) {
                    let difference = difference(found, expected);
                    if difference.is_nan() || difference > 1e-2 {
                        let shown =
                            |values: &[f64]| values.iter().take(16).map(|value| format!("{value:.3}")).collect::<Vec<_>>().join(" ");
                        println!(
                            "lsh, {rounds} rounds, {buckets} buckets, chunks of {chunk}, {size:?}, run {run}: {name}: {difference:.1e} WRONG: {} for {}",
                            shown(found),
                            shown(expected)
                        );
                        wrong += 1;
                    }
                }
            }
        }
    }
    wrong
}
