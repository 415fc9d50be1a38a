//! The fused execution at the borders of tiles, vectors and blocks, against the dense one.

use burn::tensor::{Device, Tensor};
use heedful_attention::contract::visibility::{Span, Visibility};
use heedful_attention::engine::{AttentionProgram, LogitTerms, Weighting};

use crate::array::{Array, same};
use crate::backends::backends;
use crate::executions::{self, context_and_gradients, dense, tiled};

const BATCH: usize = 2;
const HEADS: usize = 2;

const NAMES: [&str; 4] = ["context", "gradient of queries", "gradient of keys", "gradient of values"];

/// Context and gradients of queries, keys and values, whose heads lie next to each other as projections leave them.
fn run(span: Span, [factor, value]: [usize; 2], device: &Device, execute: impl Fn(AttentionProgram) -> Tensor<4>) -> Vec<Array> {
    let device = device.clone().autodiff();
    let leaf = |name, length, width| executions::leaf(name, [BATCH, length, HEADS, width], &device);
    let leaves = [leaf("queries", span.queries, factor), leaf("keys", span.keys, factor), leaf("values", span.keys, value)];
    let [queries, keys, values] = leaves.clone().map(|leaf| leaf.swap_dims(1, 2));
    let weighting = Weighting::softmax(LogitTerms::content(queries / (factor as f64).sqrt(), keys));
    let context = execute(AttentionProgram { weighting, mask: None, soft_span: None, values, dropout: None });
    context_and_gradients(context, leaves)
}

#[test]
fn borders_of_tiles_and_blocks_are_no_borders_of_the_result() {
    let cases = [(1, 1, [1, 1]), (1, 64, [33, 1]), (20, 63, [4, 8]), (63, 65, [8, 36]), (65, 129, [130, 33])];
    for backend in backends() {
        for (queries, keys, widths) in cases {
            let span = Span { query_start: keys - queries, queries, key_start: 0, keys };
            // The rows of the batch see different keys.
            let visibility = Visibility::causal().and(Visibility::padding(vec![keys, keys.div_ceil(2)]));
            let expected = run(span, widths, &backend.device, dense(&visibility, span, HEADS));
            let found = run(span, widths, &backend.device, tiled(&visibility, span, HEADS));
            for (name, (found, expected)) in NAMES.iter().zip(found.iter().zip(&expected)) {
                let what = format!("{}: {span:?} widths {widths:?}: {name}", backend.name);
                same(&what, &found.values, &expected.values, 2e-5).unwrap();
            }
            if keys > 1 {
                let fewer = visibility.and(Visibility::padding(vec![keys - 1, keys]));
                let fewer = run(span, widths, &backend.device, tiled(&fewer, span, HEADS));
                assert!(same("context", &fewer[0].values, &expected[0].values, 1e-3).is_err(), "{}: {span:?}: one key less", backend.name);
            }
        }
    }
}
