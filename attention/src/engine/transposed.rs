//! Transposes and slices of tensors that avoid errors of Burn 0.22.1.

use burn::tensor::Tensor;

/// Swaps the last two dimensions. A single row or column is reshaped instead: with fusion, Burn 0.22.1 computes wrong outputs and gradients from a column that
/// was swapped into a row. The backward pass of a row that was swapped into a column also swaps one.
pub(crate) fn transposed<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let mut shape = x.dims();
    if !shape[D - 2..].contains(&1) {
        return x.swap_dims(D - 2, D - 1);
    }
    shape.swap(D - 2, D - 1);
    x.reshape(shape)
}

/// `count` elements along a dimension. If these are all elements, the tensor is returned unchanged: with fusion, Burn 0.22.1 multiplies a slice of the whole
/// tensor wrongly.
pub(super) fn part(x: Tensor<4>, dim: usize, start: usize, count: usize) -> Tensor<4> {
    if x.dims()[dim] == count { x } else { x.narrow(dim, start, count) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Shape, TensorData, Tolerance};

    use super::*;
    use crate::conformance::test_device;
    use crate::tensors::read::read;

    fn drawn(shape: [usize; 4], device: &Device) -> Tensor<4> {
        let numbers = (1..=shape.iter().product()).map(|index| (index as f32 * 0.7).sin());
        Tensor::from_data(TensorData::new(numbers.collect(), Shape::from(shape)), device)
    }

    /// Only a build with fusion distinguishes a new shape from swapped dimensions.
    #[test]
    fn operations_on_rows_and_columns_are_those_in_main_memory() {
        for shape in [[3, 2, 8, 1], [3, 2, 1, 8], [3, 2, 4, 8], [1, 1, 1, 1]] {
            let outputs = [Device::flex(), test_device()].map(|device| {
                let y = transposed(drawn(shape, &device));
                let [_, heads, _, columns] = y.dims();
                read(y * drawn([1, heads, 1, 1], &device) + drawn([1, heads, 1, columns], &device))
            });
            outputs[1].assert_approx_eq::<f32>(&outputs[0], Tolerance::default());
            let gradients = [Device::flex(), test_device()].map(|device| {
                let device = device.autodiff();
                let x = drawn(shape, &device).require_grad();
                let scale = drawn([1, shape[1], 1, 1], &device);
                let y = transposed((x.clone() * scale.clone()).exp());
                let coefficients = drawn(y.dims(), &device);
                read(x.grad(&(y * scale * coefficients).backward()).expect("it was required"))
            });
            gradients[1].assert_approx_eq::<f32>(&gradients[0], Tolerance::default());
        }
    }
}
