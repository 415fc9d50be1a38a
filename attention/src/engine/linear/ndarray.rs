//! The operator on ndarray, as Burn has it.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

impl super::Products for burn::backend::NdArray {}
