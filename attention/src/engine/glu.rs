//! Gated linear units (Dauphin et al. 2017): one half of the channels gates the other.
//!
//! As separate tensor operations a unit copies both halves and passes over each several times per direction. On backends with tensors in main memory it is one
//! operator, which saves only its input.

mod cpu_kernel;

use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, activation};

use self::cpu_kernel::{OfInputs, Outputs};
use super::cpu::parallel_blocks::filled;
use super::cpu::{self, Operands, Operation, padded};
use crate::tensors::main_memory::{contiguous, numbers, tensor};

/// `a sigmoid(b)` of the halves `a` and `b` of the channels of `x`: `[B, N, 2 C]` to `[B, N, C]`.
///
/// # Panics
/// If the number of channels is odd.
pub(crate) fn glu(x: Tensor<3>) -> Tensor<3> {
    if cpu::can_compute(&x.device(), [Some(x.dtype())]) { on_cpu(x) } else { activation::glu(x, 2) }
}

fn on_cpu(x: Tensor<3>) -> Tensor<3> {
    let channels = x.dims()[2];
    assert!(channels.is_multiple_of(2), "{channels} channels are no values and as many gates");
    cpu::computed(GatedLinearUnit, [Some(x.into_dispatch())])
}

/// Operates on `x` `[B, N, 2 C]`.
#[derive(Debug)]
struct GatedLinearUnit;

impl Operation for GatedLinearUnit {
    fn output(&self, [x, ..]: Operands<FlexTensor>) -> FlexTensor {
        let (x, [batch, length, size]) = readable(x);
        let shape = [batch, length, size];
        tensor(filled(Outputs { x: numbers(&x), length, size }, shape, 1), shape)
    }

    fn gradients(&self, [x, ..]: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let ((x, [batch, length, size]), gradient) = (readable(x), contiguous(gradient));
        let (outputs, shape) = (Outputs { x: numbers(&x), length, size }, [batch, length, 2 * size]);
        padded([Some(tensor(filled(OfInputs { outputs, gradient: numbers(&gradient) }, shape, 1), shape))])
    }
}

/// The input in the kernel's layout, and the shape of the output.
fn readable(x: Option<FlexTensor>) -> (FlexTensor, [usize; 3]) {
    let x = contiguous(x.expect("there are inputs"));
    let [batch, length, channels] = x.layout().shape().dims();
    (x, [batch, length, channels / 2])
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::custom_gradient::tests::{
        assert_same_for_any_number_of_threads, assert_same_on_all_devices, difference, drawn, gradient, numbers, random_gradients,
    };

    /// The output, and the gradient of the input for a random output gradient.
    fn found(shape: [usize; 3], device: &Device, dtype: DType, unit: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let x = drawn("x", shape, &device, dtype).require_grad();
        let output = unit(x.clone());
        let gradients = random_gradients(&output, dtype);
        vec![numbers(output), gradient(&x, &gradients)]
    }

    fn by_tensor_ops(shape: [usize; 3]) -> Vec<Vec<f64>> {
        found(shape, &Device::flex(), DType::F64, glu)
    }

    #[test]
    fn no_positions_give_no_output_and_no_gradient() {
        for shape in [[2, 0, 6], [0, 4, 6]] {
            assert!(found(shape, &Device::flex(), DType::F32, on_cpu).iter().all(Vec::is_empty), "{shape:?}");
        }
    }

    #[test]
    fn inputs_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for shape in [[1, 1, 2], [2, 9, 10], [3, 64, 32], [2, 65, 66], [1, 150, 512]] {
            let off = difference(&found(shape, &Device::flex(), DType::F32, on_cpu), &by_tensor_ops(shape));
            assert!(off < 2e-6, "{shape:?}: off by {off}");
        }
    }

    #[test]
    fn another_unit_is_noticed() {
        let shape = [2, 9, 10];
        let expected = by_tensor_ops(shape);
        let wrong: [fn(Tensor<3>) -> Tensor<3>; 2] = [|x| on_cpu(x * 1.001), |x| on_cpu(x.flip([2]))];
        for unit in wrong {
            assert!(difference(&found(shape, &Device::flex(), DType::F32, unit), &expected) > 1e-4);
        }
    }

    #[test]
    fn ndarray_gives_what_flex_gives() {
        assert_same_on_all_devices(|device| found([2, 9, 10], device, DType::F32, on_cpu));
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        assert_same_for_any_number_of_threads(|| found([3, 700, 80], &Device::flex(), DType::F32, on_cpu));
    }

    #[test]
    fn gates_too_large_for_exponentials_are_as_by_tensor_operations() {
        let x = Tensor::<3>::from_floats([[[2.0, -200.0], [2.0, 200.0]]], &Device::flex());
        assert_eq!(on_cpu(x).into_data().try_to_vec::<f32>().unwrap(), [0.0, 2.0]);
    }
}
