//! Short depthwise convolution along the sequence, before a recurrence (Fu et al. 2023, section 3.1; Gu and Dao 2023, section 3.4).
//!
//! `y_t = silu( sum_(j < w) c_j x_(t - w + 1 + j) )`: each channel mixes its latest `w` inputs with its own weights. Positions before the sequence and padding
//! count as 0. Decoding caches the last `w - 1` inputs.

use std::ops::Range;

use burn::tensor::DType;

use crate::description::formula::sigmoid;
use crate::engine::convolution::Convolution;
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::Stretch;
use crate::tensors::main_memory;

/// Depthwise causal convolution and SiLU.
#[derive(Module, Debug)]
pub struct ShortConvolution {
    /// Weights of each channel, earliest token first, `[taps, channels]`.
    pub weight: Param<Tensor<2>>,
    /// Bias of each channel, `[channels]`, if any.
    pub bias: Option<Param<Tensor<1>>>,
}

impl ShortConvolution {
    /// Creates weights uniform on `±taps^-1/2`, as in PyTorch.
    pub fn new(taps: usize, channels: usize, key: &RandomKey, device: &Device) -> Self {
        // Half the sum of fans is three times the taps: a bound of sqrt(6 / (6 taps)).
        let uniform = Init::XavierUniform { fan_in: 3 * taps, fan_out: 3 * taps };
        Self { weight: uniform.parameter([taps, channels], &key.named("weight"), device), bias: None }
    }

    /// Adds a bias with the same distribution as the weights.
    pub fn with_bias(self, key: &RandomKey) -> Self {
        let [taps, channels] = self.weight.dims();
        let uniform = Init::XavierUniform { fan_in: 3 * taps, fan_out: 3 * taps };
        Self { bias: Some(uniform.parameter([channels], &key.named("bias"), &self.weight.device())), ..self }
    }

    /// Convolves inputs `[B, N, channels]` and stores the tail for the next stretch.
    pub fn forward(&self, x: Tensor<3>, stretch: Stretch<'_>) -> Tensor<3> {
        convolved(x, self.weight.val(), self.bias.as_ref().map(Param::val), stretch)
    }

    /// Projects inputs `[B, N, C]` by maps `[C, F]`, convolves them, and splits each into its heads, `[B, H, N, F / H]`. The convolution's channels are those
    /// of the maps in order.
    pub(super) fn projections<const M: usize>(&self, x: &Tensor<3>, maps: [(&Linear, usize); M], stretch: Stretch<'_>) -> [Tensor<4>; M] {
        let mut end = 0;
        let parts = maps.map(|(map, heads)| {
            let x = linear(x.clone(), map);
            let channels = end..end + x.dims()[2];
            end = channels.end;
            (x, channels, heads)
        });
        if !(main_memory::has_kernels(&x.device()) && x.dtype() == DType::F32) {
            // One convolution of all channels: copying parts takes less time than several times as many tensor operations.
            let all = Tensor::cat(parts.each_ref().map(|(x, ..)| x.clone()).into(), 2);
            let all = self.forward(all, stretch);
            return parts.map(|(_, channels, heads)| split_heads(all.clone().narrow(2, channels.start, channels.len()), heads));
        }
        let Stretch { start, real, tail } = stretch;
        let (before, mut tails) = (tail.take(), Vec::with_capacity(M));
        let mixed = parts.map(|(x, channels, heads)| {
            let (first, count) = (channels.start, channels.len());
            let weight = self.weight.val().narrow(1, first, count);
            let bias = self.bias.as_ref().map(|bias| bias.val().narrow(0, first, count));
            let mut tail = before.clone().map(|tail| tail.narrow(3, first, count));
            let mixed = convolved(x, weight, bias, Stretch { start, real: real.clone(), tail: &mut tail });
            tails.extend(tail);
            split_heads(mixed, heads)
        });
        *tail = (!tails.is_empty()).then(|| Tensor::cat(tails, 3));
        mixed
    }
}

/// Convolution of inputs `[B, N, channels]` with weights `[taps, channels]` and a bias `[channels]`; stores the tail for the next stretch.
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
    let latest = match before.checked_sub(length) {
        None => x.clone().narrow(1, length - before, before),
        Some(0) => x.clone(),
        Some(kept) => {
            let earlier = earlier.clone().unwrap_or_else(|| Tensor::zeros([batch, before, channels], (&x.device(), x.dtype())));
            Tensor::cat(vec![earlier.narrow(1, length, kept), x.clone()], 1)
        }
    };
    *tail = Some(latest.detach().unsqueeze_dim(1));
    Convolution { x, weight, bias, before: earlier }.execute()
}

/// Convolution of this path at one token in the formula, `[channels]`: of inputs `[N, channels]`, with the weights from channel `first` on.
fn formula(query: &Query, path: &str, biased: bool, first: usize, inputs: &[Vec<f64>], real: &[bool], index: usize) -> Vec<f64> {
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

/// Channels `own` of a projection of the mixer, at each token, `[N, width]`.
pub(super) fn inputs(query: &Query, map: &str, own: Range<usize>) -> Vec<Vec<f64>> {
    let map = format!("mixer.{map}");
    (0..query.keys()).map(|index| query.mapped(&map, query.attended(index))[own.clone()].to_vec()).collect()
}

/// The same after the mixer's convolution, in which the channels of the projection start at `first`.
pub(super) fn projection(query: &Query, map: &str, own: Range<usize>, biased: bool, first: usize, real: &[bool]) -> Vec<Vec<f64>> {
    let inputs = inputs(query, map, own.clone());
    (0..query.keys()).map(|index| formula(query, "mixer.convolution", biased, first + own.start, &inputs, real, index)).collect()
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
    fn maps_are_convolved_as_their_channels_side_by_side() {
        let key = RandomKey::from_seed(1);
        let convolution = ShortConvolution::new(4, 6, &key, &Device::flex()).with_bias(&key);
        let maps = [4, 2].map(|outputs| init::linear(2, outputs, false, &key.named(&outputs.to_string()), &Device::flex()));
        let (mut tail, mut tail_of_all) = (None, None);
        for (start, length) in [(0, 2), (2, 3), (5, 1), (6, 7)] {
            let x = numbers(start, length);
            let heads = [(&maps[0], 2), (&maps[1], 1)];
            let found = convolution.projections(&x, heads, Stretch { start, real: None, tail: &mut tail }).map(merge_heads);
            let all = Tensor::cat(maps.each_ref().map(|map| linear(x.clone(), map)).into(), 2);
            let expected = convolution.forward(all, Stretch { start, real: None, tail: &mut tail_of_all });
            assert_eq!(values(Tensor::cat(found.into(), 2)), values(expected), "from {start} on");
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
