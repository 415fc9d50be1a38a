//! A cache of the first and the latest keys, and positions inside it.

/// A cache of the first and the latest keys of a sequence (Xiao et al. 2023, section 3.2). Positions of queries and keys are indices in this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkCache {
    /// Number of cached first keys.
    pub sinks: usize,
    /// Number of cached latest keys, including that of the query, at least 1.
    pub window: usize,
}

impl SinkCache {
    /// Cache index of the query at this sequence position: the last index, constant once the cache is full.
    pub fn index(&self, position: usize) -> usize {
        position.min(self.sinks + self.window - 1)
    }
}
