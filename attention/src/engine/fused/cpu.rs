//! Attention over slices of numbers, tile by tile, in parallel, for backends with tensors in main memory.
//!
//! Forward: the online softmax of Milakov and Gimelshein 2018, over tiles as in FlashAttention (Dao et al. 2022, algorithm 1). Backward: weights are recomputed
//! from the log-sum-exp, tile by tile (Dao 2023, algorithm 2). Besides inputs and outputs it stores a few tiles per thread, and copies of a head's factors in
//! the order of the products.

mod backward;
mod entmax;
mod forward;
pub(in crate::engine) mod kernel;
mod layout;
mod packed;
mod scores;
mod terms;

pub use self::backward::GROUPS;
pub(super) use self::backward::backward;
pub(super) use self::forward::{Context, forward};
pub(super) use self::layout::{BackwardInputs, Inputs, Planes, Sizes};
pub(in crate::engine) use self::layout::{Rows, rows_of_planes};
