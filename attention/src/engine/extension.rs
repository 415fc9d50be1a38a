//! Burn, with the module that its feature `fusion` exports: code of `burn::backend::backend_extension` refers to it if `Fusion` is among its backends.
//!
//! Any crate of a program can enable fusion of `burn-cubecl`, with or without that feature, so a feature of this crate could not detect it. So extensions are
//! always written for fusing backends; without fusion the code is never instantiated. Extensions declare `use heedful_attention::engine::extension as burn;`.

/// The backends, including fusion.
pub mod backend {
    pub use ::burn::backend::*;
    pub use burn_fusion as fusion;
}
