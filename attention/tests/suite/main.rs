//! Tests of the attention crate.
//!
//! * [`properties`] says what every attention must do, generic over the contract; [`conformance`] checks it for every mechanism on every backend.
//! * [`naive`] computes every mechanism from its formula in plain double-precision loops; [`gradients`] differentiates it.
//! * [`papers`] holds the checks that follow from the papers, mechanism by mechanism.
//! * [`sabotage`] breaks an attention in one way after the other and shows that the property in question notices.

mod array;
mod backends;
mod configuration;
mod conformance;
mod gradients;
mod naive;
mod papers;
mod parameter_formula;
mod properties;
mod sabotage;
mod subject;
mod variants;
