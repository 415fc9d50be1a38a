//! The normalisation over slices of numbers, in parallel over batch rows and blocks of positions.

use pulp::{Simd, WithSimd};

use super::Scale;
use crate::engine::cpu::parallel_blocks::{Block, Fill, added, blocks, computed, filled};
use crate::engine::exponential::{dot, sigmoid, silu_slope};
use crate::engine::fused::cpu::Rows;

/// Sizes of what is normalised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub length: usize,
    /// Width of a row.
    pub width: usize,
}

impl Sizes {
    /// Numbers at one position.
    fn channels(self) -> usize {
        self.heads * self.width
    }
}

/// Inputs, in the shapes of [`RowNormalisation`](super::cpu_operation::RowNormalisation).
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub sizes: Sizes,
    pub scale: Scale,
    pub x: Rows<'a>,
    pub gain: Option<&'a [f32]>,
    pub gate: Option<Rows<'a>>,
}

impl Inputs<'_> {
    /// Factor of squares before summation, and factor that scales the row to length 1.
    #[inline(always)]
    fn of_length_one(&self, x: &[f32]) -> [f32; 2] {
        let share = if self.scale.averages { 1.0 / self.sizes.width as f32 } else { 1.0 };
        [share, 1.0 / share.mul_add(dot(x, x), self.scale.epsilon as f32).sqrt()]
    }
}

/// `[B, N, H, D]`.
pub(super) fn forward(inputs: Inputs) -> Vec<f32> {
    let sizes @ Sizes { batch, length, .. } = inputs.sizes;
    filled(inputs, [batch, length, sizes.channels()], 1)
}

impl Fill for Inputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Sizes { heads, width, .. } = self.sizes;
        for (index, output) in numbers.chunks_exact_mut(width).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let x = self.x.of(row, head).row(position, width);
            let [_, inverse] = self.of_length_one(x);
            let factor = inverse * self.scale.factor as f32;
            for (output, x) in output.iter_mut().zip(x) {
                *output = factor * x;
            }
            if let Some(gain) = self.gain {
                for (output, gain) in output.iter_mut().zip(gain) {
                    *output *= gain;
                }
            }
            if let Some(gate) = self.gate {
                for (output, gate) in output.iter_mut().zip(gate.of(row, head).row(position, width)) {
                    *output *= gate * sigmoid(*gate);
                }
            }
        }
    }
}

/// Gradients: of rows and gates `[B, N, H, D]`, and of the gain `[D]`; empty for absent inputs.
pub(super) struct Gradients {
    pub x: Vec<f32>,
    pub gain: Vec<f32>,
    pub gate: Vec<f32>,
}

/// Gradients from the gradient `[B, H, N, D]` of [`forward`]'s output.
pub(super) fn backward(inputs: Inputs, gradient: Rows) -> Gradients {
    let sizes @ Sizes { batch, length, width, .. } = inputs.sizes;
    let size = sizes.channels();
    let mut x = vec![0.0; batch * length * size];
    let mut gate = vec![0.0; if inputs.gate.is_some() { x.len() } else { 0 }];
    // Without gates, theirs are empty.
    let mut of_gates = blocks(&mut gate, length, size).map(|gate| gate.numbers);
    let blocks = blocks(&mut x, length, size).map(move |x| Backward { inputs, gradient, x, gate: of_gates.next().unwrap_or_default() });
    let gain = added(computed(blocks.collect(), length, size), if inputs.gain.is_some() { width } else { 0 });
    Gradients { x, gain, gate }
}

/// Gradients of a block.
struct Backward<'a> {
    inputs: Inputs<'a>,
    gradient: Rows<'a>,
    x: Block<'a>,
    /// Empty if there are no gates.
    gate: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    /// The block's part of the gain gradient.
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<f32> {
        let Self { inputs, gradient, x: Block { row, first, numbers: of_rows }, gate: of_gates } = self;
        let Sizes { heads, width, .. } = inputs.sizes;
        let mut of_gain = vec![0.0; width];
        let mut of_gates = of_gates.chunks_exact_mut(width);
        for (index, of_x) in of_rows.chunks_exact_mut(width).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let x = inputs.x.of(row, head).row(position, width);
            let [share, inverse] = inputs.of_length_one(x);
            let factor = inverse * inputs.scale.factor as f32;
            // Gradient of the normalised row, step by step.
            of_x.copy_from_slice(gradient.of(row, head).row(position, width));
            if let (Some(gate), Some(of_gate)) = (inputs.gate, of_gates.next()) {
                let gate = gate.of(row, head).row(position, width);
                for (((of_gate, of_x), gate), x) in of_gate.iter_mut().zip(&mut *of_x).zip(gate).zip(x) {
                    *of_gate = *of_x * factor * x * silu_slope(*gate);
                    *of_x *= gate * sigmoid(*gate);
                }
                if let Some(gain) = inputs.gain {
                    for (of_gate, gain) in of_gate.iter_mut().zip(gain) {
                        *of_gate *= gain;
                    }
                }
            }
            if let Some(gain) = inputs.gain {
                for (((of_gain, of_x), gain), x) in of_gain.iter_mut().zip(&mut *of_x).zip(gain).zip(x) {
                    *of_gain = (*of_x * factor).mul_add(*x, *of_gain);
                    *of_x *= gain;
                }
            }
            // Growth along the row only changes its length, which is divided out.
            let along = share * inverse * inverse * dot(of_x, x);
            for (of_x, x) in of_x.iter_mut().zip(x) {
                *of_x = factor * along.mul_add(-x, *of_x);
            }
        }
        of_gain
    }
}
