//! The operator: delta-rule states on one backend, and their gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use ::burn::tensor::{Shape, Slice};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use crate::engine::custom_gradient::recomputed;
#[cfg(feature = "cube")]
use crate::engine::extension as burn;

/// Delta-rule states. Backends without a kernel use tensor operations and never call this.
///
/// With `U` the values `[X, M, C, D]` of M chunks, `W` their erasing factors `[X, M, C, R]`, `K` the decayed keys `[X, M, R, C]`, and `d` the decays
/// `[X, M, R|1, 1]`: `V_m = U_m - W_m S_m` and `S_(m + 1) = d_m S_m + K_m V_m`, from `S_0` `[X, 1, R, D]`. The output contains the rows of all `V`, then of all
/// `S`, `[X, M C + (M + 1) R, D]`.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait DeltaStates: Backend {
    /// The rows, with gradients under autodiff.
    #[fusion(dtype = _values, shape = rows(_values, _erasing))]
    fn delta_states(
        _values: FloatTensor<Self>,
        _erasing: FloatTensor<Self>,
        _behind: FloatTensor<Self>,
        _decays: FloatTensor<Self>,
        _state: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        panic!("{ELSEWHERE}")
    }

    /// Total gradients of all `V` and `S`, in the same rows, from the gradient of these rows, last chunk first: `V'_m = G_m + K_m^T S'_(m + 1)` and
    /// `S'_m = d_m S'_(m + 1) - W_m^T V'_m + H_m` for gradients `G` and `H`.
    #[fusion(dtype = _gradient, shape = _gradient)]
    fn delta_states_backward(
        _gradient: FloatTensor<Self>,
        _erasing: FloatTensor<Self>,
        _behind: FloatTensor<Self>,
        _decays: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        panic!("{ELSEWHERE}")
    }
}

const ELSEWHERE: &str = "states of backends without a kernel are composed of tensor operations";

impl DeltaStates for ::burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl DeltaStates for ::burn::backend::NdArray {}

#[cfg(feature = "cube")]
fn rows(values: &Shape, erasing: &Shape) -> Shape {
    let [batch, chunks, chunk, width] = erasing.dims();
    Shape::new([batch, chunks * chunk + (chunks + 1) * width, values[3]])
}

impl<B: DeltaStates, C: CheckpointStrategy> DeltaStates for Autodiff<B, C> {
    fn delta_states(
        values: FloatTensor<Self>,
        erasing: FloatTensor<Self>,
        behind: FloatTensor<Self>,
        decays: FloatTensor<Self>,
        state: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        recomputed::<B, C, _, 5>([values, erasing, behind, decays, state], |[values, erasing, behind, decays, state], _has_gradient| {
            let rows = B::delta_states(values, erasing, behind, decays, state);
            (rows.clone(), move |operands, gradient, wanted| gradients::<B>(operands, rows, gradient, wanted))
        })
    }
}

/// Gradients of the operands, from the operands, the rows, and the gradient of the rows.
fn gradients<B: DeltaStates>(
    [_, erasing, behind, decays, _]: [FloatTensor<B>; 5],
    rows: FloatTensor<B>,
    gradient: FloatTensor<B>,
    [of_values, of_erasing, of_behind, of_decays, of_state]: [bool; 5],
) -> [Option<FloatTensor<B>>; 5] {
    let [batch, chunks, chunk, width] = erasing.shape().dims();
    let value = gradient.shape()[2];
    let channels = decays.shape()[2];
    let slopes = B::delta_states_backward(gradient, erasing, behind, decays);
    let part = |rows: &FloatTensor<B>, first: usize, [count, height]: [usize; 2]| {
        let slices = [Slice::full(), Slice::from(first..first + count * height), Slice::full()];
        B::float_reshape(B::float_slice(rows.clone(), &slices), Shape::new([batch, count, height, value]))
    };
    let (whole, states) = ([chunks, chunk], chunks * chunk);
    let written = || part(&rows, 0, whole);
    let before = || part(&rows, states, [chunks, width]);
    let of_written = part(&slopes, 0, whole);
    let of_after = || part(&slopes, states + width, [chunks, width]);
    let transposed = |x: FloatTensor<B>| B::float_swap_dims(x, 2, 3);
    [
        of_values.then(|| of_written.clone()),
        of_erasing.then(|| B::float_neg(B::float_matmul(of_written.clone(), transposed(before())))),
        of_behind.then(|| B::float_matmul(of_after(), transposed(written()))),
        of_decays.then(|| {
            let kept = B::float_sum_dim(B::float_mul(of_after(), before()), 3);
            if channels == 1 { B::float_sum_dim(kept, 2) } else { kept }
        }),
        of_state.then(|| part(&slopes, states, [1, width])),
    ]
}
