//! Gradients of all configurable activations, norms and losses, against central differences in double precision on every backend.

use burn::module::{Param, ParamId};
use burn::tensor::{Int, Tensor};
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;
use libm::erf;

use crate::architectures::actor_critic::{ActorCriticHeadsConfig, Decision, Experience};
use crate::architectures::logistic_mixture::{NUMBERS_PER_COMPONENT, logistic_mixture_nll};
use crate::kernels::fused::tests::devices;
use crate::parts::feed_forward::{Activation, FeedForwardConfig, Neighbours};
use crate::parts::loss::{CrossEntropy, cross_entropy, projected_cross_entropy, squared_error, with_biases};
use crate::parts::norm::{NormConfig, NormKind};

/// Asserts on every backend that `found` has the gradient of `expected`, within 1e-5 of the largest slope.
fn assert_slopes(what: &str, x: &[f32], found: impl Fn(Tensor<1>) -> Tensor<1>, expected: impl Fn(&[f64]) -> f64) {
    let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let slope = |at: usize| {
        let moved = |step: f64| {
            let mut moved = exact.clone();
            moved[at] += step;
            expected(&moved)
        };
        (moved(1e-5) - moved(-1e-5)) / 2e-5
    };
    let slopes: Vec<f64> = (0..x.len()).map(slope).collect();
    let greatest = slopes.iter().fold(0.0f64, |greatest, slope| greatest.max(slope.abs()));
    assert!(greatest > 1e-2, "{what}: slopes of at most {greatest} tell nothing");
    for device in devices() {
        let leaf = Tensor::<1>::from_data(x, &device).require_grad();
        let gradient = read(leaf.grad(&found(leaf.clone()).sum().backward()).expect("there is a gradient"));
        for (at, (found, slope)) in gradient.iter::<f64>().zip(&slopes).enumerate() {
            let off = (found - slope).abs();
            assert!(off <= 1e-5 * greatest.max(1.0), "{what} on {device:?}: number {at} has slope {found} instead of {slope}");
        }
    }
}

fn drawn(name: &str, count: usize) -> Vec<f32> {
    Init::Normal(1.0).values(count, &RandomKey::from_seed(3).named(name))
}

fn weighted<const D: usize>(x: Tensor<D>, weights: &[f32]) -> Tensor<1> {
    let weights = Tensor::<1>::from_data(weights, &x.device());
    x.reshape([weights.dims()[0]]) * weights
}

fn sum_of(values: &[f64], weights: &[f32]) -> f64 {
    values.iter().zip(weights).map(|(value, &weight)| value * f64::from(weight)).sum()
}

fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

#[test]
fn slopes_of_activations_are_those_of_double_precision_on_every_backend() {
    // Not 0, where `relu` has no slope.
    let x: Vec<f32> = (-48..48).map(|at| (at as f32 + 0.5) / 10.0).chain([-2.02, 2.02]).collect();
    let (count, weights) = (x.len(), drawn("weights", x.len()));
    let all = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::QuickGelu, Activation::Silu];
    for (activation, gated, bias) in all.into_iter().flat_map(|one| [(one, false, true), (one, false, false), (one, true, true)]) {
        let config =
            FeedForwardConfig { d_model: 1, d_ff: 1, activation, gated, bias, chunk: None, separable: false, causal: false, dropout: 0.0 };
        let found = |x: Tensor<1>| {
            // Maps by 1, and a gate by 1 plus a bias of 0.
            let mut network = config.init(&RandomKey::from_seed(1), &x.device());
            let one = || Param::from_tensor(Tensor::ones([1, 1], &x.device()));
            (network.input.weight, network.output.weight) = (one(), one());
            network.gate = network.gate.take().map(|gate| burn::nn::Linear { weight: one(), ..gate });
            weighted(network.forward(x.reshape([1, count, 1]), None, Neighbours::default()), &weights)
        };
        let expected = |x: &[f64]| {
            let values: Vec<f64> = x.iter().map(|&x| activated(activation, x) * if gated { x } else { 1.0 }).collect();
            sum_of(&values, &weights)
        };
        assert_slopes(&format!("{activation:?}, gated {gated}, bias {bias}"), &x, found, expected);
    }
}

#[test]
fn slopes_of_norms_are_those_of_double_precision_on_every_backend() {
    const WIDTH: usize = 7;
    const ROWS: usize = 3;
    let weights = drawn("weights", ROWS * WIDTH);
    // Rows, then the scale, then the shift.
    let x = drawn("x", (ROWS + 2) * WIDTH);
    let configs = [
        NormConfig::new(NormKind::Layer),
        NormConfig::new(NormKind::Layer).with_bias(false),
        NormConfig::new(NormKind::Rms),
        NormConfig::new(NormKind::RmsPlusOne),
    ];
    for config in configs.map(|config| config.with_epsilon(1e-3)) {
        let found = |x: Tensor<1>| {
            let part = |row: usize| Param::initialized(ParamId::new(), x.clone().narrow(0, row * WIDTH, WIDTH));
            let mut norm = config.init(WIDTH, &x.device());
            norm.gamma = part(ROWS);
            norm.beta = norm.beta.take().map(|_| part(ROWS + 1));
            weighted(norm.forward(x.clone().narrow(0, 0, ROWS * WIDTH).reshape([ROWS, WIDTH])), &weights)
        };
        let expected = |x: &[f64]| {
            let (rows, parameters) = x.split_at(ROWS * WIDTH);
            let (gamma, beta) = parameters.split_at(WIDTH);
            let normal = |row: &[f64]| -> Vec<f64> {
                let centre = if config.kind == NormKind::Layer { row.iter().sum::<f64>() / WIDTH as f64 } else { 0.0 };
                let square = row.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / WIDTH as f64;
                let scale = |at: usize| gamma[at] + f64::from(config.kind == NormKind::RmsPlusOne);
                let shift = |at: usize| if config.has_bias() { beta[at] } else { 0.0 };
                row.iter().enumerate().map(|(at, x)| (x - centre) / (square + 1e-3).sqrt() * scale(at) + shift(at)).collect()
            };
            sum_of(&rows.chunks(WIDTH).flat_map(normal).collect::<Vec<_>>(), &weights)
        };
        assert_slopes(&format!("{config:?}"), &x, found, expected);
    }
}

const TARGETS: [i32; 4] = [3, 0, 4, 1];
const VOCABULARY: usize = 5;

/// Sum over the rows whose target is not `padding`.
fn plain_cross_entropy(logits: &[f64], padding: Option<u32>, smoothing: f64) -> f64 {
    let rows = logits.chunks(VOCABULARY).zip(TARGETS).filter(|(_, target)| padding != Some(*target as u32));
    rows.map(|(row, target)| {
        let total = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let even = row.iter().map(|logit| total - logit).sum::<f64>() / VOCABULARY as f64;
        (1.0 - smoothing) * (total - row[target as usize]) + smoothing * even
    })
    .sum()
}

#[test]
fn slopes_of_cross_entropies_are_those_of_double_precision_on_every_backend() {
    const WIDTH: usize = 3;
    const ROWS: usize = TARGETS.len();
    for (smoothing, padding) in [(0.0, None), (0.0, Some(0)), (0.1, None), (0.3, Some(0))] {
        let what = |which: &str| format!("{which}, smoothing {smoothing}, padding {padding:?}");
        let targets = |x: &Tensor<1>| Tensor::<1, Int>::from_data(TARGETS, &x.device());
        let loss = |found: CrossEntropy| found.loss;
        assert_slopes(
            &what("of logits"),
            &drawn("logits", ROWS * VOCABULARY),
            |x| loss(cross_entropy(x.clone().reshape([ROWS, VOCABULARY]), targets(&x), padding, smoothing)),
            |x| plain_cross_entropy(x, padding, smoothing),
        );
        // States, then the matrix, then the biases.
        let logits = |x: &[f64], has_biases: bool| -> Vec<f64> {
            let (states, rest) = x.split_at(ROWS * WIDTH);
            let (matrix, biases) = rest.split_at(VOCABULARY * WIDTH);
            let product = |state: &[f64], row: &[f64]| state.iter().zip(row).map(|(a, b)| a * b).sum::<f64>();
            let of_state = |state: &[f64]| -> Vec<f64> {
                let rows = matrix.chunks(WIDTH).enumerate();
                rows.map(|(token, row)| product(state, row) + if has_biases { biases[token] } else { 0.0 }).collect()
            };
            states.chunks(WIDTH).flat_map(of_state).collect()
        };
        for has_biases in [false, true] {
            assert_slopes(
                &what(if has_biases { "of states and biases" } else { "of states" }),
                &drawn("states", (ROWS + VOCABULARY) * WIDTH + VOCABULARY),
                |x| {
                    let part = |first: usize, count: usize| x.clone().narrow(0, first, count);
                    let states = part(0, ROWS * WIDTH).reshape([ROWS, WIDTH]);
                    let matrix = part(ROWS * WIDTH, VOCABULARY * WIDTH).reshape([VOCABULARY, WIDTH]);
                    let biases = part((ROWS + VOCABULARY) * WIDTH, VOCABULARY);
                    let (states, matrix) = if has_biases { with_biases(states, matrix, biases) } else { (states, matrix) };
                    loss(projected_cross_entropy(states, matrix, targets(&x), padding, smoothing))
                },
                |x| plain_cross_entropy(&logits(x, has_biases), padding, smoothing),
            );
        }
    }
}

#[test]
fn slopes_of_squared_errors_are_those_of_double_precision_on_every_backend() {
    let targets = [0.5f32, -1.0, 2.0];
    assert_slopes(
        "squared error",
        &drawn("predictions", 3),
        |x| squared_error(x.clone(), Tensor::from_data(targets, &x.device())),
        |x| x.iter().zip(targets).map(|(x, target)| (x - f64::from(target)).powi(2)).sum(),
    );
}

#[test]
fn slopes_of_mixtures_of_logistics_are_those_of_double_precision_on_every_backend() {
    const COMPONENTS: usize = 2;
    let pixel = [0i32, 255, 90];
    let mut numbers: Vec<f32> = drawn("numbers", NUMBERS_PER_COMPONENT * COMPONENTS).into_iter().map(|x| 0.5 * x).collect();
    numbers[4 * COMPONENTS..7 * COMPONENTS].iter_mut().for_each(|scale| *scale -= 1.0);
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let expected = |row: &[f64]| {
        let of = |part: usize, channel: usize, component: usize| row[(1 + 3 * part + channel) * COMPONENTS + component];
        let x = pixel.map(|value| f64::from(value) / 127.5 - 1.0);
        let weights: Vec<f64> = row[..COMPONENTS].iter().map(|logit| logit.exp()).collect();
        let probability: f64 = (0..COMPONENTS)
            .map(|m| {
                let [a, b, c] = [0, 1, 2].map(|index| of(2, index, m).tanh());
                let means = [of(0, 0, m), of(0, 1, m) + a * x[0], of(0, 2, m) + b * x[0] + c * x[1]];
                let end = |channel: usize, side: f64| (x[channel] + side / 255.0 - means[channel]) / of(1, channel, m).exp();
                let of_channel = |channel: usize| match pixel[channel] {
                    0 => logistic(end(channel, 1.0)),
                    255 => logistic(-end(channel, -1.0)),
                    _ => logistic(end(channel, 1.0)) - logistic(end(channel, -1.0)),
                };
                weights[m] / weights.iter().sum::<f64>() * (0..3).map(of_channel).product::<f64>()
            })
            .sum();
        -probability.ln()
    };
    let found = |x: Tensor<1>| logistic_mixture_nll(x.clone().unsqueeze(), Tensor::<2, Int>::from_data([pixel], &x.device()));
    assert_slopes("mixture of logistics", &numbers, found, expected);
}

#[test]
fn slopes_of_losses_of_actions_are_those_of_double_precision_on_every_backend() {
    const STEPS: usize = 3;
    const ACTIONS: usize = 3;
    // Logits, then values.
    let x = drawn("decisions", STEPS * (ACTIONS + 1));
    let (actions, returns, advantages, old) = ([[1i32, 2, 0]], [[2.0f32, -1.0, 0.5]], [[1.0f32, -0.5, 2.0]], [[-1.0f32, -1.1, -1.2]]);
    let decision = |x: Tensor<1>| Decision {
        log_policy: burn::tensor::activation::log_softmax(x.clone().narrow(0, 0, STEPS * ACTIONS).reshape([1, STEPS, ACTIONS]), 2),
        value: x.narrow(0, STEPS * ACTIONS, STEPS).reshape([1, STEPS]),
    };
    let heads = |x: &Tensor<1>| {
        let config = ActorCriticHeadsConfig { d_model: 1, actions: ACTIONS, ..Default::default() };
        config.init(&RandomKey::from_seed(1), &x.device())
    };
    // Of each step: ln π(a), the entropy and the value.
    let steps = |x: &[f64]| -> Vec<[f64; 3]> {
        let (logits, values) = x.split_at(STEPS * ACTIONS);
        let of_step = |(step, row): (usize, &[f64])| {
            let total = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            let entropy = -row.iter().map(|logit| (logit - total).exp() * (logit - total)).sum::<f64>();
            [row[actions[0][step] as usize] - total, entropy, values[step]]
        };
        logits.chunks(ACTIONS).enumerate().map(of_step).collect()
    };
    // Of the loss, the advantage is a constant to the policy.
    let constant: Vec<f64> = (0..STEPS).map(|step| f64::from(returns[0][step]) - f64::from(x[STEPS * ACTIONS + step])).collect();
    assert_slopes(
        "advantage actor-critic",
        &x,
        |x| heads(&x).loss(&decision(x.clone()), Tensor::from_data(actions, &x.device()), Tensor::from_data(returns, &x.device())),
        |x| {
            let of_step = |(step, [log, entropy, value]): (usize, [f64; 3])| {
                -log * constant[step] + 0.5 * (f64::from(returns[0][step]) - value).powi(2) - 0.01 * entropy
            };
            steps(x).into_iter().enumerate().map(of_step).sum::<f64>() / STEPS as f64
        },
    );
    assert_slopes(
        "clipped",
        &x,
        |x| {
            let device = x.device();
            let experience = Experience {
                actions: Tensor::from_data(actions, &device),
                log_probabilities: Tensor::from_data(old, &device),
                advantages: Tensor::from_data(advantages, &device),
                returns: Tensor::from_data(returns, &device),
                real: Tensor::ones([1, STEPS], &device),
            };
            heads(&x).clipped_loss(&decision(x), experience, 0.2)
        },
        |x| {
            let of_step = |(step, [log, entropy, value]): (usize, [f64; 3])| {
                let (ratio, advantage) = ((log - f64::from(old[0][step])).exp(), f64::from(advantages[0][step]));
                let surrogate = (ratio * advantage).min(ratio.clamp(0.8, 1.2) * advantage);
                -surrogate + 0.5 * (f64::from(returns[0][step]) - value).powi(2) - 0.01 * entropy
            };
            steps(x).into_iter().enumerate().map(of_step).sum::<f64>() / STEPS as f64
        },
    );
}
