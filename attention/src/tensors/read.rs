//! Reading tensors back to main memory.

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor, TensorData};

use super::main_memory;

/// The numbers that a tensor holds now.
///
/// `Tensor::into_data` of Burn's GPU backends copies nothing: the bytes leave the device when they are first looked at. Until then the data does not count
/// as an owner of its buffer, so that an operation on another handle of the same tensor may write into it, and the data holds the numbers of that
/// operation. Here the bytes are copied before anything else can run.
///
/// # Panics
/// If the device fails to hand out the numbers.
// The one place at which the bare call is right.
#[allow(clippy::disallowed_methods)]
pub fn read<const D: usize, K: Basic>(x: Tensor<D, K>) -> TensorData {
    let data = x.into_data();
    data.as_bytes();
    data
}

/// Whether operations on a device are queued: the host goes on while they run, and waits for all of them where it reads a number.
pub fn is_queued(device: &Device) -> bool {
    !main_memory::has_kernels(device)
}
