//! Adagrad, stochastic gradient descent and Adafactor against loops over their equations in double precision.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::TensorData;

use super::super::*;
use burn::module::Param;
use burn::tensor::Tensor;

const ROWS: usize = 3;
const COLUMNS: usize = 4;
const STEPS: usize = 6;
const RATE: f64 = 0.03;

#[derive(Module, Debug)]
struct Model {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

/// Values of a parameter, or its gradient in a step, in arbitrary order.
fn drawn(seed: usize, number: usize) -> Vec<f64> {
    (0..number).map(|index| f64::from((((seed * 31 + index * 17) as f64) * 0.7).sin() as f32)).collect()
}

fn data(values: &[f64], shape: &[usize]) -> TensorData {
    TensorData::new(values.iter().map(|value| *value as f32).collect::<Vec<_>>(), shape.to_vec())
}

fn gradients_of(step: usize) -> [Vec<f64>; 2] {
    // Steps of different sizes, so that each moment matters.
    let size = [1.0, 0.02, 3.0, 0.5, 0.001, 2.0][step];
    [drawn(10 + step, ROWS * COLUMNS), drawn(50 + step, COLUMNS)].map(|values| values.iter().map(|value| value * size).collect())
}

/// Weight and bias after several steps; the optimiser is stored and loaded after the step `stored`.
fn trained(config: &OptimiserConfig, stored: Option<usize>) -> [Vec<f32>; 2] {
    let plain = Device::flex();
    let device = plain.clone().autodiff();
    let mut model = Model {
        weight: Param::from_data(data(&drawn(1, ROWS * COLUMNS), &[ROWS, COLUMNS]), &device),
        bias: Param::from_data(data(&drawn(2, COLUMNS), &[COLUMNS]), &device),
    };
    let mut optimiser = config.init(&plain).unwrap();
    for step in 0..STEPS {
        let [of_weight, of_bias] = gradients_of(step);
        let weight = model.weight.val() * Tensor::from_data(data(&of_weight, &[ROWS, COLUMNS]), &device);
        let bias = model.bias.val() * Tensor::from_data(data(&of_bias, &[COLUMNS]), &device);
        let gradients = GradientsParams::from_grads((weight.sum() + bias.sum()).backward(), &model);
        model = optimiser.step(RATE, model, gradients);
        if stored == Some(step) {
            optimiser = config.init(&plain).unwrap().from_bytes(optimiser.into_bytes().unwrap()).unwrap();
        }
    }
    [model.weight.val().into_data(), model.bias.val().into_data()].map(|data| data.iter::<f32>().collect())
}

/// Expected parameter under `update`, which applies a gradient; the step number counts from 1.
fn expected(index: usize, mut update: impl FnMut(&mut [f64], &[f64], usize)) -> Vec<f64> {
    let mut values = if index == 0 { drawn(1, ROWS * COLUMNS) } else { drawn(2, COLUMNS) };
    for step in 0..STEPS {
        update(&mut values, &gradients_of(step)[index], step + 1);
    }
    values
}

fn assert_near(found: &[f32], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 2e-5 * expected.abs().max(1.0), "{found} instead of {expected}");
    }
}

fn config(kind: OptimiserKind) -> OptimiserConfig {
    OptimiserConfig { kind, without_decay: vec!["^bias$".into()], ..OptimiserConfig::default() }
}

#[test]
fn adagrad_follows_its_equations() {
    for (lr_decay, weight_decay) in [(0.0, 0.0), (0.1, 0.2)] {
        let config = OptimiserConfig { lr_decay: Some(lr_decay), weight_decay, ..config(OptimiserKind::Adagrad) };
        for (index, found) in trained(&config, None).iter().enumerate() {
            let mut sums = vec![0.0; found.len()];
            let decay = if index == 0 { weight_decay } else { 0.0 };
            let expected = expected(index, |values, gradients, step| {
                let rate = RATE / (1.0 + (step as f64 - 1.0) * lr_decay);
                for ((value, gradient), sum) in values.iter_mut().zip(gradients).zip(&mut sums) {
                    let gradient = gradient + decay * *value;
                    *sum += gradient * gradient;
                    *value -= rate * gradient / (sum.sqrt() + 1e-10);
                }
            });
            assert_near(found, &expected);
        }
    }
}

#[test]
fn descent_with_momentum_follows_its_equations() {
    for (momentum, dampening, nesterov, weight_decay) in
        [(None, None, None, 0.0), (Some(0.9), None, None, 0.2), (Some(0.9), Some(0.3), None, 0.0), (Some(0.99), None, Some(true), 0.2)]
    {
        let config = OptimiserConfig { momentum, dampening, nesterov, weight_decay, ..config(OptimiserKind::Sgd) };
        let (share, kept) = (momentum.unwrap_or(0.0), 1.0 - dampening.unwrap_or(0.0));
        for (index, found) in trained(&config, None).iter().enumerate() {
            let mut direction = vec![0.0; found.len()];
            let decay = if index == 0 { weight_decay } else { 0.0 };
            let expected = expected(index, |values, gradients, step| {
                for ((value, gradient), direction) in values.iter_mut().zip(gradients).zip(&mut direction) {
                    let gradient = gradient + decay * *value;
                    *direction = if step == 1 { gradient } else { share * *direction + kept * gradient };
                    *value -= RATE * if nesterov == Some(true) { gradient + share * *direction } else { *direction };
                }
            });
            assert_near(found, &expected);
        }
    }
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
}

/// Means of the rows of a matrix, and those of its columns.
fn means(values: &[f64]) -> [Vec<f64>; 2] {
    let rows = values.chunks(COLUMNS).map(|row| row.iter().sum::<f64>() / COLUMNS as f64).collect();
    let columns = (0..COLUMNS).map(|column| values.iter().skip(column).step_by(COLUMNS).sum::<f64>() / ROWS as f64).collect();
    [rows, columns]
}

#[test]
fn adafactor_follows_its_equations() {
    let plain = config(OptimiserKind::Adafactor);
    let absolute = OptimiserConfig {
        scale_parameter: Some(false),
        relative_step: Some(false),
        clip_threshold: Some(0.5),
        decay_rate: Some(-0.5),
        epsilon: Some(1e-3),
        weight_decay: 0.2,
        ..plain.clone()
    };
    let floored = OptimiserConfig { epsilon_2: Some(2.0), ..plain.clone() };
    for config in [plain, absolute, floored] {
        let [epsilon, floor] = [config.epsilon.unwrap_or(1e-30), config.epsilon_2.unwrap_or(1e-3)];
        let (threshold, exponent) = (config.clip_threshold.unwrap_or(1.0), config.decay_rate.unwrap_or(-0.8));
        for (index, found) in trained(&config, None).iter().enumerate() {
            let (mut rows, mut columns, mut squares) = (vec![0.0; ROWS], vec![0.0; COLUMNS], vec![0.0; found.len()]);
            let decay = if index == 0 { config.weight_decay } else { 0.0 };
            let expected = expected(index, |values, gradients, step| {
                let beta = 1.0 - (step as f64).powf(exponent);
                let now: Vec<f64> = gradients.iter().map(|gradient| gradient * gradient + epsilon).collect();
                let mix = |old: &mut Vec<f64>, new: &[f64]| {
                    old.iter_mut().zip(new).for_each(|(old, new)| *old = beta * *old + (1.0 - beta) * new);
                };
                let moments: Vec<f64> = if index == 0 {
                    let [of_rows, of_columns] = means(&now);
                    mix(&mut rows, &of_rows);
                    mix(&mut columns, &of_columns);
                    let mean = rows.iter().sum::<f64>() / ROWS as f64;
                    rows.iter().flat_map(|row| columns.iter().map(move |column| row * column / mean)).collect()
                } else {
                    mix(&mut squares, &now);
                    squares.clone()
                };
                let update: Vec<f64> = gradients.iter().zip(&moments).map(|(gradient, moment)| gradient / moment.sqrt()).collect();
                let clipping = (root_mean_square(&update) / threshold).max(1.0);
                let step = if config.relative_step == Some(false) { RATE } else { RATE.min(1.0 / (step as f64).sqrt()) };
                let scale = if config.scale_parameter == Some(false) { 1.0 } else { root_mean_square(values).max(floor) };
                for (value, update) in values.iter_mut().zip(update) {
                    *value -= RATE * decay * *value + step * scale * update / clipping;
                }
            });
            assert_near(found, &expected);
        }
    }
}

#[test]
fn a_relative_step_becomes_shorter_than_the_learning_rate() {
    let rule = OptimiserConfig { scale_parameter: Some(false), ..config(OptimiserKind::Adafactor) }.adafactor(0.0);
    let device = Device::flex();
    let mut parameter = Tensor::<1>::zeros([1], &device);
    let mut state = None;
    for step in 1..=9 {
        (parameter, state) = rule.step(0.5, parameter, Tensor::ones([1], &device), state);
        let found: f32 = parameter.clone().into_scalar();
        let expected: f64 = -(1..=step).map(|t| 0.5_f64.min(1.0 / f64::from(t).sqrt())).sum::<f64>();
        assert!((f64::from(found) - expected).abs() < 1e-5, "{found} instead of {expected} after step {step}");
    }
}

#[test]
fn each_rule_goes_on_from_its_stored_state_to_the_same_bits() {
    let nesterov = OptimiserConfig { momentum: Some(0.9), nesterov: Some(true), ..config(OptimiserKind::Sgd) };
    let adagrad = OptimiserConfig { lr_decay: Some(0.1), weight_decay: 0.1, ..config(OptimiserKind::Adagrad) };
    for config in [config(OptimiserKind::Adam), adagrad, config(OptimiserKind::Sgd), nesterov, config(OptimiserKind::Adafactor)] {
        let whole = trained(&config, None);
        for stored in 0..STEPS {
            assert_eq!(trained(&config, Some(stored)), whole, "{:?}, stored after step {stored}", config.kind);
        }
    }
}

#[test]
fn an_option_of_another_rule_is_refused() {
    type Give = fn(&mut OptimiserConfig);
    use OptimiserKind::{Adafactor, Adagrad, Adam, AdamW, Sgd};
    let options: [(&str, Give, &[OptimiserKind]); 11] = [
        ("betas", |c| c.betas = (0.8, 0.98), &[Adam, AdamW]),
        ("epsilon", |c| c.epsilon = Some(1e-5), &[Adam, AdamW, Adagrad, Adafactor]),
        ("lr_decay", |c| c.lr_decay = Some(0.1), &[Adagrad]),
        ("momentum", |c| c.momentum = Some(0.5), &[Sgd]),
        ("dampening", |c| (c.momentum, c.dampening) = (Some(0.5), Some(0.5)), &[Sgd]),
        ("nesterov", |c| (c.momentum, c.nesterov) = (Some(0.5), Some(true)), &[Sgd]),
        ("clip_threshold", |c| c.clip_threshold = Some(2.0), &[Adafactor]),
        ("decay_rate", |c| c.decay_rate = Some(-0.5), &[Adafactor]),
        ("scale_parameter", |c| c.scale_parameter = Some(false), &[Adafactor]),
        ("epsilon_2", |c| c.epsilon_2 = Some(1e-2), &[Adafactor]),
        ("relative_step", |c| c.relative_step = Some(false), &[Adafactor]),
    ];
    for kind in [Adam, AdamW, Adagrad, Sgd, Adafactor] {
        for (field, give, owners) in options {
            let mut given = config(kind);
            give(&mut given);
            match given.validate() {
                Ok(()) => assert!(owners.contains(&kind), "{kind:?} takes {field}"),
                Err(error) => assert!(!owners.contains(&kind) && error.reason.contains("no effect"), "{kind:?}: {error}"),
            }
        }
    }
    let of = |given: OptimiserConfig| given.validate().unwrap_err().field;
    assert_eq!(of(OptimiserConfig { dampening: Some(0.5), ..config(Sgd) }), "dampening");
    assert_eq!(of(OptimiserConfig { nesterov: Some(true), ..config(Sgd) }), "nesterov");
    let both = OptimiserConfig { momentum: Some(0.5), dampening: Some(0.5), nesterov: Some(true), ..config(Sgd) };
    assert_eq!(of(both), "dampening");
    assert_eq!(of(OptimiserConfig { scale_parameter: Some(false), epsilon_2: Some(0.1), ..config(Adafactor) }), "epsilon_2");
}

#[test]
fn constants_of_each_rule_out_of_range_are_named() {
    let of = |given: OptimiserConfig| given.validate().unwrap_err().field;
    let plain = OptimiserConfig::default;
    assert_eq!(of(OptimiserConfig { momentum: Some(1.0), ..plain() }), "momentum");
    assert_eq!(of(OptimiserConfig { dampening: Some(-0.1), ..plain() }), "dampening");
    assert_eq!(of(OptimiserConfig { lr_decay: Some(-1.0), ..plain() }), "lr_decay");
    assert_eq!(of(OptimiserConfig { clip_threshold: Some(0.0), ..plain() }), "clip_threshold");
    assert_eq!(of(OptimiserConfig { epsilon_2: Some(f64::INFINITY), ..plain() }), "epsilon_2");
    assert_eq!(of(OptimiserConfig { decay_rate: Some(0.8), ..plain() }), "decay_rate");
    assert_eq!(of(OptimiserConfig { epsilon: Some(1e-60), ..config(OptimiserKind::Adagrad) }), "epsilon");
}
