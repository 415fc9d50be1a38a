use burn::backend::Dispatch;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Device, Tensor, TensorData};
use heedful_random::RandomKey;

use super::*;
use crate::conformance::test_device as adapter;
use crate::engine::dropout::{WeightDropout, dropout_from, keep_mask};
use crate::tensors::read::read;

const PROBABILITIES: [f64; 4] = [1.0 / 65536.0, 0.1, 0.5, 0.999];

fn key() -> RandomKey {
    RandomKey::from_seed(1).named("dropout")
}

fn threshold(probability: f64) -> u32 {
    (probability * 65536.0).round() as u32
}

fn mask(first: usize, count: usize, probability: f64) -> Vec<f32> {
    keep_mask(first..first + count, threshold(probability), key().seed())
}

/// Other numbers in each place, of both signs.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 37 % 101) as f32 - 50.5) / 7.0).collect()
}

fn vector<const D: usize>(numbers: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    read(tensor).try_to_vec().expect("the numbers are 32-bit floats")
}

fn products(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

#[test]
fn factors_are_those_of_the_host() {
    assert!(adapter().supports_dtype(DType::F32), "the host would draw, and agree with itself");
    // The last one precedes the block whose number needs more than 32 bits.
    for first in [0, 1, 6, 31, 32, 32_767, (1 << 37) - 5] {
        for count in [1, 31, 33, 65_537] {
            for probability in PROBABILITIES {
                let ones = || Tensor::<1>::ones([count], &adapter());
                let drawn = values(dropout_from(first, ones(), probability, Some(&key())));
                assert_eq!(drawn, mask(first, count, probability), "{count} elements from {first} on, probability {probability}");
            }
        }
    }
}

#[test]
fn other_seeds_and_places_have_other_factors() {
    let drawn = |key: RandomKey, first| values(dropout_from(first, Tensor::<1>::ones([100], &adapter()), 0.5, Some(&key)));
    let expected = mask(7, 100, 0.5);
    assert_eq!(drawn(key(), 7), expected);
    assert_ne!(drawn(key().numbered(1), 7), expected);
    assert_ne!(drawn(key(), 8), expected);
    assert_ne!(drawn(key(), 7 + ELEMENTS), expected);
}

#[test]
fn gradients_have_the_factors_of_their_elements() {
    for (first, count) in [(0, 33), (1, 31), (32_767, 65_537)] {
        for probability in PROBABILITIES {
            let mask = mask(first, count, probability);
            for device in [adapter().autodiff(), adapter().autodiff().gradient_checkpointing()] {
                let x = vector(numbers(count), [count], &device).require_grad();
                let cotangent = vector(numbers(count).into_iter().rev().collect(), [count], &device);
                let output = dropout_from(first, x.clone(), probability, Some(&key()));
                let gradients = (output.clone() * cotangent.clone()).sum().backward();
                assert_eq!(values(output), products(&numbers(count), &mask));
                let expected = products(&values(cotangent), &mask);
                let found = values(x.grad(&gradients).expect("it has a gradient").inner());
                assert_eq!(found, expected, "{count} elements from {first} on, probability {probability}");
                if probability == 0.5 {
                    assert_ne!(found, products(&expected, &mask), "factors that count twice are not told apart");
                }
            }
        }
    }
}

#[test]
fn a_graph_that_keeps_no_output_draws_the_same_again() {
    let [kept, again] = [adapter().autodiff(), adapter().autodiff().gradient_checkpointing()].map(|device| {
        let x = vector(numbers(500), [500], &device).require_grad();
        let output = dropout_from(3, x.clone() * 2.0, 0.3, Some(&key()));
        let gradients = (output.clone() * output).sum().backward();
        values(x.grad(&gradients).expect("it has a gradient").inner())
    });
    assert_eq!(kept, again);
    let mask = mask(3, 500, 0.3);
    assert!(kept.iter().zip(&mask).all(|(&gradient, &factor)| (gradient == 0.0) == (factor == 0.0)));
}

#[test]
fn elements_are_counted_in_the_order_of_the_dimensions() {
    let (rows, columns) = (70, 33);
    let x = vector(numbers(rows * columns), [columns, rows], &adapter());
    let mask = mask(5, rows * columns, 0.4);
    let turned = x.swap_dims(0, 1);
    let expected = products(&values(turned.clone()), &mask);
    assert_eq!(values(dropout_from(5, turned, 0.4, Some(&key()))), expected);
    let repeated = vector(numbers(columns), [1, columns], &adapter()).expand([rows, columns]);
    let expected = products(&values(repeated.clone()), &mask);
    assert_eq!(values(dropout_from(5, repeated, 0.4, Some(&key()))), expected);
    let part = vector(numbers(2 * rows * columns), [rows, 2 * columns], &adapter()).narrow(1, columns, columns);
    let expected = products(&values(part.clone()), &mask);
    assert_eq!(values(dropout_from(5, part, 0.4, Some(&key()))), expected);
}

#[test]
fn an_operand_stays_what_it_is() {
    let x = vector(numbers(100), [100], &adapter());
    let _dropped = values(dropout_from(0, x.clone(), 0.5, Some(&key())));
    assert_eq!(values(x), numbers(100));
}

/// The tensor on the backend.
fn primitive(numbers: Vec<f32>) -> CubeTensor {
    let count = numbers.len();
    let device = adapter();
    let burn::backend::DispatchDevice::Cube(device) = device.as_dispatch() else { unreachable!("the adapter is one of CubeCL") };
    CubeBackend::float_from_data(TensorData::new(numbers, [count]), device)
}

fn read_primitive(tensor: CubeTensor) -> Vec<f32> {
    let data = burn::tensor::try_read_sync(CubeBackend::float_into_data(tensor)).expect("the device answers").expect("the kernel has run");
    data.try_to_vec().expect("the numbers are 32-bit floats")
}

#[test]
fn cubes_may_lie_in_three_dimensions_and_be_too_many() {
    let (first, count, threshold) = (33, 65_537, threshold(0.5));
    let expected = mask(first, count, 0.5);
    for (x, y, z) in [(33, 1, 1), (3, 11, 1), (5, 7, 1), (3, 5, 4)] {
        let ones = primitive(vec![1.0; count]);
        let output = dropped(CubeCount::Static(x, y, z), ones, key().seed(), first as u64, threshold, factor_of_kept(threshold));
        assert_eq!(read_primitive(output), expected, "{x} x {y} x {z} cubes");
    }
}

#[test]
fn the_host_draws_what_the_device_cannot() {
    let draw = |x| dropped_by_host::<CubeBackend>(x, Draws::Stream { seed: key().seed(), first: 9, threshold: threshold(0.5) });
    assert_eq!(read_primitive(draw(primitive(numbers(77)))), products(&numbers(77), &mask(9, 77, 0.5)));
    let nothing = dropout_from(9, Tensor::<2>::zeros([0, 3], &adapter()), 0.5, Some(&key()));
    assert_eq!(nothing.dims(), [0, 3]);
}

#[test]
fn weights_are_dropped_as_by_the_host_with_their_gradients() {
    let shape = [2, 3, 70, 45];
    let count = shape.iter().product();
    for probability in [0.1, 0.5] {
        let dropout = WeightDropout::new(probability, key()).expect("it drops something");
        let factors = dropout.factors(shape, 0);
        for device in [adapter().autodiff(), adapter().autodiff().gradient_checkpointing()] {
            let weights = vector(numbers(count), shape, &device).require_grad();
            let cotangent = vector(numbers(count).into_iter().rev().collect(), shape, &device);
            let output = dropout.drop(weights.clone());
            let gradients = (output.clone() * cotangent.clone()).sum().backward();
            assert_eq!(values(output), products(&numbers(count), &factors));
            let found = values(weights.grad(&gradients).expect("it has a gradient").inner());
            assert_eq!(found, products(&values(cotangent), &factors), "probability {probability}");
        }
        // A part of a wider tensor, for the queries from 5 on.
        let wide = vector(numbers(2 * count), [2, 3, 70, 90], &adapter()).narrow(3, 45, 45);
        let draws = Draws::Weights { dropout, first_query: 5 };
        let found = values(Tensor::<4>::from_dispatch(<Dispatch as DropoutOperator>::dropped(wide.clone().into_dispatch(), draws)));
        assert_eq!(found, products(&values(wide.clone()), &dropout.factors(shape, 5)));
        assert_ne!(found, products(&values(wide), &factors), "queries are not told apart");
    }
}

#[test]
fn half_floats_are_multiplied_as_their_masks_would() {
    for dtype in [DType::F16, DType::BF16] {
        if !adapter().supports_dtype(dtype) {
            continue;
        }
        for probability in PROBABILITIES {
            let x = vector(numbers(1000), [1000], &adapter()).cast(dtype);
            let mask: Tensor<1> = Tensor::from_data(TensorData::new(mask(3, 1000, probability), [1000]), (&adapter(), dtype));
            let expected = read(x.clone() * mask);
            assert_eq!(read(dropout_from(3, x, probability, Some(&key()))), expected, "{dtype:?}, probability {probability}");
        }
    }
}
