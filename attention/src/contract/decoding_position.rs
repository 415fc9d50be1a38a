//! Position of decoding: every state tracks its next position and its visibility, so callers cannot pass wrong ones.

use std::sync::Arc;

use burn::tensor::Tensor;

use crate::contract::engine::Engine;
use crate::contract::visibility::Visibility;
use crate::contract::{AttentionInput, Positions};

/// Initial conditions of a decoding state.
///
/// # Example
/// ```
/// use heedful_attention::contract::decoding_position::DecodingStart;
///
/// let start = DecodingStart::self_attention(2, 64).with_left_padding([0, 3]);
/// assert_eq!((start.batch(), start.capacity()), (2, 64));
/// ```
#[derive(Clone, Debug)]
pub struct DecodingStart {
    batch: usize,
    capacity: usize,
    memory: Option<Tensor<3>>,
    visibility: Visibility,
    left_padding: Option<Arc<[usize]>>,
    hides_more: bool,
    engine: Engine,
}

impl DecodingStart {
    /// Decoding of `batch` sequences with self-attention, each of at most `capacity` positions. A position sees itself and earlier positions.
    pub fn self_attention(batch: usize, capacity: usize) -> Self {
        let (visibility, engine) = (Visibility::causal(), Engine::default());
        Self { batch, capacity, memory: None, visibility, left_padding: None, hides_more: false, engine }
    }

    /// Decoding with cross-attention to the memory `[B, K, C]`, with `visibility` for all positions. The length is unlimited.
    pub fn cross_attention(memory: Tensor<3>, visibility: Visibility) -> Self {
        Self { memory: Some(memory.clone()), visibility, ..Self::self_attention(memory.dims()[0], usize::MAX) }
    }

    /// Row `b` begins with `counts[b]` padding tokens; an empty list means no padding.
    ///
    /// # Panics
    /// If there is not one count for each row.
    pub fn with_left_padding(mut self, counts: impl Into<Arc<[usize]>>) -> Self {
        self.left_padding = Positions::default().with_left_padding(counts).left_padding;
        if let Some(counts) = &self.left_padding {
            assert_eq!(counts.len(), self.batch, "counts of left padding for a batch of {}", self.batch);
            if self.memory.is_none() {
                self.visibility = self.visibility.and(Visibility::left_padding(counts.to_vec()));
            }
        }
        self
    }

    /// Also hides the keys that `visibility` hides; self-attention stays causal.
    pub fn with_visibility(mut self, visibility: Visibility) -> Self {
        let is_padding = |counts: &Arc<[usize]>| visibility.equals(&Visibility::left_padding(counts.to_vec()));
        self.hides_more |= !visibility.equals(&Visibility::causal()) && !self.left_padding.as_ref().is_some_and(is_padding);
        self.visibility = self.visibility.and(visibility);
        self
    }

    /// Sets the engine of the steps.
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Batch rows.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Maximum number of positions per sequence.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Memory `[B, K, C]` of cross-attention, if any.
    pub fn memory(&self) -> Option<&Tensor<3>> {
        self.memory.as_ref()
    }

    /// Visibility of all positions.
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// Whether the visibility hides more than the future and left padding.
    pub(crate) fn hides_more(&self) -> bool {
        self.hides_more
    }
}

/// Position and visibility of the next step, a part of every mechanism's state.
#[derive(Clone, Debug)]
pub struct Progress {
    next: Positions,
    visibility: Visibility,
    engine: Engine,
}

impl Progress {
    /// Progress before the first step.
    pub fn new(start: &DecodingStart) -> Self {
        let next = Positions { left_padding: start.left_padding.clone(), ..Positions::default() };
        Self { next, visibility: start.visibility.clone(), engine: start.engine }
    }

    /// Positions of the next step.
    pub fn positions(&self) -> &Positions {
        &self.next
    }

    /// Visibility of all positions.
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// Returns the next positions `[B, N, C]` as an input without memory and dropout, and advances past them.
    pub fn advance(&mut self, query: Tensor<3>) -> AttentionInput {
        let length = query.dims()[1];
        let input = AttentionInput::self_attention(query).visibility(self.visibility.clone());
        let input = input.positions(self.next.clone()).engine(self.engine);
        self.next.start += length;
        input
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        self.visibility = self.visibility.select(rows);
        self.next.left_padding = self.next.left_padding.as_ref().map(|counts| rows.iter().map(|&row| counts[row]).collect());
    }
}

/// Memory row that each batch row reads.
///
/// Beams of one sentence read the same memory. Reordering beams within a sentence does not change what they read, so nothing is copied.
#[derive(Clone, Debug)]
pub(crate) struct MemoryRows(Vec<usize>);

impl MemoryRows {
    /// Before the first step batch row `b` reads memory row `b`.
    pub(crate) fn new(start: &DecodingStart) -> Self {
        Self((0..start.batch()).collect())
    }

    /// Keeps the given batch rows, in the given order; returns whether any position now reads another memory row.
    pub(crate) fn select(&mut self, rows: &[usize]) -> bool {
        let kept: Vec<usize> = rows.iter().map(|&row| self.0[row]).collect();
        let is_other = kept != self.0;
        self.0 = kept;
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beams_that_change_places_within_a_sentence_read_what_they_read_before() {
        let mut rows = MemoryRows::new(&DecodingStart::self_attention(2, 9));
        assert!(!rows.select(&[0, 1]));
        assert!(rows.select(&[0, 0, 1, 1]), "two rows became four");
        for within in [[1, 0, 2, 2], [0, 0, 3, 2], [1, 1, 2, 3]] {
            assert!(!rows.select(&within), "{within:?}");
        }
        assert!(rows.select(&[2, 1, 0, 3]), "rows of different sentences changed places");
        assert!(!rows.select(&[3, 2, 1, 0]), "the first and the last row read one sentence, and the others the other one");
        assert!(rows.select(&[1, 2]), "a sentence ended");
    }
}
