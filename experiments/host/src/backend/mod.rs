//! Backends by name.
//!
//! What is special to one backend stands in a file of its own, so that losing a backend costs one file.

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
#[cfg(feature = "wgpu")]
use burn::tensor::wgpu::WgpuBackend;
use thiserror::Error;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "rocm")]
mod rocm;
#[cfg(feature = "wgpu")]
mod wgpu;

use crate::names::nearest;

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

    /// Whether its tensors lie in the memory of a device of their own.
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

/// A device that was opened: drivers are asked when the first tensor is made, and panic where there are none.
#[cfg(any(feature = "cuda", feature = "rocm"))]
fn opened(
    backend: Backend,
    remedy: &'static str,
    device: impl FnOnce() -> Device + std::panic::UnwindSafe,
) -> Result<Device, BackendError> {
    let open = || {
        let device = device();
        device.sync().map_err(|error| error.to_string())?;
        Ok(device)
    };
    let panicked = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(message) => Err(*message),
        Err(panic) => {
            Err(panic.downcast_ref::<&str>().map_or_else(|| "the driver does not answer".to_owned(), |&message| message.to_owned()))
        }
    };
    let found = std::panic::catch_unwind(open).unwrap_or_else(panicked);
    found.map_err(|reason| BackendError::NoDevice { backend, reason, remedy })
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, BackendError> {
        Self::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
            let nearest = nearest(name, Self::ALL.map(Self::name));
            let suggestion = nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"));
            BackendError::Unknown { name: name.to_owned(), suggestion }
        })
    }
}
