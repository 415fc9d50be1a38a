//! The operator on one backend.
#![allow(deprecated, reason = "what the macro makes names ndarray")]

use std::fmt;
use std::sync::{Arc, Mutex};

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DispatchTensor, backend_extension};

/// Attaches a gradient to an output computed without one.
#[backend_extension(Flex, NdArray: cfg(feature = "ndarray"), Cube: cfg(feature = "cube"), Autodiff)]
pub trait Recomputation: Backend {
    /// `output`, with the gradients of `input` and `parameters` computed by `replay`.
    fn replayed(
        _input: FloatTensor<Self>,
        _parameters: FloatTensor<Self>,
        output: FloatTensor<Self>,
        _replay: Replay,
    ) -> FloatTensor<Self> {
        output
    }
}

impl Recomputation for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl Recomputation for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl Recomputation for burn::backend::Cube {}

type Run = Box<dyn FnOnce(DispatchTensor) -> (DispatchTensor, DispatchTensor) + Send>;

/// Computes the gradients of input and parameters from the output gradient, as plain tensors. It runs once.
#[derive(Clone)]
pub struct Replay(Arc<Mutex<Option<Run>>>);

impl Replay {
    pub(super) fn new(run: impl FnOnce(DispatchTensor) -> (DispatchTensor, DispatchTensor) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(run)))))
    }

    pub(super) fn run(self, gradient: DispatchTensor) -> (DispatchTensor, DispatchTensor) {
        let run = self.0.lock().expect("nothing panics while it is taken").take();
        run.expect("a graph is gone through once")(gradient)
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replay")
    }
}
