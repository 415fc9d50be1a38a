//! Benchmarks of heedful.
//!
//! * `cargo bench`: time of one self-attention of each mechanism, on CPU backends.
//! * `cargo run --release --bin peers -- --help`: heedful beside PyTorch and PyTorch's packages, in time and memory.
//!
//! What is timed: [`workload`] is one self-attention, [`projections`] its linear maps alone, [`training_step`] and [`decoding`] are whole language models.
//! [`peers`] times them in turn with their counterparts.

pub mod decoding;
pub mod depth;
pub mod peers;
pub mod projections;
pub mod training_step;
pub mod workload;
