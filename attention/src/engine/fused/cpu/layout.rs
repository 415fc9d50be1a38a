//! Memory layout of an attention: sizes, planes, rows, and places of indices.

use std::borrow::Cow;

use super::kernel::Matrix;
use crate::contract::visibility::{TILE, TileMap, TileVisibility};
use crate::engine::fused::plan::{Order, Plan};

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    /// Key and value heads.
    pub shared: usize,
    pub queries: usize,
    pub keys: usize,
    /// Width of the logit factors; 0 without any.
    pub factor: usize,
    /// Width of the factors of the scores by distance.
    pub relative: usize,
    /// Widths of the left and right factors of Kronecker products; 0 without any.
    pub pairs: [usize; 2],
    /// Width of the values.
    pub value: usize,
}

impl Sizes {
    /// Query heads per key head. The index of a plane (batch row and head) divided by it is that of its keys and values.
    pub(super) fn group(self) -> usize {
        self.heads / self.shared
    }

    /// Whether the logits contain query-specific numbers.
    pub(super) fn has_terms_of_queries(self) -> bool {
        self.factor > 0 || self.relative > 0 || self.pairs != [0, 0]
    }
}

/// Inputs of an attention, in the shapes of [`Operands`](crate::engine::fused::Operands); empty if absent.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub sizes: Sizes,
    pub queries: Rows<'a>,
    pub keys: Rows<'a>,
    pub values: Rows<'a>,
    pub bias: Option<Planes<'a>>,
    pub bias_scale: Option<Planes<'a>>,
    pub relative_queries: &'a [f32],
    pub relative_keys: Option<Planes<'a>>,
    pub left: &'a [f32],
    pub right: &'a [f32],
    pub spans: Option<Planes<'a>>,
    pub plan: &'a Plan,
}

impl<'a> Inputs<'a> {
    /// The bias, if it or its scale is trained.
    pub(super) fn trained_bias(&self) -> Option<Planes<'a>> {
        self.bias.filter(|_| !self.plan.is_bias_fixed)
    }
}

/// Results of the forward pass, and the gradient of the context.
#[derive(Clone, Copy)]
pub(crate) struct BackwardInputs<'a> {
    pub context: Rows<'a>,
    pub gradient: Rows<'a>,
    /// `[B, H, Q]`; of an entmax, thresholds.
    pub log_sum_exp: &'a [f32],
}

/// Rows of batch rows and heads. The numbers of a row are adjacent; rows have any stride, so heads are read without copies from projections or for shared
/// heads.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub numbers: &'a [f32],
    /// Strides of batch rows, heads and rows.
    pub strides: [usize; 3],
    /// Heads that share each row.
    pub group: usize,
}

impl<'a> Rows<'a> {
    /// Value for absent inputs.
    pub(crate) const NONE: Rows<'static> = Rows { numbers: &[], strides: [0; 3], group: 1 };

    pub(crate) fn of(self, row: usize, head: usize) -> Matrix<'a> {
        let [rows, heads, stride] = self.strides;
        Matrix { numbers: &self.numbers[row * rows + head / self.group * heads..], stride }
    }
}

/// Rows of each plane, in plane order, of numbers `[B, N, H, width]`.
pub(crate) fn rows_of_planes(numbers: &mut [f32], [batch, heads, width]: [usize; 3]) -> Vec<Vec<&mut [f32]>> {
    let mut planes: Vec<Vec<&mut [f32]>> = (0..batch * heads).map(|_| Vec::new()).collect();
    let size = numbers.len() / batch;
    for (row, numbers) in numbers.chunks_mut(size.max(1)).enumerate() {
        for (index, numbers) in numbers.chunks_mut(width.max(1)).enumerate() {
            planes[row * heads + index % heads].push(numbers);
        }
    }
    planes
}

/// Numbers of batch rows and heads, which may share them.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'a> {
    pub numbers: &'a [f32],
    /// 1 if all batch rows share them.
    pub rows: usize,
    /// 1 if all heads share them.
    pub heads: usize,
}

impl<'a> Planes<'a> {
    /// Plane of a batch row and head.
    pub(super) fn index(self, row: usize, head: usize) -> usize {
        (if self.rows == 1 { 0 } else { row }) * self.heads + if self.heads == 1 { 0 } else { head }
    }

    pub(super) fn of(self, row: usize, head: usize) -> &'a [f32] {
        let size = self.numbers.len() / (self.rows * self.heads);
        &self.numbers[self.index(row, head) * size..][..size]
    }
}

/// Part of `numbers` for plane `index`, with planes of `size`.
pub(super) fn of_plane(numbers: &[f32], index: usize, size: usize) -> &[f32] {
    &numbers[index * size..][..size]
}

/// Mapping between places and indices.
#[derive(Clone, Copy)]
pub(super) enum Places<'a> {
    /// Places equal indices, up to this number.
    InOrder(usize),
    Listed(&'a [u32]),
}

impl<'a> Places<'a> {
    pub(super) fn new(order: Option<&'a Order>, row: usize, head: usize, count: usize) -> Self {
        order.map_or(Self::InOrder(count), |order| Self::Listed(order.of(row, head)))
    }

    pub(super) fn len(self) -> usize {
        match self {
            Self::InOrder(count) => count,
            Self::Listed(indices) => indices.len(),
        }
    }

    #[inline(always)]
    pub(super) fn index(self, place: usize) -> usize {
        match self {
            Self::InOrder(_) => place,
            Self::Listed(indices) => indices[place] as usize,
        }
    }

    /// Calls `see` with each place of a tile, counted from its first, and its index.
    #[inline(always)]
    pub(super) fn each(self, tile: usize, mut see: impl FnMut(usize, usize)) {
        let first = tile * TILE;
        let last = self.len().min(first + TILE);
        match self {
            Self::InOrder(_) => (first..last).enumerate().for_each(|(at, index)| see(at, index)),
            Self::Listed(indices) => indices[first..last].iter().enumerate().for_each(|(at, &index)| see(at, index as usize)),
        }
    }

    /// The rows of a matrix, in the order of places.
    pub(super) fn rows<'b>(self, matrix: Matrix<'b>, width: usize) -> Placed<'b> {
        match self {
            Self::InOrder(_) => Placed { numbers: Cow::Borrowed(matrix.numbers), stride: matrix.stride },
            Self::Listed(indices) => {
                // Row by row: an iterator over all numbers takes several times as long.
                let mut numbers = Vec::with_capacity(indices.len() * width);
                indices.iter().for_each(|&index| numbers.extend_from_slice(matrix.row(index as usize, width)));
                Placed { numbers: Cow::Owned(numbers), stride: width }
            }
        }
    }

    /// Numbers of indices, in place order.
    pub(super) fn numbers(self, numbers: &[f32]) -> Vec<f32> {
        (0..self.len()).map(|place| numbers[self.index(place)]).collect()
    }

    /// Adds `rows` of `columns`, from place `first` on, to the rows of `sums`, which may be shorter.
    pub(super) fn add_rows(self, first: usize, rows: &[f32], columns: usize, sums: &mut [&mut [f32]]) {
        for (at, row) in rows.chunks(columns.max(1)).take(self.len() - first).enumerate() {
            sums[self.index(first + at)].iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
    }
}

/// Rows of a matrix in the order of places.
pub(super) struct Placed<'a> {
    numbers: Cow<'a, [f32]>,
    stride: usize,
}

impl Placed<'_> {
    pub(super) fn matrix(&self) -> Matrix<'_> {
        Matrix { numbers: &self.numbers, stride: self.stride }
    }
}

/// Whether no query of a tile sees a key after its own place in the tile.
pub(super) fn is_triangle(tiles: &TileMap, pairs: TileVisibility) -> bool {
    let TileVisibility::Masked(mask) = pairs else { return false };
    // A shift by all bits is invalid.
    tiles.mask(mask).iter().enumerate().all(|(at, &bits)| at + 1 == TILE || bits >> (at + 1) == 0)
}

/// Masks and shifts the logits of a tile.
#[inline(always)]
pub(super) fn shift(logits: &mut [f32], tiles: &TileMap, pairs: TileVisibility) {
    match pairs {
        TileVisibility::All => {}
        TileVisibility::Masked(mask) => {
            for (logits, bits) in logits.chunks_exact_mut(TILE).zip(tiles.mask(mask)) {
                for (at, logit) in logits.iter_mut().enumerate() {
                    *logit = if bits >> at & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                }
            }
        }
        TileVisibility::Levelled(levels) => {
            let shifts = tiles.shifts();
            for (logit, &level) in logits.iter_mut().zip(tiles.levels(levels)) {
                *logit += shifts[level as usize];
            }
        }
    }
}
