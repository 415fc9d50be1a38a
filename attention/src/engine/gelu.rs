//! GELU, `x Φ(x)` (Hendrycks and Gimpel 2016), with a custom gradient on every backend.
//!
//! On every backend but flex, Burn 0.22.1 differentiates its `gelu` like the tanh approximation. Those slopes are off by up to 8.7e-4, at `|x| = 2.02`. Here
//! the gradient uses the error function, which is correct everywhere.

use burn::backend::DispatchDevice;
use burn::tensor::{Device, Tensor};

/// `x Φ(x)` of each number.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    // One pass forward and one backward, saving only the input.
    #[allow(clippy::disallowed_methods, reason = "its gradient on flex is that of the error function")]
    if is_flex(&x.device()) { burn::tensor::activation::gelu(x) } else { by_error_function(x) }
}

/// [`gelu`] as a composition, which rounds differently from one pass. Mechanisms also use it on flex, since their recorded digits come from it.
pub(crate) fn by_error_function<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    x.clone() * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5
}

fn is_flex(device: &Device) -> bool {
    matches!(device.clone().without_autodiff().as_dispatch(), DispatchDevice::Flex(_))
}

/// `x Φ(x)` in double precision, by the series of the normal distribution function whose terms all have one sign.
pub(crate) fn plain_gelu(x: f64) -> f64 {
    // Φ(-10) is less than 1e-23. From 38 on the sum of the series, about `e^(x^2 / 2)`, overflows.
    if x.abs() > 10.0 {
        return x.max(0.0);
    }
    let (mut term, mut sum, mut count) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        count += 2.0;
        term *= x * x / count;
        sum += term;
    }
    x * (0.5 + (-x * x / 2.0).exp() * sum / std::f64::consts::TAU.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_the_input_times_the_normal_distribution_function() {
        // Abramowitz and Stegun, table 26.1.
        for (x, distribution) in [(0.0, 0.5), (1.0, 0.841344746068543), (-1.0, 0.158655253931457), (2.5, 0.993790334674224)] {
            assert!((plain_gelu(x) - x * distribution).abs() < 1e-13, "at {x}: {}", plain_gelu(x));
        }
        for x in [9.9, 10.1, 40.0, 1e3, 1e200] {
            assert!((plain_gelu(x) - x).abs() <= 1e-13 * x && plain_gelu(-x).abs() <= 1e-13 * x, "at {x}");
        }
        assert!((plain_gelu(9.0) - 9.0).abs() < 1e-12 && plain_gelu(-9.0).abs() < 1e-12);
    }

    #[test]
    fn both_forms_and_their_slopes_are_those_of_the_plain_one() {
        let numbers = [-6.0f32, -2.5, -2.02, -0.75, 0.0, 0.25, 1.0, 2.02, 3.0, 9.0];
        for form in [gelu::<1>, by_error_function::<1>] {
            let x = Tensor::<1>::from_data(numbers, &Device::flex().autodiff()).require_grad();
            let found = form(x.clone());
            let slopes: Vec<f32> = x.grad(&found.clone().sum().backward()).unwrap().into_data().try_to_vec().unwrap();
            let found: Vec<f32> = found.into_data().try_to_vec().unwrap();
            for ((x, found), slope) in numbers.into_iter().map(f64::from).zip(found).zip(slopes) {
                let expected_slope = (plain_gelu(x + 1e-5) - plain_gelu(x - 1e-5)) / 2e-5;
                assert!(
                    (f64::from(found) - plain_gelu(x)).abs() < 1e-6 && (f64::from(slope) - expected_slope).abs() < 1e-6,
                    "at {x}: {found}, slope {slope}"
                );
            }
        }
    }
}
