//! Exponentials and sums of rows of numbers, for the kernels of the CPU backends.
//!
//! Everything here is inlined into functions that [`pulp`] compiles once per instruction set.

use super::softpick::difference;

/// Number of lanes of a reduction.
pub(super) const LANES: usize = 16;

/// Widths to which lanes are folded until one is left: each step waits for the previous one, and a sequential sum would have four times as many.
const HALVES: [usize; 4] = [LANES / 2, LANES / 4, LANES / 8, LANES / 16];

/// `e^x` for `x <= 88` with a relative error below 2e-7; 0 for `x <= -87`, NaN for NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // 1.5 * 2^23: a sum with it has no fraction bits, and the integer in its lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // x = n ln 2 + r with |r| <= ln(2) / 2, so that e^x = 2^n e^r; minimax polynomial of Cephes' expf for e^r.
    const COEFFICIENTS: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    // Not `max`, which would turn NaN into a number.
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded.mul_add(std::f32::consts::LOG2_E, ROUNDING);
    let n = shifted - ROUNDING;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, bounded));
    // Not `fold`, whose closure the compiler may not inline.
    let mut polynomial = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = polynomial.mul_add(r, *coefficient);
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x <= -87.0 { 0.0 } else { (polynomial.mul_add(r * r, r) + 1.0) * power }
}

/// `tanh x` with a relative error below 3e-7; NaN for NaN.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    // Minimax polynomial of Cephes' tanhf: near 0, exponentials would lose digits.
    const COEFFICIENTS: [f32; 5] = [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1];
    const NEAR: f32 = 0.625;
    let size = x.abs();
    let small = exp(-2.0 * size);
    let far = (1.0 - small) / (1.0 + small);
    let square = x * x;
    let mut polynomial = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = polynomial.mul_add(square, *coefficient);
    }
    let near = (polynomial * square).mul_add(x, x);
    if size <= NEAR { near } else { far.copysign(x) }
}

/// `1 / (1 + e^-x)` with a relative error below 4e-7 where it exceeds `e^-87`; 0 for `x <= -87`, NaN for NaN.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let small = exp(-x.abs());
    let share = if x < 0.0 { small } else { 1.0 };
    share / (1.0 + small)
}

/// The derivative of the SiLU, `x sigmoid(x)`.
#[inline(always)]
pub fn silu_slope(x: f32) -> f32 {
    let share = sigmoid(x);
    share * x.mul_add(1.0 - share, 1.0)
}

/// The largest number, ignoring NaN.
#[inline(always)]
pub fn largest(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for (largest, &number) in lanes.iter_mut().zip(chunk) {
            *largest = if number > *largest { number } else { *largest };
        }
    }
    for width in HALVES {
        for at in 0..width {
            lanes[at] = lanes[at].max(lanes[at + width]);
        }
    }
    rest.iter().copied().fold(lanes[0], f32::max)
}

/// Replaces each `x` by `e^(x - shift)`, with `shift` at least the maximum; returns their sum.
#[inline(always)]
pub fn exponentials(numbers: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, number) in lanes.iter_mut().zip(chunk) {
            *number = exp(*number - shift);
            *sum += *number;
        }
    }
    for number in &mut *rest {
        *number = exp(*number - shift);
    }
    sum_of_lanes(lanes) + rest.iter().sum::<f32>()
}

/// Replaces each `x` by `max(e^x - 1, 0) e^-shift`, with `shift` non-negative and at least the maximum; returns the sum of `|e^x - 1| e^-shift`. Numbers below
/// `least` count as 0 in both.
#[inline(always)]
pub fn picked(numbers: &mut [f32], shift: f32, least: f32) -> f32 {
    let one = exp(-shift);
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, number) in lanes.iter_mut().zip(chunk) {
            *sum += pick(number, shift, one, least);
        }
    }
    sum_of_lanes(lanes) + rest.iter_mut().map(|number| pick(number, shift, one, least)).sum::<f32>()
}

/// [`picked`] for one number.
#[inline(always)]
fn pick(number: &mut f32, shift: f32, one: f32, least: f32) -> f32 {
    let difference = difference(*number, one, exp(*number - shift));
    let difference = if *number < least { 0.0 } else { difference };
    *number = if difference < 0.0 { 0.0 } else { difference };
    difference.abs()
}

/// Sum of `e^(x - shift)`, with `shift` at least the maximum.
#[inline(always)]
pub fn sum_of_exponentials(numbers: &[f32], shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, number) in lanes.iter_mut().zip(chunk) {
            *sum += exp(*number - shift);
        }
    }
    sum_of_lanes(lanes) + rest.iter().map(|number| exp(*number - shift)).sum::<f32>()
}

/// Sum of products of two rows.
#[inline(always)]
pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for at in 0..LANES {
            lanes[at] = x[at].mul_add(y[at], lanes[at]);
        }
    }
    for ((sum, x), y) in lanes.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = x.mul_add(*y, *sum);
    }
    sum_of_lanes(lanes)
}

/// `sum += x * y`.
#[inline(always)]
pub(super) fn add_products(x: &[f32], y: &[f32], sum: &mut [f32]) {
    for ((sum, x), y) in sum.iter_mut().zip(x).zip(y) {
        *sum = x.mul_add(*y, *sum);
    }
}

#[inline(always)]
pub(super) fn sum_of_lanes(mut lanes: [f32; LANES]) -> f32 {
    for width in HALVES {
        for at in 0..width {
            lanes[at] += lanes[at + width];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_exact_to_single_precision() {
        for x in (0..87_000).map(|thousandths| -(thousandths as f32) / 1000.0) {
            let (found, wanted) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((found - wanted).abs() <= 2e-7 * wanted, "exp({x}) is {found}, not {wanted}");
        }
        assert_eq!([exp(0.0), exp(-87.5), exp(f32::NEG_INFINITY)], [1.0, 0.0, 0.0]);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn what_is_picked_is_that_of_the_definition_for_rows_of_any_length() {
        for length in [1, 15, 16, 17, 40] {
            let given: Vec<f32> = (0..length).map(|at| if at % 7 == 6 { -1e30 } else { 3.0 * (at as f32 * 0.7).sin() }).collect();
            for shift in [3.0f32, 50.0] {
                let mut row = given.clone();
                let sum = f64::from(picked(&mut row, shift, -1e20));
                let numbers = given.iter().map(|&x| if x < -1e20 { 0.0 } else { (f64::from(x).exp() - 1.0) * (-f64::from(shift)).exp() });
                let numbers: Vec<f64> = numbers.collect();
                assert!((sum - numbers.iter().map(|x| x.abs()).sum::<f64>()).abs() < 1e-6);
                assert!(row.iter().zip(numbers).all(|(&found, wanted)| (f64::from(found) - wanted.max(0.0)).abs() < 1e-6));
            }
        }
        let mut wrong = [f32::NAN];
        assert!(picked(&mut wrong, 0.0, -1e20).is_nan() && wrong[0].is_nan());
    }

    #[test]
    fn hyperbolic_tangents_are_exact_to_single_precision() {
        for x in (-12_000..=12_000).map(|thousandths| thousandths as f32 / 1000.0).chain([1e-7, -1e-30, 0.625_000_06]) {
            let (found, wanted) = (f64::from(tanh(x)), f64::from(x).tanh());
            assert!((found - wanted).abs() <= 3e-7 * wanted.abs(), "tanh({x}) is {found}, not {wanted}");
        }
        assert_eq!([tanh(0.0), tanh(200.0), tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)], [0.0, 1.0, 1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn logistic_functions_are_exact_to_single_precision() {
        for x in (-86_900..=86_900).map(|thousandths| thousandths as f32 / 1000.0) {
            let (found, wanted) = (f64::from(sigmoid(x)), 1.0 / (1.0 + (-f64::from(x)).exp()));
            assert!((found - wanted).abs() <= 4e-7 * wanted, "sigmoid({x}) is {found}, not {wanted}");
        }
        assert_eq!([sigmoid(0.0), sigmoid(200.0), sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY)], [0.5, 1.0, 1.0, 0.0]);
        assert!(sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn rows_of_any_length_are_reduced() {
        for length in [1, 15, 16, 17, 40] {
            let mut row: Vec<f32> = (0..length).map(|at| (at as f32 * 0.7).sin()).collect();
            assert_eq!(largest(&row), row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let wanted: Vec<f32> = row.iter().map(|x| (x - 1.0).exp()).collect();
            let sum: f32 = wanted.iter().sum();
            assert!((sum_of_exponentials(&row, 1.0) - sum).abs() < 1e-5);
            assert!((exponentials(&mut row, 1.0) - sum).abs() < 1e-5);
            assert!(row.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6));
        }
    }
}
