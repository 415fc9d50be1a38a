//! `elu(x) + 1`, the positive features of linear attention (Katharopoulos et al. 2020, section 3.2).
//!
//! As separate tensor operations the map and its slope take about ten passes over the channels. On backends with tensors in main memory it is one operator,
//! which saves only its input.

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::cpu::parallel_blocks::{Block, Fill, filled};
use super::cpu::{self, Operands, Operation, padded};
use super::exponential::exp;
use super::fused::cpu::Rows;
use super::fused::flex_backend::{by_heads, rows, shape, with_whole_rows};

/// `x + 1` for `x > 0`, otherwise `e^x`, of each number of `[B, H, N, D]`.
pub(crate) fn elu_plus_one(x: Tensor<4>) -> Tensor<4> {
    if cpu::can_compute(&x.device(), [Some(x.dtype())]) { on_cpu(x) } else { by_tensor_ops(x) }
}

fn on_cpu(x: Tensor<4>) -> Tensor<4> {
    cpu::computed(EluPlusOne, [Some(x.into_dispatch())])
}

fn by_tensor_ops(x: Tensor<4>) -> Tensor<4> {
    // One of the terms is constant: x + 1 or 0 + e^x.
    relu(x.clone()) + x.clamp_max(0.0).exp()
}

/// Operates on rows `[B, H, N, D]`.
#[derive(Debug)]
struct EluPlusOne;

impl Operation for EluPlusOne {
    fn output(&self, [x, ..]: Operands<FlexTensor>) -> FlexTensor {
        let x = with_whole_rows(x.expect("there are rows"));
        mapped(&x, None)
    }

    fn gradients(&self, [x, ..]: Operands<FlexTensor>, gradient: FlexTensor) -> Operands<FlexTensor> {
        let x = with_whole_rows(x.expect("there are rows"));
        padded([Some(mapped(&x, Some(&with_whole_rows(gradient))))])
    }
}

/// The features, or slopes times a gradient.
fn mapped(x: &FlexTensor, gradient: Option<&FlexTensor>) -> FlexTensor {
    let sizes @ [batch, heads, length, width] = shape(x);
    let (x, gradient) = (rows(x, heads), gradient.map(|gradient| rows(gradient, heads)));
    by_heads(filled(Mapped { heads, width, x, gradient }, [batch, length, heads * width], 1), sizes)
}

#[derive(Clone, Copy)]
struct Mapped<'a> {
    heads: usize,
    width: usize,
    x: Rows<'a>,
    gradient: Option<Rows<'a>>,
}

impl Fill for Mapped<'_> {
    #[inline(always)]
    fn fill(self, Block { row, first, numbers }: Block) {
        let Self { heads, width, x, gradient } = self;
        for (index, output) in numbers.chunks_exact_mut(width).enumerate() {
            let (position, head) = (first + index / heads, index % heads);
            let x = x.of(row, head).row(position, width);
            match gradient {
                None => output.iter_mut().zip(x).for_each(|(output, &x)| *output = slope(x) + if x > 0.0 { x } else { 0.0 }),
                Some(gradient) => output
                    .iter_mut()
                    .zip(x)
                    .zip(gradient.of(row, head).row(position, width))
                    .for_each(|((output, &x), gradient)| *output = gradient * slope(x)),
            }
        }
    }
}

/// 1 for `x > 0`, otherwise `e^x`.
#[inline(always)]
fn slope(x: f32) -> f32 {
    exp(if x > 0.0 { 0.0 } else { x })
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::engine::custom_gradient::tests::{
        assert_same_for_any_number_of_threads, assert_same_on_all_devices, difference, drawn, gradient, numbers, random_gradients,
    };

    /// The features, and the gradient of the channels for a random feature gradient. Heads of a position are adjacent.
    fn found([batch, heads, length, width]: [usize; 4], device: &Device, dtype: DType, map: fn(Tensor<4>) -> Tensor<4>) -> Vec<Vec<f64>> {
        let device = device.clone().autodiff();
        let x = drawn("x", [batch, length, heads, width], &device, dtype).require_grad();
        let output = map(x.clone().swap_dims(1, 2));
        let gradients = random_gradients(&output, dtype);
        vec![numbers(output), gradient(&x, &gradients)]
    }

    #[test]
    fn channels_of_all_sizes_agree_with_tensor_operations_in_outputs_and_gradients() {
        for shape in [[1, 1, 1, 1], [2, 3, 9, 5], [3, 2, 64, 16], [2, 4, 65, 33], [1, 4, 150, 64]] {
            let off =
                difference(&found(shape, &Device::flex(), DType::F32, on_cpu), &found(shape, &Device::flex(), DType::F64, by_tensor_ops));
            assert!(off < 2e-6, "{shape:?}: off by {off}");
        }
    }

    #[test]
    fn no_positions_have_no_features_and_no_gradient() {
        for shape in [[2, 3, 0, 5], [0, 3, 4, 5]] {
            assert!(found(shape, &Device::flex(), DType::F32, on_cpu).iter().all(Vec::is_empty), "{shape:?}");
        }
    }

    #[test]
    fn another_map_is_noticed() {
        let shape = [2, 3, 9, 5];
        let expected = found(shape, &Device::flex(), DType::F64, by_tensor_ops);
        let wrong: [fn(Tensor<4>) -> Tensor<4>; 3] = [|x| on_cpu(x * 1.001), |x| on_cpu(x.flip([2])), |x| on_cpu(x.clone()) - x * 1e-3];
        for map in wrong {
            assert!(difference(&found(shape, &Device::flex(), DType::F32, map), &expected) > 1e-4);
        }
    }

    #[test]
    fn ndarray_gives_what_flex_gives() {
        assert_same_on_all_devices(|device| found([2, 3, 9, 5], device, DType::F32, on_cpu));
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        assert_same_for_any_number_of_threads(|| found([3, 2, 700, 40], &Device::flex(), DType::F32, on_cpu));
    }

    #[test]
    fn numbers_of_any_size_have_features() {
        let x = Tensor::<4>::from_floats([[[[-200.0, -0.0, 200.0, f32::NAN, f32::INFINITY]]]], &Device::flex());
        let features = on_cpu(x).into_data().try_to_vec::<f32>().unwrap();
        assert_eq!([features[0], features[1], features[2], features[4]], [0.0, 1.0, 201.0, f32::INFINITY]);
        assert!(features[3].is_nan());
    }
}
