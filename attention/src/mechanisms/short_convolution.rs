//! A short convolution along the sequence, channel by channel, in front of a recurrence (Fu et al. 2023, section 3.1; Gu and Dao 2023, section 3.4).
//!
//! `y_t = silu( sum_(j < w) c_j x_(t - w + 1 + j) )`: each channel mixes the latest `w` elements with weights of its own. What lies before the sequence, and
//! padding, is 0. Decoding keeps the last `w - 1` inputs.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use crate::conformance::formula::{Query, sigmoid};
use crate::engine::convolution::Convolution;
use crate::engine::fused::has_kernels_in_main_memory;
use crate::heads::split_heads;
use crate::init::Init;
use crate::linear::linear;
use crate::random::RandomKey;
use crate::recurrent_attention::Stretch;

/// A convolution of each channel with the latest elements, and a SiLU.
#[derive(Module, Debug)]
pub struct ShortConvolution {
    /// Weights of each channel, earliest element first, `[taps, channels]`.
    pub weight: Param<Tensor<2>>,
    /// Bias of each channel, `[channels]`, where there is one.
    pub bias: Option<Param<Tensor<1>>>,
}

impl ShortConvolution {
    /// With weights that are uniform on `±taps^-1/2`, as PyTorch has them.
    pub fn new(taps: usize, channels: usize, key: &RandomKey, device: &Device) -> Self {
        // Half the sum of fans is three times the number of taps: a bound of sqrt(6 / (6 taps)).
        let uniform = Init::XavierUniform { fan_in: 3 * taps, fan_out: 3 * taps };
        Self { weight: uniform.parameter([taps, channels], &key.named("weight"), device), bias: None }
    }

    /// With a bias as well, drawn as the weights are.
    pub fn with_bias(self, key: &RandomKey) -> Self {
        let [taps, channels] = self.weight.dims();
        let uniform = Init::XavierUniform { fan_in: 3 * taps, fan_out: 3 * taps };
        Self { bias: Some(uniform.parameter([channels], &key.named("bias"), &self.weight.device())), ..self }
    }

    /// Of elements `[B, N, channels]`; leaves its tail for what follows.
    pub fn forward(&self, x: Tensor<3>, stretch: Stretch<'_>) -> Tensor<3> {
        convolved(x, self.weight.val(), self.bias.as_ref().map(Param::val), stretch)
    }

    /// What maps `[C, F]` make of elements `[B, N, C]`, each by so many heads, `[B, H, N, F / H]`: its channels are those behind the channels of the maps before it.
    pub(super) fn projections<const M: usize>(&self, x: &Tensor<3>, maps: [(&Linear, usize); M], stretch: Stretch<'_>) -> [Tensor<4>; M] {
        let projected = maps.map(|(map, _)| linear(x.clone(), map));
        let mut first = 0;
        let parts = projected.each_ref().map(|x| {
            first += x.dims()[2];
            first - x.dims()[2]..first
        });
        let convolved = if has_kernels_in_main_memory(&x.device()) {
            self.part_by_part(projected, parts, stretch)
        } else {
            // One convolution of all channels: devices start few kernels, and copy parts fast.
            let all = self.forward(Tensor::cat(projected.into(), 2), stretch);
            parts.map(|part| all.clone().narrow(2, part.start, part.len()))
        };
        let mut heads = maps.into_iter().map(|(_, heads)| heads);
        convolved.map(|x| split_heads(x, heads.next().expect("each map has heads")))
    }

    /// Of elements whose channels are those of the parts: nothing but the tails is copied side by side.
    fn part_by_part<const M: usize>(&self, x: [Tensor<3>; M], parts: [Range<usize>; M], stretch: Stretch<'_>) -> [Tensor<3>; M] {
        let Stretch { start, real, tail } = stretch;
        let before = tail.take();
        let mut tails = Vec::with_capacity(M);
        let mut parts = parts.into_iter();
        let convolved = x.map(|x| {
            let part = parts.next().expect("each tensor has channels");
            let mut tail = before.clone().map(|tail| tail.narrow(3, part.start, part.len()));
            let weight = self.weight.val().narrow(1, part.start, part.len());
            let bias = self.bias.as_ref().map(|bias| bias.val().narrow(0, part.start, part.len()));
            let convolved = convolved(x, weight, bias, Stretch { start, real: real.clone(), tail: &mut tail });
            tails.extend(tail);
            convolved
        });
        *tail = (!tails.is_empty()).then(|| Tensor::cat(tails, 3));
        convolved
    }
}

/// The convolution of elements `[B, N, channels]` with weights `[taps, channels]` and a bias `[channels]`; leaves its tail for what follows.
fn convolved(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, stretch: Stretch<'_>) -> Tensor<3> {
    let Stretch { real, tail, .. } = stretch;
    let x = match real {
        Some(real) => x * real,
        None => x,
    };
    let ([batch, length, channels], before) = (x.dims(), weight.dims()[0] - 1);
    if before == 0 {
        return Convolution { x, weight, bias, before: None }.execute();
    }
    let earlier = tail.take().map(|tail| tail.reshape([batch, before, channels]));
    let latest = if length >= before {
        x.clone().narrow(1, length - before, before)
    } else {
        let earlier = earlier.clone().unwrap_or_else(|| Tensor::zeros([batch, before, channels], (&x.device(), x.dtype())));
        Tensor::cat(vec![earlier.narrow(1, length, before - length), x.clone()], 1)
    };
    *tail = Some(latest.detach().unsqueeze_dim(1));
    Convolution { x, weight, bias, before: earlier }.execute()
}

/// The convolution of this path at one element in the formula, `[channels]`: of inputs `[N, channels]` with the weights from a first channel on.
pub(super) fn formula(query: &Query, path: &str, biased: bool, first: usize, inputs: &[Vec<f64>], real: &[bool], index: usize) -> Vec<f64> {
    let weight = query.parameter(&format!("{path}.weight"));
    let bias = biased.then(|| query.parameter(&format!("{path}.bias")));
    let taps = weight.shape[0];
    (0..inputs[0].len())
        .map(|channel| {
            let tap = |tap: usize| {
                let at = (index + tap + 1).checked_sub(taps).filter(|&at| real[at])?;
                Some(weight.at(&[tap, first + channel]) * inputs[at][channel])
            };
            let sum = (0..taps).filter_map(tap).sum::<f64>() + bias.map_or(0.0, |bias| bias.values[first + channel]);
            sum * sigmoid(sum)
        })
        .collect()
}

/// Of what a map of the mixer gives, the part of the head at each element behind the convolution, `[N, width]`; the map's channels begin at `first` there.
pub(super) fn projection(query: &Query, map: &str, width: usize, first: usize, real: &[bool]) -> Vec<Vec<f64>> {
    let own = query.head * width..(query.head + 1) * width;
    let all = 0..query.keys();
    let inputs: Vec<_> =
        all.clone().map(|index| query.mapped(&format!("mixer.{map}"), query.attended(index))[own.clone()].to_vec()).collect();
    all.map(|index| formula(query, "mixer.convolution", false, first + own.start, &inputs, real, index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[1, N, 2]` from `start` on.
    fn numbers(start: usize, length: usize) -> Tensor<3> {
        let of = |flat: usize| ((flat * 37 % 11) as f32 - 5.0) / 4.0;
        let numbers: Vec<f32> = (2 * start..2 * (start + length)).map(of).collect();
        Tensor::<1>::from_floats(numbers.as_slice(), &Device::flex()).reshape([1, length, 2])
    }

    fn values(x: Tensor<3>) -> Vec<f32> {
        x.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn parts_of_any_length_give_what_the_whole_gives() {
        for taps in [1, 2, 4] {
            let convolution = ShortConvolution::new(taps, 2, &RandomKey::from_seed(1), &Device::flex());
            let whole = values(convolution.forward(numbers(0, 9), Stretch { start: 0, real: None, tail: &mut None }));
            let (mut tail, mut start, mut parts) = (None, 0, Vec::new());
            for length in [1, 2, 1, 5] {
                let stretch = Stretch { start, real: None, tail: &mut tail };
                parts.extend(values(convolution.forward(numbers(start, length), stretch)));
                start += length;
            }
            assert_eq!(parts, whole, "{taps} taps");
        }
    }

    #[test]
    fn padding_is_as_nothing() {
        let convolution = ShortConvolution::new(3, 2, &RandomKey::from_seed(1), &Device::flex());
        let real = Tensor::from_data([[[0.0], [0.0], [1.0], [1.0], [1.0]]], &Device::flex());
        let padded = convolution.forward(numbers(4, 5), Stretch { start: 0, real: Some(real), tail: &mut None });
        let alone = convolution.forward(numbers(6, 3), Stretch { start: 0, real: None, tail: &mut None });
        assert_eq!(values(padded.narrow(1, 2, 3)), values(alone));
    }
}
