//! The state of stepwise decoding.

use burn::tensor::Tensor;

use super::{Recurrence, RecurrentOutput};
use crate::contract::AttentionInput;
use crate::progress::{DecodingStart, Progress};
use crate::visibility::selected;

/// State of stepwise decoding of the mechanisms that are recurrences: as large after any number of positions.
#[derive(Clone, Debug)]
pub struct RecurrentState {
    progress: Progress,
    length: usize,
    capacity: usize,
    state: Option<Tensor<4>>,
}

impl RecurrentState {
    /// Before the first step.
    pub fn new(start: &DecodingStart) -> Self {
        Self { progress: Progress::new(start), length: 0, capacity: start.capacity(), state: None }
    }

    /// The next positions `[B, N, C]` as an input. What is given next follows them.
    ///
    /// # Panics
    /// If the capacity is exceeded.
    pub fn advance(&mut self, query: Tensor<3>) -> AttentionInput {
        self.length += query.dims()[1];
        assert!(self.length <= self.capacity, "{} positions exceed the state's capacity {}", self.length, self.capacity);
        self.progress.advance(query)
    }

    /// Goes on from the state, and keeps the one after the last position without its gradient. Returns the context `[B, H, N, D]`.
    pub fn recur(&mut self, recurrence: Recurrence) -> Tensor<4> {
        let RecurrentOutput { context, state } = recurrence.execute(self.state.take());
        self.state = Some(state.detach());
        context
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        self.progress.select(rows);
        self.state = self.state.take().map(|state| selected(&state, rows));
    }
}
