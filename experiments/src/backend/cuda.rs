//! The CUDA backend.

use burn::tensor::Device;

pub(super) fn device() -> Device {
    Device::cuda(0)
}
