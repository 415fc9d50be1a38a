//! The fused execution at the borders of tiles, vectors and blocks, against the dense one.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use heedful_attention::contract::probe::Probe;
use heedful_attention::contract::visibility::{Span, Visibility};
use heedful_attention::engine::fused::Part;
use heedful_attention::engine::{AttentionProgram, LogitTerms, Weighting, fused, reference};

use crate::array::{Array, same};
use crate::backends::backends;
use crate::subject::coefficients;

const BATCH: usize = 2;
const HEADS: usize = 2;

const NAMES: [&str; 4] = ["context", "gradient of queries", "gradient of keys", "gradient of values"];

/// Context and gradients of queries, keys and values, whose heads lie next to each other as projections leave them.
fn run(span: Span, [factor, value]: [usize; 2], device: &Device, execute: impl Fn(AttentionProgram) -> Tensor<4>) -> Vec<Array> {
    let device = device.clone().autodiff();
    let leaf = |name, length, width| Array::random(name, &[BATCH, length, HEADS, width]).tensor::<4>(&device).require_grad();
    let leaves = [leaf("queries", span.queries, factor), leaf("keys", span.keys, factor), leaf("values", span.keys, value)];
    let [queries, keys, values] = leaves.clone().map(|leaf| leaf.swap_dims(1, 2));
    let weighting = Weighting::softmax(LogitTerms::content(queries / (factor as f64).sqrt(), keys));
    let context = execute(AttentionProgram { weighting, mask: None, soft_span: None, values, dropout: None });
    let coefficients = coefficients(&context.dims()).tensor(&context.device());
    let gradients = (context.clone() * coefficients).sum().backward();
    let gradient = |leaf: Tensor<4>| Array::read(leaf.grad(&gradients).expect("the context depends on all inputs"));
    std::iter::once(Array::read(context)).chain(leaves.map(gradient)).collect()
}

#[test]
fn borders_of_tiles_and_blocks_are_no_borders_of_the_result() {
    let cases = [(1, 1, [1, 1]), (1, 64, [33, 1]), (20, 63, [4, 8]), (63, 65, [8, 36]), (65, 129, [130, 33])];
    for backend in backends() {
        for (queries, keys, widths) in cases {
            let span = Span { query_start: keys - queries, queries, key_start: 0, keys };
            // The rows of the batch see different keys.
            let visibility = Visibility::causal().and(Visibility::padding(vec![keys, keys.div_ceil(2)]));
            let dense = |program: AttentionProgram| {
                let mask = visibility.mask(span, HEADS, program.values.dtype(), &program.values.device());
                reference::attend(AttentionProgram { mask, ..program }, &mut Probe::off())
            };
            let tiled =
                |visibility: Visibility| move |program| fused::attend(program, Arc::new([Part::in_order(visibility.tiles(span, HEADS))]));
            let expected = run(span, widths, &backend.device, dense);
            let found = run(span, widths, &backend.device, tiled(visibility.clone()));
            for (name, (found, expected)) in NAMES.iter().zip(found.iter().zip(&expected)) {
                let what = format!("{}: {span:?} widths {widths:?}: {name}", backend.name);
                same(&what, &found.values, &expected.values, 2e-5).unwrap();
            }
            if keys > 1 {
                let fewer = run(span, widths, &backend.device, tiled(visibility.and(Visibility::padding(vec![keys - 1, keys]))));
                assert!(same("context", &fewer[0].values, &expected[0].values, 1e-3).is_err(), "{}: {span:?}: one key less", backend.name);
            }
        }
    }
}
