//! The backends that the suite runs on. No other file of it names one.

use burn::tensor::Device;

/// A device and what may be expected of it.
#[derive(Clone)]
pub struct Backend {
    pub name: &'static str,
    pub device: Device,
    /// Whether the same numbers come out bit for bit where a claim says that nothing moves.
    pub bitwise: bool,
    /// How many times as far as sums of 32-bit floats its results may lie from others.
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
    // Products of 32-bit floats on CUDA have factors of 11 bits (TF32), which is 2^13 times as coarse as 24; what was seen on an H100 is at most 60 times
    // the tolerance of sums of 24 bits.
    let rounding = if std::env::var(heedful_attention::conformance::TEST_DEVICE).as_deref() == Ok("cuda") { 100.0 } else { 1.0 };
    Backend { name: "wgpu", device: heedful_attention::conformance::test_device(), bitwise: false, rounding }
}
