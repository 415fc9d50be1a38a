//! The kernels against their composed counterparts, and both against burn-optim.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::{AdamConfig, AdamWConfig};
use burn::tensor::TensorData;
use heedful_attention::tensors::read::read;

use super::*;
use crate::kernels::fused::tests::{devices as autodiff_devices, drawn};

/// Devices of the backends in this build.
fn devices() -> impl Iterator<Item = Device> {
    autodiff_devices().into_iter().map(Device::without_autodiff)
}

fn difference(a: &TensorData, b: &TensorData) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.iter::<f64>().zip(b.iter::<f64>()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The parameter after five steps.
fn trained(rule: &impl Optimizer, device: &Device) -> TensorData {
    let mut parameter = drawn(0, [37, 1000], device);
    let mut state = None;
    for step in 1..6 {
        (parameter, state) = rule.step(0.1, parameter, drawn(step, [37, 1000], device), state);
    }
    read(parameter)
}

#[test]
fn updates_are_those_of_burn_on_every_backend() {
    let decay = 0.3;
    let rule = |is_decoupled| Adam { betas: (0.9, 0.98), epsilon: 1e-8, weight_decay: decay, is_decoupled };
    let penalty = Some(WeightDecayConfig::new(decay as f32));
    let adam = AdamConfig::new().with_beta_2(0.98).with_epsilon(1e-8).with_weight_decay(penalty).build();
    let adam_w = AdamWConfig::new().with_beta_2(0.98).with_epsilon(1e-8).with_weight_decay(decay as f32).build();
    for device in devices() {
        let found = [false, true].map(|is_decoupled| trained(&rule(is_decoupled), &device));
        let expected = [trained(&adam, &device), trained(&adam_w, &device)];
        for (found, expected) in found.iter().zip(&expected) {
            assert!(difference(found, expected) < 1e-5, "{device:?}: {}", difference(found, expected));
        }
        assert!(difference(&found[0], &expected[1]) > 1e-2, "the two rules are not told apart");
        let later = trained(&Adam { betas: (0.9, 0.981), ..rule(true) }, &device);
        assert!(difference(&later, &expected[1]) > 1e-4, "another decay rate is not told apart");
    }
}

#[test]
fn sums_of_squares_are_those_of_the_definition_on_every_backend() {
    for device in devices() {
        let x = drawn(1, [37, 1001], &device);
        let expected: f64 = read(x.clone()).iter::<f64>().map(|x| x * x).sum();
        let found = f64::from(sum_of_squares(x.clone().transpose()).into_scalar::<f32>());
        assert!((found / expected - 1.0).abs() < 1e-5, "{device:?}: {found} is not {expected}");
        let without_last = f64::from(sum_of_squares(x.slice([0..37, 0..1000])).into_scalar::<f32>());
        assert!((without_last / expected - 1.0).abs() > 1e-5, "a missing column is not noticed");
    }
}

#[test]
fn what_else_holds_the_numbers_keeps_them() {
    let rule = Adam { betas: (0.9, 0.98), epsilon: 1e-8, weight_decay: 0.0, is_decoupled: false };
    for device in devices() {
        let [parameter, gradient] = [0, 1].map(|seed| drawn(seed, [37, 1000], &device));
        let (first, state) = rule.step(0.1, parameter, gradient.clone(), None);
        let moment = |state: &Option<AdamState<2>>| read(state.as_ref().unwrap().momentum.moment_1.clone());
        let before = [read(first.clone()), moment(&state)];
        let (second, later) = rule.step(0.1, first.clone(), gradient * 2.0, state.clone());
        for (held, before) in [read(first), moment(&state)].iter().zip(&before) {
            assert_eq!(difference(held, before), 0.0, "{device:?}");
        }
        for (updated, before) in [read(second), moment(&later)].iter().zip(&before) {
            assert!(difference(updated, before) > 1e-2, "{device:?}: nothing was updated");
        }
    }
}

#[test]
fn parameters_and_moments_are_updated_where_they_are() {
    let tensor = |number: f32| FlexTensor::from_data(TensorData::new(vec![number; 6], [2, 3]));
    let address = |tensor: &FlexTensor| tensor.as_slice::<f32>().unwrap().as_ptr();
    let [parameter, first, second] = [1.0, 2.0, 3.0].map(tensor);
    let before = [&parameter, &first, &second].map(address);
    let shared = second.clone();
    let step = Adam { betas: (0.9, 0.98), epsilon: 1e-8, weight_decay: 0.0, is_decoupled: false }.at(1, 0.1);
    let (parameter, first, second) = Flex::adam(parameter, tensor(1.0), first, second, step);
    assert_eq!([address(&parameter), address(&first)], before[..2]);
    assert_ne!(address(&second), before[2], "what somebody else sees was overwritten");
    assert_eq!(shared.as_slice::<f32>().unwrap(), [3.0; 6]);
}
