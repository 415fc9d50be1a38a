//! Burn, with the module that its own feature `fusion` exports: what the code of `burn::backend::backend_extension` names where `Fusion` is among its backends.
//!
//! Any crate of a program can switch fusion on at `burn-cubecl`, with or without that feature, so that no feature of this crate could tell. An extension
//! is therefore always written for backends that fuse; without fusion the code is never instantiated. It says `use heedful_attention::engine::extension as burn;`.

/// The backends, and fusion.
pub mod backend {
    pub use ::burn::backend::*;
    pub use burn_fusion as fusion;
}
