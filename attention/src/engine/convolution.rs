//! Causal depthwise convolutions along the sequence, and a SiLU.
//!
//! As separate tensor operations, a convolution reads and writes the sequence several times per tap and direction, and saves a copy per tap. On backends with
//! tensors in main memory it is one operator: one pass forward and one backward, which saves only the inputs.

mod cpu_kernel;
mod cpu_operation;

use burn::tensor::Tensor;
use burn::tensor::activation::silu;

use self::cpu_operation::CausalConvolution;
use super::cpu;

/// `silu( b + sum_(j < w) c_j x_(t - w + 1 + j) )`, ready for execution: each channel mixes its latest `w` numbers with its own weights.
///
/// Dimension letters: `B` batch rows, `N` positions, `C` channels, `w` taps, at least 1.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    /// `[B, N, C]`.
    pub x: Tensor<3>,
    /// Weights of each channel, earliest position first, `[w, C]`.
    pub weight: Tensor<2>,
    /// `[C]`.
    pub bias: Option<Tensor<1>>,
    /// Inputs before the first position, `[B, w - 1, C]`; 0 if absent, as with one tap.
    pub before: Option<Tensor<3>>,
}

impl Convolution {
    /// The convolution, `[B, N, C]`.
    pub(crate) fn execute(self) -> Tensor<3> {
        if self.is_on_cpu() { self.on_cpu() } else { self.by_tensor_ops() }
    }

    /// Whether kernels support it: 32-bit floats in main memory.
    fn is_on_cpu(&self) -> bool {
        let Self { x, weight, bias, before } = self;
        let types = [Some(x.dtype()), Some(weight.dtype()), bias.as_ref().map(Tensor::dtype), before.as_ref().map(Tensor::dtype)];
        cpu::can_compute(&x.device(), types)
    }

    fn on_cpu(self) -> Tensor<3> {
        let Self { x, weight, bias, before } = self;
        let (bias, before) = (bias.map(|bias| bias.into_dispatch()), before.map(|before| before.into_dispatch()));
        cpu::computed(CausalConvolution, [Some(x.into_dispatch()), Some(weight.into_dispatch()), bias, before])
    }

    /// In terms of tensor operations.
    fn by_tensor_ops(self) -> Tensor<3> {
        let Self { x, weight, bias, before } = self;
        let ([batch, length, channels], taps) = (x.dims(), weight.dims()[0]);
        let tap = |tap: usize| weight.clone().narrow(0, tap, 1).reshape([1, 1, channels]);
        let sum = if taps == 1 {
            x * tap(0)
        } else {
            let before = before.unwrap_or_else(|| Tensor::zeros([batch, taps - 1, channels], (&x.device(), x.dtype())));
            let x = Tensor::cat(vec![before, x], 1);
            let sum = (0..taps).map(|index| x.clone().narrow(1, index, length) * tap(index)).reduce(|sum, tap| sum + tap);
            sum.expect("there is a tap")
        };
        silu(match bias {
            Some(bias) => sum + bias.reshape([1, 1, channels]),
            None => sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::custom_gradient::tests::{
        assert_same_for_any_number_of_threads, assert_same_on_all_devices, difference, drawn, gradient, numbers, random_gradients,
    };

    /// What is convolved.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        /// Rows, positions, channels.
        sizes: [usize; 3],
        taps: usize,
        bias: bool,
        before: bool,
    }

    const PLAIN: Case = Case { sizes: [2, 9, 5], taps: 4, bias: true, before: true };

    /// The output, and the gradients of all inputs for a random output gradient.
    fn found(case: Case, device: &Device, dtype: DType, execute: impl FnOnce(Convolution) -> Tensor<3>) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let Case { sizes: [batch, length, channels], taps, bias, before } = case;
        let x = drawn("x", [batch, length, channels], &device, dtype).require_grad();
        let weight = drawn("weight", [taps, channels], &device, dtype).require_grad();
        let bias = bias.then(|| drawn("bias", [channels], &device, dtype).require_grad());
        let before = (before && taps > 1).then(|| drawn("before", [batch, taps - 1, channels], &device, dtype).require_grad());
        let output = execute(Convolution { x: x.clone(), weight: weight.clone(), bias: bias.clone(), before: before.clone() });
        let gradients = random_gradients(&output, dtype);
        let parts = [numbers(output), gradient(&x, &gradients), gradient(&weight, &gradients)];
        parts
            .into_iter()
            .chain(bias.map(|bias| gradient(&bias, &gradients)))
            .chain(before.map(|before| gradient(&before, &gradients)))
            .collect()
    }

    fn on_cpu(case: Case, device: &Device) -> Vec<Vec<f64>> {
        found(case, device, DType::F32, |convolution| {
            assert!(convolution.is_on_cpu());
            convolution.on_cpu()
        })
    }

    /// Composed of tensor operations, in double precision.
    fn by_tensor_ops(case: Case) -> Vec<Vec<f64>> {
        found(case, &Device::flex(), DType::F64, |convolution| {
            assert!(!convolution.is_on_cpu());
            convolution.by_tensor_ops()
        })
    }

    fn check(case: Case) {
        let off = difference(&on_cpu(case, &Device::flex()), &by_tensor_ops(case));
        assert!(off < 2e-6, "{case:?}: off by {off}");
    }

    #[test]
    fn sequences_of_all_lengths_agree_with_tensor_operations_in_outputs_and_gradients() {
        for length in [1, 2, 3, 4, 63, 64, 65, 66, 128, 150] {
            for taps in [1, 2, 4, 7] {
                for (bias, before) in [(false, false), (true, false), (false, true), (true, true)] {
                    check(Case { sizes: [2, length, 5], taps, bias, before });
                }
            }
        }
    }

    #[test]
    fn channels_and_batches_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for (batch, channels) in [(1, 1), (3, 16), (1, 33), (2, 192)] {
            check(Case { sizes: [batch, 70, channels], ..PLAIN });
        }
    }

    #[test]
    fn ndarray_gives_what_flex_gives() {
        assert_same_on_all_devices(|device| on_cpu(PLAIN, device));
    }

    #[test]
    fn another_convolution_is_noticed() {
        let expected = by_tensor_ops(PLAIN);
        let check = |change: fn(Convolution) -> Convolution| {
            let changed = found(PLAIN, &Device::flex(), DType::F32, |convolution| change(convolution).on_cpu());
            assert!(difference(&changed, &expected) > 1e-4);
        };
        check(|convolution| Convolution { x: convolution.x * 1.001, ..convolution });
        check(|convolution| Convolution { weight: convolution.weight * 1.001, ..convolution });
        check(|convolution| Convolution { bias: convolution.bias.map(|x| x * 1.01), ..convolution });
        check(|convolution| Convolution { before: convolution.before.map(|x| x * 1.01), ..convolution });
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let case = Case { sizes: [3, 700, 40], ..PLAIN };
        assert_same_for_any_number_of_threads(|| on_cpu(case, &Device::flex()));
    }

    #[test]
    fn numbers_too_large_for_exponentials_are_as_by_tensor_operations() {
        let x = Tensor::<3>::from_floats([[[-200.0], [-90.0], [90.0], [200.0]]], &Device::flex());
        let convolution = Convolution { x, weight: Tensor::ones([1, 1], &Device::flex()), bias: None, before: None };
        assert_eq!(numbers(convolution.clone().on_cpu()), [0.0, 0.0, 90.0, 200.0]);
        assert!(numbers(convolution.by_tensor_ops()).into_iter().zip([0.0, 0.0, 90.0, 200.0]).all(|(x, y)| (x - y).abs() < 1e-6));
    }
}
