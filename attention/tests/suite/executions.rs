//! What the tests of the engine's executions share: the executions themselves, and how contexts and gradients are read and compared.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::{AttentionProgram, reference};
use heedful_attention::prelude::*;

use crate::array::{Array, same};
use crate::subject::coefficients;

pub const SQUARE: Span = Span { query_start: 0, queries: 70, key_start: 0, keys: 70 };
pub const LATER: Span = Span { query_start: 60, queries: 20, key_start: 0, keys: 80 };

/// A tensor of random numbers that has a gradient.
pub fn leaf(name: &str, shape: [usize; 4], device: &Device) -> Tensor<4> {
    Array::random(name, &shape).tensor::<4>(device).require_grad()
}

/// A context and the gradients of all leaves, of a loss that tells all numbers of the context apart.
pub fn context_and_gradients(context: Tensor<4>, leaves: impl IntoIterator<Item = Tensor<4>>) -> Vec<Array> {
    let coefficients = coefficients(&context.dims()).tensor(&context.device());
    let gradients = (context.clone() * coefficients).sum().backward();
    let gradient = |leaf: Tensor<4>| {
        let gradient = leaf.grad(&gradients).expect("the context depends on all leaves");
        assert_eq!(gradient.dims(), leaf.dims());
        Array::read(gradient)
    };
    std::iter::once(Array::read(context)).chain(leaves.into_iter().map(gradient)).collect()
}

/// By a mask of all pairs.
pub fn dense(visibility: &Visibility, span: Span, heads: usize) -> impl Fn(AttentionProgram) -> Tensor<4> {
    move |program| {
        let mask = visibility.mask(span, heads, program.values.dtype(), &program.values.device());
        reference::attend(AttentionProgram { mask, ..program }, &mut Probe::off())
    }
}

/// Tile by tile.
pub fn tiled(visibility: &Visibility, span: Span, heads: usize) -> impl Fn(AttentionProgram) -> Tensor<4> {
    move |program| fused::attend(program, Arc::new([Part::in_order(visibility.tiles(span, heads))]))
}

/// Asserts that contexts and gradients are those of another execution, but for rounding.
pub fn compare(what: &str, found: &[Array], expected: &[Array]) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let largest = expected.values.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
        same(&format!("{what}: context or gradient {at}"), &found.values, &expected.values, 2e-5 * largest).unwrap();
    }
}
