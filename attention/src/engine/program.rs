//! Description of one attention.

use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor, TensorData};
use heedful_random::RandomKey;

use super::heads::repeat_heads;
use super::per_key::PerKey;
use super::{GaussianWeights, Normaliser, SoftCap};
use crate::contract::visibility::DenseMask;

/// One attention, ready for execution.
///
/// Dimension letters: `B` batch rows, `H` heads, `G` key and value heads, `Q` queries, `K` keys, `R` width of the thin factors, `D` width of a head's values. A
/// dimension written `B|1` is 1 if nothing depends on the batch row.
///
/// `G` divides `H`, and head `h` reads key and value head `h / (H / G)`. With `G = 1` all heads share one key and value head (Shazeer 2019); with more, each is
/// shared by a group (Ainslie et al. 2023). The executions read shared heads without copying them per head; the fused one copies values if each head has its
/// own keys.
#[derive(Clone, Debug)]
pub struct AttentionProgram {
    /// Weights of the keys.
    pub weighting: Weighting,
    /// Mask of hidden pairs, if any.
    pub mask: Option<DenseMask>,
    /// Factors of the exponentials of the logits, inside the normaliser; for a density, factors of the weights.
    pub soft_span: Option<SoftSpan>,
    /// `[B, G, K, D]`.
    pub values: Tensor<4>,
    /// Dropout of the weights, if any.
    pub dropout: Option<Dropout>,
}

/// Source of the weights.
// Created and consumed once per call.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Weighting {
    /// Logits of the visible keys, and their normaliser. All weights of a row without visible keys are exactly 0.
    Scores(LogitTerms, Normaliser),
    /// Given weights `[B|1, H, Q, K]`, set to 0 where hidden; if `renormalise`, they are divided by their sum over the visible keys and must not be negative.
    Density {
        /// The weights before masking.
        weights: Tensor<4>,
        /// Whether rows are divided by their sum.
        renormalise: bool,
    },
    /// A closed-form density, not materialised as a tensor.
    Gaussian(Arc<GaussianWeights>),
}

/// Logits as a sum of products of thin factors and a bias; only a bias materialises `Q x K` numbers.
#[derive(Clone, Debug, Default)]
pub struct LogitTerms {
    /// `queries keys^T`.
    pub content: Option<Content>,
    /// Scores by distance, `queries keys^T` at [`relative_shift`]: keys are `[B|1, H|1, Q + K - 1, R]`, one per signed distance `i - j` of a query at position
    /// `i` from a key at `j`, in descending order. Column `c` of a [`Span`](crate::contract::visibility::Span) has the distance
    /// `query_start + queries - 1 - key_start - c`. The distance is largest between the last query and the first key, and negative for keys after the query. A
    /// symmetric score uses its absolute value.
    pub relative: Option<Content>,
    /// Products of two numbers of the query.
    pub kronecker: Option<Kronecker>,
    /// Added to the products.
    pub bias: Option<Bias>,
    /// Soft cap of the sum of the terms.
    pub cap: Option<SoftCap>,
    /// For a softmax: logit of an extra key with value 0, `[1, H|1, 1, 1]`. It is never hidden, and nothing is added to it.
    pub sink: Option<Tensor<4>>,
}

/// Pairwise logits.
#[derive(Clone, Debug)]
pub struct Bias {
    /// `[B|1, H|1, Q, K]`.
    pub numbers: Tensor<4>,
    /// Their scale, `[1, H|1, 1, 1]`, with at most their number of heads; `None` means 1. The product is not materialised: it would take as much memory as the
    /// numbers, as would its gradient.
    pub scale: Option<Tensor<4>>,
}

/// Thin factors of logits. Scales (`1/sqrt(d)`) are already in the queries.
#[derive(Clone, Debug)]
pub struct Content {
    /// `[B|1, H, Q, R]`.
    pub queries: Tensor<4>,
    /// `[B|1, G, K, R]`; the number of heads may differ from that of the values.
    pub keys: Tensor<4>,
}

/// Logits of a query as the Kronecker product of two of its vectors: pair `n` has the logit `left[n div b] right[n mod b]`.
#[derive(Clone, Debug)]
pub struct Kronecker {
    /// `[B, H, Q, a]`.
    pub left: Tensor<4>,
    /// `[B, H, Q, b]`.
    pub right: Tensor<4>,
    /// Pair of the first key, per batch row or for all; later keys follow in order. Keys before pair 0 are padding, whose logits are not read.
    pub starts: Arc<[isize]>,
    /// Number of keys, `K`.
    pub keys: usize,
}

/// Spans with soft ends.
#[derive(Clone, Debug)]
pub struct SoftSpan {
    /// In positions, `[B|1, H|1, Q|1]`.
    pub spans: Tensor<3>,
    /// Shape of the ends.
    pub ramp: Ramp,
}

/// Soft span ends: the factor of a key at distance `x` is `clamp((z - x + origin) / R + 1, 0, 1)` for a query with span `z`, and 0 if the distance is less than
/// `nearest` or more than `farthest`.
///
/// The factor has the slope `1 / R` by `z` on the ramp, both ends included: where the height is exactly 0 or 1, as for whole spans, the derivative is that from
/// the side of the ramp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Width `R` of the ramp.
    pub width: f32,
    /// Origin of distances.
    pub origin: f32,
    /// Minimum distance of a key.
    pub nearest: usize,
    /// Maximum distance of a key.
    pub farthest: usize,
    /// Index of the first query minus that of the first key.
    pub offset: isize,
}

/// Log bound of the weight of a key exactly at the end of its ramp in the gradient of the span, relative to all keys within the span together. The bound is
/// 1e8, implied by the released code's 1e-8 in its divisor, or the maximum of the type.
pub(super) fn greatest_log_ratio(dtype: DType) -> f32 {
    if dtype == DType::F16 { 11.0 } else { 18.420_68 }
}

/// Bound below which a sum of weights belongs to a row without visible keys: the smallest normal 32-bit number, or the smallest number in half precision, which
/// cannot represent that.
pub(crate) fn least_sum(dtype: DType) -> f32 {
    if dtype == DType::F16 { 5.960_464_5e-8 } else { f32::MIN_POSITIVE }
}

/// Dropout of attention weights.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Probability that a weight is dropped, in `[0, 1)`.
    pub probability: f64,
    /// Key of the dropout mask.
    pub key: RandomKey,
}

impl Ramp {
    /// Factor of key `key` for query `query`, as indices in the span, for a query span `z`.
    #[inline(always)]
    pub fn factor(&self, z: f32, query: usize, key: usize) -> f32 {
        self.height(z, query, key).clamp(0.0, 1.0)
    }

    /// Factor before clamping to `[0, 1]`; it has the slope `1 / R` from 0 to 1. Keys outside the query's range have lower values.
    #[inline(always)]
    pub(super) fn height(&self, z: f32, query: usize, key: usize) -> f32 {
        match self.level(query, key) {
            Some(level) => (z + level) / self.width + 1.0,
            None => f32::NEG_INFINITY,
        }
    }

    /// Level of key `key` for query `query`, whose height is `(z + level) / R + 1`; `None` if the distance is out of range.
    #[inline(always)]
    pub(super) fn level(&self, query: usize, key: usize) -> Option<f32> {
        let distance = (query as isize + self.offset - key as isize).unsigned_abs();
        (self.nearest..=self.farthest).contains(&distance).then_some(self.origin - distance as f32)
    }
}

impl AttentionProgram {
    /// Number of heads, `H`: the maximum over weighting, mask, soft spans and values.
    ///
    /// # Panics
    /// If logits have no term.
    pub fn heads(&self) -> usize {
        let of_mask = self.mask.as_ref().map(|mask| mask.bias.dims()[1]);
        let of_spans = self.soft_span.as_ref().map(|span| span.spans.dims()[1]);
        let others = [of_mask, of_spans, Some(self.values.dims()[1])].into_iter().flatten();
        others.fold(self.weighting.heads(), usize::max)
    }
}

impl Weighting {
    /// Softmax of logits.
    pub fn softmax(terms: LogitTerms) -> Self {
        Self::Scores(terms, Normaliser::Softmax)
    }

    /// The per-key function, if the weights are independent.
    pub(super) fn per_key(&self) -> Option<PerKey> {
        match self {
            Self::Scores(_, normaliser) => normaliser.per_key(),
            Self::Density { .. } | Self::Gaussian(_) => None,
        }
    }

    /// Number of queries.
    ///
    /// # Panics
    /// If logits have no term.
    pub fn queries(&self) -> usize {
        match self {
            Self::Scores(terms, _) => terms.queries().dims()[2],
            Self::Density { weights, .. } => weights.dims()[2],
            Self::Gaussian(gaussians) => gaussians.queries(),
        }
    }

    /// Number of distinct heads.
    fn heads(&self) -> usize {
        match self {
            Self::Scores(terms, _) => terms.heads(),
            Self::Density { weights, .. } => weights.dims()[1],
            Self::Gaussian(gaussians) => gaussians.heads(),
        }
    }

    /// The same with closed-form weights as a tensor, for values `[B, G, K, D]`.
    pub(super) fn dense(self, values: &Tensor<4>) -> Self {
        match self {
            Self::Gaussian(gaussians) => Self::Density {
                weights: gaussians.weights(values.dims()[2], values.dtype(), &values.device()),
                renormalise: gaussians.are_renormalised(),
            },
            given => given,
        }
    }
}

impl SoftSpan {
    /// Factors of all pairs, `[B|1, H|1, Q, K]`.
    pub fn factors(&self, queries: usize, keys: usize) -> Tensor<4> {
        let Ramp { width, origin, nearest, farthest, offset } = self.ramp;
        let device = self.spans.device();
        let indices =
            |start: i64, count: usize| Tensor::<1, Int>::arange(start..start + count as i64, &device).float().cast(self.spans.dtype());
        let queries = indices(offset as i64, queries).reshape([1, 1, queries, 1]);
        let distances = (queries - indices(0, keys).reshape([1, 1, 1, keys])).abs();
        let seen = distances.clone().lower_equal_elem(farthest as f64).bool_and(distances.clone().greater_equal_elem(nearest as f64));
        let seen = seen.float().cast(self.spans.dtype());
        let spans = self.spans.clone().unsqueeze_dim::<4>(3);
        let heights = (spans - (distances - origin)) / width + 1.0;
        let dtype = heights.dtype();
        let has_slope = heights.clone().greater_equal_elem(0.0).bool_and(heights.clone().lower_equal_elem(1.0)).float().cast(dtype);
        let is_above = heights.clone().greater_elem(1.0).float().cast(dtype);
        // Equal to a clamp to [0, 1], but its gradient passes at both ends, which a clamp does not guarantee.
        (heights * has_slope + is_above) * seen
    }
}

impl Bias {
    /// The logits themselves, `[B|1, H|1, Q, K]`.
    pub fn product(self) -> Tensor<4> {
        match self.scale {
            Some(scale) => self.numbers * scale,
            None => self.numbers,
        }
    }

    fn scaled(self, scale: Tensor<4>) -> Self {
        if scale.dims()[1] > self.numbers.dims()[1] {
            return Self { numbers: self.product() * scale, scale: None };
        }
        Self { scale: Some(self.scale.map_or_else(|| scale.clone(), |own| own * scale.clone())), ..self }
    }
}

impl Kronecker {
    /// The logits themselves, `[B, H, Q, K]`.
    pub(super) fn logits(self) -> Tensor<4> {
        let [batch, heads, queries, a] = self.left.dims();
        let b = self.right.dims()[3];
        let pairs = self.left.unsqueeze_dim::<5>(4) * self.right.unsqueeze_dim::<5>(3);
        columns_from(pairs.reshape([batch, heads, queries, a * b]), &self.starts, self.keys)
    }
}

/// `count` columns of `x` `[B|1, H, L, W]`, from each batch row's start on; columns before the first repeat it.
///
/// # Panics
/// If there are too few columns.
pub(crate) fn columns_from(x: Tensor<4>, starts: &[isize], count: usize) -> Tensor<4> {
    let [rows, heads, length, width] = x.dims();
    let end = starts.iter().max().expect("there is a start") + count as isize;
    assert!(end <= width as isize, "{end} keys lie beyond the maximal length {width} of this attention");
    if let [start] = starts
        && let Ok(start) = usize::try_from(*start)
    {
        // The gradient of a slice is written into that of the whole, which the full tensor can skip.
        return if [start, count] == [0, width] { x } else { x.narrow(3, start, count) };
    }
    assert!(rows == 1 || rows == starts.len(), "{} starts for {rows} rows", starts.len());
    let indices = starts.iter().flat_map(|&start| (0..count as isize).map(move |column| (start + column).max(0) as i32));
    let indices = Tensor::<1, Int>::from_data(TensorData::new(indices.collect(), [starts.len() * count]), &x.device());
    let indices = indices.reshape([starts.len(), 1, 1, count]).expand([starts.len(), heads, length, count]);
    x.expand([starts.len(), heads, length, width]).gather(3, indices)
}

/// Message for capped logits in a sum.
const UNCAPPED: &str = "logits with a soft cap are no member of a sum: put the cap over the sum";

impl LogitTerms {
    /// Logits as a product of thin factors.
    pub fn content(queries: Tensor<4>, keys: Tensor<4>) -> Self {
        Self { content: Some(Content { queries, keys }), ..Self::default() }
    }

    /// Logits as a Kronecker product.
    pub fn kronecker(kronecker: Kronecker) -> Self {
        Self { kronecker: Some(kronecker), ..Self::default() }
    }

    /// Given logits.
    pub fn bias(bias: Tensor<4>) -> Self {
        Self { bias: Some(Bias { numbers: bias, scale: None }), ..Self::default() }
    }

    /// Number of distinct batch rows.
    pub(super) fn rows(&self) -> usize {
        self.told_apart()[0]
    }

    /// Number of distinct heads.
    pub(crate) fn heads(&self) -> usize {
        self.told_apart()[1].max(self.sink.as_ref().map_or(1, |sink| sink.dims()[1]))
    }

    /// Maximum batch rows and heads over the terms.
    fn told_apart(&self) -> [usize; 2] {
        let factors = [&self.content, &self.relative].into_iter().flatten().flat_map(|content| [&content.queries, &content.keys]);
        let left = self.kronecker.as_ref().map(|kronecker| &kronecker.left);
        let biases = self.bias.iter().chain(self.cap.iter().filter_map(|cap| cap.added.as_ref())).map(|bias| &bias.numbers);
        let terms = factors.chain(left).chain(biases).map(|factor| [factor.dims()[0], factor.dims()[1]]);
        let greatest = terms.reduce(|[rows, heads], [own_rows, own_heads]| [rows.max(own_rows), heads.max(own_heads)]);
        greatest.expect("logits have a term")
    }

    /// A tensor with a row per query.
    pub(super) fn queries(&self) -> &Tensor<4> {
        let factors = [&self.content, &self.relative].into_iter().flatten().map(|content| &content.queries);
        let left = self.kronecker.as_ref().map(|kronecker| &kronecker.left);
        factors.chain(left).chain(self.bias.as_ref().map(|bias| &bias.numbers)).next().expect("logits have a term")
    }

    /// The same logits under a soft cap, greater than 0.
    ///
    /// # Panics
    /// If they already have a soft cap.
    pub fn capped(self, limit: f32) -> Self {
        assert!(self.cap.is_none(), "logits have one soft cap");
        Self { cap: Some(SoftCap { limit, added: None }), ..self }
    }

    /// The logits times `scale` `[1, H|1, 1, 1]`.
    ///
    /// # Panics
    /// If they have a soft cap or a sink.
    pub fn scaled(self, scale: Tensor<4>) -> Self {
        assert!(self.cap.is_none(), "{UNCAPPED}");
        assert!(self.sink.is_none(), "a sink is not scaled");
        let scaled = |c: Content| Content { queries: c.queries * scale.clone(), keys: c.keys };
        Self {
            content: self.content.map(scaled),
            relative: self.relative.map(scaled),
            kronecker: self.kronecker.map(|product| Kronecker { left: product.left * scale.clone(), ..product }),
            bias: self.bias.map(|bias| bias.scaled(scale.clone())),
            cap: None,
            sink: None,
        }
    }

    /// Sum of two logits: factors are concatenated along their width, biases are added, and one of two Kronecker products becomes a bias. Terms added to capped
    /// logits are not capped.
    ///
    /// # Panics
    /// If the first have a soft cap and the second are more than a bias, or the second have a soft cap or a sink.
    pub fn plus(self, other: Self) -> Self {
        assert!(other.cap.is_none(), "{UNCAPPED}");
        assert!(other.sink.is_none(), "the sink is that of the first of two logits");
        if let Some(cap) = self.cap {
            return Self { cap: Some(cap.plus(other)), ..self };
        }
        let joined = |a: Option<Content>, b: Option<Content>| match (a, b) {
            (Some(a), Some(b)) => Some(Content { queries: concatenate(a.queries, b.queries), keys: concatenate(a.keys, b.keys) }),
            (a, b) => a.or(b),
        };
        let (content, relative) = (joined(self.content, other.content), joined(self.relative, other.relative));
        let (kronecker, product) = match (self.kronecker, other.kronecker) {
            (Some(a), Some(b)) => (Some(a), Some(b.logits())),
            (a, b) => (a.or(b), None),
        };
        let product = product.map(|numbers| Bias { numbers, scale: None });
        let biases = [self.bias, other.bias, product].into_iter().flatten();
        let bias = biases.reduce(|a, b| Bias { numbers: a.product() + b.product(), scale: None });
        Self { content, relative, kronecker, bias, cap: None, sink: self.sink }
    }
}

/// Concatenates factors along their width, repeating factors shared by batch rows or heads.
fn concatenate(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    let [rows, heads] = [0, 1].map(|dim| a.dims()[dim].max(b.dims()[dim]));
    Tensor::cat([a, b].map(|x| repeat_heads(for_each_row(x, rows), heads)).to_vec(), 3)
}

/// Repeats a tensor for each of `rows` batch rows.
///
/// It is repeated as a flat row because of its gradient, a sum over the first dimension. On wgpu, Burn 0.22.1 sums wrongly over the first of four dimensions if
/// the last two are swapped, as in the gradient of keys.
///
/// # Panics
/// If the number of batch rows is neither 1 nor `rows`.
pub(super) fn for_each_row(x: Tensor<4>, rows: usize) -> Tensor<4> {
    let [batch, heads, length, width] = x.dims();
    if batch == rows {
        return x;
    }
    let size = heads * length * width;
    x.reshape([batch, size]).expand([rows, size]).reshape([rows, heads, length, width])
}

/// Shifts scores by distance to their keys: `[.., .., Q, Q + K - 1]` with columns in descending order of distance to `[.., .., Q, K]`.
///
/// Row `i` shifts left by `Q - 1 - i`: a column is prepended, after which the same numbers in rows shorter by one are the shifted ones (Dai et al. 2019,
/// appendix B). Every element of the result is a score of its own distance. With only the `K` distances of a causal mask, as in the paper, elements above the
/// diagonal are left-overs of the next row.
///
/// # Panics
/// If the number of columns is not `Q + K - 1`.
pub fn relative_shift(scores: Tensor<4>, keys: usize) -> Tensor<4> {
    let [a, b, queries, columns] = scores.dims();
    assert_eq!(columns, queries + keys - 1, "one column for each distance");
    let pad = Tensor::zeros([a, b, queries, 1], (&scores.device(), scores.dtype()));
    let padded = Tensor::cat(vec![pad, scores], 3);
    let moved = padded.reshape([a, b, columns + 1, queries]).narrow(2, 1, columns);
    moved.reshape([a, b, queries, columns]).narrow(3, 0, keys)
}
