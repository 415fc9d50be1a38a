//! The backends that the suite runs on. No other file of it names one.

use burn::tensor::Device;

/// A device and what may be expected of it.
#[derive(Clone)]
pub struct Backend {
    pub name: &'static str,
    pub device: Device,
    /// Whether the same numbers come out bit for bit where a claim says that nothing moves.
    pub bitwise: bool,
    /// Factor of the tolerances for results that are computed in different ways.
    pub rounding: f64,
}

impl Backend {
    /// By how much may differ what does not move.
    pub fn unmoved(&self) -> f64 {
        if self.bitwise { 0.0 } else { 1e-6 }
    }
}

/// All backends of this build.
pub fn backends() -> Vec<Backend> {
    [
        flex(),
        #[cfg(feature = "ndarray")]
        ndarray(),
        #[cfg(feature = "wgpu")]
        wgpu(),
    ]
    .into()
}

/// The backend of tests that need only one.
pub fn flex() -> Backend {
    Backend { name: "flex", device: Device::flex(), bitwise: true, rounding: 1.0 }
}

#[cfg(feature = "ndarray")]
pub fn ndarray() -> Backend {
    #[allow(deprecated)]
    let device = Device::ndarray();
    Backend { name: "ndarray", device, bitwise: true, rounding: 1.0 }
}

/// The accelerator of [`test_device`](heedful_attention::conformance::test_device): software Vulkan, if nothing else is asked for.
#[cfg(feature = "wgpu")]
pub fn wgpu() -> Backend {
    // CUDA rounds the factors of 32-bit products to 11 bits (TF32). On an H100 most results were within a hundredfold of the tolerances, and some gradients
    // were not.
    let rounding = if std::env::var(heedful_attention::conformance::TEST_DEVICE).as_deref() == Ok("cuda") { 100.0 } else { 1.0 };
    Backend { name: "wgpu", device: heedful_attention::conformance::test_device(), bitwise: false, rounding }
}
