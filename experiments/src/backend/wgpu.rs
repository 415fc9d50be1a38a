//! The wgpu backend: the best adapter that the machine has, a software one included.

use std::sync::Mutex;

use burn::tensor::Device;

use super::{Backend, BackendError};

/// The runtime can be set up once in a process.
static OPENED: Mutex<Option<Device>> = Mutex::new(None);

pub(super) fn device() -> Result<Device, BackendError> {
    let mut opened = OPENED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(device) = &*opened {
        return Ok(device.clone());
    }
    let device = Device::wgpu_options().init().map_err(|error| BackendError::NoDevice {
        backend: Backend::Wgpu,
        reason: error.to_string(),
        remedy: "install a Vulkan driver (software Vulkan on Debian: apt-get install mesa-vulkan-drivers)",
    })?;
    *opened = Some(device.clone());
    Ok(device)
}
