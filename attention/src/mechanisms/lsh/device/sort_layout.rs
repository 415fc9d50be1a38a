//! Memory layout of a device arrangement, and the chunks that a query looks at.

use burn::tensor::Shape;

/// Sizes and rules of an arrangement.
///
/// Dimension letters: `P` planes (batch rows, heads, rounds), `n` positions, `m` positions of a chunk, `N` groups of `m` queries, `W` chunks that a group
/// meets, `T` maximum number of their keys. A plane of the arrangement stores these 32-bit numbers, in order. For each position: its chunk, its place among the
/// keys (-1 for non-keys) and its place among the queries, `n` each. The query and the key at each place, `N m` each and -1 if missing. The keys that each
/// group meets, in position order, `N T` and -1 if missing. The column of the key at each place in the chunks that a group meets, `N W m` and -1 if missing.
/// The number of chunks.
///
/// Without holes the queries of a group are in position order, and groups equal the host's blocks: dropout then drops the same weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub batch: usize,
    pub heads: usize,
    pub rounds: usize,
    /// Positions.
    pub length: usize,
    /// Positions of a chunk.
    pub size: usize,
    /// Chunks that a query looks back and ahead, at most as many as exist.
    pub before: usize,
    pub after: usize,
    /// First query index and number of queries of the pairwise visibility.
    pub query_start: usize,
    pub queries: usize,
    pub rules: Rules,
}

/// Rules for every pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Whether the first and last chunks are neighbours.
    pub wraps: bool,
    /// Whether a query sees only its own bucket.
    pub within_buckets: bool,
    /// Whether a pair that meets in several rounds counts once.
    pub counts_once: bool,
    /// Whether a query sees no later position.
    pub is_causal: bool,
    /// Whether some positions may not be keys.
    pub has_holes: bool,
    /// Whether a pairwise visibility is given as well.
    pub has_pairs: bool,
}

/// Kind of row gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rows {
    /// From `[B, H, n, D]`, the queries of each round by place: `[B, H, rounds, N m, D]`.
    Queries,
    /// From `[B, H, n, D]`, the keys that each query group meets: `[B, H, rounds, N T, D]`.
    Keys,
    /// From `[B, H, rounds, N m, D]`, the queries of each round by position: `[B, H, rounds, n, D]`.
    Contexts,
}

impl Form {
    pub(super) fn planes(&self) -> usize {
        self.batch * self.heads * self.rounds
    }

    /// Number of query groups, the maximum number of key chunks.
    pub(super) fn groups(&self) -> usize {
        self.length.div_ceil(self.size)
    }

    /// Places per plane: positions, and padding of the last chunk.
    pub(super) fn places(&self) -> usize {
        self.groups() * self.size
    }

    /// Number of chunks that a query group meets. With queries that are not keys, a group may start in one chunk and end in the next.
    pub(super) fn window(&self) -> usize {
        (self.before + 1 + self.after + usize::from(self.rules.has_holes)).min(self.groups())
    }

    /// Whether every group meets all chunks.
    pub(super) fn meets_all(&self) -> bool {
        self.window() == self.groups()
    }

    /// Maximum number of keys that a group meets.
    pub(super) fn columns(&self) -> usize {
        let most = (self.window() * self.size).min(self.length);
        if self.rules.has_holes || self.rules.wraps {
            return most;
        }
        let met = |chunk: usize| {
            let end = ((chunk + self.after + 1) * self.size).min(self.length);
            end - chunk.saturating_sub(self.before) * self.size
        };
        (0..self.groups()).map(met).max().unwrap_or(0)
    }

    /// Start of the group keys in a plane of the arrangement, and start of their columns.
    pub(super) fn lists(&self) -> [usize; 2] {
        let keys = 3 * self.length + 2 * self.places();
        [keys, keys + self.groups() * self.columns()]
    }

    /// Numbers per plane of the arrangement.
    pub(super) fn numbers(&self) -> usize {
        self.lists()[1] + self.groups() * self.window() * self.size + 1
    }

    pub(super) fn arrangement_shape(&self) -> Shape {
        Shape::new([self.batch, self.heads, self.rounds, self.numbers()])
    }

    /// `[P N, m, T]`.
    pub(super) fn bias_shape(&self) -> Shape {
        Shape::new([self.planes() * self.groups(), self.size, self.columns()])
    }

    pub(super) fn taken_shape(&self, rows: Rows, width: usize) -> Shape {
        let count = match rows {
            Rows::Queries => self.places(),
            Rows::Keys => self.groups() * self.columns(),
            Rows::Contexts => self.length,
        };
        Shape::new([self.batch, self.heads, self.rounds, count, width])
    }

    /// Shape of the gather source.
    pub(super) fn source_shape(&self, rows: Rows, width: usize) -> Shape {
        match rows {
            Rows::Queries | Rows::Keys => Shape::new([self.batch, self.heads, self.length, width]),
            Rows::Contexts => Shape::new([self.batch, self.heads, self.rounds, self.places(), width]),
        }
    }
}
