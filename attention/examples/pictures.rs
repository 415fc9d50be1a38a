//! Draws the attention pattern of every mechanism: `cargo run --release --example pictures -- attention/pictures`.
//!
//! A picture shows the weights of an untrained layer for one random sequence, one square for each head: rows are queries, columns are keys, the darker
//! the heavier relative to the heaviest of its row, and a dot marks what is seen with a weight that is too small to be drawn. Mechanisms without weights over
//! positions (Linformer) show how far a change of each position reaches instead.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use heedful_attention::abilities::Causality;
use heedful_attention::any::{AnyAttention, AttentionConfig};
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::init::Init;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::visibility::Visibility;

/// Length of the sequence that is drawn.
const LENGTH: usize = 32;
const HEADS: usize = 4;
const CELL: usize = 4;
const GAP: usize = 12;

/// Options that make a pattern visible on a short sequence.
const OPTIONS: &[(&str, &str)] = &[];

/// The configuration that is drawn for a mechanism.
fn drawn(config: &AttentionConfig) -> Result<AttentionConfig, Box<dyn Error>> {
    let name = config.name();
    match OPTIONS.iter().find(|(of, _)| *of == name) {
        Some((_, options)) => Ok(toml::from_str(&format!("name = \"{}\"\n{options}", config.family()))?),
        None => Ok(config.clone()),
    }
}

/// Weights `[H][Q][K]`.
type Weights = Vec<Vec<Vec<f32>>>;

fn placement(config: &AttentionConfig) -> Placement {
    let place = Placement { role: Role::Decoder, layer: 0, layers: 2, d_model: 64, heads: HEADS, max_length: LENGTH, dropout: 0.0 };
    if config.validate(&place).is_ok() { place } else { Placement { role: Role::Encoder, ..place } }
}

fn visibility(attention: &AnyAttention) -> Visibility {
    if attention.abilities().causality == Causality::Impossible { Visibility::all() } else { Visibility::causal() }
}

fn weights(config: &AttentionConfig, device: &Device) -> Weights {
    let place = placement(config);
    let attention = config.init(&place, &RandomKey::from_seed(1), device);
    let sequence = Init::Normal(1.0).tensor([1, LENGTH, place.d_model], &RandomKey::from_seed(2), device);
    let mut shown = None;
    let mut listener = |_: &str, observation: Observation| {
        if let Observation::Weights(weights) = observation {
            shown = Some(weights);
        }
    };
    let input = |sequence: Tensor<3>| AttentionInput::self_attention(sequence).visibility(visibility(&attention));
    let context = attention.forward(input(sequence.clone()), &mut Probe::listening(&mut listener)).context;
    let Some(weights) = shown else {
        return vec![reach(sequence, context, |sequence| attention.forward(input(sequence), &mut Probe::off()).context)];
    };
    let [_, heads, queries, keys] = weights.dims();
    let values: Vec<f32> = weights.narrow(0, 0, 1).into_data().iter::<f32>().collect();
    values.chunks(queries * keys).take(heads).map(|head| head.chunks(keys).map(<[f32]>::to_vec).collect()).collect()
}

/// How far the output of each position moves when each position changes, `[Q][K]`.
fn reach(sequence: Tensor<3>, context: Tensor<3>, forward: impl Fn(Tensor<3>) -> Tensor<3>) -> Vec<Vec<f32>> {
    let [_, length, width] = sequence.dims();
    let mut moved = vec![vec![0.0; length]; length];
    for key in 0..length {
        let there = sequence.clone().slice([0..1, key..key + 1, 0..width]) * -1.0;
        let changed = sequence.clone().slice_assign([0..1, key..key + 1, 0..width], there);
        let difference = (forward(changed) - context.clone()).abs().sum_dim(2);
        for (query, distance) in difference.into_data().iter::<f32>().enumerate() {
            moved[query][key] = distance;
        }
    }
    moved
}

fn svg(name: &str, weights: &Weights) -> String {
    let side = LENGTH * CELL;
    let (width, height) = (weights.len() * (side + GAP) - GAP, side);
    // Without blank lines, so that it can stand inside of Markdown.
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{name}: \
         rows are queries, columns are keys, one square for each head</title>\n"
    );
    for (head, rows) in weights.iter().enumerate() {
        let left = head * (side + GAP);
        writeln!(text, "<rect x=\"{left}\" width=\"{side}\" height=\"{side}\" fill=\"#f4f4f4\"/>")
            .expect("writing to a string does not fail");
        for (query, row) in rows.iter().enumerate() {
            let heaviest = row.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
            for (key, weight) in row.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let opacity = (weight / heaviest * 10.0).round().max(1.0) / 10.0;
                let (x, y) = (left + key * CELL, query * CELL);
                writeln!(
                    text,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"#1f4e79\" fill-opacity=\"{opacity}\"/>"
                )
                .expect("writing to a string does not fail");
            }
        }
    }
    text + "</svg>\n"
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder for the pictures")?;
    std::fs::create_dir_all(&folder)?;
    let device = Device::flex();
    for config in AttentionConfig::all() {
        let config = drawn(&config)?;
        let path = Path::new(&folder).join(format!("{}.svg", config.name().replace('+', "-and-")));
        std::fs::write(&path, svg(&config.name(), &weights(&config, &device)))?;
        println!("{}", path.display());
    }
    Ok(())
}
