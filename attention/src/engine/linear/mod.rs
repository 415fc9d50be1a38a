//! Linear maps of rows.
//!
//! On flex, Burn clears the memory of every product and copies it into another block, on one thread: a tenth of a training step. Here products are written
//! once, in both directions of a map. With few rows, as in decoding, they read weights as main memory gives them fastest.

mod few_rows;
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;
mod operator;

use burn::backend::Dispatch;
use burn::nn::Linear;
use burn::tensor::{DType, Tensor};

#[doc(hidden)]
pub use self::flex::SUMS;
pub use self::operator::Products;
use super::native::can_compute;

#[cfg(feature = "cube")]
impl Products for burn_cubecl::CubeBackend {}

/// `x W` of `x` `[.., C]`, `[.., F]`: [`burn::tensor::module::linear`], with products of few rows that are faster where no gradient is tracked.
///
/// # Panics
/// If the width is not that of the matrix.
pub fn projected<const D: usize>(x: Tensor<D>, matrix: Tensor<2>) -> Tensor<D> {
    let is_plain = !x.device().is_autodiff() && !matrix.device().is_autodiff();
    // Burn multiplies batches of rows one by one where each has some.
    if D != 2 || !is_plain || !can_compute(&x.device(), [x.dtype(), matrix.dtype()].map(Some)) {
        return burn::tensor::module::linear(x, matrix, None);
    }
    let [mut shape, sizes] = [x.dims(), x.dims()];
    shape[1] = matrix.dims()[1];
    let product = <Dispatch as Products>::product(x.reshape([sizes[0], sizes[1]]).into_dispatch(), matrix.into_dispatch());
    Tensor::<2>::from_dispatch(product).reshape(shape)
}

/// `x W + b` of `x` `[.., C]`, `[.., F]`; without `b` where the map has none.
///
/// # Panics
/// If the width is not that of the map.
pub fn linear<const D: usize>(x: Tensor<D>, map: &Linear) -> Tensor<D> {
    if x.dtype() != DType::F32 {
        return map.forward(x);
    }
    let weight = map.weight.val();
    let [width, units] = weight.dims();
    let mut shape = x.dims();
    assert_eq!(shape[D - 1], width, "the width of what is mapped");
    let rows = shape.iter().product::<usize>() / width;
    shape[D - 1] = units;
    let output = <Dispatch as Products>::rows_mapped(x.reshape([rows, width]).into_dispatch(), weight.into_dispatch());
    let output = Tensor::<2>::from_dispatch(output);
    let output = match &map.bias {
        Some(bias) => output + bias.val().unsqueeze(),
        None => output,
    };
    output.reshape(shape)
}
