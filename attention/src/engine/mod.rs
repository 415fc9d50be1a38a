//! The engine: executes the description that mechanisms lower to.
//!
//! Every mechanism is a choice of logits or densities, visibility, normaliser and values. It writes that choice down as an [`AttentionProgram`]; masking,
//! the softmax, rows without a key, dropout and the product with the values exist once, here.
//!
//! [`reference`](mod@reference) executes a program with dense tensors and can be read line by line against the papers.
//! [`blocked`] executes it block by block of queries, each with the keys that it can see.

pub mod blocked;
mod program;
pub mod reference;

pub use program::{AttentionProgram, Content, Dropout, LogitTerms, Weighting};
