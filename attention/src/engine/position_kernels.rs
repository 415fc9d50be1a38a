//! Sliding kernels along the sequence, shared by the channels of a head, with weights that can differ per position.
//!
//! As separate tensor operations a kernel reads and writes the sequence several times per tap and direction, and saves a copy per tap. On backends with tensors
//! in main memory it is one operator, which saves only its inputs. It reads heads in place among the channels.

mod cpu_kernel;
mod cpu_operation;

use burn::tensor::Tensor;

use self::cpu_operation::SlidingKernel;
use super::cpu;
use super::transposed::part;

/// `y_i = sum_(j < t) w_(i, j) x_(i + a + j)` in each head, ready for execution. Positions outside the sequence count as 0.
///
/// Dimension letters: `B` batch rows, `H` heads, `N` inputs, `Q` outputs, `D` channels of a head, `t` taps.
#[derive(Clone, Debug)]
pub(crate) struct Sliding {
    /// `[B, H, N, D]`.
    pub x: Tensor<4>,
    /// Weights of the taps, `[B|1, H, Q|1, t]`.
    pub weights: Tensor<4>,
    /// Number of outputs, `Q`.
    pub outputs: usize,
    /// Position of the input under the first output's first tap, `a`; may be outside the sequence.
    pub first: isize,
}

impl Sliding {
    /// The sums, `[B, H, Q, D]`.
    ///
    /// # Panics
    /// If the weights have other batch rows, heads or outputs.
    pub(crate) fn execute(self) -> Tensor<4> {
        let ([batch, heads, _, _], [rows, of_heads, positions, _]) = (self.x.dims(), self.weights.dims());
        assert!(
            [1, batch].contains(&rows) && of_heads == heads && [1, self.outputs].contains(&positions),
            "weights [{rows}, {of_heads}, {positions}, _] for {} outputs of {batch} rows and {heads} heads",
            self.outputs
        );
        if self.is_on_cpu() { self.on_cpu() } else { self.by_tensor_ops() }
    }

    /// Whether kernels support it: 32-bit floats in main memory.
    fn is_on_cpu(&self) -> bool {
        cpu::can_compute(&self.x.device(), [Some(self.x.dtype()), Some(self.weights.dtype())])
    }

    fn on_cpu(self) -> Tensor<4> {
        let Self { x, weights, outputs, first } = self;
        cpu::computed(SlidingKernel { outputs, first }, [Some(x.into_dispatch()), Some(weights.into_dispatch())])
    }

    /// As tensor operations: the sum over shifted copies of the sequence, one per tap.
    fn by_tensor_ops(self) -> Tensor<4> {
        let Self { x, weights, outputs, first } = self;
        let ([batch, heads, length, width], [.., taps]) = (x.dims(), weights.dims());
        let weights = weights.expand([batch, heads, outputs, taps]);
        let last = first + (outputs + taps) as isize - 2;
        let (left, right) = ((-first).max(0) as usize, (last + 1 - length as isize).max(0) as usize);
        let (device, dtype) = (x.device(), x.dtype());
        let zeros = |count| Tensor::zeros([batch, heads, count, width], (&device, dtype));
        let padded = if left + right == 0 {
            x
        } else {
            Tensor::cat(vec![zeros(left), x, zeros(right)].into_iter().filter(|x| x.dims()[2] > 0).collect(), 2)
        };
        let start = (first + left as isize) as usize;
        let falls_on_input = |tap: &usize| first + (tap + outputs) as isize > 0 && first + (*tap as isize) < length as isize;
        let sum = (0..taps)
            .filter(falls_on_input)
            .map(|tap| part(padded.clone(), 2, start + tap, outputs) * part(weights.clone(), 3, tap, 1))
            .reduce(|sum, tap| sum + tap);
        sum.unwrap_or_else(|| zeros(outputs))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::custom_gradient::tests::{
        assert_same_for_any_number_of_threads, assert_same_on_all_devices, difference, drawn, gradient, numbers, random_gradients,
    };

    /// What is summed.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        /// Rows, heads, inputs, channels of a head.
        shape: [usize; 4],
        outputs: usize,
        taps: usize,
        first: isize,
        /// Whether weights differ by batch row, and by output.
        by: [bool; 2],
        /// Whether the heads of a position are adjacent.
        is_split: bool,
    }

    const PLAIN: Case = Case { shape: [2, 3, 9, 5], outputs: 9, taps: 4, first: -2, by: [true, true], is_split: true };

    /// The output, and the gradients of inputs and weights for a random output gradient.
    fn found(case: Case, device: &Device, dtype: DType, execute: impl FnOnce(Sliding) -> Tensor<4>) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let Case { shape: [batch, heads, ..], outputs, taps, first, by, is_split } = case;
        let leaf = |name: &str, [batch, heads, length, width]: [usize; 4]| {
            let sizes = if is_split { [batch, length, heads, width] } else { [batch, heads, length, width] };
            drawn(name, sizes, &device, dtype).require_grad()
        };
        let by_head = |x: &Tensor<4>| if is_split { x.clone().swap_dims(1, 2) } else { x.clone() };
        let (rows, positions) = (if by[0] { batch } else { 1 }, if by[1] { outputs } else { 1 });
        let (x, weights) = (leaf("x", case.shape), leaf("weights", [rows, heads, positions, taps]));
        let output = execute(Sliding { x: by_head(&x), weights: by_head(&weights), outputs, first });
        let gradients = random_gradients(&output, dtype);
        vec![numbers(output), gradient(&x, &gradients), gradient(&weights, &gradients)]
    }

    fn on_cpu(case: Case, device: &Device) -> Vec<Vec<f64>> {
        found(case, device, DType::F32, |sliding| {
            assert!(sliding.is_on_cpu());
            sliding.on_cpu()
        })
    }

    /// Composed of tensor operations, in double precision.
    fn by_tensor_ops(case: Case) -> Vec<Vec<f64>> {
        found(case, &Device::flex(), DType::F64, |sliding| {
            assert!(!sliding.is_on_cpu());
            sliding.by_tensor_ops()
        })
    }

    fn check(case: Case) {
        let off = difference(&on_cpu(case, &Device::flex()), &by_tensor_ops(case));
        // Gradients of shared weights are sums over their uses, and rounding errors grow as the square root of their number.
        let Case { shape: [batch, _, _, width], outputs, by, .. } = case;
        let added = width * if by[0] { 1 } else { batch } * if by[1] { 1 } else { outputs };
        let bound = 2e-6f64.max(2e-7 * (added as f64).sqrt());
        assert!(off < bound, "{case:?}: off by {off}");
    }

    #[test]
    fn kernels_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for length in [1, 2, 9, 64, 65, 150] {
            for taps in [1, 3, 4, 31] {
                for by in [[false, false], [false, true], [true, false], [true, true]] {
                    for first in [1 - taps as isize, -(taps as isize / 2)] {
                        check(Case { shape: [2, 3, length, 2], outputs: length, taps, first, by, ..PLAIN });
                    }
                }
            }
        }
    }

    #[test]
    fn heads_of_all_widths_agree_with_tensor_operations_in_outputs_and_gradients() {
        for (batch, heads, width) in [(1, 1, 1), (3, 2, 16), (1, 3, 33), (2, 2, 96)] {
            for is_split in [false, true] {
                check(Case { shape: [batch, heads, 70, width], outputs: 70, is_split, ..PLAIN });
            }
        }
    }

    #[test]
    fn other_numbers_of_inputs_than_of_outputs_agree_with_tensor_operations_in_outputs_and_gradients() {
        for (length, outputs, first) in [(9, 4, 2), (9, 4, 4), (70, 3, 64), (130, 70, 57), (4, 9, -3), (2, 9, -7), (5, 1, 1)] {
            for by in [[false, false], [true, true]] {
                check(Case { shape: [2, 3, length, 5], outputs, first, by, ..PLAIN });
            }
        }
    }

    #[test]
    fn ndarray_gives_what_flex_gives() {
        for by in [[false, false], [true, true]] {
            let case = Case { by, ..PLAIN };
            assert_same_on_all_devices(|device| on_cpu(case, device));
        }
    }

    #[test]
    fn another_kernel_is_noticed() {
        let expected = by_tensor_ops(PLAIN);
        let check = |change: fn(Sliding) -> Sliding| {
            let changed = found(PLAIN, &Device::flex(), DType::F32, |sliding| change(sliding).on_cpu());
            assert!(difference(&changed, &expected) > 1e-4);
        };
        check(|sliding| Sliding { x: sliding.x * 1.001, ..sliding });
        check(|sliding| Sliding { weights: sliding.weights * 1.001, ..sliding });
        check(|sliding| Sliding { weights: sliding.weights.flip([1]), ..sliding });
        check(|sliding| Sliding { first: sliding.first + 1, ..sliding });
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        for by in [[false, false], [true, true]] {
            let case = Case { shape: [3, 2, 700, 24], outputs: 700, by, ..PLAIN };
            assert_same_for_any_number_of_threads(|| on_cpu(case, &Device::flex()));
        }
    }
}
