//! The operator: one recurrence on one backend, and its gradient.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, backend_extension};

#[cfg(feature = "cube")]
use crate::engine::extension as burn;
use crate::engine::fused::Operand;
use crate::engine::recomputed::{Gradient, recomputed};

/// What a recurrence is computed from, on one backend; the same for their gradients. Letters are those of [`Recurrence`](super::Recurrence).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct Operands<B: Backend> {
    /// Scaled, `[B, H, N, R]`.
    pub queries: FloatTensor<B>,
    /// `[B, H, N, R]`.
    pub keys: FloatTensor<B>,
    /// `[B, H, N, D]`.
    pub values: FloatTensor<B>,
    /// `[B|1, H, N|1, R|1]`.
    #[extension_type]
    pub log_decay: Operand<B>,
    /// `[B, H, N, 1]`.
    #[extension_type]
    pub strengths: Operand<B>,
    /// The state before the first position, `[B, H, R, D]`; `[B, H, R, D + 1]` with the sums of the keys, where contexts are divided.
    #[extension_type]
    pub state: Operand<B>,
}

/// Number of [`Operands`].
const COUNT: usize = 6;

impl<B: Backend> Operands<B> {
    /// The same of another backend.
    #[cfg(feature = "ndarray")]
    pub(super) fn map<O: Backend>(self, map: impl Fn(FloatTensor<B>) -> FloatTensor<O>) -> Operands<O> {
        Operands::from_list(self.list().map(|operand| operand.map(&map)))
    }

    fn list(self) -> [Option<FloatTensor<B>>; COUNT] {
        let Self { queries, keys, values, log_decay, strengths, state } = self;
        [Some(queries), Some(keys), Some(values), log_decay.given(), strengths.given(), state.given()]
    }

    fn from_list(list: [Option<FloatTensor<B>>; COUNT]) -> Self {
        let [queries, keys, values, log_decay, strengths, state] = list;
        let given = |x: Option<FloatTensor<B>>| x.expect("there are queries, keys and values");
        Self {
            queries: given(queries),
            keys: given(keys),
            values: given(values),
            log_decay: log_decay.into(),
            strengths: strengths.into(),
            state: state.into(),
        }
    }
}

/// Linear recurrences of backends in main memory, which override all but `recurrence`. On others
/// [`Recurrence::in_chunks`](super::Recurrence::in_chunks) is composed of tensor operations, and nothing here is called.
///
/// An operator has one output: rows `[B, N + R, H, D]` of contexts and of the state after the last position; `[B, N + R + r, H, D]` with the sums of the keys one
/// after another in `r` rows, where contexts are divided. The rows of contexts lie side by side, so that the gradient of this part is copied as it lies.
#[backend_extension(
    Flex,
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait LinearRecurrence: Backend {
    /// The rows, and the states before each chunk of positions, `[B, H, M, R, D]`, if they are kept.
    #[fusion(default)]
    fn recurrence_forward(
        #[extension_type] _operands: Operands<Self>,
        _normalised: bool,
        _keeps_states: bool,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("{ELSEWHERE}")
    }

    /// Gradients of the operands, from what [`recurrence_forward`](Self::recurrence_forward) returned and the gradient of its rows.
    #[fusion(default)]
    fn recurrence_backward(
        #[extension_type] _operands: Operands<Self>,
        _rows: FloatTensor<Self>,
        _states: FloatTensor<Self>,
        _gradient: FloatTensor<Self>,
        _normalised: bool,
    ) -> Operands<Self> {
        panic!("{ELSEWHERE}")
    }

    /// The context of one position `[B, H, 1, D]`, and the state after it, in the shape of that before it.
    #[fusion(default)]
    fn recurrence_step(#[extension_type] _operands: Operands<Self>, _normalised: bool) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("{ELSEWHERE}")
    }

    /// The rows alone; with automatic differentiation, with their gradient.
    #[fusion(default)]
    fn recurrence(#[extension_type] operands: Operands<Self>, normalised: bool) -> FloatTensor<Self> {
        Self::recurrence_forward(operands, normalised, false).0
    }
}

const ELSEWHERE: &str = "recurrences of backends outside of main memory are composed of tensor operations";

impl<B: LinearRecurrence, C: CheckpointStrategy> LinearRecurrence for Autodiff<B, C> {
    fn recurrence(operands: Operands<Self>, normalised: bool) -> FloatTensor<Self> {
        recomputed::<B, C, _, COUNT>(operands.list(), |operands, has_gradient| {
            let (rows, states) = B::recurrence_forward(Operands::from_list(operands), normalised, has_gradient);
            (rows.clone(), Saved { rows, states, normalised })
        })
    }
}

/// What the gradient needs, for which chunks are computed once more.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    rows: FloatTensor<B>,
    states: FloatTensor<B>,
    normalised: bool,
}

impl<B: LinearRecurrence> Gradient<B, COUNT> for Saved<B> {
    fn of_operands(
        self,
        operands: [Option<FloatTensor<B>>; COUNT],
        gradient: FloatTensor<B>,
        _wanted: [bool; COUNT],
    ) -> [Option<FloatTensor<B>>; COUNT] {
        let Self { rows, states, normalised } = self;
        B::recurrence_backward(Operands::from_list(operands), rows, states, gradient, normalised).list()
    }
}
