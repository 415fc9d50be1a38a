//! The operator on ndarray, in terms of tensor operations.

#![allow(deprecated, reason = "ndarray leaves Burn in 0.23, and this file with it")]

impl super::Rotations for burn::backend::NdArray {}
