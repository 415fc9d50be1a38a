//! The operator on CubeCL: kernels compiled for the available GPU or software adapter.
//!
//! A cube computes a tile of queries or keys and iterates over the visible tiles of the other side; its units exchange numbers through shared memory. On
//! devices with plane operations, the row maximum uses these instead. No software adapter declares them, so tests without a GPU do not cover that path; an H100
//! has them, through CUDA and Vulkan.
//!
//! Tensor cores compute logits that are a single product of queries and keys. Biases, scores by distance, soft spans and Kronecker products use the other
//! kernels; all except biases only on a GPU, since software adapters take long to compile them.

#![allow(clippy::too_many_arguments, reason = "a kernel has an argument for each buffer")]
#![allow(clippy::manual_range_contains, reason = "kernels have no ranges that contain")]

mod backward;
mod distances;
mod forward;
mod inputs;
mod kronecker;
mod launch;
mod logits;
mod products;
mod table_gradients;
mod tensor_cores;
mod terms;
#[cfg(all(test, feature = "wgpu"))]
mod tests;
mod tiles;
mod visibility;

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Slice};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::ir::features::Plane;
use cubecl::prelude::*;

use self::inputs::BackwardInputsLaunch;
use self::launch::{Factors, KernelConfig, Launch, LogitComponents, Relative, blocks, with_whole_rows};
use self::products::{ACROSS, SHARED, SWEEP, down};
use super::operands::{Operand, Operands};
use super::operator::FusedAttention;
use super::plan::Plan;
use crate::contract::visibility::TILE;
use crate::engine::LogitTerms;

/// Log-sum-exp of queries without visible keys: recomputed weights are 0.
const UNSEEN: f32 = 1.0e30;

/// Maximum result columns per cube. The second backward kernel has two results, and so fewer columns of each.
const WIDEST: usize = 128;

/// Maximum buffers of a kernel for a product of queries and keys. Each term adds more.
const BUFFERS: u32 = 10;

impl FusedAttention for CubeBackend {
    fn kernel_forward(operands: Operands<Self>, plan: Plan) -> (CubeTensor, CubeTensor) {
        let launch = Launch::new(operands, &plan);
        if let Some(wide) = tensor_cores::widths(&launch, [&launch.queries, &launch.keys, &launch.values]) {
            return tensor_cores::forward(&launch, wide);
        }
        let [batch, heads, queries, _, _, value] = launch.sizes();
        let context = launch.empty([batch, heads, queries, value]);
        let log_sum_exp = launch.empty_by_query();
        let (blocks, wide) = blocks(value, WIDEST);
        forward::attend::launch(
            &launch.queries.client,
            launch.cubes_of_queries(blocks),
            launch.units(),
            launch.fours(&[]),
            launch.inputs(0),
            context.clone().into_tensor_arg(),
            log_sum_exp.clone().into_tensor_arg(),
            launch.form(blocks, SWEEP, wide),
            launch.number(),
        );
        (context, log_sum_exp)
    }

    fn kernel_backward(
        operands: Operands<Self>,
        context: CubeTensor,
        log_sum_exp: CubeTensor,
        gradient: CubeTensor,
        plan: Plan,
    ) -> Operands<Self> {
        let launch = Launch::new(operands, &plan);
        let [context, gradient] = [context, gradient].map(with_whole_rows);
        let log_sum_exp = into_contiguous(log_sum_exp);
        let fours = launch.fours(&[&gradient]);
        let dots = launch.empty_by_query();
        backward::dots::launch(
            &launch.queries.client,
            launch.cubes_of_queries(1),
            CubeDim::new_1d(TILE as u32),
            context.into_tensor_arg(),
            gradient.clone().into_tensor_arg(),
            dots.clone().into_tensor_arg(),
            launch.number(),
        );
        if let Some(wide) = tensor_cores::widths(&launch, [&launch.queries, &launch.keys, &launch.values, &gradient]) {
            let (queries, keys, values) = tensor_cores::backward(&launch, wide, gradient, log_sum_exp, dots);
            return Operands { queries: Operand::Given(queries), keys: Operand::Given(keys), ..Operands::of_values(values) };
        }
        let given = Saved { gradient, log_sum_exp, dots, fours };
        let of_queries = gradients_of_queries(&launch, &given);
        let (of_keys, of_values) = gradient_of_keys_and_values(&launch, &given);
        let (of_bias, of_scale) = match &launch.terms.bias {
            Some(bias) if !plan.is_bias_fixed => gradient_of_bias(&launch, &given, bias),
            _ => (None, None),
        };
        let (of_left, of_right) = launch.terms.kronecker.as_ref().map(|factors| gradients_of_factors(&launch, &given, factors)).unzip();
        let of_table = launch.terms.relative.as_ref().map(|relative| gradient_of_distances(&launch, &given, relative));
        Operands {
            queries: of_queries.queries.into(),
            relative_queries: of_queries.relative.into(),
            relative_keys: of_table.into(),
            spans: of_queries.spans.into(),
            keys: of_keys.into(),
            bias: of_bias.into(),
            bias_scale: of_scale.into(),
            left: of_left.into(),
            right: of_right.into(),
            ..Operands::of_values(of_values)
        }
    }
}

/// Whether the kernels for such logits fit on a device and support this number type.
pub(super) fn has_room(device: &CubeDevice, dtype: DType, terms: &LogitTerms, has_spans: bool) -> bool {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || !CubeBackend::supports_dtype(device, dtype) {
        return false;
    }
    let client = device.client();
    let properties = client.properties();
    let (made, hardware) = (LogitComponents::of(terms, has_spans), &properties.hardware);
    // A software adapter compiles each form of these kernels for about a minute, and lacks plane operations.
    let is_compiled_soon = !made.spans && !made.relative && !made.kronecker || properties.features.plane.contains(Plane::Ops);
    hardware.max_shared_memory_size >= SHARED
        && hardware.max_units_per_cube as usize >= ACROSS * down(4)
        && hardware.max_bindings > BUFFERS + made.buffers()
        && is_compiled_soon
}

/// Further inputs of the backward kernels.
struct Saved {
    gradient: CubeTensor,
    log_sum_exp: CubeTensor,
    /// Products of context and gradient, for each query.
    dots: CubeTensor,
    /// Numbers of rows read at once.
    fours: usize,
}

impl Saved {
    fn reverse<F: Float, N: Size>(&self) -> BackwardInputsLaunch<F, N> {
        let [gradient, log_sum_exp, dots] = [&self.gradient, &self.log_sum_exp, &self.dots].map(|tensor| tensor.clone().into_tensor_arg());
        BackwardInputsLaunch::new(gradient, log_sum_exp, dots)
    }
}

/// Query-side gradients.
#[derive(Default)]
struct QueryGradients {
    queries: Option<CubeTensor>,
    spans: Option<CubeTensor>,
    relative: Option<CubeTensor>,
}

fn gradients_of_queries(launch: &Launch, given: &Saved) -> QueryGradients {
    let LogitComponents { content, spans, relative, .. } = launch.terms.made;
    if !content && !spans && !relative {
        return QueryGradients::default();
    }
    let [batch, heads, queries, _, factor, _] = launch.sizes();
    let result = launch.empty(if content { [batch, heads, queries, factor] } else { [1; 4] });
    let of_spans = spans.then(|| launch.empty_by_query());
    let of_relative = launch.terms.relative.as_ref().map(|relative| launch.empty(relative.queries.shape().dims()));
    // A unit stores the sums of both results.
    let widest = if relative { WIDEST / 2 } else { WIDEST };
    let (factor_blocks, wide) = blocks(factor, widest);
    let (relative_blocks, relative_block) = blocks(of_relative.as_ref().map_or(0, |of_relative| of_relative.shape()[3]), widest);
    let count = factor_blocks.max(relative_blocks);
    backward::gradient_of_queries::launch(
        &launch.queries.client,
        launch.cubes_of_queries(count),
        launch.units(),
        given.fours,
        launch.inputs(0),
        given.reverse(),
        result.clone().into_tensor_arg(),
        of_relative.clone().map(CubeTensor::into_tensor_arg).into(),
        of_spans.clone().map(CubeTensor::into_tensor_arg).into(),
        KernelConfig { relative_block, ..launch.form(count, wide, SWEEP) },
        launch.number(),
    );
    let spans = launch.terms.spans.as_ref().zip(of_spans).map(|(spans, of_spans)| summed(of_spans, spans));
    QueryGradients { queries: content.then_some(result), spans, relative: of_relative }
}

fn gradient_of_keys_and_values(launch: &Launch, given: &Saved) -> (Option<CubeTensor>, CubeTensor) {
    let ([batch, _, _, keys, factor, value], shared) = (launch.sizes(), launch.shared());
    let has_content = launch.terms.made.content;
    let of_keys = launch.empty(if has_content { [batch, shared, keys, factor] } else { [1; 4] });
    let of_values = launch.empty([batch, shared, keys, value]);
    let [(factor_blocks, factor_block), (value_blocks, value_block)] = [factor, value].map(|width| blocks(width, WIDEST / 2));
    let count = factor_blocks.max(value_blocks);
    backward::gradient_of_keys_and_values::launch(
        &launch.queries.client,
        launch.cubes_of_keys(count),
        launch.units(),
        given.fours,
        launch.inputs(launch.tiles.by_key),
        given.reverse(),
        of_keys.clone().into_tensor_arg(),
        of_values.clone().into_tensor_arg(),
        launch.form(count, factor_block, value_block),
        launch.number(),
    );
    (has_content.then_some(of_keys), of_values)
}

/// Gradients of a bias and its scale, if any.
fn gradient_of_bias(launch: &Launch, given: &Saved, bias: &CubeTensor) -> (Option<CubeTensor>, Option<CubeTensor>) {
    let [rows, heads, queries, keys] = bias.shape().dims();
    let [query_tiles, key_tiles] = [queries, keys].map(|length| length.div_ceil(TILE));
    let result = launch.empty([rows, heads, queries, keys]);
    let scale = launch.terms.scale.as_ref();
    let of_scale = launch.empty_of(if scale.is_some() { [rows, heads, queries, key_tiles] } else { [1; 4] }, DType::F32);
    table_gradients::gradient_of_bias::launch(
        &launch.queries.client,
        CubeCount::Static(query_tiles as u32, key_tiles as u32, (rows * heads) as u32),
        launch.units(),
        given.fours,
        launch.inputs(0),
        given.reverse(),
        result.clone().into_tensor_arg(),
        of_scale.clone().into_tensor_arg(),
        launch.form(1, SWEEP, SWEEP),
        launch.number(),
    );
    let of_scale = scale.map(|scale| summed(of_scale, scale));
    (Some(result), of_scale)
}

/// Gradient of the table of scores by distance.
fn gradient_of_distances(launch: &Launch, given: &Saved, relative: &Relative) -> CubeTensor {
    let [rows, heads, length, width] = relative.table.shape().dims();
    let result = launch.empty([rows, heads, length, width]);
    let (count, relative_block) = blocks(width, WIDEST);
    table_gradients::gradient_of_distances::launch(
        &launch.queries.client,
        CubeCount::Static(length.div_ceil(TILE) as u32, (rows * heads) as u32, count as u32),
        launch.units(),
        given.fours,
        launch.inputs(0),
        given.reverse(),
        result.clone().into_tensor_arg(),
        KernelConfig { relative_block, ..launch.form(count, SWEEP, SWEEP) },
        launch.number(),
    );
    match relative.before {
        0 => result,
        before => CubeBackend::float_slice(result, &[Slice::from(..), Slice::from(..), Slice::from(before..), Slice::from(..)]),
    }
}

/// Gradients of the left and right factors of Kronecker products.
fn gradients_of_factors(launch: &Launch, given: &Saved, Factors { left, right, .. }: &Factors) -> (CubeTensor, CubeTensor) {
    let [of_left, of_right] = [left, right].map(|factor| launch.empty_of(factor.shape().dims(), DType::F32));
    kronecker::gradient_of_factors::launch(
        &launch.queries.client,
        launch.cubes_of_queries(1),
        launch.units(),
        given.fours,
        launch.inputs(0),
        given.reverse(),
        of_left.clone().into_tensor_arg(),
        of_right.clone().into_tensor_arg(),
        launch.form(1, SWEEP, SWEEP),
        launch.number(),
    );
    (summed(of_left, left), summed(of_right, right))
}

/// Sums of 32-bit floats over the dimensions that are 1 in `like`, in the type of `like`.
fn summed(mut sums: CubeTensor, like: &CubeTensor) -> CubeTensor {
    for dim in (0..4).rev() {
        if like.shape()[dim] == 1 && sums.shape()[dim] > 1 {
            sums = CubeBackend::float_sum_dim(sums, dim);
        }
    }
    if like.dtype == sums.dtype { sums } else { CubeBackend::float_cast(sums, like.dtype.into()) }
}
