//! Mixtures of discretised logistics: the distribution of an image pixel (Salimans et al. 2017, PixelCNN++, sections 2.1 and 2.2; Parmar et al. 2018, section
//! 3.1, called DMOL there).
//!
//! Each of 256 intensities `v` stands for the interval of width 2/255 around `x = v / 127.5 - 1`; the outer intervals, of 0 and 255, are open. A logistic with
//! mean `μ` and scale `s` assigns it the probability `σ((x + 1/255 - μ) / s) - σ((x - 1/255 - μ) / s)`. Each mixture component covers all three channels; its
//! means of green and blue depend on the earlier channels: `μ_g + a x_r` and `μ_b + b x_r + c x_g`.
//!
//! The alternative treats each intensity of each channel as a token of 256 ([`crate::parts::loss::cross_entropy`]): it ignores the order of intensities, and a
//! pixel takes three model steps instead of one.
//!
//! Public code approximates by the density if the difference of the two σ is small. Here log probabilities are computed as
//! `ln σ(p) + ln σ(-m) + ln(1 - e^(m - p))` for the ends `m < p`, which is exact for all.
//!
//! [`PixelDecoder`] is a decoder with these outputs.

mod decoder;

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_random::RandomKey;
use rand::{Rng, RngExt};

pub use self::decoder::{PixelDecoder, PixelDecoderConfig};

/// Numbers per mixture component: a logit, three means, three log scales and three coefficients.
pub const NUMBERS_PER_COMPONENT: usize = 10;
/// Minimum log scale.
const LEAST_LOG_SCALE: f64 = -7.0;

/// Parameters of mixtures with `M` components.
struct Mixture {
    /// `ln π`, `[N, M]`.
    log_weights: Tensor<2>,
    /// `μ`, `[N, 3, M]`, before the channel shifts.
    means: Tensor<3>,
    /// `ln s`, `[N, 3, M]`.
    log_scales: Tensor<3>,
    /// `a`, `b` and `c` in (-1, 1), `[N, 3, M]`.
    coefficients: Tensor<3>,
}

impl Mixture {
    fn new(numbers: Tensor<2>) -> Self {
        let [pixels, width] = numbers.dims();
        let components = width / NUMBERS_PER_COMPONENT;
        let whole = components * NUMBERS_PER_COMPONENT;
        assert!(width == whole && components > 0, "{width} numbers for a pixel: there are ten numbers for each component");
        let part = |first: usize| numbers.clone().narrow(1, first * components, 3 * components).reshape([pixels, 3, components]);
        Self {
            log_weights: log_softmax(numbers.clone().narrow(1, 0, components), 1),
            means: part(1),
            log_scales: part(4).clamp_min(LEAST_LOG_SCALE),
            coefficients: part(7).tanh(),
        }
    }

    /// Means for channel values `x` `[N, 3, 1]`.
    fn moved_means(&self, x: &Tensor<3>) -> Tensor<3> {
        let coefficient = |index| self.coefficients.clone().narrow(1, index, 1);
        let mean = |channel| self.means.clone().narrow(1, channel, 1);
        let (red, green) = (x.clone().narrow(1, 0, 1), x.clone().narrow(1, 1, 1));
        let moved_green = mean(1) + coefficient(0) * red.clone();
        let moved_blue = mean(2) + coefficient(1) * red + coefficient(2) * green;
        Tensor::cat(vec![mean(0), moved_green, moved_blue], 1)
    }
}

/// Negative log-likelihood `[N]`, in nats, of pixels `[N, 3]` of intensities 0 to 255 (red, green, blue) under mixtures of `M` components with numbers
/// `[N, 10 M]`: `M` weight logits, then `3 M` each of means, log scales (at least -7) and coefficients before tanh, channel by channel.
///
/// Bits per dimension are the mean over pixels, divided by `3 ln 2`.
///
/// # Panics
/// If there are not ten numbers per component, or the number of pixels differs.
pub fn logistic_mixture_nll(numbers: Tensor<2>, pixels: Tensor<2, Int>) -> Tensor<1> {
    let count = numbers.dims()[0];
    assert_eq!(pixels.dims(), [count, 3], "pixels for the numbers of {count} mixtures");
    let mixture = Mixture::new(numbers);
    let intensities = pixels.unsqueeze_dim::<3>(2);
    let x = intensities.clone().float() / 127.5 - 1.0;
    let centred = x.clone() - mixture.moved_means(&x);
    let inverse_scales = mixture.log_scales.neg().exp();
    let half = 1.0 / 255.0;
    let upper = (centred.clone() + half) * inverse_scales.clone();
    let lower = (centred - half) * inverse_scales.clone();
    let (below_upper, above_lower) = (log_sigmoid(upper), log_sigmoid(lower.neg()));
    let inner = below_upper.clone() + above_lower.clone() + log_of_complement(inverse_scales * (2.0 * half));
    let shape = inner.dims();
    let log_probability = inner
        .mask_where(intensities.clone().equal_elem(0).expand(shape), below_upper)
        .mask_where(intensities.equal_elem(255).expand(shape), above_lower);
    let joint = mixture.log_weights + log_probability.sum_dim(1).squeeze_dim::<2>(1);
    // The maximum is a constant: its contributions cancel.
    let greatest = joint.clone().detach().max_dim(1);
    ((joint - greatest.clone()).exp().sum_dim(1).log() + greatest).neg().squeeze_dim(1)
}

/// `ln(1 - e^-x)` for `x > 0`.
fn log_of_complement(x: Tensor<3>) -> Tensor<3> {
    // The series omits terms of the fourth and higher orders.
    const SMALL: f64 = 0.1;
    let small = x.clone().lower_elem(SMALL);
    let series = x.clone().log() - x.clone() * 0.5 + x.clone().powi_scalar(2) / 24.0;
    // The unused branch must not be infinite, or its gradient is NaN.
    let direct = (x.clamp_min(SMALL).neg().exp().neg() + 1.0).log();
    direct.mask_where(small, series)
}

/// Samples a pixel `[N, 3]` of intensities 0 to 255 from each mixture with numbers `[N, 10 M]`, as in [`logistic_mixture_nll`].
///
/// # Panics
/// If there are not ten numbers per component.
pub fn sample_logistic_mixture(numbers: Tensor<2>, key: &RandomKey) -> Tensor<2, Int> {
    let device = numbers.device();
    let mixture = Mixture::new(numbers);
    let [count, components] = mixture.log_weights.dims();
    let values = |tensor: Tensor<3>| read(tensor).iter::<f64>().collect::<Vec<_>>();
    let log_weights: Vec<f64> = read(mixture.log_weights).iter::<f64>().collect();
    let (means, log_scales, coefficients) = (values(mixture.means), values(mixture.log_scales), values(mixture.coefficients));
    let mut rng = key.rng();
    let mut pixels: Vec<i32> = Vec::with_capacity(3 * count);
    for pixel in 0..count {
        let component = choose(&log_weights[pixel * components..][..components], &mut rng);
        let at = |values: &[f64], channel: usize| values[(pixel * 3 + channel) * components + component];
        let mut draw = |channel: usize, shift: f64| {
            let uniform: f64 = rng.random_range(1e-5..1.0 - 1e-5);
            let logistic = (uniform / (1.0 - uniform)).ln();
            (at(&means, channel) + shift + at(&log_scales, channel).exp() * logistic).clamp(-1.0, 1.0)
        };
        let red = draw(0, 0.0);
        let green = draw(1, at(&coefficients, 0) * red);
        let blue = draw(2, at(&coefficients, 1) * red + at(&coefficients, 2) * green);
        pixels.extend([red, green, blue].map(|x| ((x + 1.0) * 127.5).round() as i32));
    }
    Tensor::from_data(TensorData::new(pixels, [count, 3]), &device)
}

/// Samples an index with the given log probabilities.
fn choose(log_weights: &[f64], rng: &mut impl Rng) -> usize {
    let mut left: f64 = rng.random();
    for (index, log_weight) in log_weights.iter().enumerate() {
        left -= log_weight.exp();
        if left < 0.0 {
            return index;
        }
    }
    log_weights.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    const COMPONENTS: usize = 3;

    /// Numbers of one mixture, repeated for `count` pixels.
    fn numbers(count: usize, scale: f32, device: &Device) -> Tensor<2> {
        let mut rng = RandomKey::from_seed(4).rng();
        let width = NUMBERS_PER_COMPONENT * COMPONENTS;
        let mut row: Vec<f32> = (0..width).map(|_| rng.random_range(-0.8..0.8)).collect();
        row[4 * COMPONENTS..7 * COMPONENTS].fill(scale);
        Tensor::from_data(TensorData::new(row.repeat(count), [count, width]), device)
    }

    fn probabilities(pixels: Vec<[i32; 3]>, scale: f32) -> Vec<f64> {
        let device = Device::flex();
        let count = pixels.len();
        let pixels = Tensor::from_data(TensorData::new(pixels.concat(), [count, 3]), &device);
        logistic_mixture_nll(numbers(count, scale, &device), pixels).into_data().iter::<f64>().map(|nll| (-nll).exp()).collect()
    }

    #[test]
    fn probabilities_of_a_channel_sum_to_one() {
        let device = Device::flex();
        for log_scale in [-9.0, -4.0, -1.0, 0.0, 4.0] {
            // Without coefficients a joint probability is a product, whose sum over one channel is the product of the two others.
            let means = [0.3, -0.9, 0.1];
            let mut row = [0.0f32; NUMBERS_PER_COMPONENT];
            row[1..4].copy_from_slice(&means);
            row[4..7].fill(log_scale);
            for channel in 0..3 {
                let pixel = |value| std::array::from_fn::<i32, 3, _>(|other| if other == channel { value } else { 77 });
                let pixels: Vec<i32> = (0..256).flat_map(pixel).collect();
                let pixels = Tensor::from_data(TensorData::new(pixels, [256, 3]), &device);
                let numbers = Tensor::from_data(TensorData::new(row.repeat(256), [256, NUMBERS_PER_COMPONENT]), &device);
                let sum: f64 = logistic_mixture_nll(numbers, pixels).into_data().iter::<f64>().map(|nll| (-nll).exp()).sum();
                let others = (0..3).filter(|&other| other != channel);
                let log_scale = f64::from(log_scale).max(LEAST_LOG_SCALE);
                let expected: f64 = others.map(|other| expected_probability(f64::from(means[other]), log_scale, 77)).product();
                let differ = (sum - expected).abs();
                assert!(differ <= 1e-4 * expected + 1e-30, "{log_scale}, channel {channel}: {sum} and {expected}");
            }
        }
    }

    /// The definition, in double precision.
    fn expected_probability(mean: f64, log_scale: f64, value: i32) -> f64 {
        let x = f64::from(value) / 127.5 - 1.0;
        let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
        let [lower, upper] = [-1.0, 1.0].map(|side| (x + side / 255.0 - mean) / log_scale.exp());
        match value {
            0 => sigmoid(upper),
            255 => sigmoid(-lower),
            // Above the mean both are nearly 1, and their difference would lose all digits.
            _ if x > mean => sigmoid(-lower) - sigmoid(-upper),
            _ => sigmoid(upper) - sigmoid(lower),
        }
    }

    #[test]
    fn a_mixture_is_the_sum_of_its_components() {
        let device = Device::flex();
        let row: Vec<f32> = numbers(1, -2.5, &device).into_data().iter::<f32>().collect();
        let of =
            |part: usize, channel: usize, component: usize| f64::from(row[(1 + 3 * part) * COMPONENTS + channel * COMPONENTS + component]);
        let weights: Vec<f64> = row[..COMPONENTS].iter().map(|&logit| f64::from(logit).exp()).collect();
        for pixel in [[0, 128, 255], [255, 0, 10], [100, 120, 90]] {
            let x = pixel.map(|value| f64::from(value) / 127.5 - 1.0);
            let expected: f64 = (0..COMPONENTS)
                .map(|m| {
                    let [a, b, c] = [0, 1, 2].map(|index| of(2, index, m).tanh());
                    let means = [of(0, 0, m), of(0, 1, m) + a * x[0], of(0, 2, m) + b * x[0] + c * x[1]];
                    let channels = (0..3).map(|channel| expected_probability(means[channel], of(1, channel, m), pixel[channel]));
                    weights[m] / weights.iter().sum::<f64>() * channels.product::<f64>()
                })
                .sum();
            let found = probabilities(vec![pixel], -2.5)[0];
            assert!((found / expected - 1.0).abs() < 1e-3, "{pixel:?}: {found} and {expected}");
        }
    }

    #[test]
    fn gradients_are_finite_at_every_scale() {
        let device = Device::flex().autodiff();
        for scale in [-20.0, -7.0, -1.0, 1.0, 12.0] {
            let numbers = numbers(3, scale, &device).require_grad();
            let pixels = Tensor::from_data([[0, 255, 128], [255, 255, 255], [3, 200, 0]], &device);
            let gradients = logistic_mixture_nll(numbers.clone(), pixels).sum().backward();
            let gradient = numbers.grad(&gradients).unwrap();
            assert!(gradient.is_finite().all().into_scalar::<bool>(), "scale {scale}");
        }
    }

    #[test]
    fn samples_follow_the_distribution() {
        let device = Device::flex();
        let count = 4000;
        let drawn = sample_logistic_mixture(numbers(count, -2.0, &device), &RandomKey::from_seed(9));
        let red: Vec<i64> = drawn.into_data().iter::<i64>().step_by(3).collect();
        // Sums over blue and green would take 65,536 probabilities each: the red channel of one component suffices to test the weights.
        let row: Vec<f32> = numbers(1, -2.0, &device).into_data().iter::<f32>().collect();
        let weights: Vec<f64> = row[..COMPONENTS].iter().map(|&logit| f64::from(logit).exp()).collect();
        let expected: f64 = (0..COMPONENTS)
            .map(|m| {
                let below: f64 = (0..128).map(|value| expected_probability(f64::from(row[COMPONENTS + m]), -2.0, value)).sum();
                weights[m] / weights.iter().sum::<f64>() * below
            })
            .sum();
        let found = red.iter().filter(|&&value| value < 128).count() as f64 / count as f64;
        assert!((found - expected).abs() < 0.03, "{found} and {expected}");
        assert!(red.iter().all(|value| (0..256).contains(value)));
    }

    #[test]
    #[should_panic(expected = "ten numbers")]
    fn other_widths_are_refused() {
        let device = Device::flex();
        logistic_mixture_nll(Tensor::zeros([1, 25], &device), Tensor::zeros([1, 3], &device));
    }
}
