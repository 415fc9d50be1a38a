//! Query-key pairs for operation counts.

use std::ops::Range;

/// Query-key pairs of one sequence that an attention can weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryKeyPairs {
    /// Positions of the queries.
    pub queries: Range<usize>,
    /// Number of keys.
    pub keys: usize,
    /// Whether no query sees later keys.
    pub causal: bool,
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub d_head: usize,
}

impl QueryKeyPairs {
    /// Width of a head.
    pub fn d_head(&self) -> f64 {
        self.d_head as f64
    }

    /// Number of pairs over all heads, if the mechanism hides none.
    pub fn dense(&self) -> f64 {
        self.queries.clone().map(|query| self.seen(query).len()).sum::<usize>() as f64 * self.heads as f64
    }

    /// Keys visible to a query, before any restriction by the mechanism.
    pub(crate) fn seen(&self, query: usize) -> Range<usize> {
        0..if self.causal { (query + 1).min(self.keys) } else { self.keys }
    }
}
