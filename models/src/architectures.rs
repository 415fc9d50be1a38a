//! Whole models.

pub mod actor_critic;
pub mod classifier;
pub mod language_model;
pub mod logistic_mixture;
pub mod masked;
pub mod policy;
pub mod recurrent;
pub mod seq2seq;
pub mod span_corruption;
pub mod vision;
