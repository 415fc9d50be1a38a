//! The numbers of tensors, and which memory they lie in.

#[doc(hidden)]
pub mod main_memory;
pub mod read;
