//! What follows from the papers, and can be checked without knowing how it was written.

mod adaptive_span;
mod aft;
mod base_conv;
mod convolution;
mod delta_net;
mod differential;
mod entmax;
mod fnet;
mod forgetting;
mod gaussian;
mod gemma;
mod gla;
mod gmlp;
mod image_transformer;
mod linear_attention;
mod linformer;
mod mla;
mod mlp_mixer;
mod none;
mod output_gate;
mod qk_norm;
mod rectified;
mod reformer;
mod released;
mod retnet;
mod roformer;
mod shaw;
mod sinks;
mod sparse_transformer;
mod streaming_llm;
mod synthesizer;
mod t5;
mod talking_heads;
mod transformer;
mod transformer_xl;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use heedful_attention::mechanisms::dot_product::DotProduct;
use heedful_attention::prelude::*;

use crate::array::Array;
use crate::backends::flex;
use crate::subject::Subject;
use crate::variants::{parse, spec};

/// The attention on the one backend that these checks need.
fn init(config: &AnyMechanism, spec: &LayerSpec) -> AnyAttention {
    config.validate(spec).unwrap();
    config.init(spec, &RandomKey::from_seed(1), &flex().device)
}

fn softmax(attention: &mut AnyAttention) -> &mut SoftmaxAttention<AnyLogits> {
    attention.get_mut().expect("it is a softmax attention")
}

fn parameter<const D: usize>(values: &Array) -> Param<Tensor<D>> {
    Param::from_tensor(values.tensor(&flex().device))
}

/// A linear map without bias.
fn linear(weight: &Array) -> Linear {
    Linear { weight: parameter(weight), bias: None }
}

fn identity(width: usize) -> Array {
    Array::from_fn([width, width], |[row, column]| f64::from(row == column))
}

fn self_attention(sequence: &Array) -> AttentionInput {
    AttentionInput::self_attention(sequence.tensor(&flex().device))
}

fn cross_attention(query: &Array, memory: &Array) -> AttentionInput {
    AttentionInput::cross_attention(query.tensor(&flex().device), memory.tensor(&flex().device))
}

fn context<A: Attention>(attention: &A, input: AttentionInput) -> Array {
    Array::read(attention.forward(input, &mut Probe::off()).context)
}

/// Weights `[B | 1, H, Q, K]`.
fn weights<A: Attention>(attention: &A, input: AttentionInput) -> Array {
    let mut shown = None;
    let mut listener = |_: &str, observation: Observation| {
        if let Observation::Weights(weights) = observation {
            shown = Some(Array::read(weights));
        }
    };
    attention.forward(input, &mut Probe::listening(&mut listener));
    shown.expect("every mechanism of this crate shows its weights")
}

/// Panics with the message of a comparison.
fn assert_same(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    crate::array::same(what, found, expected, tolerance).unwrap_or_else(|error| panic!("{error}"));
}
