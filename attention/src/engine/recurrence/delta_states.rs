//! Delta-rule states, chunk after chunk, in one GPU kernel.
//!
//! All other parts of a chunk are computed for all chunks at once; only states are sequential (Yang et al. 2024b, section 3.2). As tensor operations, each
//! chunk would take several launches, and its gradient several copies of all states.

#[cfg(feature = "cube")]
mod gpu;
mod operator;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
#[cfg(feature = "cube")]
use burn::{backend::DispatchDevice, tensor::DType};

use self::operator::DeltaStates;
use super::chunks::Writes;

/// Whether the device of keys `[.., R]` has the kernel, and room for chunks of this size.
pub(super) fn has_kernel(keys: &Tensor<4>, chunk: usize) -> bool {
    #[cfg(feature = "cube")]
    if let DispatchDevice::Cube(device) = keys.device().without_autodiff().as_dispatch() {
        return keys.dtype() == DType::F32 && gpu::has_room(device, chunk, keys.dims()[3]);
    }
    let _ = (keys, chunk);
    false
}

/// Writes of the delta-rule chunks, `[X, M, C, D]`, and states before each chunk and after the last one, `[X, M + 1, R, D]`, from the state `[X, 1, R, D]`.
pub(super) fn overwritten(state: Tensor<4>, writes: Writes) -> (Tensor<4>, Tensor<4>) {
    let Writes { values, erasing, behind, decays } = writes;
    let ([rows, chunks, chunk, width], value) = (erasing.dims(), values.dims()[3]);
    let decays = decays.unwrap_or_else(|| Tensor::ones([rows, chunks, 1, 1], (&values.device(), values.dtype())));
    let found = <Dispatch as DeltaStates>::delta_states(
        values.into_dispatch(),
        erasing.into_dispatch(),
        behind.into_dispatch(),
        decays.into_dispatch(),
        state.into_dispatch(),
    );
    let found = Tensor::<3>::from_dispatch(found);
    let written = found.clone().narrow(1, 0, chunks * chunk).reshape([rows, chunks, chunk, value]);
    (written, found.narrow(1, chunks * chunk, (chunks + 1) * width).reshape([rows, chunks + 1, width, value]))
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::tensor::Device;

    use super::super::Recurrence;
    use super::*;
    use crate::conformance::test_device;
    use crate::engine::custom_gradient::tests::{difference, drawn};
    use crate::tensors::read::read;

    /// Contexts, the last state, and the gradients of all inputs of a recurrence in chunks of 16 positions.
    fn found(device: &Device, [length, width, value]: [usize; 3], channels: usize, strength: f64) -> Vec<Vec<f64>> {
        let [batch, heads] = [2, 3];
        let leaf = |name: &str, shape: [usize; 4]| drawn(name, shape, device, DType::F32);
        let keys = leaf("keys", [batch, heads, length, width]);
        let keys = keys.clone() / (keys.powi_scalar(2).sum_dim(3) + 1e-3).sqrt();
        let inputs = [
            leaf("queries", [batch, heads, length, width]),
            keys,
            leaf("values", [batch, heads, length, value]),
            leaf("strengths", [batch, heads, length, 1]).abs() * strength,
            leaf("state", [batch, heads, width, value]),
            leaf("decay", [batch, heads, length, channels.max(1)]).abs() * -0.2,
        ]
        .map(Tensor::require_grad);
        let [queries, keys, values, strengths, state, decay] = inputs.clone();
        let log_decay = (channels > 0).then_some(decay);
        let recurrence = Recurrence { queries, keys, values, log_decay, strengths: Some(strengths), normalised: false };
        let output = recurrence.in_chunks(Some(state), 16);
        let loss = |x: &Tensor<4>, name: &str| (x.clone() * drawn(name, x.dims(), device, DType::F32)).sum();
        let gradients = (loss(&output.context, "of contexts") + loss(&output.state, "of the state")).backward();
        let gradients =
            inputs.iter().take(if channels > 0 { 6 } else { 5 }).map(|input| input.grad(&gradients).expect("inputs have a gradient"));
        let numbers = |x: Tensor<4>| read(x).iter::<f64>().collect();
        [output.context, output.state].into_iter().map(Tensor::detach).chain(gradients).map(numbers).collect()
    }

    #[test]
    fn states_of_the_kernel_are_those_of_tensor_operations_in_outputs_and_gradients() {
        let (device, host) = (test_device().autodiff(), Device::flex().autodiff());
        let keys = drawn("keys", [1, 1, 16, 40], &device, DType::F32);
        assert!(has_kernel(&keys, 16) && !has_kernel(&keys, 4096), "a chunk fits into the memory of a cube");
        for sizes in [[16, 8, 16], [37, 5, 33], [70, 40, 3], [64, 1, 1]] {
            for channels in [0, 1, sizes[1]] {
                let [on_device, on_host] = [&device, &host].map(|device| found(device, sizes, channels, 0.5));
                let off = difference(&on_device, &on_host);
                assert!(off < 1e-4, "{sizes:?}, {channels} decays: off by {off}");
            }
        }
        let [on_device, other] = [(&device, 0.5), (&host, 0.501)].map(|(device, strength)| found(device, [37, 5, 33], 1, strength));
        assert!(difference(&on_device, &other) > 1e-4, "other strengths are noticed");
    }
}
