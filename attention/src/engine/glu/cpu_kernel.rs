//! Gates over slices of numbers, in parallel over batch rows and blocks of positions.

use crate::engine::cpu::parallel_blocks::{Block, Fill};
use crate::engine::exponential::sigmoid;

/// Outputs `[B, N, C]` for `x` `[B, N, 2 C]`; `length` is `N` and `size` is `C`.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    pub x: &'a [f32],
    pub length: usize,
    pub size: usize,
}

impl Fill for Outputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Self { x, length, size } = self;
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
#[derive(Clone, Copy)]
pub(super) struct OfInputs<'a> {
    pub outputs: Outputs<'a>,
    pub gradient: &'a [f32],
}

impl Fill for OfInputs<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Self { outputs: Outputs { x, length, size }, gradient } = self;
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
