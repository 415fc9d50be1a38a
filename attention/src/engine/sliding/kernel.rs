//! The weighted sums over slices of numbers, in parallel over batch rows and blocks of positions.
//!
//! An output and the gradient of an input are both sums over successive positions: of the inputs under the taps, and of the gradients of the outputs that read
//! the input. Such a sum stays in registers, some channels at a time.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::engine::exponential::{LANES, dot};
use crate::engine::fused::slices::Rows;
use crate::engine::native::blocks::{Block, blocks, computed};

/// Sizes of one sliding kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    /// Positions of inputs.
    pub length: usize,
    /// Positions of outputs.
    pub outputs: usize,
    pub channels: usize,
    /// Shape of the weights: batch rows or 1, heads, outputs or 1, taps.
    pub weights: [usize; 4],
    /// Position of the input under the first output's first tap.
    pub first: isize,
}

impl Sizes {
    fn taps(self) -> usize {
        self.weights[3]
    }

    /// Taps of an output that fall on an input, and the position of the first of these inputs.
    #[inline(always)]
    fn under(self, output: usize) -> (Range<usize>, usize) {
        let Self { length, first, .. } = self;
        let first = first + output as isize;
        let end = within(length as isize - first, self.taps());
        let start = within(-first, end);
        (start..end, within(first + start as isize, length))
    }

    /// Taps under which an input falls, and the first of the outputs that read it: with the last of these taps.
    #[inline(always)]
    fn over(self, input: usize) -> (Range<usize>, usize) {
        let Self { outputs, first, .. } = self;
        let behind = input as isize - first + 1;
        let end = within(behind, self.taps());
        let start = within(behind - outputs as isize, end);
        (start..end, within(behind - end as isize, outputs))
    }

    /// Channels of a head.
    #[inline(always)]
    fn of_head(self, head: usize) -> Range<usize> {
        let width = self.channels / self.weights[1];
        head * width..(head + 1) * width
    }
}

/// The number that is nearest of those from 0 to `most`.
#[inline(always)]
fn within(number: isize, most: usize) -> usize {
    (number.max(0) as usize).min(most)
}

/// The numbers of a batch row of `size` numbers from its number `start` on.
#[inline(always)]
fn of_row(numbers: &[f32], row: usize, size: usize, start: usize) -> &[f32] {
    &numbers[row * size..][start..size]
}

/// What is summed, in the shapes of [`SlidingKernel`](super::operation::SlidingKernel).
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub weights: Rows<'a>,
}

impl<'a> Inputs<'a> {
    /// Weights of the taps of a head at an output.
    #[inline(always)]
    fn weights(self, row: usize, head: usize, output: usize) -> &'a [f32] {
        let [rows, _, positions, taps] = self.sizes.weights;
        self.weights.of(if rows == 1 { 0 } else { row }, head).row(if positions == 1 { 0 } else { output }, taps)
    }

    /// The inputs of a batch row from a position on.
    #[inline(always)]
    fn x_from(self, row: usize, position: usize) -> &'a [f32] {
        of_row(self.x, row, self.sizes.length * self.sizes.channels, position * self.sizes.channels)
    }
}

/// The sum of successive positions of `numbers` `[.., C]`, each times its weight, in the channels of a head.
#[inline(always)]
fn write_sum(weights: &[f32], numbers: &[f32], size: usize, channels: Range<usize>, sum: &mut [f32]) {
    let (chunks, rest) = sum.as_chunks_mut::<LANES>();
    let mut from = channels.start;
    for chunk in chunks {
        let mut lanes = [0.0; LANES];
        for (weight, numbers) in weights.iter().zip(numbers.chunks(size)) {
            let numbers: &[f32; LANES] = numbers[from..from + LANES].try_into().expect("as many as lanes");
            for at in 0..LANES {
                lanes[at] = weight.mul_add(numbers[at], lanes[at]);
            }
        }
        *chunk = lanes;
        from += LANES;
    }
    rest.fill(0.0);
    for (weight, numbers) in weights.iter().zip(numbers.chunks(size)) {
        for (sum, number) in rest.iter_mut().zip(&numbers[from..channels.end]) {
            *sum = weight.mul_add(*number, *sum);
        }
    }
}

/// `[B, Q, C]`.
pub(super) fn output(inputs: Inputs) -> Vec<f32> {
    let sizes @ Sizes { batch, outputs, channels, .. } = inputs.sizes;
    let mut output = vec![0.0; batch * outputs * channels];
    let blocks = blocks(&mut output, outputs, channels).map(|output| Outputs { inputs, output });
    computed(blocks.collect(), outputs, channels * sizes.taps());
    output
}

/// Outputs of a block.
struct Outputs<'a> {
    inputs: Inputs<'a>,
    output: Block<'a>,
}

impl WithSimd for Outputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { inputs, output: Block { row, first, numbers } } = self;
        let sizes @ Sizes { channels, weights: [_, heads, _, _], .. } = inputs.sizes;
        for (at, output) in numbers.chunks_exact_mut(channels).enumerate() {
            let (taps, start) = sizes.under(first + at);
            let x = inputs.x_from(row, start);
            for head in 0..heads {
                let (weights, own) = (&inputs.weights(row, head, first + at)[taps.clone()], sizes.of_head(head));
                write_sum(weights, x, channels, own.clone(), &mut output[own]);
            }
        }
    }
}

/// The gradient of the inputs, `[B, N, C]`, from that of the outputs, `[B, Q, C]`.
pub(super) fn gradient_of_inputs(inputs: Inputs, gradient: &[f32]) -> Vec<f32> {
    let sizes @ Sizes { length, channels, .. } = inputs.sizes;
    let mut x = vec![0.0; inputs.x.len()];
    let blocks = blocks(&mut x, length, channels).map(|x| OfInputs { inputs, gradient, x });
    computed(blocks.collect(), length, channels * sizes.taps());
    x
}

/// The gradient of a block of inputs.
struct OfInputs<'a> {
    inputs: Inputs<'a>,
    gradient: &'a [f32],
    x: Block<'a>,
}

impl WithSimd for OfInputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { inputs, gradient, x: Block { row, first, numbers } } = self;
        let sizes @ Sizes { outputs, channels, weights: [_, heads, _, _], .. } = inputs.sizes;
        let mut weights = vec![0.0; sizes.taps()];
        for (at, x) in numbers.chunks_exact_mut(channels).enumerate() {
            let (taps, start) = sizes.over(first + at);
            let weights = &mut weights[..taps.len()];
            let gradient = of_row(gradient, row, outputs * channels, start * channels);
            for head in 0..heads {
                for ((index, weight), tap) in weights.iter_mut().enumerate().zip(taps.clone().rev()) {
                    *weight = inputs.weights(row, head, start + index)[tap];
                }
                let own = sizes.of_head(head);
                write_sum(weights, gradient, channels, own.clone(), &mut x[own]);
            }
        }
    }
}

/// The gradient of the weights, `[B|1, Q|1, H, t]`, from that of the outputs, `[B, Q, C]`.
pub(super) fn gradient_of_weights(inputs: Inputs, gradient: &[f32]) -> Vec<f32> {
    let sizes @ Sizes { batch, outputs, channels, weights: [rows, heads, positions, taps], .. } = inputs.sizes;
    let size = heads * taps;
    // Of each output by itself. Those that share weights are added in order.
    let mut each = vec![0.0; batch * outputs * size];
    let blocks = blocks(&mut each, outputs, size).map(|weights| OfWeights { inputs, gradient, weights });
    computed(blocks.collect(), outputs, channels * sizes.taps());
    if [rows, positions] == [batch, outputs] {
        return each;
    }
    let mut sums = vec![0.0; rows * positions * size];
    for (index, each) in each.chunks_exact(positions * size).enumerate() {
        let row = if rows == 1 { 0 } else { index * positions / outputs };
        sums[row * positions * size..][..positions * size].iter_mut().zip(each).for_each(|(sum, number)| *sum += number);
    }
    sums
}

/// The gradient of the weights at a block of outputs.
struct OfWeights<'a> {
    inputs: Inputs<'a>,
    gradient: &'a [f32],
    weights: Block<'a>,
}

impl WithSimd for OfWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { inputs, gradient, weights: Block { row, first, numbers } } = self;
        let sizes @ Sizes { outputs, channels, weights: [_, heads, _, count], .. } = inputs.sizes;
        let gradients = of_row(gradient, row, outputs * channels, first * channels).chunks_exact(channels);
        for ((at, weights), gradient) in numbers.chunks_exact_mut(heads * count).enumerate().zip(gradients) {
            let (taps, start) = sizes.under(first + at);
            let x = inputs.x_from(row, start);
            for (head, weights) in weights.chunks_exact_mut(count).enumerate() {
                let own = sizes.of_head(head);
                for (weight, x) in weights[taps.clone()].iter_mut().zip(x.chunks_exact(channels)) {
                    *weight = dot(&gradient[own.clone()], &x[own.clone()]);
                }
            }
        }
    }
}
