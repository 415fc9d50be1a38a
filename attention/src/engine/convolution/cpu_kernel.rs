//! The convolution over slices of numbers, in parallel over batch rows and blocks of positions.
//!
//! A block is computed position by position, over all channels at once. The gradient recomputes the sums of the `w - 1` positions behind each block.

use pulp::{Simd, WithSimd};

use crate::engine::cpu::parallel_blocks::{Block, Fill, added, blocks, computed, filled};
use crate::engine::exponential::{add_products, sigmoid, silu_slope};

/// Sizes of one convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    pub length: usize,
    pub channels: usize,
    pub taps: usize,
}

/// Inputs of a convolution, in the shapes of [`CausalConvolution`](super::cpu_operation::CausalConvolution).
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub before: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
    /// Channels under a tap at a position.
    #[inline(always)]
    fn under_tap(self, row: usize, position: usize, tap: usize) -> Option<&'a [f32]> {
        let Sizes { length, channels, taps, .. } = self.sizes;
        let of = |numbers: &'a [f32], index: usize| &numbers[index * channels..][..channels];
        match (position + tap + 1).checked_sub(taps) {
            Some(at) => Some(of(self.x, row * length + at)),
            None => self.before.map(|before| of(before, row * (taps - 1) + position + tap)),
        }
    }

    /// Weights of each tap.
    #[inline(always)]
    fn weights(self) -> impl Iterator<Item = (usize, &'a [f32])> {
        self.weight.chunks_exact(self.sizes.channels).enumerate()
    }

    /// The sums over taps at a position, and the bias.
    #[inline(always)]
    fn write_sum(self, row: usize, position: usize, sum: &mut [f32]) {
        match self.bias {
            Some(bias) => sum.copy_from_slice(bias),
            None => sum.fill(0.0),
        }
        for (tap, weight) in self.weights() {
            if let Some(x) = self.under_tap(row, position, tap) {
                add_products(weight, x, sum);
            }
        }
    }

    /// Adds the gradient at `place`, counted from `w - 1` positions before the first of `slopes`, from the sums that read it.
    #[inline(always)]
    fn add_gradient(self, slopes: &[f32], place: usize, gradient: &mut [f32]) {
        let channels = self.sizes.channels;
        for (tap, weight) in self.weights() {
            let reader = place.checked_sub(tap).and_then(|reader| slopes.get(reader * channels..(reader + 1) * channels));
            if let Some(slope) = reader {
                add_products(weight, slope, gradient);
            }
        }
    }
}

/// `[B, N, C]`.
pub(super) fn forward(inputs: Inputs) -> Vec<f32> {
    let Sizes { batch, length, channels, .. } = inputs.sizes;
    filled(inputs, [batch, length, channels], 1)
}

impl Fill for Inputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        for (at, output) in numbers.chunks_exact_mut(self.sizes.channels).enumerate() {
            self.write_sum(row, first + at, output);
            for number in output {
                *number *= sigmoid(*number);
            }
        }
    }
}

/// Gradients in the shapes of the inputs; arbitrary for absent inputs.
pub(super) struct Gradients {
    pub x: Vec<f32>,
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub before: Vec<f32>,
}

/// Gradients from the gradient `[B, N, C]` of [`forward`]'s output.
pub(super) fn backward(inputs: Inputs, gradient: &[f32]) -> Gradients {
    let Sizes { batch, length, channels, taps } = inputs.sizes;
    let mut x = vec![0.0; batch * length * channels];
    let mut before = vec![0.0; inputs.before.map_or(0, <[f32]>::len)];
    let mut before_rows = before.chunks_mut(((taps - 1) * channels).max(1));
    let blocks = blocks(&mut x, length, channels).map(|x| {
        let before = if x.first == 0 { before_rows.next().unwrap_or_default() } else { Default::default() };
        Backward { inputs, gradient: &gradient[x.row * length * channels..][..length * channels], x, before }
    });
    let mut weight = added(computed(blocks.collect(), length, channels), (taps + 1) * channels);
    let bias = weight.split_off(taps * channels);
    Gradients { x, weight, bias, before }
}

/// Gradients of a block.
struct Backward<'a> {
    inputs: Inputs<'a>,
    /// Gradient of all outputs of the batch row.
    gradient: &'a [f32],
    /// Gradient of the block's inputs.
    x: Block<'a>,
    /// Gradient of the inputs before the first block.
    before: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    /// The block's part of the gradients of weights, `[w, C]`, followed by that of the bias.
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<f32> {
        let Self { inputs, gradient, x: Block { row, first, numbers: x }, before } = self;
        let Sizes { length, channels, taps, .. } = inputs.sizes;
        let count = x.len() / channels;
        let behind = (length - first - count).min(taps - 1);
        let mut sums = vec![0.0; (taps + 1) * channels];
        // Gradients of the sums over taps.
        let mut slopes = vec![0.0; (count + behind) * channels];
        for (at, slope) in slopes.chunks_exact_mut(channels).enumerate() {
            inputs.write_sum(row, first + at, slope);
            for (slope, gradient) in slope.iter_mut().zip(&gradient[(first + at) * channels..]) {
                *slope = gradient * silu_slope(*slope);
            }
            if at < count {
                let (weight, bias) = sums.split_at_mut(taps * channels);
                for (tap, weight) in weight.chunks_exact_mut(channels).enumerate() {
                    if let Some(x) = inputs.under_tap(row, first + at, tap) {
                        add_products(slope, x, weight);
                    }
                }
                bias.iter_mut().zip(&*slope).for_each(|(bias, slope)| *bias += slope);
            }
        }
        for (at, gradient) in x.chunks_exact_mut(channels).enumerate() {
            inputs.add_gradient(&slopes, at + taps - 1, gradient);
        }
        for (at, gradient) in before.chunks_exact_mut(channels).enumerate() {
            inputs.add_gradient(&slopes, at, gradient);
        }
        sums
    }
}
