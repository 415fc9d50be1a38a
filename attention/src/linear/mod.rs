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

pub use self::operator::Products;

#[cfg(any(feature = "wgpu", feature = "cuda"))]
impl Products for burn::backend::Cube {}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{self, Init};
    use crate::random::RandomKey;
    use burn::tensor::{Device, TensorData};

    fn devices() -> Vec<Device> {
        let devices = [
            Device::flex(),
            #[cfg(feature = "ndarray")]
            #[allow(deprecated, reason = "ndarray leaves Burn in 0.23")]
            Device::ndarray(),
        ];
        devices.into_iter().map(|device| device.autodiff()).collect()
    }

    fn drawn<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
        Init::Normal(1.0).tensor(shape, &RandomKey::from_seed(seed), device)
    }

    /// Output and gradients of input, weight and bias, by Burn's own map or by this one.
    fn run(
        [batch, length, width, units]: [usize; 4],
        bias: bool,
        device: &Device,
        forward: fn(Tensor<3>, &Linear) -> Tensor<3>,
    ) -> Vec<TensorData> {
        let map = init::linear(width, units, bias, &RandomKey::from_seed(1), device);
        // As heads are merged: rows that do not lie in a row.
        let x = drawn(2, [batch, width, length], device).require_grad();
        let output = forward(x.clone().swap_dims(1, 2), &map);
        let gradients = (output.clone() * drawn(3, [batch, length, units], device)).sum().backward();
        let mut found = vec![output.into_data(), x.grad(&gradients).expect("the input has a gradient").into_data()];
        found.push(map.weight.val().grad(&gradients).expect("the weight has a gradient").into_data());
        found.extend(map.bias.map(|bias| bias.val().grad(&gradients).expect("the bias has a gradient").into_data()));
        found
    }

    #[test]
    fn maps_and_their_gradients_are_those_of_burn() {
        for (device, shape, bias) in devices().into_iter().flat_map(|device| {
            // The last has gradients of weights that are long and thin.
            let shapes = [[1, 1, 1, 1], [2, 3, 5, 7], [3, 70, 64, 33], [2, 300, 200, 130], [3, 700, 100, 60]];
            shapes.into_iter().flat_map(move |shape| [(device.clone(), shape, false), (device.clone(), shape, true)])
        }) {
            let (found, wanted) = (run(shape, bias, &device, linear), run(shape, bias, &device, |x, map| map.forward(x)));
            assert_eq!(found.len(), if bias { 4 } else { 3 });
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found.shape(), wanted.shape());
                for (found, wanted) in found.iter::<f32>().zip(wanted.iter::<f32>()) {
                    assert!((found - wanted).abs() <= 1e-3 * wanted.abs().max(1.0), "{shape:?}: {found} is not {wanted}");
                }
            }
        }
    }

    #[test]
    fn a_product_over_nothing_is_zero() {
        let device = Device::flex();
        let map = Linear { weight: burn::module::Param::from_tensor(Tensor::zeros([0, 3], &device)), bias: None };
        let output = <Dispatch as Products>::product(Tensor::<2>::zeros([2, 0], &device).into_dispatch(), map.weight.val().into_dispatch());
        assert_eq!(Tensor::<2>::from_dispatch(output).into_data(), TensorData::zeros::<f32, _>([2, 3]));
    }

    #[test]
    #[should_panic(expected = "the width of what is mapped")]
    fn another_width_is_refused() {
        let device = Device::flex();
        linear(Tensor::<2>::zeros([2, 6], &device), &init::linear(3, 3, false, &RandomKey::from_seed(1), &device));
    }
}
