//! Differences of exponentials and 1, for the rectified softmax.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

/// Bound below which the difference of two exponentials would lose too many digits.
const NEAR: f32 = 0.5;

/// Factors of `(e^x - 1) / x = 1 + x / 2 (1 + x / 3 (1 + x / 4 ..))`, from the inside out: up to [`NEAR`] the omitted terms are less than 1e-8.
const FACTORS: [f32; 7] = [1.0 / 8.0, 1.0 / 7.0, 1.0 / 6.0, 1.0 / 5.0, 1.0 / 4.0, 1.0 / 3.0, 1.0 / 2.0];

/// `(e^x - 1) e^-shift` of scores `[.., .., Q, K]` and shifts `[.., .., Q, 1]`, for `x - shift` with a finite exponential. It keeps its digits for small
/// scores.
pub(super) fn differences<B: Backend>(scores: FloatTensor<B>, shifts: FloatTensor<B>) -> FloatTensor<B> {
    let ones = B::float_exp(B::float_neg(shifts.clone()));
    let far = B::float_sub(B::float_exp(B::float_sub(scores.clone(), shifts)), ones.clone());
    let small = B::float_clamp(scores.clone(), (-NEAR).into(), NEAR.into());
    let plus_one = |product, factor: f32| B::float_add_scalar(B::float_mul_scalar(product, factor.into()), 1.0.into());
    let first = plus_one(small.clone(), FACTORS[0]);
    let series = FACTORS[1..].iter().fold(first, |series, &factor| plus_one(B::float_mul(series, small.clone()), factor));
    let near = B::float_mul(B::float_mul(small.clone(), series), ones);
    let is_far = B::float_clamp_min(B::float_sign(B::float_add_scalar(B::float_abs(scores), (-NEAR).into())), 0.0.into());
    let is_near = B::float_add_scalar(B::float_neg(is_far.clone()), 1.0.into());
    B::float_add(B::float_mul(far, is_far), B::float_mul(near, is_near))
}

/// The same for one number, for `one = e^-shift` and `exponential = e^(x - shift)`.
#[inline(always)]
pub(super) fn difference(x: f32, one: f32, exponential: f32) -> f32 {
    let mut series = x.mul_add(FACTORS[0], 1.0);
    for factor in &FACTORS[1..] {
        series = (x * series).mul_add(*factor, 1.0);
    }
    if x.abs() <= NEAR { x * series * one } else { exponential - one }
}

#[cfg(test)]
mod tests {
    use burn::backend::Dispatch;
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::engine::exponential::exp;
    use crate::tensors::read::read;

    #[test]
    fn differences_keep_their_digits_at_all_sizes() {
        let scores: Vec<f32> = (-80..=80).map(|at| at as f32 / 8.0).chain([1e-7, -3e-5, 0.499, -0.501, -1e30]).collect();
        for shift in [0.0f32, 10.0, -9.0] {
            let tensor = Tensor::<1>::from_floats(&scores[..], &Device::flex()).reshape([1, 1, 1, scores.len()]);
            let shifts = Tensor::<4>::full([1, 1, 1, 1], shift, &Device::flex());
            let found = Tensor::<4>::from_dispatch(differences::<Dispatch>(tensor.into_dispatch(), shifts.into_dispatch()));
            let found = read(found).try_to_vec::<f32>().unwrap();
            for (&score, found) in scores.iter().zip(found) {
                let wanted = f64::from(score).exp_m1() * (-f64::from(shift)).exp();
                let alone = difference(score, exp(-shift), exp(score - shift));
                for found in [found, alone] {
                    assert!((f64::from(found) - wanted).abs() <= 2e-6 * wanted.abs(), "{score} less {shift}: {found}, not {wanted}");
                }
            }
        }
    }
}
