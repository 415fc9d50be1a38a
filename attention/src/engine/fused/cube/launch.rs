//! What is launched on a device: the operands of an attention as the kernels read them, and the sizes of their cubes.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::ir::ElemType;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use super::draws::draw_words;
use super::products::{ACROSS, SWEEP, down};
use super::terms::{FactorsLaunch, RelativeLaunch, SpansLaunch, TermsLaunch, longest_of_tiles};
use super::tiles::{DeviceTiles, none};
use super::weights::{DropoutLaunch, ListsLaunch};
use crate::dropout::WeightDropout;
use crate::engine::fused::operator::{Operand, Operands};
use crate::engine::fused::plan::Plan;
use crate::engine::{Ramp, greatest_log_ratio};
use crate::visibility::TILE;

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// Columns of results that a cube computes.
    pub factor_block: usize,
    pub value_block: usize,
    pub relative_block: usize,
    /// Blocks of columns that the widest result has.
    pub blocks: usize,
    /// Whether queries and keys are multiplied.
    pub has_content: bool,
    pub drops: bool,
    pub planes: bool,
    /// Rows of a tile that a unit computes.
    pub rows: usize,
}

/// Blocks of at most `widest` columns, and the columns of each: a multiple of [`SWEEP`].
pub(super) fn blocks(width: usize, widest: usize) -> (usize, usize) {
    let blocks = width.div_ceil(widest).max(1);
    (blocks, width.div_ceil(blocks).max(1).next_multiple_of(SWEEP))
}

/// Spans on a device.
pub(super) struct SpansOfDevice {
    /// `[B|1, H|1, Q|1, 1]`.
    pub lengths: CubeTensor,
    /// `[B|1, H|1, tiles|1, 1]`.
    longest: CubeTensor,
    ramp: Ramp,
}

impl SpansOfDevice {
    fn new(lengths: CubeTensor, ramp: Ramp) -> Self {
        let [rows, heads, queries, _] = lengths.meta.shape().dims();
        let tiles = queries.div_ceil(TILE);
        let (client, device) = (lengths.client.clone(), lengths.device.clone());
        let longest = empty_device_contiguous_dtype(client, device, Shape::new([rows, heads, tiles, 1]), DType::F32);
        longest_of_tiles::launch(
            &lengths.client,
            CubeCount::Static(tiles as u32, heads as u32, rows as u32),
            CubeDim::new_single(),
            lengths.clone().into_tensor_arg(),
            longest.clone().into_tensor_arg(),
            dtype_to_storage_type(lengths.dtype),
        );
        Self { lengths, longest, ramp }
    }

    fn launch<F: Float>(&self) -> SpansLaunch<F> {
        let Ramp { width, origin, nearest, farthest, offset } = self.ramp;
        let [nearest, farthest] = [nearest, farthest].map(|distance| i32::try_from(distance).unwrap_or(i32::MAX));
        SpansLaunch::new(
            self.lengths.clone().into_tensor_arg(),
            self.longest.clone().into_tensor_arg(),
            width,
            origin,
            nearest,
            farthest,
            offset as i32,
            greatest_log_ratio(self.lengths.dtype),
        )
    }
}

/// An attention on a device.
pub(super) struct Launch {
    /// `[B, H, K, D]`. The last dimension has no gaps, nor do those of the tensors below.
    pub values: CubeTensor,
    /// Queries `[B, H, Q, R]` and keys `[B, H, K, R]`.
    pub content: Option<[CubeTensor; 2]>,
    /// `[B|1, H|1, Q, K]`.
    pub bias: Option<CubeTensor>,
    /// Queries `[B, H, Q, S]`, and what they are scored with, `[B|1, H|1, Q + K - 1, S]` from row [`before_table`](Self::before_table) on.
    pub relative: Option<[CubeTensor; 2]>,
    pub spans: Option<SpansOfDevice>,
    pub tiles: DeviceTiles,
    /// What draws begin with.
    pub offsets: CubeTensor,
    pub drops: bool,
    queries: usize,
    dropout: (u32, f32),
    planes: bool,
}

impl Launch {
    pub fn new(operands: Operands<CubeBackend>, plan: &Plan) -> Self {
        let queries = operands.count_queries().expect("logits have a term with queries");
        let given = |operand: Operand<CubeBackend>| operand.given().map(with_whole_rows);
        let Operands { values, queries: own_queries, keys, bias, relative_queries, relative_keys, spans, .. } = operands;
        let values = with_whole_rows(values);
        let content = given(own_queries).zip(given(keys)).map(|(queries, keys)| [queries, keys]);
        let relative = relative_queries.given().zip(relative_keys.given());
        let relative = relative.map(|(own, table)| [with_whole_rows(own), with_whole_rows(with_rows_before(table, rows_before(queries)))]);
        let spans = given(spans).zip(plan.ramp).map(|(lengths, ramp)| SpansOfDevice::new(lengths, ramp));
        let [batch, heads, keys, _] = values.shape().dims();
        let tiles = DeviceTiles::new(&plan.parts[0].tiles, [queries, keys], &values.device);
        let dropout = plan.dropout.as_ref();
        let offsets = match dropout {
            Some(dropout) => draw_words(dropout, [batch, heads, queries], &values),
            None => none(&values.device),
        };
        let properties = values.client.properties();
        let planes = properties.features.plane.contains(Plane::Ops) && properties.hardware.plane_size_min as usize >= ACROSS;
        let drops = dropout.is_some();
        let dropout = dropout.map_or((0, 1.0), WeightDropout::threshold_and_factor);
        Self { bias: given(bias), values, content, relative, spans, tiles, offsets, drops, queries, dropout, planes }
    }

    /// Queries and keys, if logits are their product and nothing more.
    pub fn product(&self) -> Option<&[CubeTensor; 2]> {
        self.content.as_ref().filter(|_| self.bias.is_none() && self.relative.is_none() && self.spans.is_none())
    }

    /// Rows of 0 before the table of scores by distance: its tiles end at a multiple of those of the queries.
    pub fn before_table(&self) -> usize {
        rows_before(self.queries)
    }

    pub fn client(&self) -> &Client {
        &self.values.client
    }

    pub fn device(&self) -> &CubeDevice {
        &self.values.device
    }

    /// Number of rows, heads, queries, keys, width of the factors and of the values.
    pub fn sizes(&self) -> [usize; 6] {
        let [batch, heads, keys, value] = self.values.shape().dims();
        let factor = self.content.as_ref().map_or(0, |[queries, _]| queries.shape()[3]);
        [batch, heads, self.queries, keys, factor, value]
    }

    pub fn form(&self, blocks: usize, factor_block: usize, value_block: usize) -> Form {
        let has_content = self.content.is_some();
        Form {
            factor_block,
            value_block,
            relative_block: SWEEP,
            blocks,
            has_content,
            drops: self.drops,
            planes: self.planes,
            rows: self.rows(),
        }
    }

    /// Software adapters read shared memory one number at a time: there, units read less often the more rows they have. A GPU has to hold the sums of
    /// the rows in registers.
    fn rows(&self) -> usize {
        if self.planes { 4 } else { 8 }
    }

    pub fn units(&self) -> CubeDim {
        CubeDim::new_2d(ACROSS as u32, down(self.rows()) as u32)
    }

    /// A cube for each tile of `length` queries or keys and block of columns of each head.
    pub fn cubes(&self, length: usize, blocks: usize) -> CubeCount {
        let [batch, heads, ..] = self.sizes();
        CubeCount::Static(length.div_ceil(TILE) as u32, heads as u32, (batch * blocks) as u32)
    }

    pub fn lists(&self, first: usize) -> ListsLaunch {
        ListsLaunch::new(first as u32, self.tiles.rows as u32, self.tiles.heads as u32)
    }

    pub fn dropout(&self) -> DropoutLaunch {
        DropoutLaunch::new(self.dropout.0, self.dropout.1)
    }

    pub fn terms<F: Float, N: Size>(&self) -> TermsLaunch<F, N> {
        let arg = |tensor: &CubeTensor| tensor.clone().into_tensor_arg();
        let content = self.content.as_ref().map(|[queries, keys]| FactorsLaunch::new(arg(queries), arg(keys)));
        let query_tiles = self.queries.div_ceil(TILE) as u32;
        let relative = self.relative.as_ref().map(|[queries, table]| RelativeLaunch::new(arg(queries), arg(table), query_tiles));
        TermsLaunch::new(
            content.into(),
            self.bias.as_ref().map(arg).into(),
            relative.into(),
            self.spans.as_ref().map(SpansOfDevice::launch).into(),
        )
    }

    /// How many numbers of rows can be read at once: 4 if all rows begin and end at a multiple of it, or else 1.
    pub fn vector_size<const N: usize>(&self, others: [&CubeTensor; N]) -> usize {
        let in_fours = |tensor: &CubeTensor| {
            let [batch, head, row, _] = tensor.meta.strides()[..] else { unreachable!("the tensor has four dimensions") };
            let start = tensor.handle.offset_start.unwrap_or(0) as usize / tensor.dtype.size();
            [batch, head, row, start, tensor.shape()[3]].iter().all(|number| number % 4 == 0)
        };
        let own = self.content.iter().chain(&self.relative).flatten().chain([&self.values]);
        if own.chain(others).all(in_fours) { 4 } else { 1 }
    }

    /// What operands and results are made of.
    pub fn number(&self) -> ElemType {
        dtype_to_storage_type(self.values.dtype)
    }

    /// Room for results of that type.
    pub fn empty(&self, shape: [usize; 4]) -> CubeTensor {
        self.empty_of(shape, self.values.dtype)
    }

    /// Room for one 32-bit number for each query.
    pub fn empty_by_query(&self) -> CubeTensor {
        let [batch, heads, queries, ..] = self.sizes();
        self.empty_of([batch, heads, queries, 1], DType::F32)
    }

    pub fn empty_of(&self, shape: [usize; 4], dtype: DType) -> CubeTensor {
        empty_device_contiguous_dtype(self.client().clone(), self.device().clone(), Shape::new(shape), dtype)
    }
}

fn rows_before(queries: usize) -> usize {
    queries.next_multiple_of(TILE) - queries
}

/// The tensor with rows of 0 before its own.
fn with_rows_before(tensor: CubeTensor, count: usize) -> CubeTensor {
    if count == 0 {
        return tensor;
    }
    let [rows, heads, _, width] = tensor.meta.shape().dims();
    let zeros = CubeBackend::float_zeros(Shape::new([rows, heads, count, width]), &tensor.device, tensor.dtype.into());
    CubeBackend::float_cat(vec![zeros, tensor], 2)
}

/// The tensor with the numbers of each row one after another.
pub(super) fn with_whole_rows(tensor: CubeTensor) -> CubeTensor {
    if tensor.meta.is_tiled() || tensor.meta.strides()[3] != 1 { into_contiguous(tensor) } else { tensor }
}
