//! Layer normalisation on CubeCL, by kernels: of rows, by the units of a cube together; of scale and shift, column by column over parts of the rows.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use super::composed;
use super::operator::FusedLayers;

/// Units of a cube, a power of 2.
const UNITS: usize = 32;

/// Rows over which a unit sums a column.
const ROWS: usize = 64;

impl FusedLayers for CubeBackend {
    fn norm_forward(x: CubeTensor, gamma: CubeTensor, beta: CubeTensor, epsilon: f64) -> (CubeTensor, CubeTensor) {
        if !is_for_kernels([&x, &gamma, &beta]) {
            return composed::norm::<Self>(x, gamma, beta, epsilon);
        }
        let [x, gamma, beta] = [x, gamma, beta].map(into_contiguous);
        let rows = rows_of(&x, &gamma);
        let (output, statistics) = (empty(&x, x.meta.shape().clone()), empty(&x, Shape::new([rows, 2])));
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
            return composed::norm_backward::<Self>(x, gamma, statistics, gradient);
        }
        let [x, gamma, statistics, gradient] = [x, gamma, statistics, gradient].map(into_contiguous);
        let (rows, width) = (rows_of(&x, &gamma), gamma.meta.num_elements());
        let of_x = empty(&x, x.meta.shape().clone());
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
        );
        let parts = rows.div_ceil(ROWS);
        let [of_gamma, of_beta] = [(); 2].map(|()| empty(&x, Shape::new([parts, width])));
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
        );
        let [of_gamma, of_beta] = [of_gamma, of_beta].map(composed::sum_of_rows::<Self>);
        (of_x, of_gamma, of_beta)
    }
}

fn is_for_kernels(tensors: [&CubeTensor; 3]) -> bool {
    tensors.iter().all(|tensor| tensor.dtype == DType::F32 && tensor.meta.num_elements() > 0)
}

fn rows_of(x: &CubeTensor, gamma: &CubeTensor) -> usize {
    x.meta.num_elements() / gamma.meta.num_elements()
}

fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

/// A cube for each row, over as many dimensions as the device needs.
fn cubes(x: &CubeTensor, rows: usize) -> CubeCount {
    calculate_cube_count_elemwise(&x.client, rows * UNITS, units())
}

/// Cubes that are there to fill a dimension compute places past the end.
fn address(x: &CubeTensor) -> AddressType {
    AddressType::from_len(2 * (x.meta.num_elements() + UNITS))
}

fn empty(like: &CubeTensor, shape: Shape) -> FloatTensor<CubeBackend> {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
}

/// The row of a cube. Cubes that are there to fill a dimension compute the last row as well, so that all units of all cubes meet at the barriers.
#[cube]
fn row_of_cube(numbers: usize, width: usize) -> usize {
    let last = numbers / width - 1;
    let mut row = CUBE_POS;
    if row > last {
        row = last;
    }
    row
}

/// The sum of a number of each unit.
#[cube]
fn summed(room: &mut Shared<[f32]>, own: f32) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    room[unit] = own;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(UNITS.trailing_zeros()) {
        let half = comptime!(UNITS >> (step + 1));
        if unit < half {
            let other = room[unit + half];
            room[unit] += other;
        }
        sync_cube();
    }
    room[0]
}

#[cube(launch, address_type = "dynamic")]
fn normalise(
    x: &Tensor<f32>,
    gamma: &Tensor<f32>,
    beta: &Tensor<f32>,
    output: &mut Tensor<f32>,
    statistics: &mut Tensor<f32>,
    epsilon: f32,
) {
    let width = gamma.len();
    let row = row_of_cube(x.len(), width);
    let first = row * width;
    let unit = UNIT_POS as usize;
    let mut room = Shared::<[f32]>::new_slice(UNITS);
    let mut own = 0.0f32;
    let mut at = unit;
    while at < width {
        own += x[first + at];
        at += UNITS;
    }
    let mean = summed(&mut room, own) / f32::cast_from(width);
    let mut own = 0.0f32;
    let mut at = unit;
    while at < width {
        let centred = x[first + at] - mean;
        own += centred * centred;
        at += UNITS;
    }
    let variance = summed(&mut room, own) / f32::cast_from(width);
    let inverse = 1.0f32 / (variance + epsilon).sqrt();
    let mut at = unit;
    while at < width {
        output[first + at] = (x[first + at] - mean) * inverse * gamma[at] + beta[at];
        at += UNITS;
    }
    if unit == 0 {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

#[cube(launch, address_type = "dynamic")]
fn gradient_of_rows(x: &Tensor<f32>, gamma: &Tensor<f32>, statistics: &Tensor<f32>, gradient: &Tensor<f32>, result: &mut Tensor<f32>) {
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
        let slope = gradient[first + at] * gamma[at];
        slopes += slope;
        products += slope * (x[first + at] - mean) * inverse;
        at += UNITS;
    }
    let across = summed(&mut room, slopes) / f32::cast_from(width);
    let along = summed(&mut room, products) / f32::cast_from(width);
    let mut at = unit;
    while at < width {
        let normal = (x[first + at] - mean) * inverse;
        result[first + at] = (gradient[first + at] * gamma[at] - across - normal * along) * inverse;
        at += UNITS;
    }
}

/// A unit sums the gradients of the scale and the shift of a column over some rows.
#[cube(launch, address_type = "dynamic")]
fn sums_of_columns(
    x: &Tensor<f32>,
    statistics: &Tensor<f32>,
    gradient: &Tensor<f32>,
    of_gamma: &mut Tensor<f32>,
    of_beta: &mut Tensor<f32>,
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
            let slope = gradient[row * width + column];
            scale += slope * (x[row * width + column] - statistics[2 * row]) * statistics[2 * row + 1];
            shift += slope;
            row += 1;
        }
        of_gamma[at] = scale;
        of_beta[at] = shift;
    }
}
