//! Which keys queries see, in the words of Burn and PyTorch.

use std::fmt;
use std::sync::{Arc, OnceLock};

use burn::tensor::{Bool, Tensor};

use crate::contract::Positions;
use crate::contract::visibility::Visibility;

/// Which keys queries see in one call: the argument of [`AttentionLayer`](crate::layer::AttentionLayer).
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
/// Make a mask once for a batch and give it to all layers: clones share what layers compute from it. Tensors stay on their device. Only mechanisms that ask for
/// single pairs (convolutions, LSH in main memory, Linformer, fused Gaussians) read them, once for all layers, as do layers on another device. If the lengths
/// are known on the host, give lengths: the engine then skips masked tiles, which it cannot find in a tensor.
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
    /// The same without the future. All causal layers take this one, with what was made of it.
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
    /// Hides nothing. Causal layers stay causal.
    pub fn none() -> Self {
        Visibility::all().into()
    }

    /// A query sees itself and what precedes it. Causal layers do this without being told.
    pub fn causal() -> Self {
        Visibility::causal().into()
    }

    /// Row `b` of the batch has `lengths[b]` keys; the others up to `n` are padding at its end.
    ///
    /// # Panics
    /// If a row is longer than `n`.
    pub fn padding(lengths: &[usize], n: usize) -> Self {
        assert!(lengths.iter().all(|&length| length <= n), "lengths {lengths:?} exceed the length {n} of the batch");
        Self { keys: Some(n), ..Visibility::padding(lengths.to_vec()).into() }
    }

    /// Row `b` of the batch begins with `counts[b]` elements of padding. In self-attention the positions of a row count from its first real element.
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

    /// `[B or 1, Q, K]`, `true` = hidden: Burn's `mask_attn`. PyTorch's `MultiheadAttention` has this meaning too.
    #[doc(alias = "mask_attn")]
    pub fn hidden_pairs(hidden: Tensor<3, Bool>) -> Self {
        Self::visible_pairs(hidden.bool_not().unsqueeze_dim(1))
    }

    /// `[B or 1, H or 1, Q, K]`, `true` = visible: a boolean `attn_mask` of PyTorch's `scaled_dot_product_attention`.
    #[doc(alias = "attn_mask")]
    pub fn visible_pairs(visible: Tensor<4, Bool>) -> Self {
        Self::of_pairs(visible.dims(), Visibility::given(visible))
    }

    /// `[B or 1, H or 1, Q, K]`, added to the logits, minus infinity = hidden: a float `attn_mask` of PyTorch's `scaled_dot_product_attention`, or the bias of
    /// a method of one's own. Gradients reach it. Mechanisms without logits (convolutions, LSH, Linformer, Gaussian densities) panic when they are given one.
    pub fn additive(bias: Tensor<4>) -> Self {
        Self::of_pairs(bias.dims(), Visibility::additive(bias))
    }

    fn of_pairs([_, heads, queries, keys]: [usize; 4], visibility: Visibility) -> Self {
        let heads = (heads > 1).then_some(heads);
        Self { heads, queries: Some(queries), keys: Some(keys), ..visibility.into() }
    }

    /// Hides what either hides; what is added to logits is added up.
    ///
    /// # Panics
    /// If the masks are of different sizes, or each says how rows are padded on the left and they differ.
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

    /// How many of `n` keys each of `batch` rows has, of a mask that hides what follows them and nothing else. A mask of a tensor is read back for it.
    ///
    /// # Example
    /// ```
    /// # use heedful_attention::contract::mask::Mask;
    /// assert_eq!(Mask::padding(&[3, 1], 4).lengths(2, 4), [3, 1]);
    /// assert_eq!(Mask::none().lengths(2, 4), [4, 4]);
    /// ```
    ///
    /// # Panics
    /// If the mask is of another size, or hides something else.
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
            // What depends on the query shows at the first or the last one.
            let is_padding = [0, n - 1].into_iter().all(|query| seen_by(query).enumerate().all(|(key, is_seen)| is_seen == (key < length)));
            assert!(is_padding, "{self:?} hides more than padding at the end of its rows: use the full form");
            length
        };
        (0..batch).map(length).collect()
    }

    /// What is visible, for the full form of the contract ([`AttentionInput`](crate::contract::AttentionInput)).
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// What a causal layer sees. The same value for all layers.
    pub(crate) fn without_future(&self) -> &Visibility {
        self.causal.get_or_init(|| self.visibility.within(&Visibility::causal()))
    }

    pub(crate) fn hides_nothing(&self) -> bool {
        self.visibility.equals(&Visibility::all())
    }

    /// Number of padding elements that each row begins with.
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
