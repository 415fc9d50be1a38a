//! Gates over slices of numbers, in parallel over batch rows and blocks of positions.

use pulp::{Simd, WithSimd};

use crate::engine::exponential::sigmoid;
use crate::engine::native::blocks::{Block, blocks, computed};

/// `[B, N, C]` of `x` `[B, N, 2 C]`, of which `length` is `N` and `size` `C`.
pub(super) fn output(x: &[f32], length: usize, size: usize) -> Vec<f32> {
    let mut output = vec![0.0; x.len() / 2];
    computed(blocks(&mut output, length, size).map(|output| Outputs { x, length, size, output }).collect(), length, size);
    output
}

/// Outputs of a block.
struct Outputs<'a> {
    x: &'a [f32],
    length: usize,
    size: usize,
    output: Block<'a>,
}

impl WithSimd for Outputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { x, length, size, output: Block { row, first, numbers } } = self;
        let x = x[(row * length + first) * 2 * size..].chunks_exact(2 * size);
        for (output, x) in numbers.chunks_exact_mut(size).zip(x) {
            let (values, gates) = x.split_at(size);
            for ((output, value), gate) in output.iter_mut().zip(values).zip(gates) {
                *output = value * sigmoid(*gate);
            }
        }
    }
}

/// The gradient of `x`, `[B, N, 2 C]`, from that of the output, `[B, N, C]`.
pub(super) fn gradient(x: &[f32], gradient: &[f32], length: usize, size: usize) -> Vec<f32> {
    let mut of_x = vec![0.0; x.len()];
    let blocks = blocks(&mut of_x, length, 2 * size).map(|of_x| OfInputs { x, gradient, length, size, of_x });
    computed(blocks.collect(), length, 2 * size);
    of_x
}

/// The gradient of a block of inputs.
struct OfInputs<'a> {
    x: &'a [f32],
    gradient: &'a [f32],
    length: usize,
    size: usize,
    of_x: Block<'a>,
}

impl WithSimd for OfInputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { x, gradient, length, size, of_x: Block { row, first, numbers } } = self;
        let start = (row * length + first) * size;
        let given = x[2 * start..].chunks_exact(2 * size).zip(gradient[start..].chunks_exact(size));
        for (of_x, (x, gradient)) in numbers.chunks_exact_mut(2 * size).zip(given) {
            let ((values, gates), (of_values, of_gates)) = (x.split_at(size), of_x.split_at_mut(size));
            let given = values.iter().zip(gates).zip(gradient);
            for ((of_value, of_gate), ((value, gate), gradient)) in of_values.iter_mut().zip(of_gates).zip(given) {
                let share = sigmoid(*gate);
                *of_value = gradient * share;
                *of_gate = *of_value * value * (1.0 - share);
            }
        }
    }
}
