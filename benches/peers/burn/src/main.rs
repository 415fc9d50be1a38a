//! Times causal attention layers of Burn libraries on flex, forward and backward, and prints a table in Markdown:
//! `cargo run --release --manifest-path benches/peers/burn/Cargo.toml -- ROUNDS LENGTH...`.
//!
//! In each round every layer runs once, in a process of its own. Nothing else should run meanwhile.

use std::env;
use std::error::Error;
use std::process::Command;
use std::time::Instant;

use bunsen::blocks::transformers::attention::csa::CausalSelfAttentionConfig;
use bunsen::blocks::transformers::embedding::RotaryEmbeddingConfig;
use bunsen::prelude::ModuleInit;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::contract::probe::Probe;
use heedful_attention::contract::random::RandomKey;
use heedful_attention::contract::visibility::Visibility;
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::description::AnyMechanism;

const D_MODEL: usize = 256;
const HEADS: usize = 4;
/// Calls whose median is taken, after as many that warm up.
const CALLS: usize = 9;

/// Dot-product attention with four projections; below, with rotary positions and normalised queries and keys, as bunsen has them.
const LAYERS: [&str; 4] = ["heedful dot-product", "burn-nn MultiHeadAttention", "heedful rotary", "bunsen CausalSelfAttention"];

type Layer = Box<dyn Fn(Tensor<3>) -> Tensor<3>>;

fn heedful(name: &str, length: usize, device: &Device) -> Result<Layer, Box<dyn Error>> {
    let config: AnyMechanism = name.parse()?;
    let attention = config.init(&LayerSpec::new(Role::Decoder, D_MODEL, HEADS).with_max_length(length), &RandomKey::from_seed(1), device);
    Ok(Box::new(move |x| {
        let input = AttentionInput::self_attention(x).visibility(Visibility::causal());
        attention.forward(input, &mut Probe::off()).context
    }))
}

fn layer(name: &str, length: usize, device: &Device) -> Result<Layer, Box<dyn Error>> {
    match name {
        "heedful dot-product" => heedful("dot-product", length, device),
        "heedful rotary" => heedful("rotary{qk_norm=\"rms\"}", length, device),
        "burn-nn MultiHeadAttention" => {
            let attention = MultiHeadAttentionConfig::new(D_MODEL, HEADS).with_dropout(0.0).init(device);
            let mask = generate_autoregressive_mask(1, length, device);
            Ok(Box::new(move |x| attention.forward(MhaInput::self_attn(x).mask_attn(mask.clone())).context))
        }
        "bunsen CausalSelfAttention" => {
            let attention = CausalSelfAttentionConfig::new(HEADS, HEADS, D_MODEL).init(0, device);
            let positions = RotaryEmbeddingConfig::new(length, D_MODEL / HEADS).init(device);
            Ok(Box::new(move |x| attention.forward(x, &positions, &mut None)))
        }
        other => Err(format!("no layer is called {other}").into()),
    }
}

/// Median milliseconds of a forward and a backward pass.
fn time(name: &str, length: usize) -> Result<f64, Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let layer = layer(name, length, &device)?;
    let numbers = (0..length * D_MODEL).map(|index| (index as f32 * 0.37).sin()).collect::<Vec<_>>();
    let sequence = Tensor::<3>::from_data(TensorData::new(numbers, [1, length, D_MODEL]), &device);
    let pass = || {
        let begun = Instant::now();
        drop(layer(sequence.clone().require_grad()).sum().backward());
        begun.elapsed().as_secs_f64()
    };
    let mut seconds: Vec<f64> = (0..2 * CALLS).map(|_| pass()).skip(CALLS).collect();
    seconds.sort_by(f64::total_cmp);
    Ok(1000.0 * seconds[CALLS / 2])
}

/// The same, in a process of its own.
fn time_apart(name: &str, length: usize) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(env::current_exe()?).args(["time", name, &length.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [command, name, length] = &arguments[..]
        && command == "time"
    {
        println!("{}", time(name, length.parse()?)?);
        return Ok(());
    }
    let [rounds, lengths @ ..] = &arguments[..] else { return Err("give the number of rounds and the lengths".into()) };
    println!("| length | layer | ms, median of {rounds} rounds |\n| ---: | --- | ---: |");
    for length in lengths {
        let length: usize = length.parse()?;
        let mut times = LAYERS.map(|_| Vec::new());
        for _ in 0..rounds.parse::<usize>()? {
            for (name, times) in LAYERS.iter().zip(&mut times) {
                times.push(time_apart(name, length)?);
            }
        }
        for (name, times) in LAYERS.iter().zip(times) {
            println!("| {length} | {name} | {:.1} |", median(times));
        }
    }
    Ok(())
}
