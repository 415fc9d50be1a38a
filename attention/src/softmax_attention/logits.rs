//! Logits: the mechanism-specific part of softmax attention.

use std::sync::Arc;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Int, Tensor, TensorData};

use crate::contract::init::Init;
use crate::contract::visibility::{Span, Visibility};
use crate::contract::{Losses, Positions, SinkCache};
use crate::engine::blocked::Blocks;
use crate::engine::fused::Part;
use crate::engine::{LogitTerms, Normaliser, SoftSpan};
use crate::softmax_attention::pattern::Pattern;

/// Scores of keys for queries, per head.
///
/// Together with the shared projections, softmax, masks and state of [`SoftmaxAttention`](crate::softmax_attention::SoftmaxAttention), an implementation is a
/// complete mechanism, including decoding.
pub trait Logits: Module + ModuleDisplay + 'static {
    /// Capabilities of these logits.
    fn abilities(&self) -> LogitAbilities;

    /// Inner logits, for logits that change others: methods without their own implementation forward to the inner logits. Default: none.
    fn inner(&self) -> Option<LogitsRef<'_>> {
        None
    }

    /// Whether the shared value and output projections have biases with these logits. Default: no.
    fn projections_have_biases(&self) -> bool {
        self.inner().is_some_and(|inner| inner.projections_have_biases())
    }

    /// Normaliser of the scores. Default: softmax.
    fn normaliser(&self) -> Normaliser {
        self.inner().map_or(Normaliser::Softmax, |inner| inner.normaliser())
    }

    /// Initialisation of learned sink logits, one per head, for an extra softmax key with value 0 that every query sees. Default: no sinks.
    fn sink(&self) -> Option<Init> {
        self.inner()?.sink()
    }

    /// Cached keys `[B, G, K, R]` of inputs `[B, K, C]` at these positions, in `G` key heads
    /// ([`LayerSpec::kv_heads`](crate::contract::layer_spec::LayerSpec::kv_heads)). Keys that depend on absolute positions, such as rotated ones, are cached in
    /// this form. Default: `None`, the scores do not depend on the content of keys.
    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        self.inner()?.keys(memory, positions)
    }

    /// Width `R` of [`keys`](Self::keys) per position and key head, for heads `d_head` wide. Default: `d_head`.
    fn key_width(&self, d_head: usize) -> usize {
        self.inner().map_or(d_head, |inner| inner.key_width(d_head))
    }

    /// Scores of `span.queries` queries `[B, Q, C]` for `span.keys` keys. `keys` is the result of [`keys`](Self::keys), `[B, G, K, R]`, which terms may use
    /// unchanged: heads of a group read one key head. [`repeat_heads`](crate::engine::heads::repeat_heads) copies it per head if heads transform it
    /// differently.
    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms;

    /// Gates on the head outputs of queries `[B, Q, C]`, before the output projection: `[B, H, Q, D]`, or `[B, H, Q, 1]` for headwise gates. Default: none.
    fn gate(&self, query: &Tensor<3>) -> Option<Tensor<4>> {
        self.inner()?.gate(query)
    }

    /// Keys that the mechanism itself lets a query see, by positions in the unpadded sequence; it cannot show keys that the call hides. Default: all.
    fn visibility(&self) -> Option<Visibility> {
        self.inner()?.visibility()
    }

    /// Whether the scores of a query depend only on its content and on keys, not on its position, so that queries may be arbitrary positions of a sequence
    /// ([`Attention::any_queries`](crate::contract::Attention::any_queries)). Default: no, regardless of the inner logits.
    fn takes_any_queries(&self) -> bool {
        false
    }

    /// Soft attention span of each query `[B, Q, C]`, in positions, `[B|1, H, Q|1]`. Default: none.
    fn spans(&self, query: &Tensor<3>) -> Option<Tensor<3>> {
        self.inner()?.spans(query)
    }

    /// Factors of the exponentials of the scores: soft span masks. Default: none.
    fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<SoftSpan> {
        self.inner()?.soft_span(query, span)
    }

    /// Maximum distance at which a key can currently have weight; keys farther back can be evicted. Default: unlimited.
    fn reach(&self) -> Option<usize> {
        self.inner()?.reach()
    }

    /// Cache that decoding keeps instead of all keys. It contains every key visible to later queries, and scores depend only on indices in it. Default: none.
    fn cache(&self) -> Option<SinkCache> {
        self.inner()?.cache()
    }

    /// Blocks of queries with their visible keys under `seen`, for blockwise computation of the weights. `seen` contains every restriction, including
    /// [`visibility`](Self::visibility); number type and device are those of the values `[B, G, K, D]`. Several sets of blocks are parts of one softmax and
    /// contain no query-key pair twice. A few queries, as in decoding, score all keys instead. Default: none.
    fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize, values: &Tensor<4>) -> Option<Vec<Blocks>> {
        self.inner()?.blocks(seen, span, positions, heads, values)
    }

    /// Counterpart of [`blocks`](Self::blocks) for fused execution: the visible pairs, ordered so that jointly computed pairs are adjacent. Default: none, all
    /// pairs in index order.
    fn parts(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>> {
        self.inner()?.parts(seen, span, positions, heads)
    }

    /// Pattern that hides keys, if any. Default: none.
    fn pattern(&self) -> Option<&dyn Pattern> {
        self.inner()?.pattern()
    }

    /// Multiplications of the score of one query-key pair, for head width `d_head`. Default: a scalar product, `d_head`.
    fn multiplications(&self, d_head: f64) -> f64 {
        self.inner().map_or(d_head, |inner| inner.multiplications(d_head))
    }

    /// Auxiliary losses for queries `[B, Q, C]`. Default: none.
    fn losses(&self, query: &Tensor<3>) -> Losses {
        self.inner().map_or_else(Losses::default, |inner| inner.losses(query))
    }

    /// Shares parameters with the logits of an earlier layer, as in [`Attention::sharing_with`](crate::contract::Attention::sharing_with). Default: nothing is
    /// shared.
    fn sharing_with(self, _earlier: &Self) -> Self {
        self
    }
}

/// Defines [`DynLogits`] from the list of its methods.
macro_rules! dyn_logits {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// [`Logits`] of any type behind a reference, with the same method names. Import [`LogitsRef`] instead: importing both this trait and [`Logits`] makes
        /// calls ambiguous.
        pub trait DynLogits {
            $(#[doc = concat!("[`Logits::", stringify!($name), "`].")]
            fn $name(&self, $($argument: $type),*) -> $result;)*
        }

        impl<L: Logits> DynLogits for L {
            $(fn $name(&self, $($argument: $type),*) -> $result {
                Logits::$name(self, $($argument),*)
            })*
        }
    };
}

dyn_logits! {
    abilities() -> LogitAbilities;
    projections_have_biases() -> bool;
    normaliser() -> Normaliser;
    sink() -> Option<Init>;
    keys(memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>>;
    key_width(d_head: usize) -> usize;
    terms(query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms;
    gate(query: &Tensor<3>) -> Option<Tensor<4>>;
    visibility() -> Option<Visibility>;
    takes_any_queries() -> bool;
    spans(query: &Tensor<3>) -> Option<Tensor<3>>;
    soft_span(query: &Tensor<3>, span: Span) -> Option<SoftSpan>;
    reach() -> Option<usize>;
    cache() -> Option<SinkCache>;
    blocks(seen: &Visibility, span: Span, positions: &Positions, heads: usize, values: &Tensor<4>) -> Option<Vec<Blocks>>;
    parts(seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>>;
    pattern() -> Option<&dyn Pattern>;
    multiplications(d_head: f64) -> f64;
    losses(query: &Tensor<3>) -> Losses;
}

/// [`Logits`] of any type.
pub type LogitsRef<'a> = &'a dyn DynLogits;

/// Shares parameters of logits pairwise with those of an earlier layer.
pub(crate) fn shared_in_order<L: Logits>(own: Vec<L>, earlier: &[L]) -> Vec<L> {
    if own.len() != earlier.len() {
        return own;
    }
    own.into_iter().zip(earlier).map(|(own, earlier)| own.sharing_with(earlier)).collect()
}

/// Capabilities of logits. By default they score keys of the same sequence, of any length, only from positions and queries.
///
/// ```
/// # use heedful_attention::softmax_attention::logits::LogitAbilities;
/// let abilities = LogitAbilities::default().with_keys().with_max_length(512);
/// assert!(abilities.remembers_keys && !abilities.cross_attention);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogitAbilities {
    /// Whether queries score keys of another sequence.
    pub cross_attention: bool,
    /// Maximum sequence length.
    pub max_length: Option<usize>,
    /// Whether keys are cached.
    pub remembers_keys: bool,
    /// Whether there are auxiliary losses.
    pub auxiliary_losses: bool,
}

impl LogitAbilities {
    /// Enables cross-attention.
    pub fn with_cross_attention(self) -> Self {
        Self { cross_attention: true, ..self }
    }

    /// Limits sequences to `positions`.
    pub fn with_max_length(self, positions: usize) -> Self {
        Self { max_length: Some(positions), ..self }
    }

    /// Enables content-based keys, which decoding caches.
    pub fn with_keys(self) -> Self {
        Self { remembers_keys: true, ..self }
    }

    /// Enables auxiliary losses.
    pub fn with_auxiliary_losses(self) -> Self {
        Self { auxiliary_losses: true, ..self }
    }

    /// Capabilities of a sum of both.
    pub fn joined(self, other: Self) -> Self {
        Self {
            cross_attention: self.cross_attention && other.cross_attention,
            max_length: match (self.max_length, other.max_length) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            remembers_keys: self.remembers_keys || other.remembers_keys,
            auxiliary_losses: self.auxiliary_losses || other.auxiliary_losses,
        }
    }
}

/// Rows of a table `[1, H, L, R]` for `length` indices from `start` on: `[1, H, length, R]`, or `[B, H, length, R]` for left-padded batch rows, whose first
/// real token has position 0. Padding uses the table's first row and is masked.
///
/// # Panics
/// If a position lies beyond the table.
pub(crate) fn rows_at(table: Tensor<4>, start: usize, length: usize, positions: &Positions) -> Tensor<4> {
    let [_, heads, max_length, width] = table.dims();
    assert!(
        start + length <= max_length,
        "positions up to {} lie beyond the maximal length {max_length} of this attention",
        start + length
    );
    let Some(counts) = &positions.left_padding else {
        // The gradient of a slice is written into that of the whole, which the full table can skip.
        return if [start, length] == [0, max_length] { table } else { table.narrow(2, start, length) };
    };
    let indices: Vec<i32> =
        counts.iter().flat_map(|&count| (start..start + length).map(move |index| index.saturating_sub(count) as i32)).collect();
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [counts.len() * length]), &table.device());
    table.select(2, indices).reshape([heads, counts.len(), length, width]).swap_dims(0, 1)
}

/// First position of the keys of a span in position tables, per batch row or for all.
pub(crate) fn starts(span: Span, positions: &Positions) -> Arc<[isize]> {
    let first = span.key_start as isize;
    match &positions.left_padding {
        None => Arc::new([first]),
        Some(counts) => counts.iter().map(|&count| first - count as isize).collect(),
    }
}
