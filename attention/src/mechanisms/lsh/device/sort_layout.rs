//! How the arrangement of a device lies in memory, and which chunks a query looks at.

use burn::tensor::Shape;

/// Sizes and rules of an arrangement.
///
/// Dimension letters: `P` planes (batch rows, heads, rounds), `n` positions, `m` positions of a chunk, `N` groups of `m` queries, `W` chunks that a group
/// meets, `T` most keys of them. A plane of the arrangement holds, one after another, numbers of 32 bits: for each position its chunk, its place among the keys
/// (-1 for what is no key) and its place among the queries, `n` each; the query and the key at each place, `N m` each and -1 where there is none; the keys
/// that each group meets, in the order of positions, `N T` and -1 where there is none; for each place in the chunks that a group meets the column of its key,
/// `N W m` and -1 where there is none; and the number of chunks.
///
/// Without holes the queries of a group are in the order of positions, and groups are the blocks of the host: dropout then drops the same weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub batch: usize,
    pub heads: usize,
    pub rounds: usize,
    /// Positions.
    pub length: usize,
    /// Positions of a chunk.
    pub size: usize,
    /// Chunks that a query looks back and ahead, no more than there can be.
    pub before: usize,
    pub after: usize,
    /// Index of the first query, and number of queries, of what is given pair by pair.
    pub query_start: usize,
    pub queries: usize,
    pub rules: Rules,
}

/// What holds for every pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// The first chunk and the last are neighbours.
    pub wraps: bool,
    /// A query sees its own bucket only.
    pub within_buckets: bool,
    /// A pair that meets in several rounds counts once.
    pub counts_once: bool,
    /// A query sees nothing that comes after it.
    pub is_causal: bool,
    /// Some positions may be no keys.
    pub has_holes: bool,
    /// What is visible is given pair by pair too.
    pub has_pairs: bool,
}

/// Which rows are taken of which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rows {
    /// Of `[B, H, n, D]`, the queries of each round by place: `[B, H, rounds, N m, D]`.
    Queries,
    /// Of `[B, H, n, D]`, the keys that each group of queries meets: `[B, H, rounds, N T, D]`.
    Keys,
    /// Of `[B, H, rounds, N m, D]`, the queries of each round by position: `[B, H, rounds, n, D]`.
    Contexts,
}

impl Form {
    pub(super) fn planes(&self) -> usize {
        self.batch * self.heads * self.rounds
    }

    /// Groups of queries, and most chunks of keys.
    pub(super) fn groups(&self) -> usize {
        self.length.div_ceil(self.size)
    }

    /// Places in a plane: positions, and what fills the last chunk.
    pub(super) fn places(&self) -> usize {
        self.groups() * self.size
    }

    /// Chunks that a group of queries meets. With queries that have no place among the keys, a group may begin in one chunk and end in the next.
    pub(super) fn window(&self) -> usize {
        (self.before + 1 + self.after + usize::from(self.rules.has_holes)).min(self.groups())
    }

    /// Whether every group meets all chunks.
    pub(super) fn meets_all(&self) -> bool {
        self.window() == self.groups()
    }

    /// Most keys that a group meets.
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

    /// Where the keys of groups begin in a plane of the arrangement, and their columns.
    pub(super) fn lists(&self) -> [usize; 2] {
        let keys = 3 * self.length + 2 * self.places();
        [keys, keys + self.groups() * self.columns()]
    }

    /// Numbers of a plane of the arrangement.
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

    /// The shape of what rows are taken of.
    pub(super) fn source_shape(&self, rows: Rows, width: usize) -> Shape {
        match rows {
            Rows::Queries | Rows::Keys => Shape::new([self.batch, self.heads, self.length, width]),
            Rows::Contexts => Shape::new([self.batch, self.heads, self.rounds, self.places(), width]),
        }
    }
}
