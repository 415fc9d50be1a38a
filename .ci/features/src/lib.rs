//! The features of shared dependencies, in one place.
//!
//! Cargo builds a dependency once for each set of features. A command for one package, such as `cargo test --package heedful-attention`, asks for fewer features than
//! one for the whole workspace, and would build Burn again. The tests of the libraries depend on this package, and the benchmarks do; published packages do not.
//! It has no code.
//!
//! `.ci/same_build` names the features that are missing here after a change of dependencies.
