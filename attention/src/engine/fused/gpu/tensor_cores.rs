//! Tensor-core kernels for 16-bit numbers.
//!
//! A cube has four planes of 32 units, and each plane computes 16 rows of a tile of 64. Products use `mma` of 16 x 8 x 16 numbers, whose operands are
//! distributed over the registers of a plane's units in a known order: weights pass from one product to the next in registers (Dao 2023, section 3.3). Sums and
//! exponentials use 32 bits. As in the kernels without tensor cores, no two cubes add to one place.

mod backward;
mod forward;
mod fragments;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

use self::fragments::{PLANES, room};
use super::launch::{Launch, are_in};
use crate::contract::visibility::TILE;

/// Maximum columns of queries, keys and values: a plane's sums must fit into registers.
const WIDEST: usize = 128;

/// Compile-time configuration of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TensorCoreConfig {
    /// Columns of queries and keys in shared memory: a multiple of 16.
    factor: usize,
    /// Columns of values.
    value: usize,
    drops: bool,
}

/// Kernel configuration, if the device has tensor cores for these tensors.
pub(super) fn widths<const N: usize>(launch: &Launch, tensors: [&CubeTensor; N]) -> Option<TensorCoreConfig> {
    let number = launch.number();
    let properties = launch.queries.client.properties();
    let product = MmaConfig { a_type: number, b_type: number, cd_type: ElemType::Float(FloatKind::F32), m: 16, n: 8, k: 16 };
    let matmul = &properties.features.matmul;
    let [.., factor, value] = launch.sizes();
    let [factor, value] = [factor, value].map(|width| width.next_multiple_of(16));
    let bytes = room(factor, value);
    let has_16_bits = matches!(launch.queries.dtype, DType::F16 | DType::BF16);
    let fits = factor.max(value) <= WIDEST && bytes <= properties.hardware.max_shared_memory_size;
    let has_them = matmul.mma.contains(&product) && matmul.ldmatrix.contains(&number) && properties.hardware.plane_size_min == 32;
    (launch.terms.made.is_product() && has_16_bits && fits && has_them && tensors.into_iter().all(|tensor| are_in(8, tensor)))
        .then_some(TensorCoreConfig { factor, value, drops: launch.drops })
}

fn units() -> CubeDim {
    CubeDim::new_2d(32, PLANES as u32)
}

/// Context and log-sum-exp.
pub(super) fn forward(launch: &Launch, wide: TensorCoreConfig) -> (CubeTensor, CubeTensor) {
    let [batch, heads, queries, _, _, value] = launch.sizes();
    let context = launch.empty([batch, heads, queries, value]);
    let log_sum_exp = launch.empty_by_query();
    forward::attend::launch(
        &launch.queries.client,
        launch.cubes_of_queries(1),
        units(),
        launch.queries.clone().into_tensor_arg(),
        launch.keys.clone().into_tensor_arg(),
        launch.values.clone().into_tensor_arg(),
        launch.tiles.words.clone().into_tensor_arg(),
        launch.offsets.clone().into_tensor_arg(),
        context.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        launch.lists(0),
        launch.dropout(),
        wide,
        launch.number(),
    );
    (context, log_sum_exp)
}

/// Gradients of queries, keys and values.
pub(super) fn backward(
    launch: &Launch,
    wide: TensorCoreConfig,
    gradient: CubeTensor,
    log_sum_exp: CubeTensor,
    dots: CubeTensor,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let client = &launch.queries.client;
    let [batch, heads, queries, keys, factor, value] = launch.sizes();
    let of_queries = launch.empty([batch, heads, queries, factor]);
    backward::gradient_of_queries::launch(
        client,
        launch.cubes_of_queries(1),
        units(),
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
        wide,
        launch.number(),
    );
    let shared = launch.shared();
    let of_keys = launch.empty([batch, shared, keys, factor]);
    let of_values = launch.empty([batch, shared, keys, value]);
    backward::gradient_of_keys_and_values::launch(
        client,
        launch.cubes_of_keys(1),
        units(),
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
        wide,
        launch.number(),
    );
    (of_queries, of_keys, of_values)
}

const _: () = assert!(TILE == 16 * PLANES);
