//! Rows divided by their length or their root mean square, with a gain and a gate.
//!
//! As separate tensor operations these take about ten passes over the rows per direction. On backends with tensors in main memory they are one operator: one
//! pass forward and one backward, which saves only the inputs.

mod cpu_kernel;
mod cpu_operation;

use burn::tensor::Tensor;
use burn::tensor::activation::silu;

use self::cpu_operation::RowNormalisation;
use super::cpu;
use super::recurrence::in_32_bits;

/// Divisor and factor of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Whether rows are divided by their root mean square, instead of their length.
    pub averages: bool,
    /// Added to the mean or the sum of squares, positive.
    pub epsilon: f64,
    /// Factor of the quotient.
    pub factor: f64,
}

/// `f x / sqrt( |x|^2 + e ) γ silu( g )` of each row `x`, ready for execution; `|x|^2` is the mean or the sum of its squares.
///
/// Dimension letters: `B` batch rows, `H` heads, `N` positions, `D` width of a row.
#[derive(Clone, Debug)]
pub(crate) struct RowNorm {
    /// `[B, H, N, D]`.
    pub x: Tensor<4>,
    /// `f`, `e`, and whether squares are averaged.
    pub scale: Scale,
    /// Gain of each channel, `γ`, `[D]`.
    pub gain: Option<Tensor<1>>,
    /// Gates before the SiLU, `g`, `[B, H, N, D]`.
    pub gate: Option<Tensor<4>>,
}

impl RowNorm {
    /// Normalised rows, `[B, H, N, D]`.
    pub(crate) fn execute(self) -> Tensor<4> {
        if self.is_on_cpu() { self.on_cpu() } else { self.by_tensor_ops() }
    }

    /// Whether kernels support it: 32-bit floats in main memory.
    fn is_on_cpu(&self) -> bool {
        let Self { x, gain, gate, .. } = self;
        let types = [Some(x.dtype()), gain.as_ref().map(Tensor::dtype), gate.as_ref().map(Tensor::dtype)];
        cpu::can_compute(&x.device(), types)
    }

    fn on_cpu(self) -> Tensor<4> {
        let Self { x, scale, gain, gate } = self;
        let (gain, gate) = (gain.map(|gain| gain.into_dispatch()), gate.map(|gate| gate.into_dispatch()));
        cpu::computed(RowNormalisation(scale), [Some(x.into_dispatch()), gain, gate])
    }

    /// As tensor operations.
    fn by_tensor_ops(self) -> Tensor<4> {
        let Self { x, scale: Scale { averages, epsilon, factor }, gain, gate } = self;
        let squares = x.clone().square();
        let squares = if averages { squares.mean_dim(3) } else { squares.sum_dim(3) };
        let mut x = x / (squares + epsilon).sqrt();
        if factor != 1.0 {
            x = x * factor;
        }
        if let Some(gain) = gain {
            x = x * gain.reshape([1, 1, 1, -1]);
        }
        match gate {
            Some(gate) => x * in_32_bits(silu(gate)),
            None => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::custom_gradient::tests::{
        assert_same_for_any_number_of_threads, assert_same_on_all_devices, difference, drawn, gradient, numbers, random_gradients,
    };

    /// What is normalised.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        /// Rows, heads, positions, channels.
        shape: [usize; 4],
        scale: Scale,
        gain: bool,
        gate: bool,
        /// Whether the heads of a position are adjacent.
        is_split: bool,
    }

    const LENGTH: Scale = Scale { averages: false, epsilon: 1e-6, factor: 0.3 };

    const ROOT_MEAN_SQUARE: Scale = Scale { averages: true, epsilon: 1e-5, factor: 1.0 };

    const PLAIN: Case = Case { shape: [2, 3, 9, 5], scale: ROOT_MEAN_SQUARE, gain: true, gate: true, is_split: true };

    /// The output, and the gradients of all inputs for a random output gradient.
    fn found(case: Case, device: &Device, dtype: DType, execute: impl FnOnce(RowNorm) -> Tensor<4>) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let Case { shape: [batch, heads, length, width], scale, gain, gate, is_split } = case;
        let leaf = |name: &str| {
            let sizes = if is_split { [batch, length, heads, width] } else { [batch, heads, length, width] };
            drawn(name, sizes, &device, dtype).require_grad()
        };
        let by_head = |x: &Tensor<4>| if is_split { x.clone().swap_dims(1, 2) } else { x.clone() };
        let (x, gates) = (leaf("x"), gate.then(|| leaf("gates")));
        let gain = gain.then(|| drawn("gain", [width], &device, dtype).require_grad());
        let output = execute(RowNorm { x: by_head(&x), scale, gain: gain.clone(), gate: gates.as_ref().map(by_head) });
        let gradients = random_gradients(&output, dtype);
        let parts = [numbers(output), gradient(&x, &gradients)];
        parts
            .into_iter()
            .chain(gates.map(|gates| gradient(&gates, &gradients)))
            .chain(gain.map(|gain| gradient(&gain, &gradients)))
            .collect()
    }

    fn on_cpu(case: Case, device: &Device) -> Vec<Vec<f64>> {
        found(case, device, DType::F32, |norm| {
            assert!(norm.is_on_cpu());
            norm.on_cpu()
        })
    }

    /// Composed of tensor operations, in double precision.
    fn by_tensor_ops(case: Case) -> Vec<Vec<f64>> {
        found(case, &Device::flex(), DType::F64, |norm| {
            assert!(!norm.is_on_cpu());
            norm.by_tensor_ops()
        })
    }

    #[test]
    fn rows_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for shape in [[1, 1, 1, 1], [2, 3, 9, 5], [1, 2, 64, 16], [2, 2, 65, 33], [3, 4, 130, 48]] {
            for scale in [LENGTH, ROOT_MEAN_SQUARE] {
                for (gain, gate) in [(false, false), (true, false), (false, true), (true, true)] {
                    for is_split in [false, true] {
                        let case = Case { shape, scale, gain, gate, is_split };
                        let off = difference(&on_cpu(case, &Device::flex()), &by_tensor_ops(case));
                        assert!(off < 4e-6, "{case:?}: off by {off}");
                    }
                }
            }
        }
    }

    #[test]
    fn ndarray_gives_what_flex_gives() {
        assert_same_on_all_devices(|device| on_cpu(PLAIN, device));
    }

    #[test]
    fn another_normalisation_is_noticed() {
        let expected = by_tensor_ops(PLAIN);
        let check = |change: fn(RowNorm) -> RowNorm| {
            let changed = found(PLAIN, &Device::flex(), DType::F32, |norm| change(norm).on_cpu());
            assert!(difference(&changed, &expected) > 1e-4);
        };
        check(|norm| RowNorm { gain: norm.gain.map(|x| x * 1.001), ..norm });
        check(|norm| RowNorm { gate: norm.gate.map(|x| x * 1.001), ..norm });
        check(|norm| RowNorm { scale: Scale { factor: 1.001, ..norm.scale }, ..norm });
        check(|norm| RowNorm { scale: Scale { epsilon: 1e-2, ..norm.scale }, ..norm });
        check(|norm| RowNorm { scale: Scale { averages: false, ..norm.scale }, ..norm });
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let case = Case { shape: [3, 2, 700, 24], ..PLAIN };
        assert_same_for_any_number_of_threads(|| on_cpu(case, &Device::flex()));
    }

    #[test]
    fn rows_of_nothing_stay_nothing() {
        let scale = LENGTH;
        let norm = RowNorm { x: Tensor::zeros([1, 1, 2, 3], &Device::flex()), scale, gain: None, gate: None };
        assert_eq!(norm.on_cpu().into_data().try_to_vec::<f32>().unwrap(), [0.0; 6]);
    }
}
