//! Backends by name.
//!
//! What is special to one backend stands in a file of its own, so that losing a backend costs one file.

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use thiserror::Error;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "wgpu")]
mod wgpu;

/// A backend that can be chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Burn's CPU backend, the default.
    Flex,
    /// The CPU backend on the ndarray crate (deprecated by Burn).
    NdArray,
    /// GPUs through Vulkan, Metal or DirectX; software Vulkan where there is none.
    Wgpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// A backend that cannot be used.
#[derive(Debug, Error)]
pub enum BackendError {
    /// No backend of this name.
    #[error("--backend: unknown backend `{name}`{suggestion}; known are flex, ndarray, wgpu, cuda")]
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
    pub const ALL: [Self; 4] = [Self::Flex, Self::NdArray, Self::Wgpu, Self::Cuda];

    /// The name that options and results use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::NdArray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
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
            Self::Wgpu => wgpu::device(),
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok(cuda::device()),
            #[allow(unreachable_patterns, reason = "with all features every backend is compiled in")]
            other => Err(BackendError::NotCompiled(other)),
        }
    }
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
            let nearest = crate::options::nearest(name, Self::ALL.map(Self::name));
            let suggestion = nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"));
            BackendError::Unknown { name: name.to_owned(), suggestion }
        })
    }
}
