//! Kernel inputs.

use cubecl::prelude::*;

use super::terms::Ends;
use super::visibility::Lists;
use crate::engine::dropout::gpu::weights::Dropout;

/// Inputs of logits, weights and contexts.
///
/// Dimension letters are those of [`Operands`](crate::engine::fused::Operands). Inputs that a kernel form does not use are absent.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Inputs<F: Float, N: Size> {
    /// `[B, H, Q, R]`.
    pub queries: OwnedTensor<Vector<F, N>>,
    /// `[B, G, K, R]`.
    pub keys: OwnedTensor<Vector<F, N>>,
    /// `[B, G, K, D]`.
    pub values: OwnedTensor<Vector<F, N>>,
    /// The words of [`DeviceTiles`](super::tiles::DeviceTiles).
    pub tiles: OwnedTensor<u32>,
    /// Initial values of draws.
    pub offsets: OwnedTensor<u32>,
    /// `[B|1, H|1, Q, K]`.
    pub bias: ComptimeOption<OwnedTensor<F>>,
    /// `[1, H|1, 1, 1]`.
    pub scale: ComptimeOption<OwnedTensor<F>>,
    /// `[B|1, H|1, Q|1, 1]`.
    pub spans: ComptimeOption<OwnedTensor<F>>,
    /// Scored with the table of distances, `[B, H, Q, S]`.
    pub relative_queries: ComptimeOption<OwnedTensor<Vector<F, N>>>,
    /// `[B|1, H|1, before + Q + K - 1, S]`.
    pub table: ComptimeOption<OwnedTensor<Vector<F, N>>>,
    /// Factors of Kronecker products, `[B, H, Q, a]` and `[B, H, Q, b]`.
    pub left: ComptimeOption<OwnedTensor<F>>,
    pub right: ComptimeOption<OwnedTensor<F>>,
    /// The pair of the first key of each batch row or of all, `[B|1]`.
    pub pairs: ComptimeOption<OwnedTensor<i32>>,
    /// Lists of visible tiles for the cubes.
    pub lists: Lists,
    pub dropout: Dropout,
    pub ends: Ends,
}

/// Further inputs of gradients.
#[derive(CubeType, CubeLaunch)]
pub(super) struct BackwardInputs<F: Float, N: Size> {
    /// Gradient of the context, `[B, H, Q, D]`.
    pub gradient: OwnedTensor<Vector<F, N>>,
    /// `[B, H, Q, 1]`.
    pub log_sum_exp: OwnedTensor<f32>,
    /// Products of context and gradient, `[B, H, Q, 1]`.
    pub dots: OwnedTensor<f32>,
}
