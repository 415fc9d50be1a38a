//! Prints the median milliseconds of a causal layer of dot products, forward and backward, for each length that is given:
//! `cargo run --release --workspace --example layer_time -- 512 2048`.
//!
//! The crate in `examples/third-party` has the same source, built with the profile of a user's crate.

use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::contract::probe::Probe;
use heedful_attention::contract::random::RandomKey;
use heedful_attention::contract::visibility::Visibility;
use heedful_attention::contract::{Attention, AttentionInput};
use heedful_attention::description::AnyAttention;
use heedful_attention::description::AnyMechanism;

const D_MODEL: usize = 256;
const HEADS: usize = 4;
/// Calls of which the median is taken, after as many that warm up.
const CALLS: usize = 15;

/// Seconds of one forward and backward pass.
fn pass(attention: &AnyAttention, sequence: &Tensor<3>, visibility: &Visibility) -> f64 {
    let begun = Instant::now();
    let input = AttentionInput::self_attention(sequence.clone().require_grad()).visibility(visibility.clone());
    drop(attention.forward(input, &mut Probe::off()).context.sum().backward());
    begun.elapsed().as_secs_f64()
}

/// Milliseconds at each length.
pub fn time(lengths: &[usize]) -> Vec<(usize, f64)> {
    let device = Device::flex().autodiff();
    let config: AnyMechanism = "dot-product".parse().expect("there is such a mechanism");
    let median = |&length: &usize| {
        let place = LayerSpec::new(Role::Decoder, D_MODEL, HEADS).with_max_length(length);
        let attention = config.init(&place, &RandomKey::from_seed(1), &device);
        let numbers = (0..length * D_MODEL).map(|index| (index as f32 * 0.37).sin()).collect::<Vec<_>>();
        let sequence = Tensor::<3>::from_data(TensorData::new(numbers, [1, length, D_MODEL]), &device);
        let visibility = Visibility::causal();
        let mut seconds: Vec<f64> = (0..2 * CALLS).map(|_| pass(&attention, &sequence, &visibility)).skip(CALLS).collect();
        seconds.sort_by(f64::total_cmp);
        (length, 1000.0 * seconds[CALLS / 2])
    };
    lengths.iter().map(median).collect()
}

/// Prints `LENGTH MILLISECONDS`, a line for each length of the command line.
pub fn main() {
    let lengths: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    for (length, milliseconds) in time(&lengths) {
        println!("{length} {milliseconds:.3}");
    }
}
