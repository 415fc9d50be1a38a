//! Visibility from tensors.
//!
//! Tensor masks stay on their device, where dense masks are created. Only access to single pairs (tiles, blocks, convolution kernels, hashing) reads them, once
//! for a value and all its clones.

use std::sync::OnceLock;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};

use super::{DenseMask, Rule, Span, Visibility, hidden_logit};
use crate::tensors::read::read;

/// A boolean tensor mask, `true` = visible.
#[derive(Clone)]
pub(super) struct TensorMask {
    /// `[B|1, H|1, Q, K]`, without autodiff.
    visible: Tensor<4, Bool>,
    /// Whether one row applies to every query.
    every_query: bool,
    host: OnceLock<Vec<bool>>,
}

/// Visibilities derived from a visibility.
#[derive(Default)]
pub(super) struct Derived {
    /// Without tensor masks: an upper bound of the visibility.
    known: OnceLock<Visibility>,
    /// Without additive masks.
    boolean: OnceLock<Visibility>,
}

impl TensorMask {
    fn new(visible: Tensor<4, Bool>, every_query: bool) -> Self {
        Self { visible: visible.inner(), every_query, host: OnceLock::new() }
    }

    /// Distinct batch rows, heads, queries and keys.
    pub(super) fn shape(&self) -> [usize; 4] {
        self.visible.dims()
    }

    pub(super) fn is_for_every_query(&self) -> bool {
        self.every_query
    }

    fn on_host(&self) -> &[bool] {
        self.host.get_or_init(|| read(self.visible.clone()).iter::<bool>().collect())
    }

    pub(super) fn is_visible(&self, row: usize, head: usize, i: usize, j: usize) -> bool {
        let [rows, heads, queries, keys] = self.shape();
        let i = if self.every_query { 0 } else { i };
        assert!(i < queries && j < keys, "a mask of [{queries}, {keys}] was asked for query {i}, key {j}");
        let (row, head) = (if rows == 1 { 0 } else { row }, if heads == 1 { 0 } else { head });
        self.on_host()[((row * heads + head) * queries + i) * keys + j]
    }

    pub(super) fn select(&self, rows: &[usize]) -> Self {
        Self::new(selected(&self.visible, rows), self.every_query)
    }

    fn over(&self, span: Span, device: &Device) -> Tensor<4, Bool> {
        let visible = if self.visible.device() == *device {
            self.visible.clone()
        } else {
            // Burn 0.22.1 moves no booleans from flex to the backends of CubeCL.
            Tensor::from_data(TensorData::new(self.on_host().to_vec(), self.shape()), device)
        };
        if self.every_query { keys_of(visible, span) } else { part_of(visible, span) }
    }
}

/// The given batch rows, in the given order.
pub(crate) fn selected<K: Basic>(x: &Tensor<4, K>, rows: &[usize]) -> Tensor<4, K> {
    let indices = TensorData::new(rows.iter().map(|&row| row as i32).collect::<Vec<_>>(), [rows.len()]);
    x.clone().select(0, Tensor::<1, Int>::from_data(indices, &x.device()))
}

/// The keys of a span.
fn keys_of(x: Tensor<4, Bool>, span: Span) -> Tensor<4, Bool> {
    let keys = x.dims()[3];
    assert!(span.key_start + span.keys <= keys, "a mask of {keys} keys was asked for keys up to {}", span.key_start + span.keys);
    x.narrow(3, span.key_start, span.keys)
}

/// The pairs of a span.
fn part_of<K: Basic>(x: Tensor<4, K>, span: Span) -> Tensor<4, K> {
    let [_, _, queries, keys] = x.dims();
    let (query_end, key_end) = (span.query_start + span.queries, span.key_start + span.keys);
    assert!(query_end <= queries && key_end <= keys, "a mask of [{queries}, {keys}] was asked for [{query_end}, {key_end}]");
    x.narrow(2, span.query_start, span.queries).narrow(3, span.key_start, span.keys)
}

/// Panics on an additive mask where logits do not exist.
pub(super) fn refuse_additive() -> ! {
    panic!("an additive mask needs logits to be added to, which this attention does not have: give it a mask of booleans or lengths")
}

impl Visibility {
    /// Every query sees the keys marked `true`, `[batch | 1, keys]`. The tensor stays on its device; access to single pairs reads it once for the value and all
    /// its clones.
    pub fn given_keys(visible: Tensor<2, Bool>) -> Self {
        let [rows, keys] = visible.dims();
        Self::new(Rule::Tensor(TensorMask::new(visible.reshape([rows, 1, 1, keys]), true)))
    }

    /// A query sees the keys marked `true`, `[batch | 1, heads | 1, queries, keys]`. The tensor stays on its device, as in [`given_keys`](Self::given_keys);
    /// [`explicit`](Self::explicit) reads it immediately.
    pub fn given(visible: Tensor<4, Bool>) -> Self {
        Self::new(Rule::Tensor(TensorMask::new(visible, false)))
    }

    /// Additive mask of the logits, `[batch | 1, heads | 1, queries, keys]`; minus infinity hides. Gradients reach it. Only attentions with logits support it
    /// ([`SoftmaxAttention`](crate::softmax_attention::SoftmaxAttention)); all others panic. It cannot be combined by [`or`](Self::or) or shifted.
    pub fn additive(bias: Tensor<4>) -> Self {
        let is_hidden = bias.clone().is_inf().bool_and(bias.clone().lower_elem(0.0));
        let visible = Self::given(is_hidden.clone().bool_not());
        Self::new(Rule::Additive { bias: bias.mask_fill(is_hidden, 0.0), visible })
    }

    /// Whether the visibility depends on device tensors.
    pub(crate) fn is_given(&self) -> bool {
        match &*self.rule {
            Rule::Tensor(_) | Rule::Additive { .. } => true,
            Rule::And(a, b) | Rule::Or(a, b) => a.is_given() || b.is_given(),
            Rule::Shifted { inner, .. } => inner.is_given(),
            _ => false,
        }
    }

    fn is_additive(&self) -> bool {
        match &*self.rule {
            Rule::Additive { .. } => true,
            Rule::And(a, b) => a.is_additive() || b.is_additive(),
            _ => false,
        }
    }

    /// # Panics
    /// If the visibility is additive. It is called before any lock, since a panic would poison the lock.
    pub(super) fn check_boolean(&self) {
        if self.is_additive() {
            refuse_additive();
        }
    }

    /// Upper bound of the visibility that needs no tensor reads. Returns the same value, with its tiles, each time.
    pub(crate) fn known(&self) -> Self {
        if !self.is_given() {
            return self.clone();
        }
        let known = || match &*self.rule {
            Rule::And(a, b) => a.known().within(&b.known()),
            Rule::Shifted { counts, .. } => Self::all().shifted(counts.clone()),
            _ => Self::all(),
        };
        self.derived.known.get_or_init(known).clone()
    }

    /// Splits off the additive mask of a span. Returns the same value, with its masks, each time.
    pub(crate) fn without_additive(&self, span: Span) -> (Self, Option<Tensor<4>>) {
        if !self.is_additive() {
            return (self.clone(), None);
        }
        (self.derived.boolean.get_or_init(|| self.boolean()).clone(), self.added(span))
    }

    fn boolean(&self) -> Self {
        match &*self.rule {
            Rule::Additive { visible, .. } => visible.clone(),
            Rule::And(a, b) if self.is_additive() => a.boolean().and(b.boolean()),
            _ => self.clone(),
        }
    }

    fn added(&self, span: Span) -> Option<Tensor<4>> {
        match &*self.rule {
            Rule::Additive { bias, .. } => Some(part_of(bias.clone(), span)),
            Rule::And(a, b) => [a.added(span), b.added(span)].into_iter().flatten().reduce(|a, b| a + b),
            _ => None,
        }
    }

    /// Whether a tensor was read.
    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        match &*self.rule {
            Rule::Tensor(given) => given.host.get().is_some(),
            Rule::Additive { visible, .. } => visible.is_read(),
            Rule::And(a, b) | Rule::Or(a, b) => a.is_read() || b.is_read(),
            Rule::Shifted { inner, .. } => inner.is_read(),
            _ => false,
        }
    }

    /// Reads the tensors now instead of lazily, so that no thread waits for another thread's read.
    pub(super) fn read_given(&self) {
        match &*self.rule {
            Rule::Tensor(given) => drop(given.on_host().len()),
            Rule::And(a, b) | Rule::Or(a, b) => {
                a.read_given();
                b.read_given();
            }
            Rule::Shifted { inner, .. } => inner.read_given(),
            _ => {}
        }
    }

    /// Dense mask of a visibility that [`is_given`](Self::is_given), created on the device.
    pub(super) fn given_mask(&self, span: Span, heads: usize, dtype: DType, device: &Device) -> DenseMask {
        let visible = self.on_device(span, heads, &device.clone().inner());
        let [rows, heads, _, _] = visible.dims();
        let visible = visible.expand([rows, heads, span.queries, span.keys]);
        let has_key = visible.clone().any_dim(3).float().cast(dtype);
        let zeros = Tensor::zeros([rows, heads, span.queries, span.keys], (device, dtype));
        DenseMask { bias: zeros.mask_fill(visible.bool_not(), hidden_logit(dtype)), has_key: Some(has_key) }
    }

    /// `[rows, heads | 1, Q | 1, K]`, `true` = visible.
    fn on_device(&self, span: Span, heads: usize, device: &Device) -> Tensor<4, Bool> {
        let joined = |a: &Self, b: &Self, join: fn(Tensor<4, Bool>, Tensor<4, Bool>) -> Tensor<4, Bool>| {
            let (a, b) = (a.on_device(span, heads, device), b.on_device(span, heads, device));
            let shape: [usize; 4] = std::array::from_fn(|dim| a.dims()[dim].max(b.dims()[dim]));
            join(a.expand(shape), b.expand(shape))
        };
        match &*self.rule {
            Rule::Tensor(given) => given.over(span, device),
            Rule::And(a, b) if self.is_given() => joined(a, b, Tensor::bool_and),
            Rule::Or(a, b) if self.is_given() => joined(a, b, Tensor::bool_or),
            _ => {
                let (rows, heads) = (self.rows(), if self.depends_on_head() { heads } else { 1 });
                let visible = self.booleans(span, rows, heads);
                Tensor::from_data(TensorData::new(visible, [rows, heads, span.queries, span.keys]), device)
            }
        }
    }
}
