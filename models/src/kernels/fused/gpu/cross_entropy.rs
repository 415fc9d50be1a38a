//! Cross-entropy on CubeCL: a cube reads the logits of a row once for the loss, and again for the gradient.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::tensor::{DType, IntDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, empty_device_dtype};
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::{joined, row_of_cube};

/// Units per cube, powers of 2, for rows with at least [`LONG`] numbers and for shorter rows.
const UNITS: [usize; 2] = [256, 32];

/// Row length for many units.
const LONG: usize = 2048;

/// Sums `[2]` in 32 bits as in [`tensor_ops::cross_entropy`](crate::kernels::fused::tensor_ops::cross_entropy), and the gradient of the first one on request.
pub(super) fn of_rows(
    logits: CubeTensor,
    targets: CubeTensor,
    weights: CubeTensor,
    label_smoothing: f64,
    wants_gradient: bool,
) -> (CubeTensor, Option<CubeTensor>) {
    // Rows may have gaps between them, like those of a product.
    let logits = if logits.meta.strides()[1] == 1 { logits } else { into_contiguous(logits) };
    let weights = into_contiguous(weights);
    let targets = into_contiguous(CubeBackend::int_cast(targets, IntDType::I32));
    let (client, device) = (logits.client.clone(), logits.device.clone());
    let (shape, dtype) = (logits.meta.shape().clone(), logits.dtype);
    let (rows, width) = (shape[0], shape[1]);
    let of_rows = empty_device_contiguous_dtype(client.clone(), device.clone(), Shape::new([2, rows]), DType::F32);
    // An unrequested gradient is not written.
    let shape = if wants_gradient { shape } else { Shape::new([1, 1]) };
    let gradient = empty_device_dtype(client.clone(), device.clone(), shape, dtype);
    let count = UNITS[usize::from(width < LONG)];
    let units = CubeDim::new_1d(count as u32);
    cross_entropy::launch(
        &client,
        calculate_cube_count_elemwise(&client, rows * count, units),
        units,
        // Padding cubes compute addresses past the end.
        AddressType::from_len(2 * (rows * logits.meta.strides()[0].max(gradient.meta.strides()[0]) + count)),
        logits.into_tensor_arg(),
        targets.into_tensor_arg(),
        weights.into_tensor_arg(),
        of_rows.clone().into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        label_smoothing as f32,
        count,
        wants_gradient,
        dtype_to_storage_type(dtype),
    );
    let sums = CubeBackend::float_reshape(CubeBackend::float_sum_dim(of_rows, 1), Shape::new([2]));
    (sums, wants_gradient.then_some(gradient))
}

/// Loss and negative log-likelihood of each row, and the gradient of the loss. A cube processes one row `[V]` of logits.
#[cube(launch, address_type = "dynamic")]
fn cross_entropy<F: Float>(
    logits: &Tensor<F>,
    targets: &Tensor<i32>,
    weights: &Tensor<f32>,
    of_rows: &mut Tensor<f32>,
    gradient: &mut Tensor<F>,
    smoothing: f32,
    #[comptime] units: usize,
    #[comptime] wants_gradient: bool,
    #[define(F)] _dtype: ElemType,
) {
    let width = logits.shape(1);
    let row = row_of_cube(logits.shape(0) * width, width);
    let first = row * logits.stride(0);
    let mut room = Shared::<[f32]>::new_slice(units);
    // The sum of exponentials is relative to the running maximum.
    let mut top = f32::MIN.runtime();
    let mut total = 0.0f32;
    let mut plain = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < width {
        let logit = f32::cast_from(logits[first + at]);
        plain += logit;
        if logit > top {
            total = total * (top - logit).exp() + 1.0f32;
            top = logit;
        } else {
            total += (logit - top).exp();
        }
        at += units;
    }
    let greatest = joined(&mut room, top, units, false);
    let total = joined(&mut room, total * (top - greatest).exp(), units, true);
    let mean = joined(&mut room, plain, units, true) / f32::cast_from(width);
    let log_sum = total.ln();
    let target = targets[row] as usize;
    let weight = weights[row];
    if UNIT_POS == 0 {
        let likelihood = (log_sum - (f32::cast_from(logits[first + target]) - greatest)) * weight;
        let even = (log_sum - (mean - greatest)) * weight;
        of_rows[row] = likelihood * (1.0f32 - smoothing) + even * smoothing;
        of_rows[weights.len() + row] = likelihood;
    }
    if comptime!(wants_gradient) {
        let of_each = smoothing / f32::cast_from(width);
        let first_slope = row * gradient.stride(0);
        let mut at = UNIT_POS as usize;
        while at < width {
            let probability = (f32::cast_from(logits[first + at]) - greatest - log_sum).exp();
            let expected = of_each + select(at == target, 1.0f32 - smoothing, 0.0f32);
            gradient[first_slope + at] = F::cast_from((probability - expected) * weight);
            at += units;
        }
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::backend::DispatchDevice;
    use burn::tensor::{TensorData, try_read_sync};
    use cubecl::zspace::metadata::Metadata;
    use heedful_attention::conformance::test_device;

    use super::*;
    use crate::kernels::fused::tensor_ops;

    fn numbers(x: CubeTensor) -> Vec<f32> {
        try_read_sync(CubeBackend::float_into_data(x)).unwrap().unwrap().try_to_vec().unwrap()
    }

    #[test]
    fn rows_of_any_length_with_gaps_between_them_are_those_of_the_composition() {
        let device = test_device();
        let DispatchDevice::Cube(device) = device.as_dispatch() else { unreachable!("the adapter is one of CubeCL") };
        for (rows, width) in [(5, 37), (3, LONG + 5)] {
            let gap = 3;
            let wide: Vec<f32> = (0..rows * (width + gap)).map(|index| (index as f32 * 0.618_034).fract() * 8.0 - 4.0).collect();
            let dense: Vec<f32> = wide.chunks(width + gap).flat_map(|row| row[..width].to_vec()).collect();
            let mut logits = CubeBackend::float_from_data(TensorData::new(wide, [rows, width + gap]), device);
            logits.meta = Box::new(Metadata::new([rows, width], [width + gap, 1]));
            let targets = || {
                let targets = (0..rows).map(|row| (row * 23 % width) as i32).collect::<Vec<_>>();
                CubeBackend::int_from_data(TensorData::new(targets, [rows]), device)
            };
            let weights = || CubeBackend::float_from_data(TensorData::new((0..rows).map(|row| (row % 3) as f32).collect(), [rows]), device);
            let (sums, gradient) = of_rows(logits, targets(), weights(), 0.1, true);
            let dense = CubeBackend::float_from_data(TensorData::new(dense, [rows, width]), device);
            let expected = tensor_ops::cross_entropy::<CubeBackend>(dense, targets(), weights(), 0.1);
            for (found, expected) in [(sums, expected.0), (gradient.unwrap(), expected.1)] {
                let (found, expected) = (numbers(found), numbers(expected));
                let largest = expected.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
                assert_eq!(found.len(), expected.len());
                let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(difference < 1e-5 * largest, "{rows} rows of {width}: {difference} of {largest}");
            }
        }
    }
}
