//! The operator on CubeCL: kernels that are compiled for the GPU, or the software adapter, that is there.
//!
//! A cube computes a tile of queries or of keys and meets the visible tiles of the others one after another; between its units numbers pass through
//! shared memory. Where the device has operations of planes, the largest logit of a row passes through them instead. No software adapter declares
//! them, so that tests without a GPU do not run that way; an H100 has, through CUDA and Vulkan.

#![allow(clippy::too_many_arguments, reason = "a kernel has an argument for each buffer")]

mod backward;
mod forward;
mod products;
mod tensor_cores;
#[cfg(all(test, feature = "wgpu"))]
mod tests;
mod tiles;
mod weights;

use std::sync::Arc;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::ir::ElemType;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use self::products::{ACROSS, SHARED, SWEEP, down};
use self::tiles::{DeviceTiles, none};
use self::weights::ListsLaunch;
use super::operands::{Operand, Operands};
use super::operator::FusedAttention;
use super::plan::Plan;
use crate::dropout::WeightDropout;
use crate::dropout::cube::weights::{DropoutLaunch, draw_words};
use crate::visibility::{TILE, TileMap};

/// Log-sum-exp of queries that see no key: weights that are recomputed from it are 0.
const UNSEEN: f32 = 1.0e30;

/// Most columns of a result that a cube computes. The second backward kernel has two results, and so fewer columns of each.
const WIDEST: usize = 128;

/// Most buffers of a kernel.
const BUFFERS: u32 = 10;

impl FusedAttention for CubeBackend {
    fn kernel_forward(operands: Operands<Self>, plan: Plan) -> (CubeTensor, CubeTensor) {
        forward(factors(operands), &plan.parts[0].tiles, plan.dropout.as_ref())
    }

    fn kernel_backward(
        operands: Operands<Self>,
        context: CubeTensor,
        log_sum_exp: CubeTensor,
        gradient: CubeTensor,
        plan: Plan,
    ) -> Operands<Self> {
        let given = [context, log_sum_exp, gradient];
        let (queries, keys, values) = backward(factors(operands), given, &plan.parts[0].tiles, plan.dropout.as_ref());
        Operands::of_product(queries, keys, values)
    }
}

/// Queries, keys and values.
fn factors(operands: Operands<CubeBackend>) -> [CubeTensor; 3] {
    let given = |operand: Operand<CubeBackend>| operand.given().expect("kernels multiply queries and keys");
    [given(operands.queries), given(operands.keys), operands.values]
}

/// Whether the kernels fit on a device, and compute with numbers of this type.
pub(super) fn has_room(device: &CubeDevice, dtype: DType) -> bool {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || !CubeBackend::supports_dtype(device, dtype) {
        return false;
    }
    let client = device.client();
    let hardware = &client.properties().hardware;
    hardware.max_shared_memory_size >= SHARED && hardware.max_units_per_cube as usize >= ACROSS * down(4) && hardware.max_bindings > BUFFERS
}

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Columns of results that a cube computes.
    factor_block: usize,
    value_block: usize,
    /// Blocks of columns that the widest result has.
    blocks: usize,
    drops: bool,
    planes: bool,
    /// Rows of a tile that a unit computes.
    rows: usize,
}

/// Blocks of at most `widest` columns, and the columns of each: a multiple of [`SWEEP`].
fn blocks(width: usize, widest: usize) -> (usize, usize) {
    let blocks = width.div_ceil(widest).max(1);
    (blocks, width.div_ceil(blocks).max(1).next_multiple_of(SWEEP))
}

/// An attention on a device.
struct Launch {
    /// `[B, H, Q, R]`, `[B, H, K, R]` and `[B, H, K, D]`; the last dimension has no gaps.
    queries: CubeTensor,
    keys: CubeTensor,
    values: CubeTensor,
    tiles: DeviceTiles,
    /// What draws begin with.
    offsets: CubeTensor,
    dropout: (u32, f32),
    drops: bool,
    planes: bool,
}

impl Launch {
    fn new(inputs: [CubeTensor; 3], map: &Arc<TileMap>, dropout: Option<&WeightDropout>) -> Self {
        let [queries, keys, values] = inputs.map(with_whole_rows);
        let [batch, heads, length, _] = queries.shape().dims();
        let tiles = DeviceTiles::new(map, [length, keys.shape()[2]], &queries.device);
        let offsets = match dropout {
            Some(dropout) => draw_words(dropout, [batch, heads, length], 0, &queries),
            None => none(&queries.device),
        };
        let properties = queries.client.properties();
        let planes = properties.features.plane.contains(Plane::Ops) && properties.hardware.plane_size_min as usize >= ACROSS;
        let drops = dropout.is_some();
        let dropout = dropout.map_or((0, 1.0), WeightDropout::threshold_and_factor);
        Self { queries, keys, values, tiles, offsets, dropout, drops, planes }
    }

    /// Number of rows, heads, queries, keys, width of the factors and of the values.
    fn sizes(&self) -> [usize; 6] {
        let [batch, heads, queries, factor] = self.queries.shape().dims();
        let [_, _, keys, value] = self.values.shape().dims();
        [batch, heads, queries, keys, factor, value]
    }

    fn form(&self, blocks: usize, factor_block: usize, value_block: usize) -> Form {
        Form { factor_block, value_block, blocks, drops: self.drops, planes: self.planes, rows: self.rows() }
    }

    /// Software adapters read shared memory one number at a time: there, units read less often the more rows they have. A GPU has to hold the sums of
    /// the rows in registers.
    fn rows(&self) -> usize {
        if self.planes { 4 } else { 8 }
    }

    fn units(&self) -> CubeDim {
        CubeDim::new_2d(ACROSS as u32, down(self.rows()) as u32)
    }

    /// A cube for each tile of `length` queries or keys and block of columns of each head.
    fn cubes(&self, length: usize, blocks: usize) -> CubeCount {
        let [batch, heads, ..] = self.sizes();
        CubeCount::Static(length.div_ceil(TILE) as u32, heads as u32, (batch * blocks) as u32)
    }

    fn lists(&self, first: usize) -> ListsLaunch {
        ListsLaunch::new(first as u32, self.tiles.rows as u32, self.tiles.heads as u32)
    }

    fn dropout(&self) -> DropoutLaunch {
        DropoutLaunch::new(self.dropout.0, self.dropout.1)
    }

    /// What queries, keys, values and results are made of.
    fn number(&self) -> ElemType {
        dtype_to_storage_type(self.queries.dtype)
    }

    /// Room for results of that type.
    fn empty(&self, shape: [usize; 4]) -> CubeTensor {
        self.empty_of(shape, self.queries.dtype)
    }

    /// Room for one 32-bit number for each query.
    fn empty_by_query(&self) -> CubeTensor {
        let [batch, heads, queries, ..] = self.sizes();
        self.empty_of([batch, heads, queries, 1], DType::F32)
    }

    fn empty_of(&self, shape: [usize; 4], dtype: DType) -> CubeTensor {
        let Self { queries, .. } = self;
        empty_device_contiguous_dtype(queries.client.clone(), queries.device.clone(), Shape::new(shape), dtype)
    }
}

/// The tensor with the numbers of each row one after another.
fn with_whole_rows(tensor: CubeTensor) -> CubeTensor {
    if tensor.meta.is_tiled() || tensor.meta.strides()[3] != 1 { into_contiguous(tensor) } else { tensor }
}

/// How many numbers of rows can be read at once: 4 if all rows begin and end at a multiple of it, or else 1.
fn vector_size<const N: usize>(tensors: [&CubeTensor; N]) -> usize {
    let in_fours = |tensor: &CubeTensor| {
        let [batch, head, row, _] = tensor.meta.strides()[..] else { unreachable!("the tensor has four dimensions") };
        let start = tensor.handle.offset_start.unwrap_or(0) as usize / tensor.dtype.size();
        [batch, head, row, start, tensor.shape()[3]].iter().all(|number| number % 4 == 0)
    };
    if tensors.into_iter().all(in_fours) { 4 } else { 1 }
}

/// Context and log-sum-exp, as [`FusedAttention::fused_forward`] has them.
fn forward(inputs: [CubeTensor; 3], map: &Arc<TileMap>, dropout: Option<&WeightDropout>) -> (CubeTensor, CubeTensor) {
    let launch = Launch::new(inputs, map, dropout);
    if let Some(wide) = tensor_cores::widths(&launch, [&launch.queries, &launch.keys, &launch.values]) {
        return tensor_cores::forward(&launch, wide);
    }
    let [batch, heads, queries, _, _, value] = launch.sizes();
    let context = launch.empty([batch, heads, queries, value]);
    let log_sum_exp = launch.empty_by_query();
    let (blocks, wide) = blocks(value, WIDEST);
    let fours = vector_size([&launch.queries, &launch.keys, &launch.values]);
    forward::attend::launch(
        &launch.queries.client,
        launch.cubes(queries, blocks),
        launch.units(),
        fours,
        launch.queries.clone().into_tensor_arg(),
        launch.keys.clone().into_tensor_arg(),
        launch.values.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        context.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        launch.lists(0),
        launch.dropout(),
        launch.form(blocks, SWEEP, wide),
        launch.number(),
    );
    (context, log_sum_exp)
}

/// Gradients of queries, keys and values, as [`FusedAttention::fused_backward`] has them.
fn backward(
    inputs: [CubeTensor; 3],
    [context, log_sum_exp, gradient]: [CubeTensor; 3],
    map: &Arc<TileMap>,
    dropout: Option<&WeightDropout>,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let launch = Launch::new(inputs, map, dropout);
    let client = launch.queries.client.clone();
    let [batch, heads, queries, keys, factor, value] = launch.sizes();
    let [context, gradient] = [context, gradient].map(with_whole_rows);
    let log_sum_exp = into_contiguous(log_sum_exp);
    let fours = vector_size([&launch.queries, &launch.keys, &launch.values, &gradient]);
    let dots = launch.empty_by_query();
    backward::dots::launch(
        &client,
        launch.cubes(queries, 1),
        CubeDim::new_1d(TILE as u32),
        context.into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        dots.clone().into_tensor_arg(),
        launch.number(),
    );

    if let Some(wide) = tensor_cores::widths(&launch, [&launch.queries, &launch.keys, &launch.values, &gradient]) {
        return tensor_cores::backward(&launch, wide, gradient, log_sum_exp, dots);
    }

    let of_queries = launch.empty([batch, heads, queries, factor]);
    let (count, wide) = blocks(factor, WIDEST);
    backward::gradient_of_queries::launch(
        &client,
        launch.cubes(queries, count),
        launch.units(),
        fours,
        launch.queries.clone().into_tensor_arg(),
        launch.keys.clone().into_tensor_arg(),
        launch.values.clone().into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        dots.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        of_queries.clone().into_tensor_arg(),
        launch.lists(0),
        launch.dropout(),
        launch.form(count, wide, SWEEP),
        launch.number(),
    );

    let of_keys = launch.empty([batch, heads, keys, factor]);
    let of_values = launch.empty([batch, heads, keys, value]);
    let [(factor_blocks, factor_block), (value_blocks, value_block)] = [factor, value].map(|width| blocks(width, WIDEST / 2));
    let count = factor_blocks.max(value_blocks);
    backward::gradient_of_keys_and_values::launch(
        &client,
        launch.cubes(keys, count),
        launch.units(),
        fours,
        launch.queries.clone().into_tensor_arg(),
        launch.keys.clone().into_tensor_arg(),
        launch.values.clone().into_tensor_arg(),
        gradient.into_tensor_arg(),
        log_sum_exp.into_tensor_arg(),
        dots.into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        of_keys.clone().into_tensor_arg(),
        of_values.clone().into_tensor_arg(),
        launch.lists(launch.tiles.by_key),
        launch.dropout(),
        launch.form(count, factor_block, value_block),
        launch.number(),
    );
    (of_queries, of_keys, of_values)
}
