//! The weighted sums over slices of numbers, in parallel over batch rows and blocks of positions.
//!
//! An output and the gradient of an input are both sums over successive positions: of the inputs under the taps, and of the gradients of the outputs that read
//! the input. Such a sum stays in registers, for some channels at a time.

use std::ops::Range;

use crate::engine::cpu::parallel_blocks::{Block, Fill, filled};
use crate::engine::exponential::{LANES, dot};
use crate::engine::fused::cpu::Rows;
use crate::engine::fused::cpu::kernel::Matrix;

/// Sizes of one sliding kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    /// Positions of inputs.
    pub length: usize,
    /// Positions of outputs.
    pub outputs: usize,
    /// Channels of a head.
    pub width: usize,
    /// Batch rows or 1, outputs or 1, and taps of the weights.
    pub weights: [usize; 3],
    /// Position of the input under the first output's first tap.
    pub first: isize,
}

impl Sizes {
    fn taps(self) -> usize {
        self.weights[2]
    }

    /// Numbers at one position.
    fn channels(self) -> usize {
        self.heads * self.width
    }

    /// Taps of an output with an input, and the position of the first of these inputs.
    #[inline(always)]
    fn under(self, output: usize) -> (Range<usize>, usize) {
        let Self { length, first, .. } = self;
        let first = first + output as isize;
        let end = within(length as isize - first, self.taps());
        let start = within(-first, end);
        (start..end, within(first + start as isize, length))
    }

    /// Taps over an input, and the first of the outputs that read it: with the last of these taps.
    #[inline(always)]
    fn over(self, input: usize) -> (Range<usize>, usize) {
        let Self { outputs, first, .. } = self;
        let behind = input as isize - first + 1;
        let end = within(behind, self.taps());
        let start = within(behind - outputs as isize, end);
        (start..end, within(behind - end as isize, outputs))
    }
}

/// Clamps a number to `0..=most`.
#[inline(always)]
fn within(number: isize, most: usize) -> usize {
    (number.max(0) as usize).min(most)
}

/// Inputs, in the shapes of [`SlidingKernel`](super::cpu_operation::SlidingKernel).
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub sizes: Sizes,
    pub x: Rows<'a>,
    pub weights: Rows<'a>,
}

impl<'a> Inputs<'a> {
    /// Weights of the taps of a head at an output.
    #[inline(always)]
    fn weights(self, row: usize, head: usize, output: usize) -> &'a [f32] {
        let [rows, positions, taps] = self.sizes.weights;
        self.weights.of(if rows == 1 { 0 } else { row }, head).row(if positions == 1 { 0 } else { output }, taps)
    }
}

/// Weighted sum of successive rows from `first` on.
#[inline(always)]
fn write_sum(weights: &[f32], rows: Matrix, first: usize, sum: &mut [f32]) {
    let width = sum.len();
    let (chunks, rest) = sum.as_chunks_mut::<LANES>();
    let mut channel = 0;
    for chunk in chunks {
        let mut lanes = [0.0; LANES];
        for (index, weight) in weights.iter().enumerate() {
            let row = &rows.row(first + index, width)[channel..channel + LANES];
            for at in 0..LANES {
                lanes[at] = weight.mul_add(row[at], lanes[at]);
            }
        }
        *chunk = lanes;
        channel += LANES;
    }
    rest.fill(0.0);
    for (index, weight) in weights.iter().enumerate() {
        for (sum, number) in rest.iter_mut().zip(&rows.row(first + index, width)[channel..]) {
            *sum = weight.mul_add(*number, *sum);
        }
    }
}

/// `[B, Q, H, D]`.
pub(super) fn output(inputs: Inputs) -> Vec<f32> {
    let sizes @ Sizes { batch, outputs, .. } = inputs.sizes;
    filled(inputs, [batch, outputs, sizes.channels()], sizes.taps())
}

impl Fill for Inputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let sizes @ Sizes { heads, width, .. } = self.sizes;
        for (index, output) in numbers.chunks_exact_mut(width).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let (taps, start) = sizes.under(position);
            write_sum(&self.weights(row, head, position)[taps], self.x.of(row, head), start, output);
        }
    }
}

/// The gradient of the inputs, `[B, N, H, D]`, from that of the outputs, `[B, H, Q, D]`.
pub(super) fn gradient_of_inputs(inputs: Inputs, gradient: Rows) -> Vec<f32> {
    let sizes @ Sizes { batch, length, .. } = inputs.sizes;
    filled(OfInputs { inputs, gradient }, [batch, length, sizes.channels()], sizes.taps())
}

#[derive(Clone, Copy)]
struct OfInputs<'a> {
    inputs: Inputs<'a>,
    gradient: Rows<'a>,
}

impl Fill for OfInputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Self { inputs, gradient } = self;
        let sizes @ Sizes { heads, width, .. } = inputs.sizes;
        // Weights of the outputs that read an input, in order.
        let mut weights = vec![0.0; sizes.taps()];
        for (index, x) in numbers.chunks_exact_mut(width).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let (taps, start) = sizes.over(position);
            let weights = &mut weights[..taps.len()];
            for ((at, weight), tap) in weights.iter_mut().enumerate().zip(taps.rev()) {
                *weight = inputs.weights(row, head, start + at)[tap];
            }
            write_sum(weights, gradient.of(row, head), start, x);
        }
    }
}

/// The gradient of the weights, `[B|1, Q|1, H, t]`, from that of the outputs, `[B, H, Q, D]`.
pub(super) fn gradient_of_weights(inputs: Inputs, gradient: Rows) -> Vec<f32> {
    let sizes @ Sizes { batch, heads, outputs, weights: [rows, positions, taps], .. } = inputs.sizes;
    let size = heads * taps;
    // Per output; shared weights are then summed in order.
    let each = filled(OfWeights { inputs, gradient }, [batch, outputs, size], sizes.width);
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

#[derive(Clone, Copy)]
struct OfWeights<'a> {
    inputs: Inputs<'a>,
    gradient: Rows<'a>,
}

impl Fill for OfWeights<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Self { inputs, gradient } = self;
        let sizes @ Sizes { heads, width, .. } = inputs.sizes;
        for (index, weights) in numbers.chunks_exact_mut(sizes.taps()).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let (taps, start) = sizes.under(position);
            let (x, gradient) = (inputs.x.of(row, head), gradient.of(row, head).row(position, width));
            for (at, weight) in weights[taps].iter_mut().enumerate() {
                *weight = dot(gradient, x.row(start + at, width));
            }
        }
    }
}
