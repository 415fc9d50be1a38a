//! The operator on CubeCL: kernels that are compiled for the GPU, or the software adapter, that is there.
//!
//! A cube computes a tile of queries or of keys and meets the visible tiles of the others one after another; between its units numbers pass through
//! shared memory. Where the device has operations of planes, the largest logit of a row passes through them instead. No software adapter declares
//! them, so that tests without a GPU do not run that way; an H100 has, through CUDA and Vulkan.

#![allow(clippy::too_many_arguments, reason = "a kernel has an argument for each buffer")]
#![allow(clippy::manual_range_contains, reason = "kernels compare numbers and have no ranges")]

mod backward;
mod draws;
mod forward;
mod launch;
mod products;
mod tensor_cores;
mod terms;
#[cfg(all(test, feature = "wgpu"))]
mod tests;
mod tiles;
mod weights;

use burn::backend::Backend;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::prelude::*;

use self::backward::ByQueryLaunch;
use self::launch::{Form, Launch, SpansOfDevice, blocks, with_whole_rows};
use self::products::{ACROSS, SHARED, SWEEP, down};
use super::operator::{FusedAttention, Operand, Operands};
use super::plan::Plan;
use crate::visibility::TILE;

/// Log-sum-exp of queries that see no key: weights that are recomputed from it are 0.
const UNSEEN: f32 = 1.0e30;

/// Most columns of a result that a cube computes. The second backward kernel has two results, and so fewer columns of each.
const WIDEST: usize = 128;

/// Most buffers of a kernel for logits that are a product; what is added to them has more.
const BUFFERS: u32 = 10;

impl FusedAttention for CubeBackend {
    fn kernel_forward(operands: Operands<Self>, plan: Plan) -> (CubeTensor, CubeTensor) {
        forward(operands, &plan)
    }

    fn kernel_backward(
        operands: Operands<Self>,
        context: CubeTensor,
        log_sum_exp: CubeTensor,
        gradient: CubeTensor,
        plan: Plan,
    ) -> Operands<Self> {
        backward(operands, [context, log_sum_exp, gradient], &plan)
    }
}

/// Whether the kernels fit on a device with so many buffers more than those of a product, and compute with numbers of this type.
pub(super) fn has_room(device: &CubeDevice, dtype: DType, more_buffers: u32) -> bool {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || !CubeBackend::supports_dtype(device, dtype) {
        return false;
    }
    let client = device.client();
    let hardware = &client.properties().hardware;
    hardware.max_shared_memory_size >= SHARED
        && hardware.max_units_per_cube as usize >= ACROSS * down(4)
        && hardware.max_bindings > BUFFERS + more_buffers
}

/// Context and log-sum-exp, as [`FusedAttention::fused_forward`] has them.
fn forward(operands: Operands<CubeBackend>, plan: &Plan) -> (CubeTensor, CubeTensor) {
    let launch = Launch::new(operands, plan);
    if let Some(found) = tensor_cores::forward(&launch) {
        return found;
    }
    let [batch, heads, queries, _, _, value] = launch.sizes();
    let context = launch.empty([batch, heads, queries, value]);
    let log_sum_exp = launch.empty_by_query();
    let (blocks, wide) = blocks(value, WIDEST);
    forward::attend::launch(
        launch.client(),
        launch.cubes(queries, blocks),
        launch.units(),
        launch.vector_size([]),
        launch.terms(),
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

/// Gradients of the operands, as [`FusedAttention::fused_backward`] has them.
fn backward(operands: Operands<CubeBackend>, [context, log_sum_exp, gradient]: [CubeTensor; 3], plan: &Plan) -> Operands<CubeBackend> {
    let launch = Launch::new(operands, plan);
    let [_, _, queries, ..] = launch.sizes();
    let [context, gradient] = [context, gradient].map(with_whole_rows);
    let log_sum_exp = into_contiguous(log_sum_exp);
    let dots = launch.empty_by_query();
    backward::dots::launch(
        launch.client(),
        launch.cubes(queries, 1),
        CubeDim::new_1d(TILE as u32),
        context.into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        dots.clone().into_tensor_arg(),
        launch.number(),
    );
    if let Some(found) = tensor_cores::backward(&launch, &gradient, &log_sum_exp, &dots) {
        return found;
    }
    let given = Given { gradient, log_sum_exp, dots };
    let [queries, relative_queries, spans] = gradients_of_queries(&launch, &given);
    let (keys, values) = gradients_of_keys(&launch, &given);
    Operands {
        queries: queries.into(),
        keys: keys.into(),
        bias: gradient_of_bias(&launch, &given).into(),
        relative_queries: relative_queries.into(),
        relative_keys: gradient_of_table(&launch, &given).into(),
        left: Operand::Absent,
        right: Operand::Absent,
        spans: spans.into(),
        values,
    }
}

/// What gradients are computed from.
struct Given {
    /// That of the context.
    gradient: CubeTensor,
    log_sum_exp: CubeTensor,
    /// Products of context and gradient.
    dots: CubeTensor,
}

/// Gradients of queries, of those of scores by distance, and of spans, where there are any.
fn gradients_of_queries(launch: &Launch, given: &Given) -> [Option<CubeTensor>; 3] {
    let [batch, heads, queries, _, factor, _] = launch.sizes();
    let of_queries = launch.content.as_ref().map(|_| launch.empty([batch, heads, queries, factor]));
    let of_spans = launch.spans.as_ref().map(|_| launch.empty_by_query());
    let relative = launch.relative.as_ref().map(|[queries, _]| queries.meta.shape()[3]);
    let of_relative = relative.map(|width| launch.empty([batch, heads, queries, width]));
    if of_queries.is_none() && of_relative.is_none() && of_spans.is_none() {
        return [None, None, None];
    }
    let arg = |result: &Option<CubeTensor>| result.clone().map(CubeTensor::into_tensor_arg);
    let widest = if relative.is_some() { WIDEST / 2 } else { WIDEST };
    let [(factor_blocks, wide), (relative_blocks, relative_block)] = [factor, relative.unwrap_or(0)].map(|width| blocks(width, widest));
    let count = factor_blocks.max(relative_blocks);
    backward::gradients_of_queries::launch(
        launch.client(),
        launch.cubes(queries, count),
        launch.units(),
        launch.vector_size([&given.gradient]),
        launch.terms(),
        launch.values.clone().into_tensor_arg(),
        given.gradient.clone().into_tensor_arg(),
        given.log_sum_exp.clone().into_tensor_arg(),
        given.dots.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        ByQueryLaunch::new(arg(&of_queries).into(), arg(&of_relative).into(), arg(&of_spans).into()),
        launch.lists(0),
        launch.dropout(),
        Form { relative_block, ..launch.form(count, wide, SWEEP) },
        launch.number(),
    );
    let shared = |of_spans: CubeTensor, spans: &SpansOfDevice| {
        let dims = spans.lengths.meta.shape().dims::<4>();
        let summed = (0..3)
            .filter(|&dim| dims[dim] == 1)
            .fold(of_spans, |sum, dim| if sum.meta.shape()[dim] == 1 { sum } else { CubeBackend::float_sum_dim(sum, dim) });
        cast(summed, spans.lengths.dtype)
    };
    [of_queries, of_relative, of_spans.zip(launch.spans.as_ref()).map(|(of_spans, spans)| shared(of_spans, spans))]
}

/// Gradients of keys, if there are any, and of values.
fn gradients_of_keys(launch: &Launch, given: &Given) -> (Option<CubeTensor>, CubeTensor) {
    let [batch, heads, _, keys, factor, value] = launch.sizes();
    let of_keys = launch.content.as_ref().map(|_| launch.empty([batch, heads, keys, factor]));
    let of_values = launch.empty([batch, heads, keys, value]);
    let [(factor_blocks, factor_block), (value_blocks, value_block)] = [factor, value].map(|width| blocks(width, WIDEST / 2));
    let count = factor_blocks.max(value_blocks);
    backward::gradient_of_keys_and_values::launch(
        launch.client(),
        launch.cubes(keys, count),
        launch.units(),
        launch.vector_size([&given.gradient]),
        launch.terms(),
        launch.values.clone().into_tensor_arg(),
        given.gradient.clone().into_tensor_arg(),
        given.log_sum_exp.clone().into_tensor_arg(),
        given.dots.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        of_keys.clone().map(CubeTensor::into_tensor_arg).into(),
        of_values.clone().into_tensor_arg(),
        launch.lists(launch.tiles.by_key),
        launch.dropout(),
        launch.form(count, factor_block, value_block),
        launch.number(),
    );
    (of_keys, of_values)
}

fn gradient_of_bias(launch: &Launch, given: &Given) -> Option<CubeTensor> {
    let [rows, heads, queries, keys] = launch.bias.as_ref()?.meta.shape().dims();
    let result = launch.empty([rows, heads, queries, keys]);
    let [key_tiles, query_tiles] = [keys, queries].map(|length| length.div_ceil(TILE) as u32);
    terms::gradient_of_bias::launch(
        launch.client(),
        CubeCount::Static(key_tiles, query_tiles, (rows * heads) as u32),
        launch.units(),
        launch.vector_size([&given.gradient]),
        launch.terms(),
        launch.values.clone().into_tensor_arg(),
        given.gradient.clone().into_tensor_arg(),
        given.log_sum_exp.clone().into_tensor_arg(),
        given.dots.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        result.clone().into_tensor_arg(),
        launch.lists(0),
        launch.dropout(),
        launch.form(1, SWEEP, SWEEP),
        launch.number(),
    );
    Some(result)
}

/// The gradient of what is scored with by distance. What its strips get of each row of the batch and head is added up afterwards, in one order.
fn gradient_of_table(launch: &Launch, given: &Given) -> Option<CubeTensor> {
    let [_, table] = launch.relative.as_ref()?;
    let [batch, heads, queries, keys, ..] = launch.sizes();
    let [rows, table_heads, _, width] = table.meta.shape().dims();
    let distances = queries + keys - 1;
    let strips = queries.div_ceil(TILE) + keys.div_ceil(TILE) - 1;
    let of_strips = launch.empty_of([batch, heads, strips * 2 * TILE, width], DType::F32);
    let (count, wide) = blocks(width, WIDEST / 2);
    terms::gradients_of_strips::launch(
        launch.client(),
        launch.cubes(strips * TILE, count),
        launch.units(),
        launch.vector_size([&given.gradient]),
        launch.terms(),
        launch.values.clone().into_tensor_arg(),
        given.gradient.clone().into_tensor_arg(),
        given.log_sum_exp.clone().into_tensor_arg(),
        given.dots.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        of_strips.clone().into_tensor_arg(),
        launch.lists(0),
        launch.dropout(),
        launch.form(count, wide, SWEEP),
        launch.number(),
    );
    let result = launch.empty([rows, table_heads, distances, width]);
    let units = 256;
    terms::sum_of_strips::launch(
        launch.client(),
        CubeCount::Static((distances * width).div_ceil(units) as u32, (rows * table_heads) as u32, 1),
        CubeDim::new_1d(units as u32),
        of_strips.into_tensor_arg(),
        result.clone().into_tensor_arg(),
        launch.before_table() as u32,
        launch.number(),
    );
    Some(result)
}
