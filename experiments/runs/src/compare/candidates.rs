//! Candidates with a fixed role in comparisons.

/// The default baseline.
pub const BASELINE: &str = "dot-product";

/// The candidate that is itself a trivial baseline: the same model, which averages in place of attending.
pub const AVERAGING: &str = "uniform";
