//! Visible keys of queries, in the conventions of Burn and PyTorch.

use std::fmt;
use std::sync::{Arc, OnceLock};

use burn::tensor::{Bool, Tensor};

use crate::contract::Positions;
use crate::contract::visibility::Visibility;

/// Visible keys of queries in one call: the argument of [`AttentionLayer`](crate::layer::AttentionLayer).
///
/// | made from | `true` or number means | constructor |
/// |---|---|---|
/// | lengths | so many keys are real | [`padding`](Self::padding), [`left_padding`](Self::left_padding) |
/// | Burn's `mask_pad`, PyTorch's `key_padding_mask`, `[B, K]` | `true` = hidden | [`hidden_keys`](Self::hidden_keys), `from` |
/// | Burn's `mask_attn`, `[B, Q, K]` | `true` = hidden | [`hidden_pairs`](Self::hidden_pairs), `from` |
/// | `attn_mask` of PyTorch's `scaled_dot_product_attention`, `[B or 1, H or 1, Q, K]` | `true` = visible | [`visible_pairs`](Self::visible_pairs) |
/// | the same in floats | added to the logits | [`additive`](Self::additive) |
/// | positions | | [`causal`](Self::causal), [`Visibility`]'s constructors and `from` |
///
/// Create a mask once per batch and pass it to all layers: clones share the results that layers derive from it. Tensors stay on their device. Only mechanisms
/// that query single pairs (convolutions, LSH in main memory, Linformer, fused Gaussians) read them, once for all layers; layers on another device also do. If
/// the lengths are known on the host, pass lengths: the engine then skips masked tiles, which it cannot detect in a tensor.
///
/// # Example
/// ```
/// use burn::tensor::{Bool, Device, Tensor};
/// use heedful_attention::prelude::*;
///
/// let pad = Tensor::<2, Bool>::from_data([[false, false, true], [false, true, true]], &Device::flex());
/// let mask = Mask::from(pad).and(Mask::causal()); // as Mask::padding(&[2, 1], 3).and(Mask::causal())
/// assert!(mask.visibility().is_visible(0, 0, 1, 1) && !mask.visibility().is_visible(1, 0, 1, 1));
/// ```
#[derive(Clone)]
pub struct Mask {
    visibility: Visibility,
    /// The same mask without the future, shared by all causal layers with its derived results.
    causal: Arc<OnceLock<Visibility>>,
    left_padding: Option<Arc<[usize]>>,
    heads: Option<usize>,
    queries: Option<usize>,
    keys: Option<usize>,
}

/// Number of batch rows, heads, queries and keys of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub queries: Option<usize>,
    pub keys: usize,
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({:?})", self.visibility)
    }
}

impl From<Visibility> for Mask {
    fn from(visibility: Visibility) -> Self {
        Self { visibility, causal: Arc::default(), left_padding: None, heads: None, queries: None, keys: None }
    }
}

/// As [`Mask::hidden_keys`]: Burn's `mask_pad`.
impl From<Tensor<2, Bool>> for Mask {
    fn from(hidden: Tensor<2, Bool>) -> Self {
        Self::hidden_keys(hidden)
    }
}

/// As [`Mask::hidden_pairs`]: Burn's `mask_attn`.
impl From<Tensor<3, Bool>> for Mask {
    fn from(hidden: Tensor<3, Bool>) -> Self {
        Self::hidden_pairs(hidden)
    }
}

impl Mask {
    /// Hides no keys. Causal layers stay causal.
    pub fn none() -> Self {
        Visibility::all().into()
    }

    /// A query sees itself and earlier positions. Causal layers apply this by default.
    pub fn causal() -> Self {
        Visibility::causal().into()
    }

    /// Row `b` of the batch has `lengths[b]` keys, followed by padding up to `n`.
    ///
    /// # Panics
    /// If a row is longer than `n`.
    pub fn padding(lengths: &[usize], n: usize) -> Self {
        assert!(lengths.iter().all(|&length| length <= n), "lengths {lengths:?} exceed the length {n} of the batch");
        Self { keys: Some(n), ..Visibility::padding(lengths.to_vec()).into() }
    }

    /// Row `b` of the batch begins with `counts[b]` padding tokens. In self-attention the positions of a row start at its first real token.
    pub fn left_padding(counts: &[usize]) -> Self {
        let left_padding = Positions::default().with_left_padding(counts).left_padding;
        Self { left_padding, ..Visibility::left_padding(counts.to_vec()).into() }
    }

    /// `[B or 1, K]`, `true` = hidden from all queries: Burn's `mask_pad` and PyTorch's `key_padding_mask`.
    #[doc(alias = "mask_pad", alias = "key_padding_mask")]
    pub fn hidden_keys(hidden: Tensor<2, Bool>) -> Self {
        let keys = Some(hidden.dims()[1]);
        Self { keys, ..Visibility::given_keys(hidden.bool_not()).into() }
    }

    /// `[B or 1, Q, K]`, `true` = hidden: Burn's `mask_attn`. PyTorch's `MultiheadAttention` uses the same convention.
    #[doc(alias = "mask_attn")]
    pub fn hidden_pairs(hidden: Tensor<3, Bool>) -> Self {
        Self::visible_pairs(hidden.bool_not().unsqueeze_dim(1))
    }

    /// `[B or 1, H or 1, Q, K]`, `true` = visible: a boolean `attn_mask` of PyTorch's `scaled_dot_product_attention`.
    #[doc(alias = "attn_mask")]
    pub fn visible_pairs(visible: Tensor<4, Bool>) -> Self {
        Self::of_pairs(visible.dims(), Visibility::given(visible))
    }

    /// `[B or 1, H or 1, Q, K]`, added to the logits, minus infinity = hidden: a float `attn_mask` of PyTorch's `scaled_dot_product_attention`, or a custom
    /// bias. Gradients reach it. Mechanisms without logits (convolutions, LSH, Linformer, Gaussian densities) panic on it.
    pub fn additive(bias: Tensor<4>) -> Self {
        Self::of_pairs(bias.dims(), Visibility::additive(bias))
    }

    fn of_pairs([_, heads, queries, keys]: [usize; 4], visibility: Visibility) -> Self {
        let heads = (heads > 1).then_some(heads);
        Self { heads, queries: Some(queries), keys: Some(keys), ..visibility.into() }
    }

    /// Hides the keys that either mask hides; additive masks are summed.
    ///
    /// # Panics
    /// If the masks differ in size, or both specify left padding and disagree.
    pub fn and(self, other: Self) -> Self {
        let same = |a: Option<usize>, b: Option<usize>, what: &str| {
            assert!(a.is_none() || b.is_none() || a == b, "masks of {} and {} {what} cannot be joined", a.unwrap_or(0), b.unwrap_or(0));
            a.or(b)
        };
        let left_padding = match (self.left_padding, other.left_padding) {
            (Some(a), Some(b)) if a != b => panic!("rows are padded on the left by {a:?} or by {b:?}, not by both"),
            (a, b) => a.or(b),
        };
        Self {
            heads: same(self.heads, other.heads, "heads"),
            queries: same(self.queries, other.queries, "queries"),
            keys: same(self.keys, other.keys, "keys"),
            left_padding,
            ..self.visibility.within(&other.visibility).into()
        }
    }

    /// Number of keys in each of `batch` rows out of `n`, for a mask that hides only the keys after them. A tensor mask is read back.
    ///
    /// # Example
    /// ```
    /// # use heedful_attention::contract::mask::Mask;
    /// assert_eq!(Mask::padding(&[3, 1], 4).lengths(2, 4), [3, 1]);
    /// assert_eq!(Mask::none().lengths(2, 4), [4, 4]);
    /// ```
    ///
    /// # Panics
    /// If the mask is of another size, or hides other keys.
    pub fn lengths(&self, batch: usize, n: usize) -> Vec<usize> {
        self.check(Sizes { batch, heads: self.heads.unwrap_or(1), queries: None, keys: n });
        if self.hides_nothing() || n == 0 {
            return vec![n; batch];
        }
        let is_told_apart = self.visibility.rows() > 1;
        let length = |row: usize| {
            let row = if is_told_apart { row } else { 0 };
            let seen_by = |query: usize| (0..n).map(move |key| self.visibility.is_visible(row, 0, query, key));
            let length = seen_by(0).take_while(|&is_seen| is_seen).count();
            // A mask that depends on the query differs at the first or last query.
            let is_padding = [0, n - 1].into_iter().all(|query| seen_by(query).enumerate().all(|(key, is_seen)| is_seen == (key < length)));
            assert!(is_padding, "{self:?} hides more than padding at the end of its rows: use the full form");
            length
        };
        (0..batch).map(length).collect()
    }

    /// The visibility, for the full form of the contract ([`AttentionInput`](crate::contract::AttentionInput)).
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// Visibility of a causal layer, the same value for all layers.
    pub(crate) fn without_future(&self) -> &Visibility {
        self.causal.get_or_init(|| self.visibility.within(&Visibility::causal()))
    }

    pub(crate) fn hides_nothing(&self) -> bool {
        self.visibility.equals(&Visibility::all())
    }

    /// Number of padding tokens at the start of each row.
    pub(crate) fn padding_before(&self) -> Option<Arc<[usize]>> {
        self.left_padding.clone()
    }

    pub(crate) fn check(&self, sizes: Sizes) {
        let Sizes { batch, heads, queries, keys } = sizes;
        let rows = self.visibility.rows();
        assert!(rows == 1 || rows == batch, "the mask has {rows} rows, the batch {batch}");
        assert!(self.heads.is_none_or(|own| own == heads), "the mask has {} heads, the layer {heads}", self.heads.unwrap_or(1));
        assert!(self.keys.is_none_or(|own| own == keys), "the mask has {} keys, the sequence {keys}", self.keys.unwrap_or(0));
        if let (Some(own), Some(queries)) = (self.queries, queries) {
            assert!(own == queries, "the mask has {own} queries, the sequence {queries}");
        }
    }
}
