//! Bounds of a kernel by the peaks of the machine, and a plain model of more threads.
//!
//! Williams, Waterman and Patterson 2009, "Roofline": a kernel takes at least the time of its arithmetic at the peak of the processor, and at least the time of
//! its bytes at the bandwidth of the memory. Amdahl 1967: a part of the time does not become shorter with more threads.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The peaks of a machine with some threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Threads.
    pub threads: usize,
    /// Floating-point operations in a second.
    pub operations: f64,
    /// Bytes that main memory gives and takes in a second.
    pub bandwidth: f64,
}

/// The limit of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Its arithmetic.
    Compute,
    /// Its operands.
    Memory,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
        })
    }
}

impl Peaks {
    /// Operations for each byte above which arithmetic takes longer than operands.
    pub fn ridge(&self) -> f64 {
        self.operations / self.bandwidth
    }

    /// The greater of the least times for these operations and bytes, in seconds, and which of the two it is.
    pub fn bound(&self, operations: f64, bytes: f64) -> (Bound, f64) {
        let (compute, memory) = (operations / self.operations, bytes / self.bandwidth);
        if compute >= memory { (Bound::Compute, compute) } else { (Bound::Memory, memory) }
    }
}

/// A share of the work that the code divides among a limited number of threads. Work outside such shares can be divided among any number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The share, in `(0, 1]`.
    pub share: f64,
    /// The threads, at least 1: all of the share over its largest piece.
    pub threads: f64,
}

/// The time of a kernel by threads: `serial + parallel / p` seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amdahl {
    /// Seconds of what one thread does alone.
    pub serial: f64,
    /// Seconds that one thread takes for the rest.
    pub parallel: f64,
}

impl Amdahl {
    /// The model of a kernel that takes `one` second with one thread and `several` with `threads`. A kernel with more than linear speed-up gets no serial part,
    /// and a kernel that is slower than with one thread nothing else: the model describes neither.
    ///
    /// # Panics
    /// If there are fewer than 2 threads.
    pub fn fit(one: f64, several: f64, threads: usize) -> Self {
        assert!(threads >= 2, "two numbers of threads tell how much is serial");
        let parallel = ((one - several) / (1.0 - 1.0 / threads as f64)).clamp(0.0, one);
        Self { serial: one - parallel, parallel }
    }

    /// The part of the time with one thread that does not become shorter.
    pub fn serial_share(&self) -> f64 {
        self.serial / (self.serial + self.parallel)
    }

    /// Seconds with this many threads, where shares of the parallel part are limited.
    pub fn seconds(&self, threads: usize, limits: &[Limit]) -> f64 {
        let threads = threads as f64;
        let free = 1.0 - limits.iter().map(|limit| limit.share).sum::<f64>();
        let limited: f64 = limits.iter().map(|limit| limit.share / threads.min(limit.threads)).sum();
        self.serial + self.parallel * (free.max(0.0) / threads + limited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAKS: Peaks = Peaks { threads: 1, operations: 100e9, bandwidth: 20e9 };

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1e-3), "{found} is not {expected}");
    }

    #[test]
    fn the_bound_changes_at_the_ridge() {
        close(PEAKS.ridge(), 5.0);
        assert_eq!(PEAKS.bound(1e9, 1e6), (Bound::Compute, 0.01));
        assert_eq!(PEAKS.bound(1e9, 1e9), (Bound::Memory, 0.05));
        assert_eq!(PEAKS.bound(5e9, 1e9).0, Bound::Compute);
        assert_eq!(PEAKS.bound(4.99e9, 1e9).0, Bound::Memory);
    }

    #[test]
    fn the_fit_finds_the_parts_that_made_the_times() {
        for (serial, parallel) in [(0.0, 8.0), (1.0, 7.0), (4.0, 0.5), (3.0, 0.0)] {
            for threads in [2, 3, 16] {
                let found = Amdahl::fit(serial + parallel, serial + parallel / threads as f64, threads);
                close(found.serial, serial);
                close(found.parallel, parallel);
            }
        }
        close(Amdahl::fit(8.0, 4.5, 2).serial_share(), 0.125);
    }

    #[test]
    fn the_fit_gives_the_measured_times_back() {
        let model = Amdahl::fit(10.0, 6.0, 2);
        close(model.seconds(1, &[]), 10.0);
        close(model.seconds(2, &[]), 6.0);
        close(model.seconds(16, &[]), 2.0 + 8.0 / 16.0);
    }

    #[test]
    fn what_no_serial_part_explains_is_clamped() {
        assert_eq!(Amdahl::fit(10.0, 4.0, 2), Amdahl { serial: 0.0, parallel: 10.0 });
        assert_eq!(Amdahl::fit(10.0, 12.0, 2), Amdahl { serial: 10.0, parallel: 0.0 });
    }

    #[test]
    fn limits_hold_from_their_threads_on() {
        let model = Amdahl { serial: 1.0, parallel: 12.0 };
        let limits = [Limit { share: 0.25, threads: 4.0 }, Limit { share: 0.5, threads: 8.0 }];
        close(model.seconds(2, &limits), model.seconds(2, &[]));
        close(model.seconds(4, &limits), model.seconds(4, &[]));
        close(model.seconds(16, &limits), 1.0 + 12.0 * (0.25 / 16.0 + 0.25 / 4.0 + 0.5 / 8.0));
        close(model.seconds(1 << 30, &[Limit { share: 1.0, threads: 4.0 }]), 4.0);
    }
}
