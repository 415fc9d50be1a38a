//! Baselines without learning by gradients, as plain functions of token ids, numbers and texts.

pub mod linear;
pub mod n_gram;
pub mod tf_idf;
pub mod word_translation;
