//! Accelerator for tests.

use std::panic::catch_unwind;
use std::sync::OnceLock;

use burn::tensor::Device;

/// Environment variable that names the device of [`test_device`].
pub const TEST_DEVICE: &str = "HEEDFUL_TEST_DEVICE";

/// Accelerator for tests: the value of `HEEDFUL_TEST_DEVICE` (`wgpu`, `vulkan` or `cuda`), or software Vulkan.
///
/// # Panics
/// If the device does not exist, or the program was built without it.
pub fn test_device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE
        .get_or_init(|| {
            let name = std::env::var(TEST_DEVICE).ok();
            let device = match name.as_deref() {
                #[cfg(feature = "wgpu")]
                None => || Device::wgpu(burn::tensor::DeviceKind::Cpu),
                #[cfg(feature = "wgpu")]
                Some("wgpu") => || Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
                #[cfg(feature = "vulkan")]
                Some("vulkan") => || Device::vulkan(burn::tensor::DeviceKind::DefaultDevice),
                #[cfg(feature = "cuda")]
                Some("cuda") => || Device::cuda(0),
                other => panic!("{TEST_DEVICE}={}: this program was built without it", other.unwrap_or("wgpu")),
            };
            let opened = catch_unwind(|| {
                let device: Device = device();
                // The first tensor opens a device.
                let _ = crate::tensors::read::read(burn::tensor::Tensor::<1>::zeros([1], &device));
                device
            });
            opened.unwrap_or_else(|_| match name {
                None => panic!("no software Vulkan adapter for wgpu: install one with `apt-get install mesa-vulkan-drivers`"),
                Some(name) => panic!("{TEST_DEVICE}={name}: there is no such device"),
            })
        })
        .clone()
}

/// [`test_device`] in CubeCL's type.
#[cfg(all(test, feature = "wgpu"))]
pub(crate) fn cube_test_device() -> burn_cubecl::CubeDevice {
    match test_device().as_dispatch() {
        burn::backend::DispatchDevice::Cube(device) => device.clone(),
        _ => unreachable!("accelerators are those of CubeCL"),
    }
}
