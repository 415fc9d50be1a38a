//! Matrix products and column sums on CubeCL.
//!
//! Without autotune Burn multiplies with the simplest of CubeK's kernels, which waits for each tile before computing with it. On devices with asynchronous tile
//! copies (TMA), large products use a kernel in which some planes load and others compute: on one H200 at 2.8 to 4.5 times the rate in bf16. A product with too
//! few tiles to occupy all multiprocessors, such as a weight gradient, is split into a sum over parts of its inner dimension.

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::kernel::matmul::MatmulStrategy;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, empty_device_dtype};
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::ElemType;
use cubecl::ir::features::Tma;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy as Levels;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::batch::specialized::SpecializedStrategy;
use cubek::matmul::routine::BlueprintStrategy;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

use super::operator::Products;

/// Minimum multiplications for the other kernel.
const LARGE: usize = 1 << 24;

/// Approximate rows and columns of a result tile.
const TILE: usize = 128;

/// Maximum parts of an inner dimension, and minimum elements of a part.
const PARTS: [usize; 2] = [16, 512];

/// Multiprocessors of a device that does not report them.
const MULTIPROCESSORS: u32 = 128;

/// Units per cube.
const UNITS: usize = 64;

/// Rows added per unit.
const ROWS: usize = 64;

impl Products for CubeBackend {
    fn product(a: CubeTensor, b: CubeTensor) -> CubeTensor {
        copied_ahead(&a, &b).unwrap_or_else(|| Self::float_matmul(a, b))
    }

    fn column_sums(x: CubeTensor) -> CubeTensor {
        if !matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16) || x.meta.num_elements() == 0 {
            return super::tensor_ops::column_sums::<Self>(x);
        }
        let dtype = x.dtype;
        column_sums(x, dtype)
    }
}

/// `a b` by a kernel that prefetches tiles, if beneficial for the device and the matrices.
fn copied_ahead(a: &CubeTensor, b: &CubeTensor) -> Option<CubeTensor> {
    let properties = a.client.properties();
    let ([rows, inner], [_, columns]) = (a.shape().dims::<2>(), b.shape().dims::<2>());
    let is_known = matches!(a.dtype, DType::F32 | DType::F16 | DType::BF16) && a.dtype == b.dtype;
    let chooses_itself = !matches!(MatmulStrategy::default(), MatmulStrategy::Cube);
    if chooses_itself || !is_known || rows * inner * columns < LARGE || !properties.features.tma.contains(Tma::Base) {
        return None;
    }
    let multiprocessors = properties.hardware.num_streaming_multiprocessors.unwrap_or(MULTIPROCESSORS) as usize;
    let parts = parts(rows.div_ceil(TILE) * columns.div_ceil(TILE), inner, multiprocessors);
    if parts == 1 {
        // With gaps between rows that keep them aligned.
        let product = empty_device_dtype(a.client.clone(), a.device.clone(), Shape::new([rows, columns]), a.dtype);
        return launched(a, b, 1, &product).then_some(product);
    }
    let shape = Shape::new([parts, rows, columns]);
    let products = empty_device_contiguous_dtype(a.client.clone(), a.device.clone(), shape, DType::F32);
    launched(a, b, parts, &products).then(|| {
        let products = CubeBackend::float_reshape(products, Shape::new([parts, rows * columns]));
        CubeBackend::float_reshape(column_sums(products, a.dtype), Shape::new([rows, columns]))
    })
}

/// Number of equal parts of an inner dimension, so that a result with this number of tiles occupies a device.
fn parts(tiles: usize, inner: usize, multiprocessors: usize) -> usize {
    let [most, least] = PARTS;
    let mut parts = 1;
    // A multiple of 64 keeps the parts aligned.
    while 2 * parts <= most
        && 2 * parts * tiles <= 3 * multiprocessors
        && inner.is_multiple_of(2 * parts * 64)
        && inner / (2 * parts) >= least
    {
        parts *= 2;
    }
    parts
}

/// Launches the kernel that writes the products `[parts, N, F]`, or `[N, F]` for one part; returns whether it succeeded.
fn launched(a: &CubeTensor, b: &CubeTensor, parts: usize, product: &CubeTensor) -> bool {
    let element = dtype_to_storage_type(a.dtype);
    let types = MatmulGlobalElems { lhs: element, rhs: element, out: dtype_to_storage_type(product.dtype) };
    let strategy = SpecializedStrategy { tile_matmul: TileMatmulKind::Mma };
    let strategy = Strategy::MultiLevel(Levels::SpecializedTmaMma(BlueprintStrategy::Inferred(strategy)));
    let (left, right) = (InputBinding::new(in_parts(a, 1, parts), element), InputBinding::new(in_parts(b, 0, parts), element));
    launch_ref(&strategy, &a.client, left, right, product.clone().binding(), &mut MatmulElems::from_globals(&types)).is_ok()
}

/// Splits the dimension `inner` of a matrix into equal consecutive parts.
fn in_parts(matrix: &CubeTensor, inner: usize, parts: usize) -> TensorBinding {
    let mut binding = matrix.clone().binding();
    if parts > 1 {
        let [mut sizes, strides]: [[usize; 2]; 2] = [[binding.shape[0], binding.shape[1]], [binding.strides[0], binding.strides[1]]];
        sizes[inner] /= parts;
        binding.shape = Shape::new([parts, sizes[0], sizes[1]]);
        binding.strides = [sizes[inner] * strides[inner], strides[0], strides[1]].into();
    }
    binding
}

/// Sum of rows `[N, C]` in 32 bits, converted to a type, `[C]`.
fn column_sums(x: CubeTensor, dtype: DType) -> CubeTensor {
    let mut sums = into_contiguous(x);
    let width = sums.shape()[1];
    loop {
        let rows = sums.shape()[0];
        let parts = rows.div_ceil(ROWS);
        let (client, from) = (sums.client.clone(), sums.dtype);
        let to = if parts == 1 { dtype } else { DType::F32 };
        let added = empty_device_contiguous_dtype(client.clone(), sums.device.clone(), Shape::new([parts, width]), to);
        let units = CubeDim::new_1d(UNITS as u32);
        add_rows::launch(
            &client,
            calculate_cube_count_elemwise(&client, parts * width, units),
            units,
            // Padding cubes compute addresses past the end.
            AddressType::from_len(2 * (rows * width + UNITS)),
            sums.into_tensor_arg(),
            added.clone().into_tensor_arg(),
            dtype_to_storage_type(from),
            dtype_to_storage_type(to),
        );
        if parts == 1 {
            return CubeBackend::float_reshape(added, Shape::new([width]));
        }
        sums = added;
    }
}

/// Sums over parts of the rows: a unit adds the numbers of a column in a part.
#[cube(launch, address_type = "dynamic")]
fn add_rows<F: Float, T: Float>(x: &Tensor<F>, sums: &mut Tensor<T>, #[define(F)] _from: ElemType, #[define(T)] _to: ElemType) {
    let at = ABSOLUTE_POS;
    if at < sums.len() {
        let width = sums.shape(1);
        let (part, column) = (at / width, at % width);
        let mut row = part * ROWS;
        let mut end = row + ROWS;
        let rows = x.len() / width;
        if end > rows {
            end = rows;
        }
        let mut sum = 0.0f32;
        while row < end {
            sum += f32::cast_from(x[row * width + column]);
            row += 1;
        }
        sums[at] = T::cast_from(sum);
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::conformance::cube_test_device;

    #[test]
    fn few_tiles_are_made_more_by_parts() {
        assert_eq!(parts(36, 16_384, 132), 8);
        assert_eq!(parts(144, 16_384, 132), 2);
        assert_eq!(parts(3000, 16_384, 132), 1);
        assert_eq!(parts(1, 1000, 132), 1, "a part is a multiple of 64");
        assert_eq!(parts(1, 2048, 132), 4, "a part has 512 elements");
        assert_eq!(parts(1, 1 << 20, 132), 16);
    }

    #[test]
    fn rows_are_added_over_any_number_of_parts() {
        for [rows, width] in [[1, 3], [64, 5], [65, 5], [9000, 7]] {
            let numbers: Vec<f32> = (0..rows * width).map(|index| (index * 37 % 101) as f32).collect();
            let x = CubeBackend::float_from_data(TensorData::new(numbers.clone(), [rows, width]), &cube_test_device());
            let expected: Vec<f32> = (0..width).map(|column| numbers.iter().skip(column).step_by(width).sum()).collect();
            let data = CubeBackend::float_into_data(CubeBackend::column_sums(x));
            let found = burn::tensor::try_read_sync(data).unwrap().unwrap().try_to_vec::<f32>().unwrap();
            assert_eq!(found, expected, "{rows} rows of {width}");
        }
    }
}
