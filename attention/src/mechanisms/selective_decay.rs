//! Decay of Mamba-2 (Dao and Gu 2024, section 7), also used by Gated DeltaNet: input-dependent step sizes, and a rate per head.

use burn::tensor::activation::softplus;
use rand::RngExt;

use crate::engine::recurrence::in_32_bits;
use crate::mechanisms::prelude::*;

/// Range of the initial step sizes, uniform on a logarithmic scale.
const STEPS: [f64; 2] = [1e-3, 0.1];

/// Maximum initial decay rate.
const RATE: f64 = 16.0;

/// Decay factor of the state per head, `exp(-exp(a_log) softplus(x W + b))` (Dao and Gu 2024, section 7).
#[derive(Module, Debug)]
pub struct SelectiveDecay {
    /// Logarithm of each head's rate, `[H]`.
    pub a_log: Param<Tensor<1>>,
    /// Map to step sizes, `[C, H]`, with a bias.
    pub step: Linear,
}

impl SelectiveDecay {
    /// With initial rates uniform between `least_rate` and 16.
    pub(super) fn new(least_rate: f64, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let heads = spec.heads;
        let drawn = |name: &str, of: &dyn Fn(f64) -> f64| {
            let mut rng = key.named(name).rng();
            let numbers = (0..heads).map(|_| of(rng.random::<f64>()) as f32).collect();
            Param::from_tensor(Tensor::<1>::from_data(TensorData::new(numbers, [heads]), device))
        };
        let [least, greatest] = STEPS.map(f64::ln);
        // Bias whose softplus is the step size.
        let bias = |uniform: f64| {
            let step = (least + uniform * (greatest - least)).exp();
            step + (-(-step).exp_m1()).ln()
        };
        let step = init::linear(spec.d_model, heads, false, &key.named("step"), device);
        Self {
            a_log: drawn("a_log", &|uniform| (least_rate + (RATE - least_rate) * uniform).max(f64::from(f32::MIN_POSITIVE)).ln()),
            step: Linear { bias: Some(drawn("step_bias", &bias)), ..step },
        }
    }

    /// Step sizes `[B, H, N, 1]` of inputs `[B, N, C]`.
    pub(super) fn steps(&self, x: Tensor<3>) -> Tensor<4> {
        softplus(in_32_bits(split_heads(linear(x, &self.step), self.a_log.dims()[0])), 1.0)
    }

    /// Log decays after these step sizes, `[B, H, N, 1]`.
    pub(super) fn log_decay(&self, steps: Tensor<4>) -> Tensor<4> {
        -in_32_bits(self.a_log.val()).exp().reshape([1, -1, 1, 1]) * steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_decays_are_those_of_the_paper() {
        let spec = LayerSpec::new(Role::Decoder, 400, 400);
        let decay = SelectiveDecay::new(0.0, &spec, &RandomKey::from_seed(1), &Device::flex());
        let rates: Vec<f32> = decay.a_log.val().exp().into_data().try_to_vec().unwrap();
        let mean = rates.iter().sum::<f32>() / 400.0;
        assert!(rates.iter().all(|rate| (0.0..=16.001).contains(rate)) && (mean - 8.0).abs() < 1.0, "mean rate {mean}");
        let steps: Vec<f32> = softplus(decay.step.bias.unwrap().val(), 1.0).into_data().try_to_vec().unwrap();
        let mean = steps.iter().map(|step| step.ln()).sum::<f32>() / 400.0;
        assert!(steps.iter().all(|step| (0.999e-3..=0.1001).contains(step)) && (mean - 0.01f32.ln()).abs() < 0.3, "mean {mean}");
    }
}
