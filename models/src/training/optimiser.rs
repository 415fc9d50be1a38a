//! Adam and AdamW in one pass over memory, Burn's Adagrad, stochastic gradient descent and Adafactor, and selective weight decay.

mod options;
#[cfg(test)]
mod tests;

use burn::module::ParamGroup;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGrad, AdaGradConfig, Adafactor, AdafactorConfig, DynOptimizer, DynState, LearningRate, ModuleOptimizer, Optimizer, Sgd, SgdConfig,
    StateSink, StateSource,
};
use burn::tensor::Device;
use burn::tensor::kind::BridgeTensor;
use heedful_attention::registry;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kernels::adam::Adam;

/// The update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimiserKind {
    /// Adam (Kingma and Ba 2015); weight decay, if any, is added to the gradient.
    #[default]
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW,
    /// Adagrad (Duchi et al. 2011), as in PyTorch: `x -= rate / (1 + (t - 1) lr_decay) * g / (sqrt(Σ g²) + ε)`. Adaptive spans were trained with it.
    Adagrad,
    /// Stochastic gradient descent with momentum, as in PyTorch: `b = momentum b + (1 - dampening) g`, with `b = g` at first, and `x -= rate * b`, or
    /// `rate * (g + momentum b)` with `nesterov`. Used by Al-Rfou et al. 2019.
    Sgd,
    /// Adafactor (Shazeer and Stern 2018) without a first moment, as in Hugging Face's library and PyTorch. Used for T5 and Reformers.
    ///
    /// Matrices store means of squared gradients only by row and column. With `relative_step` the step is the minimum of the learning rate and `1 / sqrt(t)`,
    /// as in PyTorch. The rule of the paper, and of `relative_step` in Hugging Face's library, without a separate rate, corresponds to `learning_rate = 1e-2`
    /// under a constant schedule. Weight decay is that of PyTorch, `x -= rate * weight_decay * x`.
    Adafactor,
}

/// Parameters exempt from weight decay by default, as regular expressions over parameter paths: biases (`bias`, `content_bias`, `bias_u`); gain and shift of
/// layer and root-mean-square normalisation (`gamma`, `beta`); and the parameters named by mechanisms
/// ([`Card::without_decay`](heedful_attention::description::Card::without_decay)).
pub fn without_decay() -> Vec<String> {
    let of_models = [r"(^|[._])bias(_[a-z]+)?$", r"(^|\.)(gamma|beta)$"];
    of_models.into_iter().chain(registry::without_decay()).map(str::to_owned).collect()
}

/// An invalid constant of the optimiser.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("optimiser, `{field}`: {reason}")]
pub struct OptimiserError {
    /// The field of the configuration.
    pub field: &'static str,
    /// Problem with the value, and the permitted values.
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
    /// Adam and AdamW: decay rates of the two moments, each at least 0 and below 1. Default (0.9, 0.98), as in Vaswani et al. 2017, section 5.3.
    pub betas: (f64, f64),
    /// Added to the root of the second moment, above 0. Default 1e-9 for Adam (Vaswani et al. 2017), 1e-8 for AdamW (Loshchilov and Hutter 2019) and 1e-10 for
    /// Adagrad (PyTorch). Adafactor adds it to squared gradients, default 1e-30.
    pub epsilon: Option<f64>,
    /// Adagrad: decay of the learning rate per step, 0 or more. Default 0.
    pub lr_decay: Option<f64>,
    /// SGD: momentum, at least 0 and below 1. Default 0.
    pub momentum: Option<f64>,
    /// SGD with momentum: fraction of the gradient that does not enter the momentum, at least 0 and below 1. Default 0.
    pub dampening: Option<f64>,
    /// SGD with momentum, without dampening: whether to use Nesterov momentum. Default no.
    pub nesterov: Option<bool>,
    /// Adafactor: maximum root mean square of an update before the rate, above 0. Default 1.
    pub clip_threshold: Option<f64>,
    /// Adafactor: exponent `c` of the decay `1 - t^c` of second moments, below 0. Default -0.8.
    pub decay_rate: Option<f64>,
    /// Adafactor: whether a step is multiplied by the root mean square of the parameter. Default yes.
    pub scale_parameter: Option<bool>,
    /// Adafactor with `scale_parameter`: minimum of that factor, above 0. Default 1e-3.
    pub epsilon_2: Option<f64>,
    /// Adafactor: whether `1 / sqrt(t)` bounds the learning rate. Default yes.
    pub relative_step: Option<bool>,
    /// Strength of the weight decay, 0 (none) or more.
    pub weight_decay: f64,
    /// Parameters exempt from weight decay: regular expressions, one of which must match somewhere in the parameter's path
    /// (`encoder.layers.0.norm.gamma`). Default [`without_decay`].
    pub without_decay: Vec<String>,
}

impl Default for OptimiserConfig {
    fn default() -> Self {
        Self {
            kind: OptimiserKind::Adam,
            betas: (0.9, 0.98),
            epsilon: None,
            lr_decay: None,
            momentum: None,
            dampening: None,
            nesterov: None,
            clip_threshold: None,
            decay_rate: None,
            scale_parameter: None,
            epsilon_2: None,
            relative_step: None,
            weight_decay: 0.0,
            without_decay: without_decay(),
        }
    }
}

impl OptimiserConfig {
    /// Creates the optimiser with empty state. A state loaded later is put on `device`, that of the parameters (without autodiff).
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> Result<ModuleOptimizer, OptimiserError> {
        self.validate()?;
        match self.kind {
            OptimiserKind::Adam | OptimiserKind::AdamW => self.grouped(device, |decay| self.adam(decay)),
            OptimiserKind::Adagrad => self.grouped(device, |decay| self.adagrad(decay)),
            OptimiserKind::Sgd => self.grouped(device, |decay| self.sgd(decay)),
            OptimiserKind::Adafactor => self.grouped(device, |decay| self.adafactor(decay)),
        }
    }

    /// Minimum number of state numbers per parameter number. Adafactor stores one per row and column of a matrix, which counts as none.
    pub fn moments(&self) -> usize {
        match self.kind {
            OptimiserKind::Adam | OptimiserKind::AdamW => 2,
            OptimiserKind::Adagrad => 1,
            OptimiserKind::Sgd => usize::from(self.momentum.is_some_and(|momentum| momentum > 0.0)),
            OptimiserKind::Adafactor => 0,
        }
    }

    /// `rule` with this decay, and without decay for exempt parameters.
    fn grouped<O: Optimizer>(&self, device: &Device, rule: impl Fn(f64) -> O) -> Result<ModuleOptimizer, OptimiserError> {
        let on_device = |decay| OnDevice { rule: rule(decay), device: device.clone() };
        let all = ModuleOptimizer::from(rule(self.weight_decay)).with_group(ParamGroup::all(), on_device(self.weight_decay), None);
        Ok(match self.exempt()? {
            Some(exempt) => all.with_group(exempt, on_device(0.0), None),
            None => all,
        })
    }

    fn adam(&self, weight_decay: f64) -> Adam {
        Adam { betas: self.betas, epsilon: self.effective_epsilon(), weight_decay, is_decoupled: self.kind == OptimiserKind::AdamW }
    }

    fn adagrad(&self, weight_decay: f64) -> AdaGrad {
        AdaGradConfig::new()
            .with_lr_decay(self.lr_decay.unwrap_or(0.0))
            .with_epsilon(self.effective_epsilon() as f32)
            .with_weight_decay(added_to_gradients(weight_decay))
            .build()
    }

    fn sgd(&self, weight_decay: f64) -> Sgd {
        let momentum = self.momentum.filter(|momentum| *momentum > 0.0).map(|momentum| {
            MomentumConfig::new()
                .with_momentum(momentum)
                .with_dampening(self.dampening.unwrap_or(0.0))
                .with_nesterov(self.nesterov.unwrap_or(false))
        });
        SgdConfig::new().with_weight_decay(added_to_gradients(weight_decay)).with_momentum(momentum).build()
    }

    fn adafactor(&self, weight_decay: f64) -> Adafactor {
        AdafactorConfig::new()
            .with_epsilon_1(self.effective_epsilon() as f32)
            .with_epsilon_2(self.epsilon_2.unwrap_or(1e-3) as f32)
            .with_clip_threshold(self.clip_threshold.unwrap_or(1.0) as f32)
            .with_decay_rate(self.decay_rate.unwrap_or(-0.8))
            .with_relative_step(self.relative_step.unwrap_or(true))
            .with_scale_parameter(self.scale_parameter.unwrap_or(true))
            .with_weight_decay(weight_decay as f32)
            .build()
    }

    /// Group of parameters without decay; `None` without expressions, because Burn's empty group matches everything.
    fn exempt(&self) -> Result<Option<ParamGroup>, OptimiserError> {
        if self.without_decay.is_empty() {
            return Ok(None);
        }
        ParamGroup::from_any_regexes(self.without_decay.clone())
            .map(Some)
            .map_err(|error| OptimiserError { field: "without_decay", reason: format!("not a regular expression: {error:?}") })
    }
}

/// Weight decay as part of the gradient; `None` for strength 0, which would only take time.
fn added_to_gradients(strength: f64) -> Option<WeightDecayConfig> {
    (strength > 0.0).then(|| WeightDecayConfig::new(strength as f32))
}

/// An update rule whose saved state is restored on a given device. By default Burn restores it on the process's default device, which with several compiled
/// backends may be a GPU that the machine lacks.
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
