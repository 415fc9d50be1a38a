//! Numbers that were read stay as they were, whatever runs afterwards.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;

#[cfg(feature = "wgpu")]
use crate::backends::{Backend, backends, wgpu};

const NUMBERS: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const PRODUCTS: [f32; 4] = [10.0, 20.0, 30.0, 40.0];

/// What `take` took of a tensor that was multiplied, in its own buffer where the backend can, before anybody looked at the numbers.
fn taken_before_a_product(take: impl Fn(Tensor<1>) -> TensorData, device: &Device) -> Vec<f32> {
    let x = Tensor::<1>::from_data(NUMBERS, device) + 0.0;
    let data = take(x.clone());
    assert_eq!(read(x * 10.0).iter::<f32>().collect::<Vec<_>>(), PRODUCTS, "{device:?}");
    data.iter().collect()
}

#[test]
fn what_was_read_stays_as_it_was_on_every_backend() {
    for Backend { device, .. } in backends() {
        assert_eq!(taken_before_a_product(read, &device), NUMBERS, "{device:?}");
        let x = Tensor::<1, Int>::from_data([1, 2, 3], &device) + 1;
        let data = read(x.clone());
        assert_eq!(read(x * 2).iter::<i64>().collect::<Vec<_>>(), [4, 6, 8], "{device:?}");
        assert_eq!(data.iter::<i64>().collect::<Vec<_>>(), [2, 3, 4], "{device:?}");
        let x: Tensor<1, Bool> = Tensor::<1>::from_data(NUMBERS, &device).greater_elem(2.0);
        let data = read(x.clone());
        assert_eq!(read(x.bool_not()).iter::<bool>().collect::<Vec<_>>(), [true, true, false, false], "{device:?}");
        assert_eq!(data.iter::<bool>().collect::<Vec<_>>(), [false, false, true, true], "{device:?}");
    }
}

/// Why [`read`] is needed. Where this fails, Burn reads at once.
#[cfg(feature = "wgpu")]
#[test]
#[allow(clippy::disallowed_methods)]
fn the_bare_call_on_wgpu_gives_the_numbers_of_a_later_operation() {
    assert_eq!(taken_before_a_product(Tensor::into_data, &wgpu().device), PRODUCTS);
}
