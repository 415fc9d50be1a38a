//! Values of tensors, and their memory.

#[doc(hidden)]
pub mod main_memory;
pub mod read;
