//! Kernel arguments and compile-time configuration.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use super::inputs::InputsLaunch;
use super::products::{ACROSS, SWEEP, down};
use super::terms::EndsLaunch;
use super::tiles::{DeviceTiles, integers, none};
use super::visibility::ListsLaunch;
use crate::contract::visibility::TILE;
use crate::engine::dropout::WeightDropout;
use crate::engine::dropout::gpu::weights::{DropoutLaunch, draw_words};
use crate::engine::fused::operands::Operands;
use crate::engine::fused::plan::Plan;
use crate::engine::{LogitTerms, Ramp, greatest_log_ratio};

/// Width of the stand-in for missing queries and keys: its rows are read in fours.
const STAND_IN: usize = 4;

/// Components of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LogitComponents {
    /// Products of queries and keys.
    pub content: bool,
    pub bias: bool,
    /// Whether the bias is multiplied with a scale.
    pub scale: bool,
    /// Whether spans have soft ends.
    pub spans: bool,
    /// Scores by distance.
    pub relative: bool,
    /// Kronecker products.
    pub kronecker: bool,
}

impl LogitComponents {
    pub(super) fn of(terms: &LogitTerms, spans: bool) -> Self {
        let LogitTerms { content, relative, kronecker, bias, .. } = terms;
        let scale = bias.as_ref().is_some_and(|bias| bias.scale.is_some());
        let [content, relative, kronecker, bias] = [content.is_some(), relative.is_some(), kronecker.is_some(), bias.is_some()];
        Self { content, bias, scale, spans, relative, kronecker }
    }

    /// Further buffers of a kernel for such logits.
    pub(super) fn buffers(self) -> u32 {
        // The first gradient kernel has room for one more result.
        let Self { content: _, bias, scale, spans, relative, kronecker } = self;
        let given = [bias, scale, spans, relative, relative, kronecker, kronecker, kronecker].map(u32::from).iter().sum::<u32>();
        given + u32::from(spans && relative)
    }

    /// Whether they are only a product of queries and keys.
    pub(super) fn is_product(self) -> bool {
        self == Self { content: true, bias: false, scale: false, spans: false, relative: false, kronecker: false }
    }
}

/// Factors of scores by distance.
pub(super) struct Relative {
    /// `[B, H, Q, S]`; the last dimension has no gaps.
    pub queries: CubeTensor,
    /// `[B|1, H|1, before + Q + K - 1, S]`; the last dimension has no gaps.
    pub table: CubeTensor,
    /// Zero rows before those of distances: the queries missing in the last tile.
    pub before: usize,
}

impl Relative {
    fn new(queries: CubeTensor, table: CubeTensor) -> Self {
        let [rows, heads, _, width] = table.shape().dims();
        let length = queries.shape()[2];
        let before = length.next_multiple_of(TILE) - length;
        let zeros = || CubeBackend::float_zeros(Shape::new([rows, heads, before, width]), &table.device, table.dtype.into());
        let table = if before == 0 { table } else { CubeBackend::float_cat(vec![zeros(), table], 2) };
        Self { queries: with_whole_rows(queries), table: with_whole_rows(table), before }
    }
}

/// Factors of Kronecker products.
pub(super) struct Factors {
    /// `[B, H, Q, a]`; the last dimension has no gaps.
    pub left: CubeTensor,
    /// `[B, H, Q, b]`; the last dimension has no gaps.
    pub right: CubeTensor,
    /// The pair of the first key of each batch row or of all, `[B|1]`.
    pairs: CubeTensor,
}

impl Factors {
    fn new(left: CubeTensor, right: CubeTensor, pairs: &[isize]) -> Self {
        // Pairs are counted by indices, which 32 bits can represent.
        let pairs = integers::<CubeBackend, i32>(pairs.iter().map(|&pair| pair as i32).collect(), &left.device);
        Self { left: with_whole_rows(left), right: with_whole_rows(right), pairs }
    }
}

/// Terms added to products of queries and keys.
pub(super) struct Terms {
    pub made: LogitComponents,
    /// `[B|1, H|1, Q, K]`; the last dimension has no gaps.
    pub bias: Option<CubeTensor>,
    /// `[1, H|1, 1, 1]`.
    pub scale: Option<CubeTensor>,
    /// `[B|1, H|1, Q|1, 1]`.
    pub spans: Option<CubeTensor>,
    ramp: Option<Ramp>,
    least_visible: f32,
    pub relative: Option<Relative>,
    pub kronecker: Option<Factors>,
}

/// Compile-time configuration of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KernelConfig {
    /// Result columns per cube.
    pub factor_block: usize,
    pub value_block: usize,
    pub relative_block: usize,
    /// Column blocks of the widest result.
    pub blocks: usize,
    pub drops: bool,
    pub planes: bool,
    /// Tile rows per unit.
    pub rows: usize,
    pub made: LogitComponents,
}

/// Blocks of at most `widest` columns, and columns per block: a multiple of [`SWEEP`].
pub(super) fn blocks(width: usize, widest: usize) -> (usize, usize) {
    let blocks = width.div_ceil(widest).max(1);
    (blocks, width.div_ceil(blocks).max(1).next_multiple_of(SWEEP))
}

/// An attention on a device.
pub(super) struct Launch {
    /// `[B, H, Q, R]` and `[B, G, K, R]`; the last dimension has no gaps. If no product is part of the logits, only their lengths are read.
    pub queries: CubeTensor,
    pub keys: CubeTensor,
    /// `[B, G, K, D]`; the last dimension has no gaps.
    pub values: CubeTensor,
    pub terms: Terms,
    pub tiles: DeviceTiles,
    /// Initial values of draws.
    pub offsets: CubeTensor,
    dropout: (u32, f32),
    pub drops: bool,
    planes: bool,
}

impl Launch {
    pub(super) fn new(operands: Operands<CubeBackend>, plan: &Plan) -> Self {
        let (map, dropout) = (&plan.parts[0].tiles, plan.dropout.as_ref());
        let length = operands.queries(plan);
        let Operands { values, queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, spans, sink: _ } = operands;
        let values = with_whole_rows(values);
        let [bias, scale, spans] = [bias, bias_scale, spans].map(|operand| operand.given().map(with_whole_rows));
        let relative = relative_queries.given().zip(relative_keys.given()).map(|(queries, table)| Relative::new(queries, table));
        let kronecker = left.given().zip(right.given()).zip(plan.first_pairs.as_deref());
        let kronecker = kronecker.map(|((left, right), pairs)| Factors::new(left, right, pairs));
        let product = queries.given().zip(keys.given());
        let made = LogitComponents {
            content: product.is_some(),
            bias: bias.is_some(),
            scale: scale.is_some(),
            spans: spans.is_some(),
            relative: relative.is_some(),
            kronecker: kronecker.is_some(),
        };
        let (queries, keys) = match product {
            Some((queries, keys)) => (with_whole_rows(queries), with_whole_rows(keys)),
            None => {
                let [batch, shared, keys, _] = values.shape().dims();
                let stand_in = |heads, length| empty_of(&values, [batch, heads, length, STAND_IN], values.dtype);
                (stand_in(plan.heads, length), stand_in(shared, keys))
            }
        };
        let [batch, heads, _, _] = queries.shape().dims();
        let tiles = DeviceTiles::new(map, [length, keys.shape()[2]], &queries.device);
        let offsets = match dropout {
            Some(dropout) => draw_words(dropout, [batch, heads, length], 0, &queries),
            None => none(&queries.device),
        };
        let properties = queries.client.properties();
        let planes = properties.features.plane.contains(Plane::Ops) && properties.hardware.plane_size_min as usize >= ACROSS;
        let drops = dropout.is_some();
        let dropout = dropout.map_or((0, 1.0), WeightDropout::threshold_and_factor);
        Self {
            queries,
            keys,
            values,
            terms: Terms { made, bias, scale, spans, ramp: plan.ramp, least_visible: plan.least_visible, relative, kronecker },
            tiles,
            offsets,
            dropout,
            drops,
            planes,
        }
    }

    /// Number of rows, heads, queries and keys, and width of the factors and values.
    pub(super) fn sizes(&self) -> [usize; 6] {
        let [batch, heads, queries, factor] = self.queries.shape().dims();
        let [_, _, keys, value] = self.values.shape().dims();
        [batch, heads, queries, keys, factor, value]
    }

    pub(super) fn form(&self, blocks: usize, factor_block: usize, value_block: usize) -> KernelConfig {
        KernelConfig {
            factor_block,
            value_block,
            relative_block: SWEEP,
            blocks,
            drops: self.drops,
            planes: self.planes,
            rows: self.rows(),
            made: self.terms.made,
        }
    }

    /// Software adapters read shared memory one number at a time: there, more rows per unit reduce reads. A GPU must keep the rows' sums in registers.
    fn rows(&self) -> usize {
        if self.planes { 4 } else { 8 }
    }

    pub(super) fn units(&self) -> CubeDim {
        CubeDim::new_2d(ACROSS as u32, down(self.rows()) as u32)
    }

    /// Numbers of rows of these tensors and the factors that can be read at once.
    pub(super) fn fours(&self, others: &[&CubeTensor]) -> usize {
        let Self { queries, keys, values, terms, .. } = self;
        let relative = terms.relative.iter().flat_map(|relative| [&relative.queries, &relative.table]);
        vector_size([queries, keys, values].into_iter().chain(relative).chain(others.iter().copied()))
    }

    /// A cube per query tile and column block of each head.
    pub(super) fn cubes_of_queries(&self, blocks: usize) -> CubeCount {
        let [batch, heads, queries, ..] = self.sizes();
        CubeCount::Static(queries.div_ceil(TILE) as u32, heads as u32, (batch * blocks) as u32)
    }

    /// A cube per key tile and column block of each key head.
    pub(super) fn cubes_of_keys(&self, blocks: usize) -> CubeCount {
        let [batch, _, _, keys, ..] = self.sizes();
        CubeCount::Static(keys.div_ceil(TILE) as u32, self.shared() as u32, (batch * blocks) as u32)
    }

    /// Number of key and value heads.
    pub(super) fn shared(&self) -> usize {
        self.values.shape()[1]
    }

    pub(super) fn lists(&self, first: usize) -> ListsLaunch {
        ListsLaunch::new(first as u32, self.tiles.rows as u32, self.tiles.heads as u32)
    }

    pub(super) fn dropout(&self) -> DropoutLaunch {
        DropoutLaunch::new(self.dropout.0, self.dropout.1)
    }

    fn ends(&self) -> EndsLaunch {
        let Ramp { width, origin, nearest, farthest, offset } =
            self.terms.ramp.unwrap_or(Ramp { width: 1.0, origin: 0.0, nearest: 0, farthest: 0, offset: 0 });
        // Distances are between indices, which 32 bits can represent.
        let [nearest, farthest] = [nearest, farthest].map(|distance| i32::try_from(distance).unwrap_or(i32::MAX));
        EndsLaunch::new(width, origin, nearest, farthest, offset as i32, greatest_log_ratio(DType::F32), self.terms.least_visible)
    }

    /// Kernel inputs, with the lists of visible tiles from number `first` on.
    pub(super) fn inputs<F: Float, N: Size>(&self, first: usize) -> InputsLaunch<F, N> {
        let Self { queries, keys, values, tiles, offsets, terms, .. } = self;
        let Terms { made: _, bias, scale, spans, ramp: _, least_visible: _, relative, kronecker } = terms;
        let given = |tensor: &CubeTensor| tensor.clone().into_tensor_arg();
        let optional = |tensor: Option<&CubeTensor>| tensor.map(given);
        InputsLaunch::new(
            given(queries),
            given(keys),
            given(values),
            given(&tiles.words),
            given(offsets),
            optional(bias.as_ref()).into(),
            optional(scale.as_ref()).into(),
            optional(spans.as_ref()).into(),
            optional(relative.as_ref().map(|relative| &relative.queries)).into(),
            optional(relative.as_ref().map(|relative| &relative.table)).into(),
            optional(kronecker.as_ref().map(|factors| &factors.left)).into(),
            optional(kronecker.as_ref().map(|factors| &factors.right)).into(),
            optional(kronecker.as_ref().map(|factors| &factors.pairs)).into(),
            self.lists(first),
            self.dropout(),
            self.ends(),
        )
    }

    /// Number type of queries, keys, values and results.
    pub(super) fn number(&self) -> ElemType {
        dtype_to_storage_type(self.queries.dtype)
    }

    /// Allocates results of that type.
    pub(super) fn empty(&self, shape: [usize; 4]) -> CubeTensor {
        self.empty_of(shape, self.queries.dtype)
    }

    /// Allocates one 32-bit number per query.
    pub(super) fn empty_by_query(&self) -> CubeTensor {
        let [batch, heads, queries, ..] = self.sizes();
        self.empty_of([batch, heads, queries, 1], DType::F32)
    }

    pub(super) fn empty_of(&self, shape: [usize; 4], dtype: DType) -> CubeTensor {
        empty_of(&self.values, shape, dtype)
    }
}

/// Allocates on the device of a tensor.
fn empty_of(place: &CubeTensor, shape: [usize; 4], dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(place.client.clone(), place.device.clone(), Shape::new(shape), dtype)
}

/// The tensor with adjacent numbers in each row.
pub(super) fn with_whole_rows(tensor: CubeTensor) -> CubeTensor {
    if tensor.meta.is_tiled() || tensor.meta.strides()[3] != 1 { into_contiguous(tensor) } else { tensor }
}

/// Numbers of rows that can be read at once: 4 if all rows start and end at a multiple of it, otherwise 1.
fn vector_size<'a>(tensors: impl IntoIterator<Item = &'a CubeTensor>) -> usize {
    if tensors.into_iter().all(|tensor| are_in(4, tensor)) { 4 } else { 1 }
}

/// Whether all rows start and end at a multiple of `count` numbers.
pub(super) fn are_in(count: usize, tensor: &CubeTensor) -> bool {
    let [batch, head, row, _] = tensor.meta.strides()[..] else { unreachable!("the tensor has four dimensions") };
    let start = tensor.handle.offset_start.unwrap_or(0) as usize / tensor.dtype.size();
    [batch, head, row, start, tensor.shape()[3]].iter().all(|number| number % count == 0)
}
