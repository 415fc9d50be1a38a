//! The wgpu backend: the best adapter that the machine has, a software one included.

use std::sync::Mutex;

use burn::tensor::Device;
use burn::tensor::wgpu::WgpuBackend;

use super::{Backend, BackendError};
use crate::device_failure::one_line;

/// A runtime can be set up once in a process.
static OPENED: Mutex<Vec<(Backend, Device)>> = Mutex::new(Vec::new());

pub(super) fn device(backend: Backend, api: WgpuBackend) -> Result<Device, BackendError> {
    let mut opened = OPENED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, device)) = opened.iter().find(|(known, _)| *known == backend) {
        return Ok(device.clone());
    }
    let options = Device::wgpu_options();
    let options = if api == WgpuBackend::Auto { options } else { options.graphics_api(api) };
    let device = options.init().map_err(|error| BackendError::NoDevice {
        backend,
        reason: one_line(&error.to_string()),
        remedy: "install a Vulkan driver (software Vulkan on Debian: apt-get install mesa-vulkan-drivers)",
    })?;
    opened.push((backend, device.clone()));
    Ok(device)
}
