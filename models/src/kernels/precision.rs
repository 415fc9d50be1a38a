//! Training with 16-bit activations (Micikevicius et al. 2018; Child et al. 2019, section 5.4).
//!
//! The master weights and the optimiser's moments are stored in 32 bits. Each pass uses a 16-bit copy of the model, whose gradients, cast to 32 bits, update
//! the master weights. Losses are computed in 32 bits. IEEE 754 16-bit floats have a small range. So the loss is multiplied by a scale before the backward
//! pass, which keeps small gradients from underflowing. Gradients are divided by it afterwards. `bfloat16` has the range of 32-bit floats and needs no scale.
//!
//! Fused attention accumulates in 32 bits: GPU kernels read and write 16 bits; all other code receives temporary 32-bit copies.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

/// Number type of activations in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// IEEE 754 16-bit floats, with loss scaling.
    F16,
    /// `bfloat16`.
    Bf16,
}

impl Precision {
    /// Number type.
    pub fn dtype(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::F16 => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }

    /// Whether the device supports it.
    pub fn is_supported(self, device: &Device) -> bool {
        device.supports_dtype(self.dtype())
    }
}

/// `model` with weights of this type, as separate leaves with the same identities. Gradients of either model apply to the other.
pub fn cast<M: Module>(model: M, dtype: FloatDType) -> M {
    model.map(&mut Cast(dtype))
}

struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| {
            let is_trained = weight.is_require_grad();
            weight.detach().cast(self.0).detach().set_require_grad(is_trained)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;
    use burn::optim::GradientsParams;
    use burn::tensor::{DType, Int};
    use heedful_attention::contract::probe::Probe;
    use heedful_attention::description::AnyMechanism;
    use heedful_random::RandomKey;

    use crate::architectures::language_model::tests::all_pairs;
    use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
    use crate::block::BlockConfig;
    use crate::block::layer_sharing::{DepthConfig, SharedConfig};
    use crate::parts::adaptive_softmax::AdaptiveConfig;
    use crate::parts::feed_forward::Activation;
    use crate::parts::residual::NormOrder;
    use crate::parts::residual_gate::{GateConfig, GateKind};

    const SIXTEEN: [Precision; 2] = [Precision::F16, Precision::Bf16];

    fn config(attention: AnyMechanism) -> LanguageModelConfig {
        // Without kinks, where rounding would change whole gradients.
        let block = BlockConfig {
            activation: Activation::Gelu,
            d_model: 8,
            heads: 2,
            d_ff: 16,
            max_length: 24,
            dropout: 0.0,
            norm_order: NormOrder::Pre,
            ..BlockConfig::default()
        };
        LanguageModelConfig { vocabulary: 11, attention: attention.into(), layers: 2, block, ..LanguageModelConfig::default() }
    }

    /// Loss, and gradient of the embedding.
    fn passed(model: &LanguageModel, device: &Device) -> (f64, Vec<f64>) {
        let tokens = Tensor::<2, Int>::from_data([[2, 5, 7, 1, 9, 3, 4, 8, 8, 10, 6, 2, 2, 5, 7, 1, 9, 3, 4, 8]], device);
        let (inputs, targets) = (tokens.clone().narrow(1, 0, 19), tokens.narrow(1, 1, 19).reshape([19]));
        let hidden = model.hidden(inputs, &[], Some(RandomKey::from_seed(2)), &mut Probe::off());
        let loss = model.cross_entropy(hidden.states.squeeze_dim(0), targets, None, 0.0).loss;
        assert_eq!(loss.dtype(), DType::F32, "losses have 32 bits");
        let value = f64::from(loss.clone().into_scalar::<f32>());
        // As in training, to keep small gradients from underflowing.
        const SCALE: f64 = 512.0;
        let gradients = GradientsParams::from_grads((loss * SCALE).backward(), model);
        let gradient = gradients.get::<2>(model.embedding.tokens.weight.id).expect("the embedding has a gradient");
        (value, gradient.into_data().iter::<f64>().map(|gradient| gradient / SCALE).collect())
    }

    /// Whether a pass in 16 bits approximates the 32-bit pass.
    fn agrees(config: &LanguageModelConfig, precision: Precision) {
        config.validate().unwrap();
        let device = Device::flex().autodiff();
        let model = config.init(&RandomKey::from_seed(1), &device);
        let half = cast(model.clone(), precision.dtype());
        assert_eq!(half.embedding.tokens.weight.id, model.embedding.tokens.weight.id);
        let ((loss, gradient), (half_loss, half_gradient)) = (passed(&model, &device), passed(&half, &device));
        // 11 and 8 significant bits.
        let tolerance = if precision == Precision::F16 { 0.002 } else { 0.016 };
        assert!((half_loss / loss - 1.0).abs() < tolerance, "{precision:?}, {config:?}: {half_loss} and {loss}");
        // Rectified weights have kinks, where rounding changes whole gradients. Reads with narrow keys are small if queries are orthogonal to keys: their
        // normalisation magnifies rounding.
        let magnified = ["SoftpickConfig", "GlaConfig", "GatedDeltaNetConfig"];
        if magnified.iter().any(|kind| format!("{:?}", config.attention).contains(kind)) {
            assert!(half_gradient.iter().all(|gradient| gradient.is_finite()));
            return;
        }
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let difference: Vec<f64> = gradient.iter().zip(&half_gradient).map(|(a, b)| a - b).collect();
        assert!(
            norm(&difference) < 5.0 * tolerance * norm(&gradient),
            "{precision:?}, {config:?}: {}",
            norm(&difference) / norm(&gradient)
        );
    }

    #[test]
    fn every_causal_mechanism_computes_in_16_bits() {
        let mut failed = Vec::new();
        for attention in AnyMechanism::all().into_iter().filter(AnyMechanism::can_be_causal).map(all_pairs) {
            for precision in SIXTEEN {
                if std::panic::catch_unwind(AssertUnwindSafe(|| agrees(&config(attention.clone()), precision))).is_err() {
                    failed.push(format!("{attention} in {precision:?}"));
                }
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn every_depth_gate_and_output_computes_in_16_bits() {
        let halting = Some(Default::default());
        for precision in SIXTEEN {
            for depth in [DepthConfig::Reversible, DepthConfig::Shared(SharedConfig { halting, ..Default::default() })] {
                agrees(&LanguageModelConfig { depth, ..config(AnyMechanism::default()) }, precision);
            }
            for change in [
                |block: &mut BlockConfig| block.gate = Some(GateConfig::new(GateKind::Gru)),
                |block: &mut BlockConfig| block.checkpoint = true,
                |block: &mut BlockConfig| block.separable_feed_forward = true,
            ] {
                let mut config = config(AnyMechanism::default());
                change(&mut config.block);
                agrees(&config, precision);
            }
            let adaptive = Some(AdaptiveConfig::new([4]).with_div(2.0));
            agrees(&LanguageModelConfig { adaptive, ..config(AnyMechanism::default()) }, precision);
        }
    }

    #[test]
    fn a_device_is_asked_what_it_has() {
        assert!(SIXTEEN.iter().all(|precision| precision.is_supported(&Device::flex())));
        assert!(Precision::F32.is_supported(&Device::flex()));
    }
}
