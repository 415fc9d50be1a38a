//! Layer normalisation and cross-entropy kernels on CubeCL: the units of a cube share rows; scale and shift are processed column by column over parts of the
//! rows.

mod cross_entropy;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use heedful_attention::engine::linear::Products;

use super::operator::FusedLayers;
use super::tensor_ops;

/// Units per cube, a power of 2.
const UNITS: usize = 32;

/// Rows over which a unit sums a column.
const ROWS: usize = 64;

impl FusedLayers for CubeBackend {
    fn norm_forward(x: CubeTensor, gamma: CubeTensor, beta: CubeTensor, epsilon: f64) -> (CubeTensor, CubeTensor) {
        if !is_for_kernels([&x, &gamma, &beta]) {
            return tensor_ops::norm::<Self>(x, gamma, beta, epsilon);
        }
        let [x, gamma, beta] = [x, gamma, beta].map(into_contiguous);
        let rows = rows_of(&x, &gamma);
        let dtype = x.dtype;
        let (output, statistics) = (empty(&x, x.meta.shape().clone(), dtype), empty(&x, Shape::new([rows, 2]), DType::F32));
        normalise::launch(
            &x.client,
            cubes(&x, rows),
            units(),
            address(&x),
            x.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            beta.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            statistics.clone().into_tensor_arg(),
            epsilon as f32,
            dtype_to_storage_type(dtype),
        );
        (output, statistics)
    }

    fn norm_backward(
        x: CubeTensor,
        gamma: CubeTensor,
        statistics: CubeTensor,
        gradient: CubeTensor,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        if !is_for_kernels([&x, &gamma, &gradient]) {
            return tensor_ops::norm_backward::<Self>(x, gamma, statistics, gradient);
        }
        let [x, gamma, statistics, gradient] = [x, gamma, statistics, gradient].map(into_contiguous);
        let (rows, width, dtype) = (rows_of(&x, &gamma), gamma.meta.num_elements(), x.dtype);
        let of_x = empty(&x, x.meta.shape().clone(), dtype);
        gradient_of_rows::launch(
            &x.client,
            cubes(&x, rows),
            units(),
            address(&x),
            x.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            statistics.clone().into_tensor_arg(),
            gradient.clone().into_tensor_arg(),
            of_x.clone().into_tensor_arg(),
            dtype_to_storage_type(dtype),
        );
        let parts = rows.div_ceil(ROWS);
        let [of_gamma, of_beta] = [(); 2].map(|()| empty(&x, Shape::new([parts, width]), DType::F32));
        sums_of_columns::launch(
            &x.client,
            calculate_cube_count_elemwise(&x.client, parts * width, units()),
            units(),
            address(&x),
            x.clone().into_tensor_arg(),
            statistics.into_tensor_arg(),
            gradient.into_tensor_arg(),
            of_gamma.clone().into_tensor_arg(),
            of_beta.clone().into_tensor_arg(),
            dtype_to_storage_type(dtype),
        );
        let [of_gamma, of_beta] = [of_gamma, of_beta].map(|parts| tensor_ops::cast::<Self>(Self::column_sums(parts), dtype));
        (of_x, of_gamma, of_beta)
    }

    fn cross_entropy_forward(logits: CubeTensor, targets: IntTensor<Self>, weights: CubeTensor, label_smoothing: f64) -> CubeTensor {
        if !is_for_kernels([&logits]) {
            return tensor_ops::cross_entropy::<Self>(logits, targets, weights, label_smoothing).0;
        }
        cross_entropy::of_rows(logits, targets, weights, label_smoothing, false).0
    }

    fn cross_entropy_with_gradient(
        logits: CubeTensor,
        targets: IntTensor<Self>,
        weights: CubeTensor,
        label_smoothing: f64,
    ) -> (CubeTensor, CubeTensor) {
        if !is_for_kernels([&logits]) {
            return tensor_ops::cross_entropy::<Self>(logits, targets, weights, label_smoothing);
        }
        let (sums, gradient) = cross_entropy::of_rows(logits, targets, weights, label_smoothing, true);
        (sums, gradient.expect("the gradient was asked for"))
    }
}

/// Whether the kernels support such tensors: not empty, and of one type of at most 32 bits.
fn is_for_kernels<const N: usize>(tensors: [&CubeTensor; N]) -> bool {
    let is_known = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    tensors.iter().all(|tensor| tensor.dtype == tensors[0].dtype && is_known(tensor.dtype) && tensor.meta.num_elements() > 0)
}

fn rows_of(x: &CubeTensor, gamma: &CubeTensor) -> usize {
    x.meta.num_elements() / gamma.meta.num_elements()
}

fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

/// A cube per row, over as many dimensions as the device needs.
fn cubes(x: &CubeTensor, rows: usize) -> CubeCount {
    calculate_cube_count_elemwise(&x.client, rows * UNITS, units())
}

/// Padding cubes compute addresses past the end.
fn address(x: &CubeTensor) -> AddressType {
    AddressType::from_len(2 * (x.meta.num_elements() + UNITS))
}

fn empty(like: &CubeTensor, shape: Shape, dtype: DType) -> FloatTensor<CubeBackend> {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, dtype)
}

/// The row of a cube. Padding cubes also compute the last row, so that all units of all cubes meet at the barriers.
#[cube]
fn row_of_cube(numbers: usize, width: usize) -> usize {
    let last = numbers / width - 1;
    let mut row = CUBE_POS;
    if row > last {
        row = last;
    }
    row
}

/// Sum or maximum over one number per unit.
#[cube]
fn joined(room: &mut Shared<[f32]>, own: f32, #[comptime] units: usize, #[comptime] is_sum: bool) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    room[unit] = own;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(units.trailing_zeros()) {
        let half = comptime!(units >> (step + 1));
        if unit < half {
            let (left, right) = (room[unit], room[unit + half]);
            if comptime!(is_sum) {
                room[unit] = left + right;
            } else {
                room[unit] = select(right > left, right, left);
            }
        }
        sync_cube();
    }
    room[0]
}

/// Sum over one number per unit, for the units of a row.
#[cube]
fn summed(room: &mut Shared<[f32]>, own: f32) -> f32 {
    joined(room, own, UNITS, true)
}

#[cube(launch, address_type = "dynamic")]
fn normalise<F: Float>(
    x: &Tensor<F>,
    gamma: &Tensor<F>,
    beta: &Tensor<F>,
    output: &mut Tensor<F>,
    statistics: &mut Tensor<f32>,
    epsilon: f32,
    #[define(F)] _dtype: ElemType,
) {
    let width = gamma.len();
    let row = row_of_cube(x.len(), width);
    let first = row * width;
    let unit = UNIT_POS as usize;
    let mut room = Shared::<[f32]>::new_slice(UNITS);
    let mut own = 0.0f32;
    let mut at = unit;
    while at < width {
        own += f32::cast_from(x[first + at]);
        at += UNITS;
    }
    let mean = summed(&mut room, own) / f32::cast_from(width);
    let mut own = 0.0f32;
    let mut at = unit;
    while at < width {
        let centred = f32::cast_from(x[first + at]) - mean;
        own += centred * centred;
        at += UNITS;
    }
    let variance = summed(&mut room, own) / f32::cast_from(width);
    let inverse = 1.0f32 / (variance + epsilon).sqrt();
    let mut at = unit;
    while at < width {
        let normal = (f32::cast_from(x[first + at]) - mean) * inverse;
        output[first + at] = F::cast_from(normal * f32::cast_from(gamma[at]) + f32::cast_from(beta[at]));
        at += UNITS;
    }
    if unit == 0 {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

#[cube(launch, address_type = "dynamic")]
fn gradient_of_rows<F: Float>(
    x: &Tensor<F>,
    gamma: &Tensor<F>,
    statistics: &Tensor<f32>,
    gradient: &Tensor<F>,
    result: &mut Tensor<F>,
    #[define(F)] _dtype: ElemType,
) {
    let width = gamma.len();
    let row = row_of_cube(x.len(), width);
    let first = row * width;
    let unit = UNIT_POS as usize;
    let (mean, inverse) = (statistics[2 * row], statistics[2 * row + 1]);
    let mut room = Shared::<[f32]>::new_slice(UNITS);
    let mut slopes = 0.0f32;
    let mut products = 0.0f32;
    let mut at = unit;
    while at < width {
        let slope = f32::cast_from(gradient[first + at]) * f32::cast_from(gamma[at]);
        slopes += slope;
        products += slope * (f32::cast_from(x[first + at]) - mean) * inverse;
        at += UNITS;
    }
    let across = summed(&mut room, slopes) / f32::cast_from(width);
    let along = summed(&mut room, products) / f32::cast_from(width);
    let mut at = unit;
    while at < width {
        let normal = (f32::cast_from(x[first + at]) - mean) * inverse;
        let slope = f32::cast_from(gradient[first + at]) * f32::cast_from(gamma[at]);
        result[first + at] = F::cast_from((slope - across - normal * along) * inverse);
        at += UNITS;
    }
}

/// A unit sums the gradients of scale and shift of a column over several rows.
#[cube(launch, address_type = "dynamic")]
fn sums_of_columns<F: Float>(
    x: &Tensor<F>,
    statistics: &Tensor<f32>,
    gradient: &Tensor<F>,
    of_gamma: &mut Tensor<f32>,
    of_beta: &mut Tensor<f32>,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < of_gamma.len() {
        let width = of_gamma.shape(1);
        let (part, column) = (at / width, at % width);
        let mut row = part * ROWS;
        let mut end = row + ROWS;
        let rows = x.len() / width;
        if end > rows {
            end = rows;
        }
        let mut scale = 0.0f32;
        let mut shift = 0.0f32;
        while row < end {
            let slope = f32::cast_from(gradient[row * width + column]);
            scale += slope * (f32::cast_from(x[row * width + column]) - statistics[2 * row]) * statistics[2 * row + 1];
            shift += slope;
            row += 1;
        }
        of_gamma[at] = scale;
        of_beta[at] = shift;
    }
}
