//! What executes a call: what is asked for, and what ran.

use serde::{Deserialize, Serialize};

/// How a program is executed where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// What is fastest: [`fused`](mod@crate::engine::fused) from some queries on.
    #[default]
    Auto,
    /// [`fused`](mod@crate::engine::fused) wherever it can be.
    Fused,
    /// [`reference`](mod@crate::engine::reference) always: the oracle.
    Reference,
}

/// How a call was executed: whether the [`Engine`] that was asked for is the one that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executed {
    /// All pairs at once, by dense tensors: what [`Engine::Reference`] asks for, and what others fall back to.
    Reference,
    /// Tile by tile, without a matrix of all pairs.
    Fused,
    /// Blocks of queries with the keys that they see.
    Blocked,
    /// Sums over keys, in the place of pairs.
    Sums,
}
