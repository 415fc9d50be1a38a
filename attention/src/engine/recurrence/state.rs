//! Decoding state of recurrences.

use burn::tensor::Tensor;

use super::program::{Recurrence, RecurrentOutput};
use crate::contract::AttentionInput;
use crate::contract::decoding_position::{DecodingStart, MemoryRows, Progress};
use crate::contract::visibility::selected;

/// Decoding state of mechanisms that are recurrences, of constant size.
#[derive(Clone, Debug)]
pub struct RecurrentState {
    progress: Progress,
    length: usize,
    capacity: usize,
    state: Option<Tensor<4>>,
    tail: Option<Tensor<4>>,
    scales: Option<Tensor<4>>,
    /// Memory rows in cross-attention.
    fixed: Option<MemoryRows>,
}

impl RecurrentState {
    /// Before the first step.
    pub fn new(start: &DecodingStart) -> Self {
        let (progress, capacity) = (Progress::new(start), start.capacity());
        Self { progress, length: 0, capacity, state: None, tail: None, scales: None, fixed: None }
    }

    /// State written by another sequence, `[B, H, R, D]`, which steps only read.
    pub fn fixed(start: &DecodingStart, written: Tensor<4>) -> Self {
        Self { state: Some(written.detach()), fixed: Some(MemoryRows::new(start)), ..Self::new(start) }
    }

    /// State written by another sequence, in cross-attention.
    pub fn written(&self) -> Option<Tensor<4>> {
        self.state.clone().filter(|_| self.fixed.is_some())
    }

    /// Returns the next positions `[B, N, C]` as an input, and advances past them.
    ///
    /// # Panics
    /// If the capacity is exceeded.
    pub fn advance(&mut self, query: Tensor<3>) -> AttentionInput {
        self.length += query.dims()[1];
        assert!(self.length <= self.capacity, "{} positions exceed the state's capacity {}", self.length, self.capacity);
        self.progress.advance(query)
    }

    /// Flags `[B|1, N]` of the real positions among the next `[B, N, C]`; advances past them.
    ///
    /// # Panics
    /// If the capacity is exceeded, or a position does not see exactly the real positions up to itself.
    pub fn real_of_step(&mut self, query: Tensor<3>, heads: usize) -> Vec<bool> {
        let AttentionInput { query, visibility, positions, .. } = self.advance(query);
        let (start, length) = (positions.start, query.dims()[1]);
        visibility.real_positions_of_step(start..start + length, heads).unwrap_or_else(|| {
            panic!("the state of a recurrence holds all real positions so far, and a step cannot see others: {visibility:?}")
        })
    }

    /// Number of past positions.
    pub fn position(&self) -> usize {
        self.length
    }

    /// Cached inputs of a short convolution, `[B, 1, positions, channels]`, if any. Replace it without gradient.
    pub fn tail(&mut self) -> &mut Option<Tensor<4>> {
        &mut self.tail
    }

    /// Log factors missing from each key channel of the state, `[B, H, 1, R]`, if any. Replace them without gradient.
    pub fn scales(&mut self) -> &mut Option<Tensor<4>> {
        &mut self.scales
    }

    /// Whether nothing has been written yet.
    pub fn is_empty(&self) -> bool {
        self.state.is_none()
    }

    /// Continues from the state, and stores the final one without gradient. Returns the context `[B, H, N, D]`.
    ///
    /// # Panics
    /// If the state was written by another sequence.
    pub fn recur(&mut self, recurrence: Recurrence) -> Tensor<4> {
        assert!(self.fixed.is_none(), "steps only read what another sequence has written");
        let RecurrentOutput { context, state } = recurrence.execute(self.state.take());
        self.state = Some(state.detach());
        context
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        if self.fixed.as_mut().is_some_and(|memory| !memory.select(rows)) {
            return;
        }
        self.progress.select(rows);
        for numbers in [&mut self.state, &mut self.tail, &mut self.scales] {
            *numbers = numbers.take().map(|numbers| selected(&numbers, rows));
        }
    }

    /// Bytes of the state, at 4 bytes per number.
    pub fn bytes(&self) -> usize {
        [&self.state, &self.tail, &self.scales].into_iter().flatten().map(|numbers| numbers.dims().iter().product::<usize>() * 4).sum()
    }
}
