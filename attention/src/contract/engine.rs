//! Execution of a call: the requested engine and the executed one.

use serde::{Deserialize, Serialize};

/// Requested engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The fastest engine: [`fused`](mod@crate::engine::fused) from a minimum number of queries on.
    #[default]
    Auto,
    /// [`fused`](mod@crate::engine::fused) wherever possible.
    Fused,
    /// Always [`reference`](mod@crate::engine::reference), the oracle.
    Reference,
}

/// Executed engine, to verify that the requested [`Engine`] ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Executed {
    /// All pairs in dense tensors: [`Engine::Reference`], and the fallback of the others.
    Reference,
    /// Tile by tile, without materialising all pairs.
    Fused,
    /// Blocks of queries with their visible keys.
    Blocked,
    /// Sums over keys instead of pairs.
    Sums,
}
