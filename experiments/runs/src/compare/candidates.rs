//! Candidates that comparisons know by name.

/// What others are compared with by default.
pub const BASELINE: &str = "dot-product";

/// The candidate that is a trivial baseline itself: the same model, which averages in place of attending.
pub const AVERAGING: &str = "uniform";
