//! Linear maps of rows.
//!
//! On flex, Burn clears the memory of every product and copies it into another block, on one thread: a tenth of a training step. Here products are written
//! once, in both directions of a map. With few rows, as in decoding, products read weights at the full memory bandwidth. On a GPU, large products and the sums
//! for bias gradients use faster kernels than Burn's choice.

mod few_rows;
mod flex_backend;
#[cfg(feature = "cube")]
mod gpu;
mod operator;
mod tensor_ops;

use burn::backend::Dispatch;
use burn::nn::Linear;
use burn::tensor::{DType, Tensor};

use crate::contract::Positions;

#[doc(hidden)]
pub use self::flex_backend::SUMS;
pub use self::operator::{Products, Rows};
use super::cpu::can_compute;
use crate::tensors::read::is_queued;

/// `x W` of `x` `[.., C]`, `[.., F]`: [`burn::tensor::module::linear`], with faster products of few rows if no gradient is tracked.
///
/// # Panics
/// If the width differs from that of the matrix.
pub fn projected<const D: usize>(x: Tensor<D>, matrix: Tensor<2>) -> Tensor<D> {
    let is_plain = !x.device().is_autodiff() && !matrix.device().is_autodiff();
    // Burn multiplies batches of several rows one by one.
    if D != 2 || !is_plain || !can_compute(&x.device(), [x.dtype(), matrix.dtype()].map(Some)) {
        return burn::tensor::module::linear(x, matrix, None);
    }
    let [mut shape, sizes] = [x.dims(), x.dims()];
    shape[1] = matrix.dims()[1];
    let product = <Dispatch as Products>::product(x.reshape([sizes[0], sizes[1]]).into_dispatch(), matrix.into_dispatch());
    Tensor::<2>::from_dispatch(product).reshape(shape)
}

/// `x W + b` of `x` `[.., C]`, `[.., F]`; without `b` if the map has none.
///
/// # Panics
/// If the width differs from that of the map.
pub fn linear<const D: usize>(x: Tensor<D>, map: &Linear) -> Tensor<D> {
    if x.dtype() != DType::F32 && !is_queued(&x.device()) {
        return map.forward(x);
    }
    let weight = map.weight.val();
    let [width, units] = weight.dims();
    let mut shape = x.dims();
    assert_eq!(shape[D - 1], width, "the width of what is mapped");
    let rows = shape.iter().product::<usize>() / width;
    shape[D - 1] = units;
    let output = <Dispatch as Products>::rows_mapped(x.reshape([rows, width]).into_dispatch(), weight.into_dispatch());
    shifted(Tensor::<2>::from_dispatch(output), map).reshape(shape)
}

/// [`linear`] of a sequence `[B, N, C]` at these positions. Padding that need not be computed ([`Positions::ends`]) returns `b`.
///
/// # Panics
/// If the width differs from that of the map, or the number of ends differs from that of the batch rows.
pub(crate) fn linear_at(x: Tensor<3>, map: &Linear, positions: &Positions) -> Tensor<3> {
    let [batch, length, width] = x.dims();
    let Some(rows) = positions.real_rows(batch, length).filter(|rows| !rows.is_empty() && x.dtype() == DType::F32) else {
        return linear(x, map);
    };
    let weight = map.weight.val();
    let [given, units] = weight.dims();
    assert_eq!(width, given, "the width of what is mapped");
    let x = x.reshape([batch * length, width]);
    let output =
        Tensor::<2>::from_dispatch(<Dispatch as Products>::some_rows_mapped(x.into_dispatch(), weight.into_dispatch(), rows.into()));
    shifted(output, map).reshape([batch, length, units])
}

/// `x + b` of rows `[N, F]`.
fn shifted(x: Tensor<2>, map: &Linear) -> Tensor<2> {
    match &map.bias {
        None => x,
        Some(bias) if is_queued(&x.device()) => {
            Tensor::from_dispatch(<Dispatch as Products>::shifted(x.into_dispatch(), bias.val().into_dispatch()))
        }
        Some(bias) => x + bias.val().unsqueeze(),
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::engine::custom_gradient::{
        self,
        tests::{difference, drawn},
    };

    /// A map of `[width, units]` with a bias.
    fn map([width, units]: [usize; 2], device: &Device) -> Linear {
        let weight = Param::from_tensor(drawn("weight", [width, units], device, DType::F32));
        Linear { weight, bias: Some(Param::from_tensor(drawn("bias", [units], device, DType::F32))) }
    }

    /// The output at real positions, and the gradients of input, weight and bias under a loss that reads only real positions.
    fn results(positions: &Positions, sizes: [usize; 4], real: &[f32], device: &Device) -> Vec<Vec<f64>> {
        let [batch, length, width, units] = sizes;
        let map = map([width, units], device);
        let x = drawn("x", [batch, length, width], device, DType::F32).require_grad();
        let real = Tensor::<3>::from_data(TensorData::new(real.to_vec(), [batch, length, 1]), device);
        let output = linear_at(x.clone(), &map, positions) * real;
        let slopes = drawn("slopes", [batch, length, units], device, DType::F32);
        let mut gradients = (output.clone() * slopes).sum().backward();
        let numbers = |tensor: Tensor<1>| tensor.into_data().iter::<f64>().collect::<Vec<f64>>();
        let bias = map.bias.as_ref().unwrap().val();
        vec![
            numbers(output.flatten(0, 2)),
            numbers(x.grad_remove(&mut gradients).unwrap().flatten(0, 2)),
            numbers(map.weight.val().grad_remove(&mut gradients).unwrap().flatten(0, 1)),
            numbers(bias.grad_remove(&mut gradients).unwrap()),
        ]
    }

    fn devices() -> impl Iterator<Item = Device> {
        custom_gradient::tests::devices().into_iter().map(|device| device.autodiff())
    }

    #[test]
    fn maps_of_real_positions_have_the_outputs_and_gradients_of_all() {
        // The last ones are large enough for several threads, with rows longer than a piece.
        let cases: [(&[usize], &[usize], [usize; 4]); 5] = [
            (&[3, 5, 1], &[], [3, 5, 4, 6]),
            (&[5, 0], &[], [2, 5, 4, 6]),
            (&[4, 5], &[2, 0], [2, 5, 3, 2]),
            (&[100, 7, 64, 33], &[], [4, 100, 190, 200]),
            (&[700, 3], &[], [2, 700, 100, 150]),
        ];
        for device in devices() {
            for (ends, begins, sizes) in cases {
                let [batch, length, ..] = sizes;
                let begin = |row: usize| begins.get(row).copied().unwrap_or(0);
                let real: Vec<f32> =
                    (0..batch).flat_map(|row| (0..length).map(move |at| f32::from((begin(row)..ends[row]).contains(&at)))).collect();
                let all = Positions::default().with_left_padding(begins);
                let some = all.clone().with_ends(ends);
                let [found, expected] = [&some, &all].map(|positions| results(positions, sizes, &real, &device));
                let difference = difference(&found, &expected);
                assert!(difference < 1e-5, "{device:?}, ends {ends:?}: {difference}");
            }
        }
    }

    #[test]
    fn positions_that_are_not_real_give_the_bias_alone() {
        for device in devices() {
            let map = map([4, 3], &device);
            let x = drawn("x", [2, 3, 4], &device, DType::F32);
            let output = linear_at(x, &map, &Positions::default().with_ends(vec![1, 3])).narrow(0, 0, 1).narrow(1, 1, 2);
            let bias = map.bias.as_ref().unwrap().val().reshape([1, 1, 3]).repeat_dim(1, 2);
            assert_eq!(output.into_data().iter::<f32>().collect::<Vec<_>>(), bias.into_data().iter::<f32>().collect::<Vec<_>>());
        }
    }
}
