//! Decoding step by step.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::AttentionLayer;
use crate::contract::Attention;
use crate::contract::decoding_position::DecodingStart;
use crate::contract::layer_spec::Role;
use crate::contract::mask::{Mask, Sizes};
use crate::contract::probe::Probe;
use crate::description::AnyAttention;

/// Decoding state of a layer: cached tokens and their positions. It belongs to one layer, or to one place of a shared layer.
#[derive(Clone, Debug)]
pub struct Cache<A: Attention = AnyAttention> {
    state: A::State,
    layer: Arc<()>,
    batch: usize,
    position: usize,
    capacity: usize,
}

impl<A: Attention> Cache<A> {
    /// Index of the next position, equal to the number of past positions.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Maximum number of positions per sequence. Cross-attention steps are unlimited.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Batch rows.
    pub fn batch(&self) -> usize {
        self.batch
    }
}

impl<A: Attention> AttentionLayer<A> {
    /// Creates a cache for `batch` sequences of at most `capacity` positions. A position sees itself and earlier positions.
    ///
    /// # Example
    /// ```
    /// # use burn::tensor::{Device, Tensor};
    /// # use heedful_attention::prelude::*;
    /// # let device = Device::flex();
    /// # let attention = AttentionConfig::new("dot-product", 16, 2).with_causal(true).init(&device)?;
    /// # let (batch, capacity, x_t) = (2, 8, Tensor::<3>::ones([2, 1, 16], &device));
    /// let mut cache = attention.cache(batch, capacity);
    /// let y = attention.step(x_t, &mut cache); // [batch, 1, 16]
    /// attention.select(&mut cache, &[1, 1]); // beams
    /// # assert_eq!((y.dims(), cache.position()), ([2, 1, 16], 1));
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If the layer is not causal, attends to another sequence ([`cache_cross`](Self::cache_cross)), or has a maximal length less than the capacity.
    pub fn cache(&self, batch: usize, capacity: usize) -> Cache<A> {
        self.cache_with(batch, capacity, &Mask::none())
    }

    /// As [`cache`](Self::cache), with more hidden by `mask`: [`Mask::left_padding`] for prompts of different lengths, or a mask of `capacity` keys.
    ///
    /// # Panics
    /// As [`cache`](Self::cache), and if the mask does not fit.
    pub fn cache_with(&self, batch: usize, capacity: usize, mask: &Mask) -> Cache<A> {
        let abilities = self.attention.abilities();
        match self.spec.role {
            Role::Decoder => assert!(abilities.steps, "this mechanism does not decode step by step"),
            Role::Encoder => panic!("only a causal layer decodes step by step: make it with `with_causal(true)`"),
            Role::Cross => panic!("this layer attends to another sequence: call `cache_cross`"),
        }
        let longest = abilities.max_length.unwrap_or(usize::MAX);
        assert!(capacity <= longest, "the capacity {capacity} exceeds the maximal length {longest} of this layer");
        mask.check(Sizes { batch, heads: self.spec.heads, queries: Some(capacity), keys: capacity });
        let mut start = DecodingStart::self_attention(batch, capacity).with_engine(self.engine);
        if let Some(counts) = mask.padding_before() {
            start = start.with_left_padding(counts);
        }
        if !mask.hides_nothing() {
            start = start.with_visibility(mask.visibility().clone());
        }
        self.cache_from(&start)
    }

    /// Creates a cache for sequences that attend to the memory `[B, K, C]`. The mask hides some of its keys.
    ///
    /// # Panics
    /// If the layer attends to its own sequence, or shapes or the mask do not fit.
    pub fn cache_cross(&self, memory: Tensor<3>, mask: &Mask) -> Cache<A> {
        let [batch, keys, _] = self.checked_memory(&memory);
        assert!(self.attention.abilities().steps, "this mechanism does not decode step by step");
        mask.check(Sizes { batch, heads: self.spec.heads, queries: None, keys });
        self.cache_from(&DecodingStart::cross_attention(memory, mask.visibility().clone()).with_engine(self.engine))
    }

    fn cache_from(&self, start: &DecodingStart) -> Cache<A> {
        let state = self.attention.state(start);
        Cache { state, layer: self.identity.clone(), batch: start.batch(), position: 0, capacity: start.capacity() }
    }

    /// Attends from the next one or more positions `[B, N, C]`, without dropout, and caches them. Returns `[B, N, C]`, equal to the result of
    /// [`forward`](Self::forward). Gradients do not reach earlier steps.
    ///
    /// # Panics
    /// If the cache belongs to another layer or is full, or the shape does not fit.
    pub fn step(&self, x: Tensor<3>, cache: &mut Cache<A>) -> Tensor<3> {
        self.check_owner(cache);
        let [batch, added, _] = self.checked(&x);
        assert!(batch == cache.batch, "a step of {batch} rows for a cache of {}", cache.batch);
        let end = cache.position + added;
        assert!(end <= cache.capacity, "{end} positions exceed the capacity {} of the cache", cache.capacity);
        let context = self.attention.step(x, &mut cache.state, &mut Probe::off()).context;
        cache.position = end;
        context
    }

    /// Keeps the given batch rows of a cache, in the given order, with or without repetition: reorders beams, or shrinks a batch.
    ///
    /// # Panics
    /// If the cache belongs to another layer, or a row is out of range.
    pub fn select(&self, cache: &mut Cache<A>, rows: &[usize]) {
        self.check_owner(cache);
        assert!(rows.iter().all(|&row| row < cache.batch), "rows {rows:?} of a cache of {}", cache.batch);
        self.attention.select(&mut cache.state, rows);
        cache.batch = rows.len();
    }

    fn check_owner(&self, cache: &Cache<A>) {
        assert!(Arc::ptr_eq(&cache.layer, &self.identity), "the cache is that of another layer");
    }
}
