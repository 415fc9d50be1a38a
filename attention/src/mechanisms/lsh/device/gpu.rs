//! The operator on CubeCL.
//!
//! Each unit counts the positions sorted before its own. The comparisons grow with the square of the length and need no memory. No kernel uses atomic
//! additions, so gradients are reproducible.

#![allow(clippy::too_many_arguments, reason = "a kernel has an argument for each buffer")]
#![allow(clippy::manual_div_ceil, reason = "kernels have operators alone")]

mod layout;
mod rows;
mod sorting;

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::IntTensorOps;
use burn::tensor::{DType, IntDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use self::layout::{NOWHERE, SizesLaunch};
use self::rows::{return_rows, take_rows};
use self::sorting::{GivenLaunch, bias_of_pairs, meet, sort};
use super::operator::ArrangementOperator;
use super::sort_layout::{Form, Rows};
use crate::contract::visibility::{hidden_logit, least_visible_logit};
use crate::mechanisms::lsh::chunks::self_penalty;

/// Units per cube.
const UNITS: usize = 64;

impl ArrangementOperator for CubeBackend {
    fn arranged(buckets: CubeTensor, live: CubeTensor, form: Form) -> CubeTensor {
        assert!(buckets.dtype == DType::I32 && live.dtype == DType::I32, "buckets are numbers of 32 bits");
        let [buckets, live] = [buckets, live].map(into_contiguous);
        let (client, device) = (buckets.client.clone(), buckets.device.clone());
        // Burn's tensors with several dimensions can have gaps between rows.
        let shape = form.arrangement_shape();
        let arrangement = Self::int_full(Shape::new([shape.num_elements()]), NOWHERE.into(), &device, IntDType::I32);
        let arrangement = Self::int_reshape(arrangement, shape);
        let count = buckets.meta.num_elements();
        sort::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units()),
            units(),
            address(form.arrangement_shape().num_elements()),
            buckets.into_tensor_arg(),
            live.into_tensor_arg(),
            arrangement.clone().into_tensor_arg(),
            sizes(&form),
            form.rules,
        );
        let count = form.planes() * form.groups() * form.window() * form.size;
        meet::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units()),
            units(),
            address(form.arrangement_shape().num_elements()),
            arrangement.clone().into_tensor_arg(),
            count as u32,
            sizes(&form),
            form.rules,
            form.meets_all(),
        );
        arrangement
    }

    fn bias(buckets: CubeTensor, arrangement: CubeTensor, pairs: CubeTensor, form: Form) -> CubeTensor {
        let [buckets, arrangement, pairs] = [buckets, arrangement, pairs].map(into_contiguous);
        let (client, dtype) = (pairs.client.clone(), pairs.dtype);
        let [rows, heads, ..] = pairs.shape().dims::<4>();
        let bias = empty(&pairs, form.bias_shape());
        let count = bias.meta.num_elements();
        let given = GivenLaunch::new(
            rows as u32,
            heads as u32,
            form.heads as u32,
            form.query_start as u32,
            form.queries as u32,
            least_visible_logit(dtype),
        );
        let largest = count.max(pairs.meta.num_elements()).max(arrangement.meta.num_elements());
        bias_of_pairs::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units()),
            units(),
            address(largest),
            buckets.into_tensor_arg(),
            arrangement.into_tensor_arg(),
            pairs.into_tensor_arg(),
            bias.clone().into_tensor_arg(),
            sizes(&form),
            given,
            hidden_logit(dtype),
            self_penalty(dtype),
            form.rules,
            dtype_to_storage_type(dtype),
        );
        bias
    }

    fn taken(x: CubeTensor, arrangement: CubeTensor, rows: Rows, form: Form) -> CubeTensor {
        let [x, arrangement] = [x, arrangement].map(into_contiguous);
        let (client, dtype) = (x.client.clone(), x.dtype);
        let taken = empty(&x, form.taken_shape(rows, width_of(&x)));
        let count = taken.meta.num_elements();
        take_rows::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units()),
            units(),
            address(count.max(x.meta.num_elements()).max(arrangement.meta.num_elements())),
            x.into_tensor_arg(),
            arrangement.into_tensor_arg(),
            taken.clone().into_tensor_arg(),
            sizes(&form),
            rows,
            dtype_to_storage_type(dtype),
        );
        taken
    }

    fn returned(x: CubeTensor, arrangement: CubeTensor, rows: Rows, form: Form) -> CubeTensor {
        let [x, arrangement] = [x, arrangement].map(into_contiguous);
        let (client, dtype) = (x.client.clone(), x.dtype);
        let returned = empty(&x, form.source_shape(rows, width_of(&x)));
        let count = returned.meta.num_elements();
        return_rows::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units()),
            units(),
            address(count.max(x.meta.num_elements()).max(arrangement.meta.num_elements())),
            x.into_tensor_arg(),
            arrangement.into_tensor_arg(),
            returned.clone().into_tensor_arg(),
            sizes(&form),
            rows,
            form.rules,
            form.meets_all(),
            dtype_to_storage_type(dtype),
        );
        returned
    }
}

fn units() -> CubeDim {
    CubeDim::new_1d(UNITS as u32)
}

/// Padding cubes compute addresses past the end.
fn address(numbers: usize) -> AddressType {
    AddressType::from_len(2 * (numbers + UNITS))
}

/// Allocates a buffer of the type of `like`.
fn empty(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
}

fn width_of(x: &CubeTensor) -> usize {
    let shape = x.shape();
    shape[shape.num_dims() - 1]
}

fn sizes(form: &Form) -> SizesLaunch {
    let Form { rounds, length, size, before, after, .. } = *form;
    let [rounds, length, size, groups, window, columns, before, after] =
        [rounds, length, size, form.groups(), form.window(), form.columns(), before, after].map(|number| number as u32);
    SizesLaunch::new(rounds, length, size, groups, window, columns, before, after)
}
