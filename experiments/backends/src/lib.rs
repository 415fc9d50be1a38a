//! Backends by name.
//!
//! Each backend has a file for its particularities, so that removing a backend removes one file. [`device_failure`] turns driver panics into errors;
//! [`features`] lists the compiled cargo features.
//!
//! ```
//! use heedful_backends::Backend;
//!
//! let device = "flex".parse::<Backend>()?.device()?;
//! println!("{device:?}");
//! # Ok::<(), heedful_backends::BackendError>(())
//! ```

#![warn(unreachable_pub)]

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
#[cfg(feature = "wgpu")]
use burn::tensor::wgpu::WgpuBackend;
use heedful_host::names::suggestion;
use thiserror::Error;

#[cfg(feature = "cuda")]
mod cuda;
pub mod device_failure;
pub mod features;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "rocm")]
mod rocm;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(any(test, feature = "cuda", feature = "rocm"))]
use crate::device_failure::{caught, one_line};

/// A backend that can be chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Burn's CPU backend, the default.
    Flex,
    /// The CPU backend on the ndarray crate (deprecated by Burn).
    NdArray,
    /// GPUs through Vulkan, Metal or DirectX; software Vulkan where there is none.
    Wgpu,
    /// GPUs through Vulkan, with kernels in SPIR-V.
    Vulkan,
    /// GPUs of Apple, with kernels in Metal's language.
    Metal,
    /// GPUs through WebGPU.
    Webgpu,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Rocm,
}

/// A backend that cannot be used.
#[derive(Debug, Error)]
pub enum BackendError {
    /// No backend of this name.
    #[error("--backend: unknown backend `{name}`{suggestion}; known are flex, ndarray, wgpu, vulkan, metal, webgpu, cuda, rocm")]
    Unknown {
        /// The name as given.
        name: String,
        /// `; did you mean ...?` or nothing.
        suggestion: String,
    },
    /// Known, but not compiled in.
    #[error("--backend: this program was built without `{0}`; build it with `cargo build --release --features {0}`")]
    NotCompiled(Backend),
    /// Compiled in, but no device can be opened.
    #[error("--backend {backend}: no device can be opened: {reason}; {remedy}")]
    NoDevice {
        /// The backend.
        backend: Backend,
        /// What the driver said.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl Backend {
    /// All backends, whether compiled in or not.
    pub const ALL: [Self; 8] = [Self::Flex, Self::NdArray, Self::Wgpu, Self::Vulkan, Self::Metal, Self::Webgpu, Self::Cuda, Self::Rocm];

    /// The name that options and results use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::NdArray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Webgpu => "webgpu",
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
        }
    }

    /// Whether its tensors lie in the memory of a separate device.
    pub fn is_accelerator(self) -> bool {
        !matches!(self, Self::Flex | Self::NdArray)
    }

    /// Opens the default device of this backend, without autodiff.
    ///
    /// # Errors
    /// If the backend is not compiled in, or has no device on this machine.
    pub fn device(self) -> Result<Device, BackendError> {
        match self {
            Self::Flex => Ok(Device::flex()),
            #[cfg(feature = "ndarray")]
            Self::NdArray => Ok(ndarray::device()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => wgpu::device(self, WgpuBackend::Auto),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => wgpu::device(self, WgpuBackend::Vulkan),
            #[cfg(feature = "metal")]
            Self::Metal => wgpu::device(self, WgpuBackend::Metal),
            #[cfg(feature = "webgpu")]
            Self::Webgpu => wgpu::device(self, WgpuBackend::WebGpu),
            #[cfg(feature = "cuda")]
            Self::Cuda => cuda::device(),
            #[cfg(feature = "rocm")]
            Self::Rocm => rocm::device(),
            #[allow(unreachable_patterns, reason = "with all features every backend is compiled in")]
            other => Err(BackendError::NotCompiled(other)),
        }
    }
}

/// Memory of a device in bytes, if its driver reports it: for an accelerator with the feature `cuda`, `rocm`, `vulkan` or `metal`. wgpu alone does not ask the
/// driver.
pub fn memory_bytes(device: &Device) -> Option<u64> {
    #[cfg(feature = "cube")]
    if let burn::backend::DispatchDevice::Cube(device) = device.clone().without_autodiff().as_dispatch() {
        return device.client().properties().memory.max_memory();
    }
    let _ = device;
    None
}

/// A device that was opened: drivers are asked when the first tensor is made, and panic where there are none.
#[cfg(any(test, feature = "cuda", feature = "rocm"))]
fn opened(backend: Backend, remedy: &'static str, device: impl FnOnce() -> Device) -> Result<Device, BackendError> {
    let open = || {
        let device = device();
        device.sync().map_err(|error| error.to_string())?;
        Ok(device)
    };
    let (outcome, panic) = caught(open);
    let found = outcome.unwrap_or_else(|| Err(panic.unwrap_or_else(|| "the driver does not answer".to_owned())));
    found.map_err(|reason| BackendError::NoDevice { backend, reason: one_line(&reason), remedy })
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, BackendError> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| BackendError::Unknown { name: name.to_owned(), suggestion: suggestion(name, Self::ALL.map(Self::name)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_failure::tests::printed_alone;

    #[test]
    fn a_driver_that_is_missing_gives_one_error_with_reason_and_remedy() {
        let Some([text, errors]) = printed_alone("tests::a_driver_that_is_missing_gives_one_error_with_reason_and_remedy") else {
            let missing = || -> Device { panic!("Unable to load the \"cuda\" shared library\n - searched for libcuda.so") };
            println!("{}", opened(Backend::Cuda, "install NVIDIA's driver", missing).unwrap_err());
            assert!(opened(Backend::Flex, "", Device::flex).is_ok());
            return;
        };
        for part in [
            "--backend cuda: no device can be opened: Unable to load the \"cuda\" shared library - searched",
            "; install NVIDIA's driver\n",
        ] {
            assert!(text.contains(part), "{text}{errors}");
        }
        assert!(text.contains("1 passed") && !errors.contains("panicked"), "{errors}");
    }

    #[test]
    fn the_memory_of_the_processor_is_not_that_of_a_device() {
        assert_eq!(memory_bytes(&Device::flex()), None);
    }
}
