//! Benchmarks of heedful.
//!
//! * `cargo bench --workspace --bench attention --bench step`: time of one self-attention of every mechanism, and of a training step, on every backend.
//! * `cargo heedful cost --help`: time, memory and multiplications by mechanism, length and backend, with crossovers; with `roofline`, the kernels of
//!   the CPU engine beside what the machine can do (benches/results/roofline.md).
//! * `cargo heedful backends --help`: the same training on every backend; with `--launches`, the kernels that a step launches.
//! * `cargo run --release --bin peers -- --help`: heedful beside PyTorch and PyTorch's packages, in time and memory.
//!
//! What is timed: [`workload`] is one self-attention, [`decode_step`] one step of decoding by it, [`projections`] its linear maps alone, [`training_step`] and
//! [`decoding`] are whole language models, [`padded_step`] a classifier and an encoder-decoder.
//! [`programs`] has the programs as functions, for mechanisms of a user's own.
//! [`peers`] times them in turn with their counterparts, [`cost`] with each other, [`mod@backends`] on every backend, and
//! `launches` counts the kernels of a step.

pub mod backends;
pub mod cost;
pub mod decode_step;
pub mod decoding;
pub mod depth;
#[cfg(feature = "wgpu")]
pub mod launches;
pub mod markdown;
pub mod padded_step;
pub mod peers;
pub mod programs;
pub mod projections;
pub mod provenance;
pub mod statistics;
pub mod training_step;
pub mod workload;
