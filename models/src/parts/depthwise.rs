//! Depthwise convolution over positions, separate for each channel: `y[n, c] = Σ_j w[j, c] x[n + j - o, c]`.
//!
//! Followed by a linear map it is a separable convolution (Chollet 2017), the transition between steps in Universal Transformers (Dehghani et al. 2018, section
//! 2.1). In encoders the window is centred (`o = k / 2`), in decoders it ends at the position (`o = k - 1`). Missing positions and padding count as 0.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::prelude::*;

/// Sizes of a [`DepthwiseConvolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseConvolutionConfig {
    /// Number of channels, `C`.
    pub channels: usize,
    /// Positions of the window, `k`, at least 1.
    pub kernel: usize,
    /// Whether later positions are hidden.
    pub causal: bool,
}

impl DepthwiseConvolutionConfig {
    /// Initialises the convolution: normal with standard deviation `k^-0.5`, which preserves the magnitude of its input.
    pub fn init(&self, key: &RandomKey, device: &Device) -> DepthwiseConvolution {
        let weight = Init::Normal((self.kernel as f32).powf(-0.5)).parameter([self.kernel, self.channels], &key.named("weight"), device);
        DepthwiseConvolution { weight, causal: self.causal }
    }
}

/// Depthwise convolution over positions.
///
/// Should be created with [`DepthwiseConvolutionConfig`].
#[derive(Module, Debug)]
pub struct DepthwiseConvolution {
    /// `w`, `[k, C]`.
    pub weight: Param<Tensor<2>>,
    causal: bool,
}

impl DepthwiseConvolution {
    /// Convolves `x` `[B, N, C]`, with padding set to 0. `past` holds the cached inputs of the previous call and is updated.
    ///
    /// # Panics
    /// If there is a past and the window sees later positions.
    pub fn forward(&self, x: Tensor<3>, past: Option<&mut Option<Tensor<3>>>) -> Tensor<3> {
        let [batch, length, channels] = x.dims();
        let [kernel, _] = self.weight.dims();
        let after = if self.causal { 0 } else { (kernel - 1) / 2 };
        let before = kernel - 1 - after;
        let zeros = |positions: usize| Tensor::zeros([batch, positions, channels], (&x.device(), x.dtype()));
        let remembered = match &past {
            Some(past) => {
                assert!(self.causal, "only a convolution that sees no later positions goes on step by step");
                (**past).clone()
            }
            None => None,
        };
        let first = remembered.unwrap_or_else(|| zeros(before));
        let mut parts = vec![first, x.clone()];
        if after > 0 {
            parts.push(zeros(after));
        }
        let window = Tensor::cat(parts, 1);
        if let Some(past) = past {
            *past = Some(window.clone().narrow(1, length, before));
        }
        let weight = self.weight.val();
        let tap = |tap: usize| window.clone().narrow(1, tap, length) * weight.clone().narrow(0, tap, 1).unsqueeze::<3>();
        (1..kernel).map(tap).fold(tap(0), |sum, tap| sum + tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn convolution(kernel: usize, causal: bool, device: &Device) -> DepthwiseConvolution {
        DepthwiseConvolutionConfig { channels: 3, kernel, causal }.init(&RandomKey::from_seed(1), device)
    }

    fn input(device: &Device) -> Tensor<3> {
        let values: Vec<f32> = (0..2 * 6 * 3).map(|index| (index as f32 * 0.7).sin()).collect();
        Tensor::from_data(TensorData::new(values, [2, 6, 3]), device)
    }

    fn values<const D: usize>(x: &Tensor<D>) -> Vec<f32> {
        x.clone().into_data().iter::<f32>().collect()
    }

    #[test]
    fn every_number_is_the_weighted_sum_of_its_window() {
        let device = Device::flex();
        let x = values(&input(&device));
        for (kernel, causal, offset) in [(3, true, 2i64), (3, false, 1), (5, false, 2), (4, false, 2), (1, true, 0)] {
            let convolution = convolution(kernel, causal, &device);
            let weight = values(&convolution.weight.val());
            let found = values(&convolution.forward(input(&device), None));
            for (index, found) in found.iter().enumerate() {
                let (row, position, channel) = (index / 18, (index / 3 % 6) as i64, index % 3);
                let at = |tap: usize| position + tap as i64 - offset;
                let inside = (0..kernel).filter(|&tap| (0..6).contains(&at(tap)));
                let expected: f32 = inside.map(|tap| weight[tap * 3 + channel] * x[row * 18 + at(tap) as usize * 3 + channel]).sum();
                assert!((found - expected).abs() < 1e-5, "kernel {kernel}, {index}: {found} and {expected}");
            }
        }
    }

    #[test]
    fn steps_are_the_whole() {
        let device = Device::flex();
        let convolution = convolution(5, true, &device);
        let whole = values(&convolution.forward(input(&device), None));
        let mut past = None;
        let parts = [0..1, 1..4, 4..6].map(|part| convolution.forward(input(&device).narrow(1, part.start, part.len()), Some(&mut past)));
        assert_eq!(values(&Tensor::cat(parts.to_vec(), 1)), whole);
    }
}
