//! A cache of the first and the latest keys, and the positions in it.

/// A cache that keeps the first and the latest keys of a sequence (Xiao et al. 2023, section 3.2). Positions of queries and keys are their indices in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkCache {
    /// How many of the first keys it keeps.
    pub sinks: usize,
    /// How many of the latest keys it keeps, that of the query included, at least 1.
    pub window: usize,
}

impl SinkCache {
    /// Index in the cache of the query at this position of the sequence. It is the last one, and stays the same once the cache is full.
    pub fn index(&self, position: usize) -> usize {
        position.min(self.sinks + self.window - 1)
    }
}
