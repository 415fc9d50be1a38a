//! Normalisation of queries and keys before they are compared (QK norm), an option of several mechanisms.
//!
//! Each head's query `q` and key `k` become `norm(q)` and `norm(k)`, which bounds the scores by the gains: `|norm(q) · norm(k)| / sqrt(D)` is at most
//! `sqrt(D) max|γ_q| max|γ_k|`. All heads share one gain for queries and one for keys, each with a number per channel (`D` channels). Positions are applied
//! afterwards.
//!
//! Henry et al. 2020 divide by the l2 norm and multiply all scores by one learned number, which equals `rms` with equal gains. Dehghani et al. 2023 (section 2)
//! stabilise large models with QK norm. Qwen-3 and Gemma-3 use `rms`.

use burn::tensor::DType;

use crate::mechanisms::prelude::*;

/// Normalisation of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// No normalisation.
    #[default]
    None,
    /// Divided by the root of the mean of their squares, and multiplied by a gain (RMSNorm, Zhang and Sennrich 2019).
    Rms,
    /// Mean subtracted as well, and with a shift (LayerNorm, Ba et al. 2016).
    Layer,
}

/// Default ε of the norms.
pub const EPSILON: f64 = 1e-6;

impl QkNorm {
    /// Whether nothing is normalised.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// # Errors
    /// If ε is not greater than 0, or is given without a norm.
    pub(super) fn validate(self, epsilon: Option<f64>, check: &Check) -> Result<(), ConfigError> {
        let Some(epsilon) = epsilon else { return Ok(()) };
        if self.is_none() {
            return Err(check.refuse("qk_norm_epsilon", epsilon, "leave it out, or set qk_norm to rms or layer"));
        }
        let is_possible = epsilon.is_finite() && epsilon as f32 > 0.0;
        if is_possible { Ok(()) } else { Err(check.refuse("qk_norm_epsilon", epsilon, "give a number greater than 0")) }
    }

    /// Reason why an option of the norm has no effect.
    pub(super) fn without_effect(self, option: &str) -> Option<&'static str> {
        (option == "qk_norm_epsilon" && self.is_none()).then_some("qk_norm_epsilon is for qk_norm = \"rms\" or \"layer\"")
    }

    /// The norm of queries or of keys.
    pub(super) fn init(self, epsilon: Option<f64>, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<HeadNorm> {
        let vector = |value| Init::Constant(value).parameter([spec.d_head()], key, device);
        let beta = match self {
            Self::None => return None,
            Self::Rms => None,
            Self::Layer => Some(vector(0.0)),
        };
        Some(HeadNorm { gamma: vector(1.0), beta, epsilon: epsilon.unwrap_or(EPSILON) })
    }

    /// Parameters of the norms of queries and keys.
    pub(super) fn parameters(self) -> ParameterFormula {
        match self {
            Self::None => ParameterFormula::none(),
            Self::Rms => ParameterFormula::trained(&[(2, "D")]),
            Self::Layer => ParameterFormula::trained(&[(4, "D")]),
        }
    }

    /// Query or key of one head after the norm called `norm`, in the formula of a mechanism.
    pub(super) fn formula(self, epsilon: Option<f64>, query: &Query, norm: &str, mut x: Vec<f64>) -> Vec<f64> {
        if self.is_none() {
            return x;
        }
        let width = x.len() as f64;
        if self == Self::Layer {
            let mean = x.iter().sum::<f64>() / width;
            x.iter_mut().for_each(|x| *x -= mean);
        }
        let root = (x.iter().map(|x| x * x).sum::<f64>() / width + epsilon.unwrap_or(1e-6)).sqrt();
        let gamma = query.parameter(&format!("{norm}.gamma"));
        let beta = (self == Self::Layer).then(|| query.parameter(&format!("{norm}.beta")));
        let normal = x.iter().enumerate().map(|(c, x)| x / root * gamma.at(&[c]) + beta.map_or(0.0, |beta| beta.at(&[c])));
        normal.collect()
    }
}

/// A normalisation of the channels of each head.
///
/// Should be created by a mechanism with the option [`QkNorm`].
#[derive(Module, Debug)]
pub struct HeadNorm {
    /// Gain `γ` `[D]`.
    pub gamma: Param<Tensor<1>>,
    /// Shift `[D]` of a layer normalisation.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl HeadNorm {
    /// Normalises each head of `x` `[B, N, H D]`. Squares of 16-bit numbers are summed in 32 bits.
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let (shape, dtype) = (x.dims(), x.dtype());
        let gamma = self.gamma.val();
        let [width] = gamma.dims();
        // As rows: gradients of gain and shift are then sums over the first of two dimensions.
        let rows = x.reshape([shape.iter().product::<usize>() / width, width]);
        let rows = rows.cast(if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype });
        let rows = if self.beta.is_some() { rows.clone() - rows.mean_dim(1) } else { rows };
        let root = (rows.clone().square().mean_dim(1) + self.epsilon).sqrt();
        let normal = (rows / root).cast(dtype) * gamma.unsqueeze();
        let normal = match &self.beta {
            Some(beta) => normal + beta.val().unsqueeze(),
            None => normal,
        };
        normal.reshape(shape)
    }
}

/// Projected heads `[B, N, H D]` after their norm, if any.
pub(super) fn normalised(x: Tensor<3>, norm: &Option<HeadNorm>) -> Tensor<3> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{LayerNormConfig, RmsNormConfig};

    use super::*;
    use crate::tensors::read::read;

    /// Two rows of two heads of width 3.
    fn heads(device: &Device) -> Tensor<3> {
        Init::Normal(1.0).tensor([1, 2, 6], &RandomKey::from_seed(1), device)
    }

    fn norm(kind: QkNorm, epsilon: f64, device: &Device) -> HeadNorm {
        let place = LayerSpec::new(Role::Encoder, 6, 2);
        let mut norm = kind.init(Some(epsilon), &place, &RandomKey::from_seed(1), device).unwrap();
        norm.gamma = Init::Normal(1.0).parameter([3], &RandomKey::from_seed(2), device);
        norm.beta = norm.beta.map(|_| Init::Normal(1.0).parameter([3], &RandomKey::from_seed(3), device));
        norm
    }

    fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        read(x).iter::<f32>().collect()
    }

    fn same(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} is not {expected:?}");
    }

    #[test]
    fn heads_are_normalised_as_burn_normalises_rows() {
        let device = Device::flex();
        let x = heads(&device);
        let rows = x.clone().reshape([4, 3]);
        let rms = norm(QkNorm::Rms, 0.5, &device);
        let mut of_burn = RmsNormConfig::new(3).with_epsilon(0.5).init(&device);
        of_burn.gamma = rms.gamma.clone();
        same(&numbers(rms.forward(x.clone())), &numbers(of_burn.forward(rows.clone())));
        let layer = norm(QkNorm::Layer, 0.5, &device);
        let mut of_burn = LayerNormConfig::new(3).with_epsilon(0.5).init(&device);
        (of_burn.gamma, of_burn.beta) = (layer.gamma.clone(), layer.beta.clone());
        same(&numbers(layer.forward(x)), &numbers(of_burn.forward(rows)));
    }

    #[test]
    fn a_layer_norm_without_shift_is_an_rms_norm_of_centred_heads() {
        let device = Device::flex();
        let x = heads(&device);
        let mut layer = norm(QkNorm::Layer, 1e-6, &device);
        layer.beta = layer.beta.map(|_| Init::Constant(0.0).parameter([3], &RandomKey::from_seed(1), &device));
        let rows = x.clone().reshape([4, 3]);
        let centred = (rows.clone() - rows.mean_dim(1)).reshape([1, 2, 6]);
        same(&numbers(layer.forward(x)), &numbers(norm(QkNorm::Rms, 1e-6, &device).forward(centred)));
    }

    #[test]
    fn squares_beyond_16_bits_are_summed() {
        let device = Device::flex();
        let x = Tensor::<3>::full([1, 1, 6], 1e4, &device).cast(DType::F16);
        let rms = QkNorm::Rms.init(None, &LayerSpec::new(Role::Encoder, 6, 2), &RandomKey::from_seed(1), &device).unwrap();
        let rms = HeadNorm { gamma: Param::from_tensor(rms.gamma.val().cast(DType::F16)), ..rms };
        let found = rms.forward(x);
        assert_eq!(found.dtype(), DType::F16);
        same(&numbers(found.cast(DType::F32)), &[1.0; 6]);
    }

    #[test]
    fn an_epsilon_that_is_none_or_not_needed_is_refused() {
        let place = LayerSpec::new(Role::Encoder, 6, 2);
        let refused = |kind: QkNorm, epsilon| kind.validate(Some(epsilon), &place.check("this")).unwrap_err().to_string();
        assert!(refused(QkNorm::None, 1e-5).contains("leave it out, or set qk_norm"));
        for epsilon in [0.0, -1.0, f64::NAN, 1e-60] {
            assert!(refused(QkNorm::Layer, epsilon).contains("greater than 0"), "{epsilon}");
        }
        assert_eq!(QkNorm::None.validate(None, &place.check("this")), Ok(()));
        assert_eq!(QkNorm::Rms.validate(Some(1e-5), &place.check("this")), Ok(()));
        assert!(QkNorm::None.without_effect("qk_norm_epsilon").is_some());
        assert!(QkNorm::None.without_effect("qk_norm").is_none() && QkNorm::Rms.without_effect("qk_norm_epsilon").is_none());
    }
}
