//! Thresholds of entmax weights.
//!
//! A score `s` has the weight `max(s / p - t, 0)^p`, and the threshold `t` of a query makes its weights sum to 1. Newton's method solves for `t` with the
//! `p`-th root of the sum set to 1. The root is decreasing and convex in `t`, so steps from below never overshoot. It is also nearly linear, so few steps
//! suffice.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::per_key;

/// Number of steps if the required number is unknown: hard rows of up to 10,000 scores needed 10.
const STEPS: usize = 14;

/// Upper bound on the steps of any row.
const MOST_STEPS: usize = 64;

/// Thresholds `[.., .., Q, 1]` of scores `[.., .., Q, K]` already divided by the power. Scores of hidden keys must be low enough for weight 0.
pub(super) fn thresholds<B: Backend>(scores: FloatTensor<B>, power: u32) -> FloatTensor<B> {
    // Here the largest score alone has weight 1, so both sums are at least 1. Without the bounds, a query without visible keys would produce NaN.
    let lowest = B::float_sub_scalar(B::float_max_dim(scores.clone(), 3), 1.0.into());
    (0..STEPS).fold(lowest, |threshold, _| {
        let above = B::relu(B::float_sub(scores.clone(), threshold.clone()));
        let [sum, slope] =
            [power, power - 1].map(|power| B::float_clamp_min(B::float_sum_dim(raised::<B>(above.clone(), power), 3), 1.0.into()));
        let root = match power {
            1 => sum.clone(),
            2 => B::float_sqrt(sum.clone()),
            _ => B::float_exp(B::float_div_scalar(B::float_log(sum.clone()), (power as f32).into())),
        };
        // (root - 1) root^(p - 1) / slope
        let step = B::float_div(B::float_sub(sum.clone(), B::float_div(sum, root)), slope);
        B::float_add(threshold, step)
    })
}

/// `x^power` of non-negative numbers; for the power 0, 1 for positive numbers.
pub(super) fn raised<B: Backend>(x: FloatTensor<B>, power: u32) -> FloatTensor<B> {
    if power == 0 {
        return B::float_clamp_min(B::float_sign(x), 0.0.into());
    }
    per_key::raised::<B>(x, power)
}

/// Weights of scores `[.., .., Q, K]` already divided by the power, from the thresholds, with gradients that include the thresholds' dependence on the scores.
pub(super) fn weights(scores: Tensor<4>, thresholds: Tensor<4>, power: u32) -> Tensor<4> {
    let raised = |x: Tensor<4>, power: u32| (1..power).fold(x.clone(), |product, _| product * x.clone());
    let above = relu(scores.clone() - thresholds.clone());
    let slope = match power {
        1 => above.clone().detach().sign(),
        _ => raised(above.clone().detach(), power - 1),
    };
    // One more step, for its gradient: that of the threshold where the sum is 1.
    let step = (raised(above, power).sum_dim(3) - 1.0) / (slope.sum_dim(3).clamp_min(1.0) * power as f32);
    raised(relu(scores - (thresholds + step)), power)
}

/// Threshold of a query's scores, already divided by the power; infinite without visible keys.
#[inline(always)]
pub(super) fn threshold(scores: &[f32], power: u32) -> f32 {
    let largest = super::exponential::largest(scores);
    if largest == f32::NEG_INFINITY {
        // No score exceeds it.
        return f32::INFINITY;
    }
    let mut threshold = largest - 1.0;
    for _ in 0..MOST_STEPS {
        let [sum, slope] = sums(scores, threshold, power);
        let root = match power {
            1 => sum,
            2 => sum.sqrt(),
            _ => sum.powf(1.0 / power as f32),
        };
        let next = threshold + (sum - sum / root) / slope;
        if next <= threshold || next.is_nan() {
            break;
        }
        threshold = next;
    }
    threshold
}

/// Sums over the excesses above the threshold: of their power, and of the power minus one.
#[inline(always)]
fn sums(scores: &[f32], threshold: f32, power: u32) -> [f32; 2] {
    const LANES: usize = 16;
    let mut lanes = [[0.0; LANES]; 2];
    let (chunks, rest) = scores.as_chunks::<LANES>();
    for chunk in chunks {
        for at in 0..LANES {
            let [weight, slope] = power_and_slope(chunk[at] - threshold, power);
            lanes[0][at] += weight;
            lanes[1][at] += slope;
        }
    }
    let mut sums = lanes.map(|lanes| lanes.iter().sum::<f32>());
    for score in rest {
        let [weight, slope] = power_and_slope(score - threshold, power);
        sums[0] += weight;
        sums[1] += slope;
    }
    sums
}

/// `x^power` and `x^(power - 1)` for positive numbers, and 0 twice otherwise.
#[inline(always)]
pub(super) fn power_and_slope(x: f32, power: u32) -> [f32; 2] {
    let above = if x <= 0.0 { 0.0 } else { x };
    let slope = match power {
        1 => f32::from(u8::from(above > 0.0)),
        2 => above,
        _ => above.powi(power as i32 - 1),
    };
    [above * slope, slope]
}

#[cfg(test)]
mod tests {
    use burn::backend::Dispatch;
    use burn::tensor::Device;

    use super::*;
    use crate::tensors::read::read;

    /// By bisection, in 64 bits.
    fn exact(scores: &[f32], power: u32) -> f64 {
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (mut low, mut high) = (f64::from(largest) - 1.0, f64::from(largest));
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            let sum: f64 = scores.iter().map(|&score| (f64::from(score) - middle).max(0.0).powi(power as i32)).sum();
            if sum >= 1.0 { low = middle } else { high = middle }
        }
        low
    }

    fn rows(count: usize) -> Vec<Vec<f32>> {
        let of = |f: &dyn Fn(f32) -> f32| (0..count).map(|at| f(at as f32 / count as f32)).collect::<Vec<f32>>();
        let mut rows: Vec<Vec<f32>> = [0.1, 0.5, 1.0, 2.0, 10.0, 50.0].iter().map(|&a| of(&|x| -x.powf(a))).collect();
        rows.push(of(&|_| 0.25));
        rows.push(of(&|x| -(1.0 + x * count as f32).ln()));
        rows.push(of(&|x| 3.0 * (x * 1234.5).sin()));
        rows.push(of(&|x| if x == 0.0 { 2.5 } else { -1e9 }));
        rows
    }

    #[test]
    fn thresholds_are_those_by_which_weights_sum_to_1() {
        for count in [1, 2, 15, 17, 300, 5000] {
            for (index, row) in rows(count).into_iter().enumerate() {
                for power in [1, 2, 3, 8] {
                    let wanted = exact(&row, power);
                    let tensor = Tensor::<1>::from_floats(&row[..], &Device::flex()).reshape([1, 1, 1, count]);
                    let composed = Tensor::<4>::from_dispatch(thresholds::<Dispatch>(tensor.into_dispatch(), power));
                    let composed = read(composed).try_to_vec::<f32>().unwrap()[0];
                    for found in [threshold(&row, power), composed] {
                        assert!((f64::from(found) - wanted).abs() < 2e-6, "row {index} of {count}, power {power}: {found}, not {wanted}");
                    }
                }
            }
        }
        assert_eq!(threshold(&[], 2), f32::INFINITY);
        assert_eq!(threshold(&[f32::NEG_INFINITY; 3], 2), f32::INFINITY);
    }

    #[test]
    fn powers_and_their_slopes_are_0_below_0() {
        for power in 1..=8 {
            assert_eq!(power_and_slope(-1.5, power), [0.0; 2]);
            assert_eq!(power_and_slope(f32::NEG_INFINITY, power), [0.0; 2]);
            let [weight, slope] = power_and_slope(1.5, power);
            assert!((weight - 1.5f32.powi(power as i32)).abs() < 1e-5 && (slope - 1.5f32.powi(power as i32 - 1)).abs() < 1e-5);
            assert!(power_and_slope(f32::NAN, power)[0].is_nan());
        }
    }
}
