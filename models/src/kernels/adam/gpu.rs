//! The update on CubeCL: one kernel per parameter.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use super::operator::ParameterUpdate;
use super::{AdamStep, tensor_ops};

/// Units per cube.
const UNITS: usize = 64;

impl ParameterUpdate for CubeBackend {
    fn adam(
        parameter: CubeTensor,
        gradient: CubeTensor,
        first: CubeTensor,
        second: CubeTensor,
        step: AdamStep,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let count = parameter.meta.num_elements();
        if count == 0 || [&parameter, &gradient, &first, &second].iter().any(|tensor| tensor.dtype != DType::F32) {
            return tensor_ops::adam::<Self>(parameter, gradient, first, second, step);
        }
        let gradient = into_contiguous(gradient);
        let [parameter, first, second] = [parameter, first, second].map(owned);
        let client = parameter.client.clone();
        let units = CubeDim::new_1d(UNITS as u32);
        let AdamStep { betas: (beta_1, beta_2), rate, epsilon, kept, penalty } = step;
        update::launch(
            &client,
            calculate_cube_count_elemwise(&client, count, units),
            units,
            // Padding cubes compute addresses past the end.
            AddressType::from_len(2 * (count + UNITS)),
            parameter.clone().into_tensor_arg(),
            gradient.into_tensor_arg(),
            first.clone().into_tensor_arg(),
            second.clone().into_tensor_arg(),
            StepLaunch::new(beta_1, beta_2, rate, epsilon, kept, penalty),
        );
        (parameter, first, second)
    }
}

/// The tensor, or a copy if its buffer is shared.
fn owned(x: CubeTensor) -> CubeTensor {
    let x = into_contiguous(x);
    if x.can_mut() { x } else { x.copy() }
}

/// The numbers of [`AdamStep`].
#[derive(CubeType, CubeLaunch)]
struct Step {
    beta_1: f32,
    beta_2: f32,
    rate: f32,
    epsilon: f32,
    kept: f32,
    penalty: f32,
}

#[cube(launch, address_type = "dynamic")]
fn update(parameter: &mut Tensor<f32>, gradient: &Tensor<f32>, first: &mut Tensor<f32>, second: &mut Tensor<f32>, step: Step) {
    let at = ABSOLUTE_POS;
    if at < parameter.len() {
        let number = parameter[at];
        let slope = gradient[at] + step.penalty * number;
        let mean = step.beta_1 * first[at] + (1.0f32 - step.beta_1) * slope;
        let square = step.beta_2 * second[at] + (1.0f32 - step.beta_2) * slope * slope;
        first[at] = mean;
        second[at] = square;
        parameter[at] = step.kept * number - step.rate * (mean / (square.sqrt() + step.epsilon));
    }
}
