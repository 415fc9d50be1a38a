//! Linear maps of rows.
//!
//! On flex, Burn clears the memory of every product and copies it into another block, on one thread: a tenth of a training step. Here products are written
//! once, in both directions of a map.

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

#[cfg(feature = "cube")]
impl Products for burn_cubecl::CubeBackend {}

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
