//! The ROCm backend.

use burn::tensor::Device;

use super::{Backend, BackendError, opened};

pub(super) fn device() -> Result<Device, BackendError> {
    opened(Backend::Rocm, "install ROCm, and see what `rocminfo` says", || Device::rocm(0))
}
