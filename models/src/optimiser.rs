//! Adam and AdamW with weight decay only where it belongs, in one pass over memory.

mod update;

use burn::module::ParamGroup;
use burn::optim::{DynOptimizer, DynState, LearningRate, ModuleOptimizer, StateSink, StateSource};
use burn::tensor::Device;
use burn::tensor::kind::BridgeTensor;
use heedful_attention::registry;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::update::Adam;
pub use self::update::sum_of_squares;

/// The update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimiserKind {
    /// Adam (Kingma and Ba 2015); weight decay, if any, is added to the gradient.
    #[default]
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW,
}

/// Parameters exempt from weight decay unless the configuration says otherwise, as regular expressions over parameter paths:
/// biases (`bias`, `content_bias`, `bias_u`); gain and shift of layer and root-mean-square normalisation (`gamma`, `beta`); and what mechanisms name
/// ([`Mechanism::without_decay`](heedful_attention::registry::Mechanism::without_decay)).
pub fn without_decay() -> Vec<String> {
    let of_models = [r"(^|[._])bias(_[a-z]+)?$", r"(^|\.)(gamma|beta)$"];
    of_models.into_iter().chain(registry::without_decay()).map(str::to_owned).collect()
}

/// A constant of the optimiser that cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("optimiser, `{field}`: {reason}")]
pub struct OptimiserError {
    /// The field of the configuration.
    pub field: &'static str,
    /// What is wrong with the value, and which values are allowed.
    pub reason: String,
}

/// Fails with the error of `field` unless `holds`.
fn ensure(holds: bool, field: &'static str, reason: impl FnOnce() -> String) -> Result<(), OptimiserError> {
    if holds { Ok(()) } else { Err(OptimiserError { field, reason: reason() }) }
}

/// The optimiser and its constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserConfig {
    /// The update rule.
    pub kind: OptimiserKind,
    /// Decay rates of the two moments, each at least 0 and below 1. Default (0.9, 0.98), as in Vaswani et al. 2017, section 5.3.
    pub betas: (f64, f64),
    /// Added to the root of the second moment, above 0. Without it 1e-9 for Adam (Vaswani et al. 2017) and 1e-8 for AdamW (Loshchilov and Hutter 2019).
    pub epsilon: Option<f64>,
    /// Strength of the weight decay, 0 (none) or more.
    pub weight_decay: f64,
    /// Parameters exempt from weight decay: regular expressions, one of which must match somewhere in the parameter's path
    /// (`encoder.layers.0.norm.gamma`). Default [`without_decay`].
    pub without_decay: Vec<String>,
}

impl Default for OptimiserConfig {
    fn default() -> Self {
        Self { kind: OptimiserKind::Adam, betas: (0.9, 0.98), epsilon: None, weight_decay: 0.0, without_decay: without_decay() }
    }
}

impl OptimiserConfig {
    /// The epsilon in use: the one given, else the default of the update rule.
    pub fn effective_epsilon(&self) -> f64 {
        self.epsilon.unwrap_or(match self.kind {
            OptimiserKind::Adam => 1e-9,
            OptimiserKind::AdamW => 1e-8,
        })
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range or no regular expression.
    pub fn validate(&self) -> Result<(), OptimiserError> {
        let (beta_1, beta_2) = self.betas;
        ensure([beta_1, beta_2].iter().all(|beta| (0.0..1.0).contains(beta)), "betas", || {
            format!("({beta_1}, {beta_2}) are not both at least 0 and below 1")
        })?;
        let epsilon = self.effective_epsilon();
        ensure(epsilon.is_finite() && epsilon as f32 > 0.0, "epsilon", || format!("{epsilon} is not a positive number"))?;
        let decay = self.weight_decay;
        ensure(decay.is_finite() && decay >= 0.0, "weight_decay", || format!("{decay} is not a number of 0 or more"))?;
        self.exempt().map(drop)
    }

    /// The optimiser, its state empty. A state loaded later is put on `device`, where the parameters live (without autodiff).
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> Result<ModuleOptimizer, OptimiserError> {
        self.validate()?;
        let on_device = |decay| OnDevice { rule: self.rule(decay), device: device.clone() };
        let all = ModuleOptimizer::from(self.rule(self.weight_decay)).with_group(ParamGroup::all(), on_device(self.weight_decay), None);
        Ok(match self.exempt()? {
            Some(exempt) => all.with_group(exempt, on_device(0.0), None),
            None => all,
        })
    }

    fn rule(&self, weight_decay: f64) -> Adam {
        let is_decoupled = match self.kind {
            OptimiserKind::Adam => false,
            OptimiserKind::AdamW => true,
        };
        Adam { betas: self.betas, epsilon: self.effective_epsilon(), weight_decay, is_decoupled }
    }

    /// The group of parameters without decay; `None` if there is no expression, because burn's empty group matches everything.
    fn exempt(&self) -> Result<Option<ParamGroup>, OptimiserError> {
        if self.without_decay.is_empty() {
            return Ok(None);
        }
        ParamGroup::from_any_regexes(self.without_decay.clone())
            .map(Some)
            .map_err(|error| OptimiserError { field: "without_decay", reason: format!("not a regular expression: {error:?}") })
    }
}

/// An update rule whose saved state is restored on a given device. Left alone, burn restores it on the process's default device, which with several
/// backends compiled in may be a GPU that this machine does not have.
struct OnDevice<O> {
    rule: O,
    device: Device,
}

impl<O: DynOptimizer> DynOptimizer for OnDevice<O> {
    fn step_dyn(
        &self,
        rank: usize,
        rate: LearningRate,
        parameter: BridgeTensor,
        gradient: BridgeTensor,
        state: Option<DynState>,
    ) -> (BridgeTensor, Option<DynState>) {
        self.rule.step_dyn(rank, rate, parameter, gradient, state)
    }

    fn to_device_dyn(&self, state: DynState, device: &Device) -> DynState {
        self.rule.to_device_dyn(state, device)
    }

    fn state_flatten(&self, prefix: &str, state: &DynState, sink: &mut StateSink) {
        self.rule.state_flatten(prefix, state, sink);
    }

    fn state_unflatten(&self, rank: usize, prefix: &str, source: &mut StateSource, _default: &Device) -> Option<DynState> {
        self.rule.state_unflatten(rank, prefix, source, &self.device)
    }
}

#[cfg(test)]
mod tests {
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
            values
                .into_iter()
                .filter(|(_, value)| *value != 1.0)
                .inspect(|(_, value)| assert!((value - 0.95).abs() < 1e-6))
                .collect::<Vec<_>>()
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
        // What is exempt since then are parameters that no recorded run has.
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
        // The first step of Adam has length 1 whatever the gradient's size.
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
}
