//! The experiments, and what several of them share.

pub mod algorithmic;
pub mod answers;
pub mod classification;
pub mod image;
pub mod language;
pub mod memory_rl;
pub mod ponder;
pub mod pre_training;
pub(crate) mod prelude;
pub(crate) mod pretrained;
pub mod recall;
pub(crate) mod scoring;
pub mod swap;
#[cfg(test)]
pub(crate) mod testing;
pub mod text_classification;
pub mod text_generation;
pub mod text_to_text;
pub(crate) mod token_losses;
pub mod translation;
