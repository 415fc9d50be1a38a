//! The operators against separate tensor operations, values and gradients, on every backend; and the kernels against their composed counterparts.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::ActivationOps;
use burn::module::Param;
use burn::nn::{LayerNorm, LayerNormConfig, LinearConfig};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Shape, TensorData};
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;

use super::*;

/// Devices of the backends in this build, with autodiff.
pub(crate) fn devices() -> Vec<Device> {
    let devices = [
        Device::flex(),
        #[cfg(feature = "ndarray")]
        #[allow(deprecated, reason = "ndarray leaves Burn in 0.23")]
        Device::ndarray(),
        #[cfg(feature = "wgpu")]
        heedful_attention::conformance::test_device(),
    ];
    devices.into_iter().map(|device| device.autodiff()).collect()
}

pub(crate) fn drawn<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
    Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(seed), device)
}

/// The largest difference, relative to the largest number.
fn difference(a: &[TensorData], b: &[TensorData]) -> f64 {
    assert_eq!(a.len(), b.len());
    let of_pair = |(a, b): (&TensorData, &TensorData)| {
        assert_eq!(a.shape(), b.shape());
        let largest = b.iter::<f64>().map(f64::abs).fold(0.0, f64::max);
        a.iter::<f64>().zip(b.iter::<f64>()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
    };
    a.iter().zip(b).map(of_pair).fold(0.0, f64::max)
}

fn assert_equal(found: &[TensorData], expected: &[TensorData], what: &str) {
    let difference = difference(found, expected);
    assert!(difference < 2e-5, "{what}: difference {difference}");
}

const EPSILON: f64 = 1e-3;

/// [`norm`] with the parameters of a module.
fn fused_norm(x: Tensor<3>, parameters: &LayerNorm) -> Tensor<3> {
    norm(x, parameters.gamma.val(), parameters.beta.as_ref().unwrap().val(), EPSILON)
}

/// The output of `layer` for random input of width 37, and the gradients of input and parameters.
fn normalised(device: &Device, layer: impl Fn(Tensor<3>, &LayerNorm) -> Tensor<3>) -> Vec<TensorData> {
    let mut norm = LayerNormConfig::new(37).with_epsilon(EPSILON).init(device);
    norm.gamma = Param::from_tensor(drawn(1, [37], device));
    norm.beta = Some(Param::from_tensor(drawn(2, [37], device)));
    let x = drawn(3, [3, 300, 37], device).require_grad();
    let output = layer(x.clone(), &norm);
    let gradients = (output.clone() * drawn(4, [3, 300, 37], device)).sum().backward();
    let of = |parameter: &Param<Tensor<1>>| read(parameter.val().grad(&gradients).unwrap());
    let (gamma, beta) = (of(&norm.gamma), of(norm.beta.as_ref().unwrap()));
    vec![read(output), read(x.grad(&gradients).unwrap()), gamma, beta]
}

#[test]
fn normalisation_is_that_of_burn() {
    for device in devices() {
        let expected = normalised(&device, |x, norm| norm.forward(x));
        assert_equal(&normalised(&device, fused_norm), &expected, &format!("{device:?}"));
        let scaled = normalised(&device, |x, norm| fused_norm(x, norm) * 1.01);
        assert!(difference(&scaled, &expected) > 1e-3, "another result is not told apart");
    }
}

/// The output of `layer` for random input, and the gradients of input and parameters.
fn activated(device: &Device, layer: impl Fn(Tensor<3>, &Linear) -> Tensor<3>) -> Vec<TensorData> {
    let mut linear = LinearConfig::new(19, 45).init(device);
    linear.weight = Param::from_tensor(drawn(1, [19, 45], device));
    linear.bias = Some(Param::from_tensor(drawn(2, [45], device)));
    let x = drawn(3, [3, 300, 19], device).require_grad();
    let output = layer(x.clone(), &linear);
    let gradients = (output.clone() * drawn(4, [3, 300, 45], device)).sum().backward();
    let weight = read(linear.weight.val().grad(&gradients).unwrap());
    let bias = read(linear.bias.as_ref().unwrap().val().grad(&gradients).unwrap());
    vec![read(output), read(x.grad(&gradients).unwrap()), weight, bias]
}

#[test]
fn linear_maps_are_those_of_burn() {
    for device in devices() {
        let expected = activated(&device, |x, linear| linear.forward(x));
        assert_equal(&activated(&device, linear), &expected, &format!("{device:?}"));
        let expected = activated(&device, |x, linear| relu(linear.forward(x)));
        assert_equal(&activated(&device, linear_relu), &expected, &format!("{device:?}"));
        let without = activated(&device, |x, linear| linear.forward(x));
        assert!(difference(&without, &expected) > 1e-3, "a missing activation is not told apart");
    }
}

const ROWS: usize = 9;
const WIDTH: usize = 6;
const VOCABULARY: usize = 53;

/// Both sums, and the gradients of states and matrix of three times the first.
fn scored(device: &Device, loss: impl Fn(Tensor<2>, Tensor<2>, Tensor<1, Int>, Tensor<1>) -> Tensor<1>) -> Vec<TensorData> {
    let states = drawn(1, [ROWS, WIDTH], device).require_grad();
    let matrix = drawn(2, [VOCABULARY, WIDTH], device).require_grad();
    let plain = device.clone().without_autodiff();
    let targets: Vec<i32> = (0..ROWS).map(|row| (row * 23 % VOCABULARY) as i32).collect();
    let targets = Tensor::from_data(TensorData::new(targets, [ROWS]), &plain);
    let weights: Vec<f32> = (0..ROWS).map(|row| if row % 4 == 1 { 0.0 } else { 1.0 }).collect();
    let weights = Tensor::from_data(TensorData::new(weights, [ROWS]), &plain);
    // Losses are computed from results of a graph, not from its leaves.
    let sums = loss(states.clone() * 1.0, matrix.clone() * 1.0, targets, weights);
    let gradients = (sums.clone().slice(0..1) * 3.0).backward();
    let [states, matrix] = [states, matrix].map(|leaf| read(leaf.grad(&gradients).unwrap()));
    vec![read(sums), states, matrix]
}

fn by_definition(logits: Tensor<2>, targets: Tensor<1, Int>, weights: Tensor<1>, smoothing: f64) -> Tensor<1> {
    let log_probabilities = log_softmax(logits, 1);
    let targets = Tensor::from_inner(targets.reshape([ROWS, 1]));
    let weights = Tensor::from_inner(weights.reshape([ROWS, 1]));
    let likelihood = log_probabilities.clone().gather(1, targets).neg() * weights.clone();
    let even = log_probabilities.mean_dim(1).neg() * weights;
    let loss = likelihood.clone() * (1.0 - smoothing) + even * smoothing;
    Tensor::cat(vec![loss.sum(), likelihood.sum()], 0)
}

#[test]
fn cross_entropy_is_that_of_its_definition() {
    for device in devices() {
        for smoothing in [0.0, 0.3] {
            let product = |states: Tensor<2>, matrix: Tensor<2>| states.matmul(matrix.transpose());
            let expected =
                scored(&device, |states, matrix, targets, weights| by_definition(product(states, matrix), targets, weights, smoothing));
            let found =
                scored(&device, |states, matrix, targets, weights| cross_entropy(product(states, matrix), targets, weights, smoothing));
            assert_equal(&found, &expected, &format!("{device:?}, smoothing {smoothing}"));
            let projected =
                scored(&device, |states, matrix, targets, weights| projected_cross_entropy(states, matrix, targets, weights, smoothing));
            assert_equal(&projected, &expected, &format!("projected, {device:?}, smoothing {smoothing}"));
            let other = scored(&device, |states, matrix, targets, weights| {
                projected_cross_entropy(states, matrix, targets.ones_like(), weights, smoothing)
            });
            assert!(difference(&other, &expected) > 1e-2, "other targets are not told apart");
        }
    }
}

fn primitive<const D: usize>(seed: u64, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(read(drawn(seed, shape, &Device::flex())))
}

fn data<const N: usize>(tensors: [FlexTensor; N]) -> Vec<TensorData> {
    tensors.map(FlexTensor::into_data).to_vec()
}

fn targets(rows: usize, vocabulary: usize) -> FlexTensor {
    FlexTensor::from_data(TensorData::new((0..rows).map(|row| (row * 23 % vocabulary) as i32).collect(), [rows]))
}

#[test]
fn kernels_equal_their_composed_twins() {
    let [x, gradient] = [1, 2].map(|seed| primitive(seed, [500, 37]));
    let [gamma, beta] = [3, 4].map(|seed| primitive(seed, [37]));
    let (output, statistics) = Flex::norm_forward(x.clone(), gamma.clone(), beta.clone(), 1e-6);
    let (own_output, own_statistics) = tensor_ops::norm::<Flex>(x.clone(), gamma.clone(), beta.clone(), 1e-6);
    assert_equal(&data([output, statistics.clone()]), &data([own_output, own_statistics]), "norm");
    let kernel = Flex::norm_backward(x.clone(), gamma.clone(), statistics.clone(), gradient.clone());
    let twin = tensor_ops::norm_backward::<Flex>(x.clone(), gamma, statistics, gradient.clone());
    assert_equal(&data([kernel.0, kernel.1, kernel.2]), &data([twin.0, twin.1, twin.2]), "gradient of norm");
    let (kernel, twin) = (Flex::biased(x.clone(), beta.clone()), tensor_ops::biased::<Flex>(x.clone(), beta.clone()));
    assert_equal(&data([kernel]), &data([twin]), "bias");
    let (kernel, twin) = (Flex::sum_of_rows(x.clone()), tensor_ops::sum_of_rows::<Flex>(x.clone()));
    assert_equal(&data([kernel]), &data([twin]), "sum of rows");
    let output = Flex::biased_relu(x.clone(), beta.clone());
    assert_equal(&data([output.clone()]), &data([tensor_ops::biased_relu::<Flex>(x.clone(), beta)]), "relu");
    let kernel = Flex::biased_relu_backward(output.clone(), gradient.clone());
    let slopes = Flex::relu_backward(output, gradient);
    assert_equal(&data([kernel.0, kernel.1]), &data([slopes.clone(), tensor_ops::sum_of_rows::<Flex>(slopes)]), "gradient of relu");
    let weights = || FlexTensor::from_data(TensorData::ones::<f32, _>([500]));
    let kernel = Flex::cross_entropy_with_gradient(x.clone(), targets(500, 37), weights(), 0.1);
    let alone = Flex::cross_entropy_forward(x.clone(), targets(500, 37), weights(), 0.1);
    let twin = tensor_ops::cross_entropy::<Flex>(x.clone(), targets(500, 37), weights(), 0.1);
    assert_equal(&data([alone]), &data([twin.0.clone()]), "loss without gradient");
    assert_equal(&data([kernel.0, kernel.1]), &data([twin.0, twin.1]), "cross-entropy");
    let factors = || FlexTensor::from_data(TensorData::new(vec![0.3f32, 7.0], [2]));
    let [kernel, twin] = [Flex::scaled_by_first(x.clone(), factors()), tensor_ops::scaled_by_first::<Flex>(x, factors())];
    assert_equal(&data([kernel]), &data([twin]), "scaling");
}

#[test]
fn sums_do_not_depend_on_the_number_of_threads() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let [x, gradient] = [1, 2].map(|seed| primitive(seed, [5000, 37]));
            let (output, statistics) = Flex::norm_forward(x.clone(), primitive(3, [37]), primitive(4, [37]), 1e-6);
            let (_, gamma, beta) = Flex::norm_backward(x.clone(), primitive(3, [37]), statistics, gradient.clone());
            let (_, bias) = Flex::biased_relu_backward(output, gradient.clone());
            let weights = FlexTensor::from_data(TensorData::ones::<f32, _>([5000]));
            let sums = Flex::cross_entropy_forward(x, targets(5000, 37), weights, 0.1);
            data([gamma, beta, bias, Flex::sum_of_rows(gradient), sums])
        })
    };
    let alone = run(1);
    assert_eq!(alone, run(2));
    assert_eq!(alone, run(5));
}

#[test]
fn parts_of_the_rows_add_up_to_all() {
    let run = |limit| {
        let (states, matrix) = (primitive(1, [ROWS, WIDTH]), primitive(2, [VOCABULARY, WIDTH]));
        let weights = FlexTensor::from_data(TensorData::ones::<f32, _>([ROWS]));
        let (sums, [of_states, of_matrix]) = tensor_ops::projected_cross_entropy_with_gradients::<Flex>(
            states.clone(),
            matrix.clone(),
            targets(ROWS, VOCABULARY),
            weights.clone(),
            0.1,
            limit,
        );
        let alone = tensor_ops::projected_cross_entropy::<Flex>(states, matrix, targets(ROWS, VOCABULARY), weights, 0.1, limit);
        data([sums, of_states, of_matrix, alone])
    };
    let whole = run(ROWS * VOCABULARY);
    for limit in [1, VOCABULARY, 2 * VOCABULARY, 4 * VOCABULARY] {
        assert_equal(&run(limit), &whole, &format!("at most {limit} logits at once"));
    }
}

#[test]
fn numbers_that_are_not_finite_are_not_hidden() {
    for bad in [f32::NAN, f32::INFINITY] {
        let tensor = || FlexTensor::from_data(TensorData::new(vec![0.0, bad, 1.0], [1, 3]));
        let vector = |number: f32, count: usize| FlexTensor::from_data(TensorData::new(vec![number; count], Shape::new([count])));
        let is_finite = |tensor: FlexTensor| tensor.into_data().iter::<f32>().all(f32::is_finite);
        assert!(!is_finite(Flex::cross_entropy_forward(tensor(), targets(1, 3), vector(1.0, 1), 0.0)));
        assert!(!is_finite(Flex::cross_entropy_with_gradient(tensor(), targets(1, 3), vector(1.0, 1), 0.0).0));
        assert!(!is_finite(Flex::norm_forward(tensor(), vector(1.0, 3), vector(0.0, 3), 1e-6).0));
        assert!(!is_finite(Flex::biased_relu(tensor(), vector(0.0, 3))));
        assert!(is_finite(Flex::biased_relu(vector(f32::NEG_INFINITY, 3).reshape(Shape::new([1, 3])), vector(0.0, 3))));
    }
}
