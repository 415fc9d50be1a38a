//! Benchmarks of heedful: `cargo bench`.
//!
//! [`workload`] is what they time: one self-attention of each mechanism at equal sizes.

pub mod workload;
