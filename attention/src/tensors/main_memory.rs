//! Tensors of flex as slices of numbers, for kernels: flex stores them in main memory.

use burn::backend::DispatchDevice;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Device, Shape, TensorData};
#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and these lines with it")]
use burn::{
    backend::{NdArray, ndarray::NdArrayTensor, ops::FloatTensorOps},
    tensor::read_sync,
};

/// Copies the tensor without gaps between its numbers, if necessary.
pub fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// A contiguous, unshared tensor of 32-bit floats in a buffer of its own; returns the given tensor if it qualifies.
pub fn owned(tensor: FlexTensor) -> FlexTensor {
    let mut tensor = contiguous(tensor);
    let count = tensor.layout().num_elements();
    let is_owned = tensor.try_storage_mut::<f32>().is_some_and(|storage| storage.len() == count);
    if is_owned { tensor } else { self::tensor(numbers(&tensor).to_vec(), tensor.layout().shape().clone()) }
}

/// Numbers of a [`contiguous`] tensor.
///
/// # Panics
/// If it is not contiguous or not of 32-bit floats.
pub fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("the tensor is contiguous and of 32-bit floats")
}

/// Mutable numbers of an [`owned`] tensor.
///
/// # Panics
/// If it is not of 32-bit floats.
pub fn numbers_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    tensor.storage_mut()
}

/// A tensor of the given numbers, row by row.
///
/// # Panics
/// If their number differs from the size of the shape.
pub fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(numbers, shape.into()))
}

/// Converts a tensor from ndarray to flex.
#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this function with it")]
pub fn flex(tensor: NdArrayTensor) -> FlexTensor {
    // Float and integer data are created alike.
    FlexTensor::from_data(read_sync(NdArray::float_into_data(tensor)).expect("the numbers are in main memory"))
}

/// Converts a tensor from flex to ndarray.
#[cfg(feature = "ndarray")]
#[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this function with it")]
pub fn ndarray(tensor: FlexTensor) -> NdArrayTensor {
    NdArrayTensor::from_data(tensor.into_data())
}

/// Whether the device runs kernels for main memory.
pub(crate) fn has_kernels(device: &Device) -> bool {
    #[allow(deprecated, reason = "ndarray leaves Burn in 0.23, and its line with it")]
    match device.clone().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchDevice::NdArray(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_see_is_copied_before_it_is_written() {
        let first = tensor(vec![1.0, 2.0, 3.0, 4.0], [2, 2]);
        let address = numbers(&first).as_ptr();
        let mut second = owned(first.clone());
        numbers_mut(&mut second)[0] = 9.0;
        assert_eq!((numbers(&first), numbers(&second)), (&[1.0, 2.0, 3.0, 4.0][..], &[9.0, 2.0, 3.0, 4.0][..]));
        assert_eq!(numbers(&owned(first)).as_ptr(), address, "a tensor of its own was copied");
    }

    #[test]
    fn parts_and_transposes_are_copied_in_order() {
        let all = tensor(vec![1.0, 2.0, 3.0, 4.0], [2, 2]);
        assert_eq!(numbers(&owned(all.transpose(0, 1))), [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(numbers_mut(&mut owned(all.narrow(0, 1, 1))), [3.0, 4.0]);
    }
}
