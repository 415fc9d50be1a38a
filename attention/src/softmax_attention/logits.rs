//! Logits: the part in which the mechanisms of softmax attention differ.

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
/// Together with the shared projections, softmax, masks and state of [`SoftmaxAttention`](crate::softmax_attention::SoftmaxAttention) an implementation
/// is a whole mechanism, stepwise decoding included.
pub trait Logits: Module + ModuleDisplay + 'static {
    /// Facts about these logits.
    fn abilities(&self) -> LogitAbilities;

    /// The logits that these are over, of logits that change others: what they do not say themselves, they say as the inner ones do. Default: they are over none.
    fn inner(&self) -> Option<LogitsRef<'_>> {
        None
    }

    /// Whether the shared projections of values and output have biases with these logits. Default: no.
    fn projections_have_biases(&self) -> bool {
        self.inner().is_some_and(|inner| inner.projections_have_biases())
    }

    /// How scores become weights. Default: by a softmax.
    fn normaliser(&self) -> Normaliser {
        self.inner().map_or(Normaliser::Softmax, |inner| inner.normaliser())
    }

    /// How the learned logits begin, one for each head, of a key more in the softmax, whose value is 0 and which every query sees. Default: there are none.
    fn sink(&self) -> Option<Init> {
        self.inner()?.sink()
    }

    /// What is remembered of each position that may be attended to, `[B, G, K, R]` from `[B, K, C]` with the positions of these elements, in `G` heads of keys
    /// ([`LayerSpec::kv_heads`](crate::contract::layer_spec::LayerSpec::kv_heads)). Keys that depend on their absolute position, such as rotated ones, are remembered as
    /// they are here. Default: `None`, the scores do not depend on the content of keys.
    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        self.inner()?.keys(memory, positions)
    }

    /// Numbers that [`keys`](Self::keys) gives for a position in each head of keys, `R`, where heads are `d_head` wide. Default: `d_head`.
    fn key_width(&self, d_head: usize) -> usize {
        self.inner().map_or(d_head, |inner| inner.key_width(d_head))
    }

    /// Scores of `span.queries` queries `[B, Q, C]` for `span.keys` keys. `keys` is what [`keys`](Self::keys) returned, `[B, G, K, R]`, which terms may hold as it
    /// is: heads of a group read one head. [`repeat_heads`](crate::engine::heads::repeat_heads) copies it for each head where heads make something else of it.
    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms;

    /// Factors of what the heads give for queries `[B, Q, C]`, `[B, H, Q, D]`, or `[B, H, Q, 1]` of whole heads: gates between the sums of values and the output
    /// projection. Default: none.
    fn gate(&self, query: &Tensor<3>) -> Option<Tensor<4>> {
        self.inner()?.gate(query)
    }

    /// Which keys the mechanism itself lets a query see, by positions in the unpadded sequence; what is hidden from it stays hidden. Default: all.
    fn visibility(&self) -> Option<Visibility> {
        self.inner()?.visibility()
    }

    /// Whether the scores of a query depend on its content and on keys alone and not on its position, so that queries may be any positions of a sequence
    /// ([`Attention::any_queries`](crate::contract::Attention::any_queries)). Default: no, whatever the inner ones do.
    fn takes_any_queries(&self) -> bool {
        false
    }

    /// How far back each query `[B, Q, C]` looks, in positions, `[B|1, H, Q|1]`, where that is soft. Default: nothing is.
    fn spans(&self, query: &Tensor<3>) -> Option<Tensor<3>> {
        self.inner()?.spans(query)
    }

    /// Factors of the exponentials of the scores: spans that end softly. Default: none.
    fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<SoftSpan> {
        self.inner()?.soft_span(query, span)
    }

    /// The greatest distance at which a key can have a weight, if there is one now: what is farther back than that need not be kept. Default: none.
    fn reach(&self) -> Option<usize> {
        self.inner()?.reach()
    }

    /// The cache that decoding keeps instead of all keys. It holds every key that later queries see, and scores depend on indices in it alone. Default: none.
    fn cache(&self) -> Option<SinkCache> {
        self.inner()?.cache()
    }

    /// Blocks of queries with the keys that they see by `seen`, if the weights are to be computed block by block and not all at once. `seen` holds
    /// everything that hides keys, [`visibility`](Self::visibility) included; number type and device are those of the values `[B, G, K, D]`.
    /// Several sets of blocks are parts of one softmax and hold no pair of query and key twice. A few queries, as in decoding, score all keys instead.
    /// Default: none.
    fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize, values: &Tensor<4>) -> Option<Vec<Blocks>> {
        self.inner()?.blocks(seen, span, positions, heads, values)
    }

    /// The same as [`blocks`](Self::blocks) for fused execution: the pairs that are seen, in an order in which those that are computed together lie side by
    /// side. Default: none, all pairs go in the order of their indices.
    fn parts(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>> {
        self.inner()?.parts(seen, span, positions, heads)
    }

    /// The pattern by which keys are hidden, if there is one. Default: none.
    fn pattern(&self) -> Option<&dyn Pattern> {
        self.inner()?.pattern()
    }

    /// Multiplications of the score of one pair of a query and a key, in heads of width `d_head`. Default: a scalar product, `d_head`.
    fn multiplications(&self, d_head: f64) -> f64 {
        self.inner().map_or(d_head, |inner| inner.multiplications(d_head))
    }

    /// Auxiliary losses for queries `[B, Q, C]`. Default: none.
    fn losses(&self, query: &Tensor<3>) -> Losses {
        self.inner().map_or_else(Losses::default, |inner| inner.losses(query))
    }

    /// These logits with what they share with those of an earlier layer, as of [`Attention::sharing_with`](crate::contract::Attention::sharing_with). Default:
    /// nothing is shared.
    fn sharing_with(self, _earlier: &Self) -> Self {
        self
    }
}

/// Writes [`DynLogits`] from the list of its methods.
macro_rules! dyn_logits {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// [`Logits`] of any type behind a reference: their methods by the same names. Import [`LogitsRef`] instead: beside
        /// [`Logits`] the trait makes calls ambiguous.
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

/// Logits with what each shares with those of an earlier layer at its place.
pub(crate) fn shared_in_order<L: Logits>(own: Vec<L>, earlier: &[L]) -> Vec<L> {
    if own.len() != earlier.len() {
        return own;
    }
    own.into_iter().zip(earlier).map(|(own, earlier)| own.sharing_with(earlier)).collect()
}

/// Facts about logits. By default they score the keys of their own sequence, of any length, from positions and queries alone.
///
/// ```
/// # use heedful_attention::softmax_attention::logits::LogitAbilities;
/// let abilities = LogitAbilities::default().with_keys().with_max_length(512);
/// assert!(abilities.remembers_keys && !abilities.cross_attention);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogitAbilities {
    /// Whether a query scores keys of another sequence.
    pub cross_attention: bool,
    /// Longest sequence that can be scored.
    pub max_length: Option<usize>,
    /// Whether keys are remembered.
    pub remembers_keys: bool,
    /// Whether there are auxiliary losses.
    pub auxiliary_losses: bool,
}

impl LogitAbilities {
    /// Keys of another sequence are scored as well.
    pub fn with_cross_attention(self) -> Self {
        Self { cross_attention: true, ..self }
    }

    /// No sequence is longer than `positions`.
    pub fn with_max_length(self, positions: usize) -> Self {
        Self { max_length: Some(positions), ..self }
    }

    /// Keys are scored by their content, and decoding remembers them.
    pub fn with_keys(self) -> Self {
        Self { remembers_keys: true, ..self }
    }

    /// There are auxiliary losses.
    pub fn with_auxiliary_losses(self) -> Self {
        Self { auxiliary_losses: true, ..self }
    }

    /// What is true of a sum of both.
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

/// The rows of a table `[1, H, L, R]` that belong to `length` indices from `start` on: `[1, H, length, R]`, or `[B, H, length, R]` if rows of the batch are
/// padded on the left, since their first real element has position 0. What falls on padding is the table's first row; it is masked.
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
        // The gradient of a part is written into that of the whole, for which nothing would be left to do.
        return if [start, length] == [0, max_length] { table } else { table.narrow(2, start, length) };
    };
    let indices: Vec<i32> =
        counts.iter().flat_map(|&count| (start..start + length).map(move |index| index.saturating_sub(count) as i32)).collect();
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [counts.len() * length]), &table.device());
    table.select(2, indices).reshape([heads, counts.len(), length, width]).swap_dims(0, 1)
}

/// The pairs or columns of positions that the keys of a span begin with, of each batch row or of all.
pub(crate) fn starts(span: Span, positions: &Positions) -> Arc<[isize]> {
    let first = span.key_start as isize;
    match &positions.left_padding {
        None => Arc::new([first]),
        Some(counts) => counts.iter().map(|&count| first - count as isize).collect(),
    }
}
