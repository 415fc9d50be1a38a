use std::sync::Arc;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{FloatDType, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::conformance::cube_test_device as adapter;
use crate::engine::Normaliser;
use crate::engine::fused::composed;
use crate::engine::fused::plan::Part;
use crate::random::RandomKey;
use crate::visibility::{Span, Visibility};

const BATCH: usize = 2;
const HEADS: usize = 2;

fn tensor<B: Backend>(seed: u64, length: usize, width: usize, device: &B::Device) -> FloatTensor<B> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let numbers = (0..BATCH * HEADS * length * width).map(|_| rng.random_range(-2.0f32..2.0) / (width as f32).sqrt()).collect::<Vec<_>>();
    B::float_from_data(TensorData::new(numbers, [BATCH, HEADS, length, width]), device)
}

fn cast<B: Backend>(tensor: FloatTensor<B>, dtype: FloatDType) -> FloatTensor<B> {
    B::float_cast(tensor, dtype)
}

fn read<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    burn::tensor::try_read_sync(B::float_into_data(tensor)).expect("the device answers").expect("the kernels have run")
}

/// Context, log-sum-exp and gradients of queries, keys and values.
struct Results([TensorData; 5]);

fn results(native: bool, span: Span, widths: [usize; 2], plan: &Plan) -> Results {
    results_of(&[FloatDType::F32], native, span, widths, plan)
}

/// The same of inputs that are cast to these types one after the other.
fn results_of(casts: &[FloatDType], native: bool, span: Span, [factor, value]: [usize; 2], plan: &Plan) -> Results {
    let device = adapter();
    let drawn = |(length, width)| {
        let tensor = tensor::<CubeBackend>((length * width) as u64, length, width, &device);
        casts.iter().fold(tensor, |tensor, &dtype| cast::<CubeBackend>(tensor, dtype))
    };
    let [queries, keys, values, gradient] =
        [(span.queries, factor), (span.keys, factor), (span.keys, value), (span.queries, value)].map(drawn);
    assert!(has_room(&device, queries.dtype), "the adapter does not run the kernels");
    let inputs = [queries, keys, values];
    let dropout = plan.dropout.as_ref();
    let (context, log_sum_exp, gradients) = if native {
        let tiles = &plan.parts[0].tiles;
        let (context, log_sum_exp) = forward(inputs.clone(), tiles, dropout);
        let forward = [context.clone(), log_sum_exp.clone(), gradient];
        (context, log_sum_exp, backward(inputs, forward, tiles, dropout))
    } else {
        let [queries, keys, values] = inputs;
        let operands = Operands::of_product(queries, keys, values);
        let (context, log_sum_exp) = composed::forward::<CubeBackend>(operands.clone(), plan);
        let gradients = composed::backward::<CubeBackend>(operands, context.clone(), log_sum_exp.clone(), gradient, plan);
        let given = |operand: Operand<CubeBackend>| operand.given().expect("it has a gradient");
        (context, log_sum_exp, (given(gradients.queries), given(gradients.keys), gradients.values))
    };
    Results([context, log_sum_exp, gradients.0, gradients.1, gradients.2].map(read::<CubeBackend>))
}

fn plan(visibility: &Visibility, span: Span, dropout: Option<WeightDropout>) -> Plan {
    let tiles = Arc::new(TileMap::new(visibility, span, HEADS));
    Plan {
        parts: Arc::new([Part::in_order(tiles)]),
        normaliser: Normaliser::Softmax,
        dropout,
        ramp: None,
        pairs: None,
        gaussians: None,
        cap: None,
        is_bias_fixed: false,
        by_kernels: true,
    }
}

/// By how much two results differ at most.
fn difference(found: &TensorData, expected: &TensorData) -> f32 {
    found.iter::<f32>().zip(expected.iter::<f32>()).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn kernels_compute_what_the_composed_operator_computes() {
    let dropout = |seed| WeightDropout::new(0.3, RandomKey::from_seed(seed));
    let cases = [
        (Visibility::all(), Span::whole(1, 1), [1, 1], dropout(1)),
        (Visibility::causal(), Span::whole(70, 70), [5, 7], dropout(1)),
        (Visibility::padding(vec![129, 40]), Span::whole(65, 129), [8, 36], dropout(2)),
    ];
    for (visibility, span, widths, dropout) in cases {
        let plan = plan(&visibility, span, dropout);
        let (found, expected) = (results(true, span, widths, &plan), results(false, span, widths, &plan));
        for (index, (found, expected)) in found.0.iter().zip(&expected.0).enumerate() {
            let difference = difference(found, expected);
            assert!(difference < 2e-5, "{span:?} widths {widths:?}: result {index} differs by {difference}");
        }
    }
    let (span, widths) = (Span::whole(70, 70), [8, 36]);
    let [one, other] = [1, 2].map(|seed| results(true, span, widths, &plan(&Visibility::all(), span, dropout(seed))));
    for index in [0, 2, 3, 4] {
        assert!(difference(&one.0[index], &other.0[index]) > 1e-3, "result {index} does not notice what is dropped");
    }
}

#[test]
fn kernels_in_16_bits_compute_what_they_compute_in_32() {
    let span = Span::whole(70, 130);
    let plan = plan(&Visibility::padding(vec![129, 40]), span, WeightDropout::new(0.3, RandomKey::from_seed(1)));
    for widths in [[5, 7], [8, 36]] {
        let found = results_of(&[FloatDType::F16], true, span, widths, &plan);
        let expected = results_of(&[FloatDType::F16, FloatDType::F32], true, span, widths, &plan);
        for (index, (found, expected)) in found.0.iter().zip(&expected.0).enumerate() {
            // Log-sum-exps have 32 bits.
            assert_eq!(found.dtype(), if index == 1 { DType::F32 } else { DType::F16 });
            let difference = difference(found, expected);
            assert!(difference < 4e-3, "widths {widths:?}: result {index} differs by {difference}");
        }
        let whole = results(true, span, widths, &plan);
        assert!(difference(&whole.0[0], &expected.0[0]) > 0.0, "the inputs were not rounded");
    }
}

#[test]
fn queries_that_see_nothing_have_no_context_and_no_gradient() {
    let span = Span::whole(20, 70);
    // In the first row of the batch nothing is seen, in the second everything.
    let plan = plan(&Visibility::padding(vec![0, 70]), span, None);
    let Results([context, log_sum_exp, queries, keys, values]) = results(true, span, [5, 7], &plan);
    for data in [context, queries, keys, values] {
        let numbers = data.try_to_vec::<f32>().expect("the numbers are 32-bit floats");
        let (unseen, seen) = numbers.split_at(numbers.len() / 2);
        assert!(unseen.iter().all(|&number| number == 0.0));
        assert!(seen.iter().any(|&number| number != 0.0));
    }
    let sums = log_sum_exp.try_to_vec::<f32>().expect("the numbers are 32-bit floats");
    let (unseen, seen) = sums.split_at(sums.len() / 2);
    assert!(unseen.iter().all(|&sum| sum == UNSEEN) && seen.iter().all(|&sum| sum < 10.0));
}

#[test]
fn tiles_of_a_visibility_are_uploaded_once() {
    let device = adapter();
    let span = Span::whole(70, 70);
    let [one, other] = [Visibility::causal(), Visibility::all()].map(|visibility| plan(&visibility, span, None).parts[0].tiles.clone());
    let memory = |map: &Arc<TileMap>| DeviceTiles::new(map, [70, 70], &device).words.handle.memory;
    let [first, again, of_other] = [memory(&one), memory(&one), memory(&other)];
    assert_eq!(first.descriptor(), again.descriptor());
    assert_ne!(first.descriptor(), of_other.descriptor());
}
