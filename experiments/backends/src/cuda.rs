//! The CUDA backend.

use burn::tensor::Device;

use super::{Backend, BackendError, opened};

pub(super) fn device() -> Result<Device, BackendError> {
    opened(Backend::Cuda, "install NVIDIA's driver and CUDA 13, and see what `nvidia-smi` says", || Device::cuda(0))
}
