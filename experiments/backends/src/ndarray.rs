//! The ndarray backend, which Burn 0.22 deprecates and 0.23 drops.

use burn::tensor::Device;

#[allow(deprecated, reason = "kept for comparison for as long as Burn has it")]
pub(super) fn device() -> Device {
    Device::ndarray()
}
