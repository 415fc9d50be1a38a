//! Slopes of the non-linearities that mechanisms and models are made of, against double precision on every backend.

use burn::tensor::{Tensor, activation};
use heedful_attention::engine::gelu::gelu;
use heedful_attention::tensors::read::read;
use libm::erf;

use crate::backends::backends;

type Plain = fn(f64) -> f64;
type Activation = fn(Tensor<1>) -> Tensor<1>;

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

const ACTIVATIONS: [(&str, Activation, Plain); 9] = [
    ("gelu", gelu, |x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))),
    ("silu", activation::silu, |x| x * logistic(x)),
    ("sigmoid", activation::sigmoid, logistic),
    ("log-sigmoid", activation::log_sigmoid, |x| -(-x).exp().ln_1p()),
    ("softplus", |x| activation::softplus(x, 1.0), |x| x.exp().ln_1p()),
    ("relu", activation::relu, |x| x.max(0.0)),
    ("tanh", Tensor::tanh, f64::tanh),
    ("exp", Tensor::exp, f64::exp),
    ("erf", Tensor::erf, erf),
];

#[test]
fn slopes_of_all_non_linearities_are_those_of_double_precision_on_every_backend() {
    // Not 0, where `relu` has no slope.
    let numbers: Vec<f32> = (-60..60).map(|at| (at as f32 + 0.5) / 12.0).chain([-2.02, 2.02]).collect();
    for backend in backends() {
        for (name, found, plain) in ACTIVATIONS {
            let x = Tensor::<1>::from_data(numbers.as_slice(), &backend.device.clone().autodiff()).require_grad();
            let slopes = read(x.grad(&found(x.clone()).sum().backward()).unwrap());
            for (x, slope) in numbers.iter().map(|&x| f64::from(x)).zip(slopes.iter::<f64>()) {
                let expected = (plain(x + 1e-5) - plain(x - 1e-5)) / 2e-5;
                let off = (slope - expected).abs();
                assert!(off <= 1e-5 * expected.abs().max(1.0), "{}, {name} at {x}: slope {slope} instead of {expected}", backend.name);
            }
        }
    }
}
