//! Memory of a piece of work.
//!
//! On the CPU every allocation of the process is counted, if the program installs [`PeakAlloc`] as its allocator; a GPU's runtime says how much its pools
//! have reserved, page by page. These are two measures, which must not be compared with each other.

use burn::tensor::Device;
use peak_alloc::PeakAlloc;
use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Bytes that the process has allocated.
    Allocated,
    /// Bytes that the pools of a device have reserved.
    Reserved,
}

/// Reads the memory of a device.
#[derive(Clone, Debug)]
pub struct Meter {
    device: Device,
    measure: Measure,
}

impl Meter {
    /// For work on this device.
    pub fn new(device: &Device) -> Self {
        let measure = if device.memory_pool_usage().is_some() { Measure::Reserved } else { Measure::Allocated };
        Self { device: device.clone(), measure }
    }

    /// What is counted.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// Bytes now, where pools have given back what they do not need: it would hide what comes next.
    pub fn start(&self) -> u64 {
        if self.measure == Measure::Reserved {
            self.device.memory_cleanup();
        }
        self.now()
    }

    /// Bytes now.
    pub fn now(&self) -> u64 {
        match self.device.memory_pool_usage() {
            Some(usage) => usage.bytes_reserved,
            None => PeakAlloc.current_usage() as u64,
        }
    }

    /// The growth from `before` on to the peak of some work; of pools, to what they have reserved after it, since they give nothing back by themselves.
    pub fn peak_growth<T>(&self, before: u64, work: impl FnOnce() -> T) -> (T, u64) {
        PeakAlloc.reset_peak_usage();
        let result = work();
        let peak = match self.measure {
            Measure::Reserved => self.now(),
            Measure::Allocated => PeakAlloc.peak_usage() as u64,
        };
        (result, peak.saturating_sub(before))
    }
}
