//! Sizes and inputs of a recurrence over slices of numbers.

use crate::engine::fused::cpu::Rows;

/// Positions of a chunk.
pub(super) const CHUNK: usize = 64;

/// Sizes of one recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) length: usize,
    /// Width of queries and keys.
    pub(super) width: usize,
    /// Width of values.
    pub(super) value: usize,
    /// Decays per position: none, one for the head, or one per key channel.
    pub(super) channels: usize,
    /// Whether reads are divided by the sum of their weights.
    pub(super) normalised: bool,
}

impl Sizes {
    /// Numbers per state.
    pub(super) fn of_state(self) -> usize {
        self.width * (self.value + usize::from(self.normalised))
    }

    /// Result rows of a recurrence: contexts, the state, and the key sums.
    pub(super) fn rows(self) -> usize {
        self.length + self.width + if self.normalised { self.width.div_ceil(self.value) } else { 0 }
    }
}

/// Inputs of a recurrence, in the shapes of the operands of [`ChunkedRecurrence`](super::cpu_operation::InChunks).
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) sizes: Sizes,
    pub(super) queries: Rows<'a>,
    pub(super) keys: Rows<'a>,
    pub(super) values: Rows<'a>,
    pub(super) log_decay: Option<Rows<'a>>,
    pub(super) strengths: Option<Rows<'a>>,
    pub(super) state: Option<&'a [f32]>,
}
