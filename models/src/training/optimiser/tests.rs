//! The update rules, their groups and their constants.

mod rules;

use burn::module::{Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

use super::*;

#[derive(Module, Debug)]
struct RandomSynthesizer {
    table: Param<Tensor<2>>,
    value: Linear,
}

#[derive(Module, Debug)]
struct Model {
    synthesizer: RandomSynthesizer,
    norm: LayerNorm,
    output: Linear,
}

fn model() -> Model {
    let device = Device::flex().autodiff();
    let ones = |shape: [usize; 2]| Param::from_data(TensorData::ones::<f32, _>(shape), &device);
    let linear = || {
        let mut linear = LinearConfig::new(2, 2).init(&device);
        linear.weight = ones([2, 2]);
        linear.bias = Some(Param::from_data([1.0, 1.0], &device));
        linear
    };
    let mut norm = LayerNormConfig::new(2).init(&device);
    norm.gamma = Param::from_data([1.0, 1.0], &device);
    norm.beta = Some(Param::from_data([1.0, 1.0], &device));
    Model { synthesizer: RandomSynthesizer { table: ones([3, 3]), value: linear() }, norm, output: linear() }
}

/// Gradients that are all `factor` times one.
fn gradients(model: &Model, factor: f64) -> GradientsParams {
    let linear = |linear: &Linear| linear.weight.val().sum() + linear.bias.as_ref().unwrap().val().sum();
    let norm = model.norm.gamma.val().sum() + model.norm.beta.as_ref().unwrap().val().sum();
    let sum = model.synthesizer.table.val().sum() + linear(&model.synthesizer.value) + norm + linear(&model.output);
    GradientsParams::from_grads(sum.mul_scalar(factor).backward(), model)
}

/// The first value of each parameter, which all its values equal, by its path.
fn first_values(model: &Model) -> Vec<(&'static str, f64)> {
    fn first<const D: usize>(parameter: &Param<Tensor<D>>) -> f64 {
        parameter.val().into_data().iter::<f64>().next().unwrap()
    }
    let Model { synthesizer: RandomSynthesizer { table, value }, norm, output } = model;
    vec![
        ("norm.beta", first(norm.beta.as_ref().unwrap())),
        ("norm.gamma", first(&norm.gamma)),
        ("output.bias", first(output.bias.as_ref().unwrap())),
        ("output.weight", first(&output.weight)),
        ("synthesizer.table", first(table)),
        ("synthesizer.value.bias", first(value.bias.as_ref().unwrap())),
        ("synthesizer.value.weight", first(&value.weight)),
    ]
}

#[test]
fn decay_spares_biases_normalisation_and_synthesizer_tables() {
    let device = Device::flex();
    let config = OptimiserConfig { kind: OptimiserKind::AdamW, weight_decay: 0.5, ..OptimiserConfig::default() };
    let decayed = |config: &OptimiserConfig| {
        let model = model();
        let gradients = gradients(&model, 0.0);
        let values = first_values(&config.init(&device).unwrap().step(0.1, model, gradients));
        values.into_iter().filter(|(_, value)| *value != 1.0).inspect(|(_, value)| assert!((value - 0.95).abs() < 1e-6)).collect::<Vec<_>>()
    };
    let paths: Vec<&str> = decayed(&config).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["output.weight", "synthesizer.value.weight"]);
    let everything = OptimiserConfig { without_decay: Vec::new(), ..config };
    assert_eq!(decayed(&everything).len(), 7);
}

#[test]
fn the_default_exemptions_are_those_of_recorded_runs() {
    let recorded = [
        r"(^|[._])bias(_[a-z]+)?$",
        r"(^|\.)(gamma|beta)$",
        r"(?i)synthesizer[a-z]*\.(table|query_factor|key_factor|position)$",
        r"AdaptiveSpan\.span$",
    ];
    // Later exemptions concern parameters of no recorded run.
    let later = [
        r"Softmax\.sink$",
        r"\.lambda_[qk][12]$",
        r"\.(logit|weight)_mixing$",
        r"\.a_log$",
        r"StateSpace\.skip$",
        r"Aft\.(query_position|key_position|position_table)$",
        r"Gmlp\.position_bias$",
        r"MlpMixer\.(hidden|mixing)_bias$",
    ];
    assert_eq!(without_decay(), [&recorded[..], &later].concat());
}

#[test]
fn the_default_exemptions_match_paths_as_documented() {
    let is_exempt = |path: &str| ParamGroup::from_any_regexes(without_decay()).unwrap().matches(&0.into(), Some(path));
    for path in [
        "output.bias",
        "attention.content_bias",
        "attention.bias_u",
        "norm.gamma",
        "layers.0.norm.beta",
        "encoder.layers.0.self_attention.Softmax.logits.SynthesizerRandom.table",
        "encoder.layers.0.self_attention.Softmax.logits.SynthesizerFactorizedRandom.key_factor",
        "decoder.layers.1.self_attention.Softmax.logits.Mixture.members.0.SynthesizerDense.position",
        "layers.0.self_attention.Softmax.logits.AdaptiveSpan.span",
        "layers.0.self_attention.Softmax.logits.Relative.content_bias",
    ] {
        assert!(is_exempt(path), "{path} decays");
    }
    for path in ["output.weight", "attention.SynthesizerDense.hidden.weight", "embedding.table", "bias_network.weight", "alphabeta"] {
        assert!(!is_exempt(path), "{path} does not decay");
    }
}

#[test]
fn adam_follows_its_equations() {
    let config = OptimiserConfig { weight_decay: 0.0, ..OptimiserConfig::default() };
    let (beta_1, beta_2) = config.betas;
    let mut optimiser = config.init(&Device::flex()).unwrap();
    let mut model = model();
    let (mut value, mut first, mut second) = (1.0, 0.0, 0.0);
    for (t, factor) in [0.5, -2.0, 0.01].into_iter().enumerate() {
        let gradients = gradients(&model, factor);
        model = optimiser.step(0.1, model, gradients);
        first = beta_1 * first + (1.0 - beta_1) * factor;
        second = beta_2 * second + (1.0 - beta_2) * factor * factor;
        let t = t as i32 + 1;
        value -= 0.1 * (first / (1.0 - beta_1.powi(t))) / ((second / (1.0 - beta_2.powi(t))).sqrt() + 1e-9);
        for (path, found) in first_values(&model) {
            assert!((found - value).abs() < 1e-5, "{path} is {found} instead of {value} after step {t}");
        }
    }
}

#[test]
fn adam_adds_decay_to_the_gradient() {
    let config = OptimiserConfig { weight_decay: 0.5, ..OptimiserConfig::default() };
    let model = model();
    let gradients = gradients(&model, 0.0);
    let updated = config.init(&Device::flex()).unwrap().step(0.1, model, gradients);
    // The first step of Adam has length 1 for any gradient magnitude.
    assert!((updated.output.weight.val().into_data().iter::<f64>().next().unwrap() - 0.9).abs() < 1e-6);
    assert_eq!(updated.norm.gamma.val().into_data().iter::<f64>().next().unwrap(), 1.0);
}

#[test]
fn epsilon_follows_the_update_rule_unless_given() {
    let adam = OptimiserConfig::default();
    let adam_w = OptimiserConfig { kind: OptimiserKind::AdamW, ..OptimiserConfig::default() };
    assert_eq!((adam.effective_epsilon(), adam_w.effective_epsilon()), (1e-9, 1e-8));
    assert_eq!(OptimiserConfig { epsilon: Some(1e-6), ..adam }.effective_epsilon(), 1e-6);
}

#[test]
fn what_is_out_of_range_is_named() {
    let refused = |config: OptimiserConfig| config.validate().unwrap_err().field;
    let default = OptimiserConfig::default;
    assert_eq!(refused(OptimiserConfig { betas: (-0.1, 0.9), ..default() }), "betas");
    assert_eq!(refused(OptimiserConfig { epsilon: Some(0.0), ..default() }), "epsilon");
    assert_eq!(refused(OptimiserConfig { weight_decay: f64::NAN, ..default() }), "weight_decay");
    assert_eq!(refused(OptimiserConfig { without_decay: vec!["(".into()], ..default() }), "without_decay");
}
