//! Copying tensors to main memory.

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor, TensorData};

use super::main_memory;

/// Current values of a tensor.
///
/// `Tensor::into_data` of Burn's GPU backends copies lazily: the bytes leave the device on first access. Until then the data does not own its buffer, so an
/// operation on another handle of the same tensor can overwrite it, and the data then contains that operation's numbers. This function copies the bytes before
/// other operations run.
///
/// # Panics
/// If the device fails to return the numbers.
// The only correct place for the bare call.
#[allow(clippy::disallowed_methods)]
pub fn read<const D: usize, K: Basic>(x: Tensor<D, K>) -> TensorData {
    let data = x.into_data();
    data.as_bytes();
    data
}

/// Whether operations on a device are queued: the host continues while they run, and waits for all of them when it reads a number.
pub fn is_queued(device: &Device) -> bool {
    !main_memory::has_kernels(device)
}
