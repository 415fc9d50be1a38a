//! Draws the attention pattern of every mechanism: `cargo run --release --example pictures -- attention/pictures`.
//!
//! A picture shows the weights of an untrained layer for one random sequence, one square for each head: rows are queries, columns are keys, the darker
//! the heavier relative to the heaviest of its row, whatever the sign; what is seen at all is never white. Mechanisms without weights over positions (Linformer)
//! show how far a change of each position moves the output instead.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use heedful_attention::contract::abilities::Causality;
use heedful_attention::contract::init::Init;
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::contract::probe::{Observation, Probe};
use heedful_attention::contract::random::RandomKey;
use heedful_attention::contract::visibility::Visibility;
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::description::AnyAttention;
use heedful_attention::description::AnyMechanism;
use heedful_attention::tensors::read::read;

/// Length of the sequence that is drawn.
const LENGTH: usize = 32;
const HEADS: usize = 2;
const CELL: usize = 6;
const GAP: usize = 12;

/// Weights `[H][Q][K]`.
type Weights = Vec<Vec<Vec<f32>>>;

fn spec(config: &AnyMechanism) -> LayerSpec {
    let place = LayerSpec::new(Role::Decoder, 32, HEADS).at_layer(0, 2).with_max_length(LENGTH);
    if config.validate(&place).is_ok() { place } else { place.with_role(Role::Encoder) }
}

fn visibility(attention: &AnyAttention) -> Visibility {
    if attention.abilities().causality == Causality::Impossible { Visibility::all() } else { Visibility::causal() }
}

fn weights(config: &AnyMechanism, device: &Device) -> Weights {
    let place = spec(config);
    let attention = config.init(&place, &RandomKey::from_seed(1), device);
    let sequence = Init::Normal(1.0).tensor([1, LENGTH, place.d_model], &RandomKey::from_seed(2), device);
    let mut shown = None;
    let mut listener = |_: &str, observation: Observation| match observation {
        Observation::Weights(weights) => shown = Some(weights),
        Observation::SignedWeights(weights) => shown = Some(weights.abs()),
        _ => {}
    };
    let input = |sequence: Tensor<3>| AttentionInput::self_attention(sequence).visibility(visibility(&attention));
    let context = attention.forward(input(sequence.clone()), &mut Probe::listening(&mut listener)).context;
    let Some(weights) = shown else {
        return vec![reach(sequence, context, |sequence| attention.forward(input(sequence), &mut Probe::off()).context)];
    };
    let [_, heads, queries, keys] = weights.dims();
    let values: Vec<f32> = read(weights.narrow(0, 0, 1)).iter::<f32>().collect();
    values.chunks(queries * keys).take(heads).map(|head| head.chunks(keys).map(<[f32]>::to_vec).collect()).collect()
}

/// How far the output of each position moves when each position changes, `[Q][K]`.
fn reach(sequence: Tensor<3>, context: Tensor<3>, forward: impl Fn(Tensor<3>) -> Tensor<3>) -> Vec<Vec<f32>> {
    let [_, length, width] = sequence.dims();
    let moved_by = |key: usize| -> Vec<f32> {
        let turned = sequence.clone().slice([0..1, key..key + 1, 0..width]) * -1.0;
        let changed = sequence.clone().slice_assign([0..1, key..key + 1, 0..width], turned);
        read((forward(changed) - context.clone()).abs().sum_dim(2)).iter::<f32>().collect()
    };
    let columns: Vec<_> = (0..length).map(moved_by).collect();
    (0..length).map(|query| columns.iter().map(|column| column[query]).collect()).collect()
}

/// Levels of darkness.
const LEVELS: usize = 10;

/// The level of a weight, from 1 to [`LEVELS`]; 0 where nothing is seen.
fn level(weight: f32, heaviest: f32) -> usize {
    if weight > 0.0 { ((weight / heaviest * LEVELS as f32).round() as usize).max(1) } else { 0 }
}

/// The picture of a mechanism.
pub fn picture(config: &AnyMechanism) -> Result<String, Box<dyn Error>> {
    let weights = weights(&config.drawn(), &Device::flex());
    let side = LENGTH * CELL;
    let (width, height) = (weights.len() * (side + GAP) - GAP, side);
    // Without blank lines, so that it can stand inside of Markdown.
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{config}: rows are queries, columns are keys, one square for each head</title>\n"
    );
    for (head, rows) in weights.iter().enumerate() {
        let left = head * (side + GAP);
        let levels: Vec<Vec<usize>> = rows
            .iter()
            .map(|row| {
                let heaviest = row.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
                row.iter().map(|&weight| level(weight, heaviest)).collect()
            })
            .collect();
        writeln!(text, "<rect x=\"{left}\" width=\"{side}\" height=\"{side}\" fill=\"#f0f0f0\"/>")?;
        writeln!(text, "<g stroke=\"#1f4e79\" stroke-width=\"{CELL}\">")?;
        for level in 1..=LEVELS {
            let path = strokes(&levels, level, left);
            if !path.is_empty() {
                writeln!(text, "<path stroke-opacity=\"{}\" d=\"{path}\"/>", level as f32 / LEVELS as f32)?;
            }
        }
        writeln!(text, "</g>")?;
    }
    Ok(text + "</svg>\n")
}

/// One stroke for each run of neighbouring keys of this level.
fn strokes(levels: &[Vec<usize>], level: usize, left: usize) -> String {
    let mut path = String::new();
    for (query, row) in levels.iter().enumerate() {
        let mut key = 0;
        while key < row.len() {
            let run = row[key..].iter().take_while(|&&of| of == level).count();
            if run > 0 {
                path += &format!("M{} {}h{}", left + key * CELL, query * CELL + CELL / 2, run * CELL);
            }
            key += run.max(1);
        }
    }
    path
}

/// The file of a mechanism's picture.
pub fn file_name(config: &AnyMechanism) -> String {
    format!("{}.svg", config.name().replace('+', "-and-"))
}

/// Draws all pictures into the folder that is given.
pub fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder for the pictures, e.g. attention/pictures")?;
    std::fs::create_dir_all(&folder)?;
    for config in AnyMechanism::all() {
        let path = Path::new(&folder).join(file_name(&config));
        std::fs::write(&path, picture(&config)?)?;
        println!("{}", path.display());
    }
    Ok(())
}
