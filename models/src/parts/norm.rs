//! Normalisation of states, separately at each position.
//!
//! * `layer`: `(x - mean) / sqrt(variance + ε) ⊙ γ + β` (Ba et al. 2016)
//! * `rms`: `x / sqrt(mean(x²) + ε) ⊙ γ` (Zhang and Sennrich 2019, section 3)
//! * `rms-plus-one`: `x / sqrt(mean(x²) + ε) ⊙ (1 + γ)`, `γ` 0 at first, so that weight decay draws the scale to 1 (Gemma)
//!
//! Means are over the width. In 16 bits, means of squares and the product of `rms-plus-one` use 32 bits.

use burn::module::{Module, Param};
use burn::nn::{LayerNormConfig, RmsNorm};
use burn::tensor::{DType, Device, Tensor};
use derive_setters::Setters;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::is_queued;
use serde::{Deserialize, Serialize};

use crate::kernels::fused::{self, NORM_EPSILON};

/// Kind of normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + ε) ⊙ γ + β` (Ba et al. 2016).
    #[default]
    Layer,
    /// `x / sqrt(mean(x²) + ε) ⊙ γ` (Zhang and Sennrich 2019).
    Rms,
    /// `x / sqrt(mean(x²) + ε) ⊙ (1 + γ)` (Gemma).
    RmsPlusOne,
}

/// Configuration of [`Norm`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", strip_option)]
pub struct NormConfig {
    /// Kind of normalisation (default: layer normalisation).
    pub kind: NormKind,
    /// `ε`, greater than 0 (default: 1e-6, as in tensor2tensor; 1e-5 in PyTorch).
    pub epsilon: f64,
    /// Whether layer normalisation has the shift `β` (default: yes; the other kinds have none).
    pub bias: Option<bool>,
}

impl Default for NormConfig {
    fn default() -> Self {
        Self { kind: NormKind::default(), epsilon: NORM_EPSILON, bias: None }
    }
}

impl NormConfig {
    /// Normalisation of this kind with ε = [`NORM_EPSILON`].
    pub fn new(kind: NormKind) -> Self {
        Self { kind, ..Self::default() }
    }

    pub(crate) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        if !(self.epsilon.is_finite() && self.epsilon as f32 > 0.0) {
            return Err(check.refuse("norm.epsilon", self.epsilon, "give a number greater than 0"));
        }
        match self.bias {
            Some(bias) if self.kind != NormKind::Layer => {
                Err(check.refuse("norm.bias", bias, "leave it out: only layer normalisation has a shift"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it has a shift.
    pub(crate) fn has_bias(&self) -> bool {
        self.kind == NormKind::Layer && self.bias.unwrap_or(true)
    }

    /// Initialises the normalisation of states of width `d_model`, with scale 1 and shift 0.
    pub fn init(&self, d_model: usize, device: &Device) -> Norm {
        let constant = |value| Init::Constant(value).parameter([d_model], &RandomKey::from_seed(0), device);
        Norm {
            gamma: constant(if self.kind == NormKind::RmsPlusOne { 0.0 } else { 1.0 }),
            beta: self.has_bias().then(|| constant(0.0)),
            kind: self.kind,
            epsilon: self.epsilon,
        }
    }
}

/// Normalisation of states.
///
/// Should be created with [`NormConfig`].
#[derive(Module, Debug)]
pub struct Norm {
    /// Scale `γ`, `[C]`; without the 1 in `rms-plus-one`.
    pub gamma: Param<Tensor<1>>,
    /// Shift `β`, `[C]`, of layer normalisation.
    pub beta: Option<Param<Tensor<1>>>,
    #[module(skip)]
    kind: NormKind,
    epsilon: f64,
}

impl Norm {
    /// Kind of normalisation.
    pub fn kind(&self) -> NormKind {
        self.kind
    }

    /// Normalises `x` `[.., C]`.
    ///
    /// # Panics
    /// If the width is not that of the normalisation.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let epsilon = self.epsilon;
        match (self.kind, &self.beta) {
            (NormKind::Layer, Some(beta)) if x.dtype() == DType::F32 || is_queued(&x.device()) => {
                fused::norm(x, self.gamma.val(), beta.val(), epsilon)
            }
            (NormKind::Layer, beta) => {
                let mut norm = LayerNormConfig::new(self.gamma.dims()[0]).with_epsilon(epsilon).with_bias(beta.is_some()).init(&x.device());
                (norm.gamma, norm.beta) = (self.gamma.clone(), beta.clone());
                norm.forward(x)
            }
            (NormKind::Rms, _) => RmsNorm { gamma: self.gamma.clone(), epsilon }.forward(x),
            (NormKind::RmsPlusOne, _) => {
                let dtype = x.dtype();
                let scale = self.gamma.val().cast(DType::F32) + 1.0;
                RmsNorm { gamma: Param::initialized(self.gamma.id, scale), epsilon }.forward(x.cast(DType::F32)).cast(dtype)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{FloatDType, TensorData};

    const WIDTH: usize = 7;
    const KINDS: [NormKind; 3] = [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne];

    fn drawn(name: &str, rows: usize) -> Vec<f64> {
        let values = Init::Normal(1.0).values(rows * WIDTH, &RandomKey::from_seed(3).named(name));
        values.into_iter().map(f64::from).collect()
    }

    fn tensor<const D: usize>(values: &[f64], shape: [usize; D], device: &Device) -> Tensor<D> {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn config(kind: NormKind, bias: Option<bool>) -> NormConfig {
        NormConfig { kind, epsilon: 0.01, bias }
    }

    fn with_drawn_parameters(config: NormConfig, device: &Device) -> Norm {
        let mut norm = config.init(WIDTH, device);
        norm.gamma = Param::from_tensor(tensor(&drawn("gamma", 1), [WIDTH], device));
        norm.beta = norm.beta.map(|_| Param::from_tensor(tensor(&drawn("beta", 1), [WIDTH], device)));
        norm
    }

    /// The definition, row by row.
    fn by_definition(config: NormConfig, x: &[f64]) -> Vec<f64> {
        let (gamma, beta) = (drawn("gamma", 1), drawn("beta", 1));
        let row = |row: &[f64]| -> Vec<f64> {
            let mean = row.iter().sum::<f64>() / WIDTH as f64;
            let centre = if config.kind == NormKind::Layer { mean } else { 0.0 };
            let square = row.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / WIDTH as f64;
            let deviation = (square + config.epsilon).sqrt();
            let scale = |at: usize| if config.kind == NormKind::RmsPlusOne { 1.0 + gamma[at] } else { gamma[at] };
            let shift = |at: usize| if config.kind == NormKind::Layer && config.bias != Some(false) { beta[at] } else { 0.0 };
            row.iter().enumerate().map(|(at, x)| (x - centre) / deviation * scale(at) + shift(at)).collect()
        };
        x.chunks(WIDTH).flat_map(row).collect()
    }

    fn read<const D: usize>(x: Tensor<D>) -> Vec<f64> {
        x.into_data().iter::<f64>().collect()
    }

    fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
        assert_eq!(found.len(), expected.len());
        let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(difference < tolerance, "{what}: {difference}");
    }

    #[test]
    fn every_kind_is_its_formula() {
        let x = drawn("x", 6);
        for (kind, bias) in [(NormKind::Layer, None), (NormKind::Layer, Some(false)), (NormKind::Rms, None), (NormKind::RmsPlusOne, None)] {
            let (config, device) = (config(kind, bias), Device::flex());
            let found = read(with_drawn_parameters(config, &device).forward(tensor(&x, [2, 3, WIDTH], &device)));
            assert_close(&found, &by_definition(config, &x), 1e-5, &format!("{config:?}"));
        }
    }

    #[test]
    fn gradients_are_those_of_the_formula() {
        let device = Device::flex().autodiff();
        let (x, weights) = (drawn("x", 2), drawn("weights", 2));
        for kind in KINDS {
            let config = config(kind, None);
            let norm = with_drawn_parameters(config, &device);
            let input = tensor(&x, [2, WIDTH], &device).require_grad();
            let gradients = (norm.forward(input.clone()) * tensor(&weights, [2, WIDTH], &device)).sum().backward();
            let loss = |x: &[f64]| by_definition(config, x).iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
            let by_difference: Vec<f64> = (0..x.len())
                .map(|at| {
                    let moved = |step: f64| x.iter().enumerate().map(|(k, x)| if k == at { x + step } else { *x }).collect::<Vec<_>>();
                    (loss(&moved(1e-5)) - loss(&moved(-1e-5))) / 2e-5
                })
                .collect();
            assert_close(&read(input.grad(&gradients).unwrap()), &by_difference, 1e-4, &format!("{kind:?}"));
            let of_gamma = read(norm.gamma.val().grad(&gradients).unwrap());
            assert!(of_gamma.iter().all(|gradient| gradient.abs() > 1e-6), "{kind:?}: {of_gamma:?}");
        }
    }

    #[test]
    fn a_factor_of_the_input_changes_nothing_where_epsilon_is_small() {
        let device = Device::flex();
        let x = tensor(&drawn("x", 6), [6, WIDTH], &device);
        for kind in KINDS {
            let norm = with_drawn_parameters(NormConfig::new(kind).with_epsilon(1e-12), &device);
            let expected = read(norm.forward(x.clone()));
            assert_close(&read(norm.forward(x.clone() * 37.5)), &expected, 1e-5, &format!("{kind:?}"));
        }
    }

    #[test]
    fn the_mean_square_is_1_at_first_and_centred_states_are_normalised_alike() {
        let device = Device::flex();
        let x = tensor(&drawn("x", 6), [6, WIDTH], &device);
        let init = |kind| NormConfig::new(kind).init(WIDTH, &device);
        for kind in KINDS {
            let squares = read(init(kind).forward(x.clone()).powi_scalar(2).mean_dim(1));
            assert!(squares.iter().all(|square| (square - 1.0).abs() < 1e-4), "{kind:?}: {squares:?}");
        }
        let centred = x.clone() - x.clone().mean_dim(1);
        assert_close(&read(init(NormKind::Layer).forward(x)), &read(init(NormKind::Rms).forward(centred)), 1e-5, "centred");
    }

    #[test]
    fn half_precision_does_not_overflow_in_squares() {
        let device = Device::flex();
        let x = tensor(&drawn("x", 6), [6, WIDTH], &device) * 1000.0;
        for kind in KINDS {
            let norm = NormConfig::new(kind).init(WIDTH, &device);
            let expected = read(norm.forward(x.clone()));
            let half = crate::kernels::precision::cast(norm, FloatDType::F16);
            assert_close(&read(half.forward(x.clone().cast(DType::F16))), &expected, 1e-2, &format!("{kind:?}"));
        }
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let refused = |config: NormConfig| config.validate(&Check::of("test")).unwrap_err().to_string();
        for epsilon in [0.0, -1.0, 1e-60, f64::NAN] {
            assert!(refused(NormConfig::default().with_epsilon(epsilon)).contains("`norm.epsilon`"), "{epsilon}");
        }
        for bias in [true, false] {
            assert!(refused(NormConfig::new(NormKind::Rms).with_bias(bias)).contains("`norm.bias`"));
        }
        assert!(NormConfig::default().with_bias(false).validate(&Check::of("test")).is_ok());
    }
}
