//! The fused execution of operands in 16 bits: that of the same numbers in 32 bits, rounded once.
//!
//! Both begin with numbers that 16 bits hold, so that they compute the same context in 32 bits and the gradient of the values by the same sums: what has 16 bits is
//! that, rounded. Gradients of queries and keys also use the context, which is kept in 16 bits. With the unit roundoff `u` it is wrong by up to `u |o|`, and
//! `sum_d do_d o_d`, which is subtracted from the gradient of every weight of a query, by up to `e = u sum_d |do_d o_d|`. The gradient of a query is then wrong by
//! up to `e sum_j w_j |k_j|`, and that of a key by up to the sum of `e w |q|` over queries, before it is rounded itself.

use std::sync::Arc;

use burn::tensor::{Bool, Device, FloatDType, Tensor, TensorData};
use heedful_attention::engine::fused::{self, Part};
use heedful_attention::engine::{AttentionProgram, Normaliser, Weighting};
use heedful_attention::prelude::*;

use crate::array::{Array, same};
use crate::backends::flex;

const BATCH: usize = 2;
const HEADS: usize = 4;
const LENGTH: usize = 70;
const WIDTH: usize = 5;
const OF_VALUES: usize = 7;

/// The types, with their unit roundoffs.
const SIXTEEN: [(FloatDType, f64); 2] = [(FloatDType::F16, 1.0 / 2048.0), (FloatDType::BF16, 1.0 / 256.0)];

/// Batch rows and heads of queries, keys and values.
#[derive(Clone, Copy, Debug)]
struct Shared {
    queries: [usize; 2],
    keys: [usize; 2],
    values: [usize; 2],
}

const OWN: [usize; 2] = [BATCH, HEADS];
const CASES: [Shared; 5] = [
    Shared { queries: OWN, keys: OWN, values: OWN },
    Shared { queries: OWN, keys: [BATCH, 1], values: [BATCH, 1] },
    Shared { queries: OWN, keys: [1, HEADS], values: OWN },
    Shared { queries: [1, HEADS], keys: [1, HEADS], values: OWN },
    // Heads have keys of their own and share values.
    Shared { queries: OWN, keys: OWN, values: [BATCH, 2] },
];

struct Run {
    context: Array,
    /// Of queries, keys and values.
    gradients: [Array; 3],
}

/// Numbers of this type.
fn drawn(name: &str, [rows, heads]: [usize; 2], width: usize, dtype: FloatDType, device: &Device) -> Tensor<4> {
    Array::random(name, &[rows, heads, LENGTH, width]).tensor::<4>(device).cast(dtype)
}

/// Context and gradients of numbers that `dtype` holds, computed from operands of the type `given`.
fn run(case: Shared, dtype: FloatDType, given: FloatDType) -> Run {
    let device = flex().device.autodiff();
    let leaf = |name, shape, width| drawn(name, shape, width, dtype, &device).cast(given).detach().require_grad();
    let leaves = [leaf("queries", case.queries, WIDTH), leaf("keys", case.keys, WIDTH), leaf("values", case.values, OF_VALUES)];
    let [queries, keys, values] = leaves.clone();
    let program = AttentionProgram {
        weighting: Weighting::softmax(LogitTerms::content(queries, keys)),
        mask: None,
        soft_span: None,
        values,
        dropout: None,
    };
    assert!(fused::can_attend(&program, Engine::Auto), "{case:?} in {given:?} is executed densely");
    let tiles = Visibility::causal().tiles(Span::whole(LENGTH, LENGTH), HEADS);
    let context = fused::attend(program, Arc::new([Part::in_order(tiles)]));
    assert_eq!(FloatDType::from(context.dtype()), given);
    let coefficients = drawn("coefficients", OWN, OF_VALUES, dtype, &device).cast(given);
    let gradients = (context.clone() * coefficients).sum().backward();
    let gradients = leaves.map(|leaf| {
        let gradient = leaf.grad(&gradients).expect("the context depends on it");
        assert_eq!(FloatDType::from(gradient.dtype()), given);
        Array::read(gradient)
    });
    Run { context: Array::read(context), gradients }
}

/// The numbers, rounded to the type.
fn rounded(array: &Array, dtype: FloatDType) -> Vec<f64> {
    Array::read(array.tensor::<4>(&flex().device).cast(dtype)).values
}

/// By how much gradients of queries and keys may be wrong for the rounding of the context, from the formula of causal attention in double precision.
fn bounds(case: Shared, dtype: FloatDType, unit: f64) -> [Vec<f64>; 2] {
    let device = flex().device;
    let array = |name, shape, width| Array::read(drawn(name, shape, width, dtype, &device));
    let (queries, keys) = (array("queries", case.queries, WIDTH), array("keys", case.keys, WIDTH));
    let (values, coefficients) = (array("values", case.values, OF_VALUES), array("coefficients", OWN, OF_VALUES));
    // Where a batch row and head finds its plane.
    let plane = |[rows, heads]: [usize; 2], row: usize, head: usize| [row.min(rows - 1), head / (HEADS / heads)];
    let mut of_queries = Array { values: vec![0.0; queries.values.len()], ..queries.clone() };
    let mut of_keys = Array { values: vec![0.0; keys.values.len()], ..keys.clone() };
    for (row, head) in (0..BATCH).flat_map(|row| (0..HEADS).map(move |head| (row, head))) {
        let [own, other, read] = [case.queries, case.keys, case.values].map(|shape| plane(shape, row, head));
        for i in 0..LENGTH {
            let query = queries.row(&[own[0], own[1], i]);
            let dot = |j: usize| query.iter().zip(keys.row(&[other[0], other[1], j])).map(|(a, b)| a * b).sum::<f64>();
            let exponentials: Vec<f64> = (0..=i).map(|j| dot(j).exp()).collect();
            let total: f64 = exponentials.iter().sum();
            let weight = |j: usize| exponentials[j] / total;
            let context = |d: usize| (0..=i).map(|j| weight(j) * values.at(&[read[0], read[1], j, d])).sum::<f64>();
            let error = unit * (0..OF_VALUES).map(|d| (coefficients.at(&[row, head, i, d]) * context(d)).abs()).sum::<f64>();
            for j in 0..=i {
                let key = keys.row(&[other[0], other[1], j]);
                let of_query = of_queries.row_mut(&[own[0], own[1], i]);
                of_query.iter_mut().zip(key).for_each(|(bound, number)| *bound += error * weight(j) * number.abs());
                let of_key = of_keys.row_mut(&[other[0], other[1], j]);
                of_key.iter_mut().zip(query).for_each(|(bound, number)| *bound += error * weight(j) * number.abs());
            }
        }
    }
    [of_queries.values, of_keys.values]
}

#[test]
fn what_is_computed_from_16_bits_is_that_of_32_bits_rounded() {
    for case in CASES {
        for (dtype, unit) in SIXTEEN {
            let (found, expected) = (run(case, dtype, dtype), run(case, dtype, FloatDType::F32));
            assert_eq!(found.context.values, rounded(&expected.context, dtype), "{case:?} in {dtype:?}: the context");
            let [.., of_values] = &found.gradients;
            assert_eq!(of_values.values, rounded(&expected.gradients[2], dtype), "{case:?} in {dtype:?}: the gradient of the values");
            for ((at, bounds), name) in bounds(case, dtype, unit).into_iter().enumerate().zip(["queries", "keys"]) {
                let (found, expected) = (&found.gradients[at].values, &expected.gradients[at].values);
                for ((found, expected), bound) in found.iter().zip(expected).zip(bounds) {
                    // The sums in 32 bits round too, at numbers of this size by less than a hundred thousandth.
                    let most = bound + unit * (expected.abs() + bound) + 1e-5;
                    assert!(
                        (found - expected).abs() <= most,
                        "{case:?} in {dtype:?}: {found} is not {expected} within {most}, of the {name}"
                    );
                }
            }
        }
    }
}

#[test]
fn keys_that_scores_hide_are_no_part_of_the_sum_of_a_softpick() {
    let device = flex().device;
    let span = Span::whole(LENGTH, LENGTH);
    let visible = Tensor::<2, Bool>::from_data(TensorData::new((0..LENGTH).map(|key| key % 3 == 0).collect(), [1, LENGTH]), &device);
    for (dtype, unit) in SIXTEEN {
        let logits = Array::random("logits", &[1, HEADS, LENGTH, LENGTH]).tensor::<4>(&device).cast(dtype);
        let run = |scores: Tensor<4>, visibility: &Visibility| {
            let program = AttentionProgram {
                weighting: Weighting::Scores(LogitTerms::bias(scores), Normaliser::Softpick { epsilon: 1e-6 }),
                mask: None,
                soft_span: None,
                values: drawn("values", OWN, OF_VALUES, dtype, &device),
                dropout: None,
            };
            Array::read(fused::attend(program, Arc::new([Part::in_order(visibility.tiles(span, HEADS))]))).values
        };
        let mask = Visibility::given_keys(visible.clone()).mask(span, HEADS, dtype.into(), &device).expect("some keys are hidden");
        let found = run(logits.clone() + mask.bias, &Visibility::all());
        let expected = run(logits, &Visibility::relation(|_, key| key % 3 == 0));
        same(&format!("{dtype:?}"), &found, &expected, 2.0 * unit).unwrap();
    }
}

#[test]
fn the_bounds_of_the_gradients_tell_bfloat16_from_32_bits() {
    let case = CASES[0];
    let (found, expected) = (run(case, FloatDType::BF16, FloatDType::BF16), run(case, FloatDType::BF16, FloatDType::F32));
    for (at, bounds) in bounds(case, FloatDType::BF16, 1.0 / 65536.0).into_iter().enumerate() {
        let pairs = found.gradients[at].values.iter().zip(&expected.gradients[at].values).zip(bounds);
        let exceeded =
            pairs.filter(|((found, expected), bound)| (*found - *expected).abs() > bound + expected.abs() / 65536.0 + 1e-5).count();
        assert!(exceeded > expected.gradients[at].values.len() / 4, "{exceeded} gradients have the rounding of 16 bits");
    }
}
