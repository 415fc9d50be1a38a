//! Initial weights, drawn on the host, so that they are equal on every backend.
//!
//! Burn's own initialisers draw lazily from a device generator: the same seed returns different weights on another backend or in another order of first use.
//! Here every weight is derived from the [`RandomKey`] of its own parameter.

use burn::module::Param;
use burn::nn::{Embedding, Linear};
use burn::tensor::{Device, Tensor, TensorData};
use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Distribution of the initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All values are equal.
    Constant(f32),
    /// Normal distribution with mean 0 and this standard deviation.
    Normal(f32),
    /// Uniform on `±sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio 2010), as in the reference code of the Transformer.
    XavierUniform {
        /// Inputs of the map.
        fan_in: usize,
        /// Outputs of the map.
        fan_out: usize,
    },
}

impl Init {
    /// A trainable parameter of the given shape.
    pub fn parameter<const D: usize>(self, shape: [usize; D], key: &RandomKey, device: &Device) -> Param<Tensor<D>> {
        Param::from_tensor(self.tensor(shape, key, device))
    }

    /// A tensor of the given shape.
    pub fn tensor<const D: usize>(self, shape: [usize; D], key: &RandomKey, device: &Device) -> Tensor<D> {
        Tensor::from_data(TensorData::new(self.values(shape.iter().product(), key), shape), device)
    }

    /// Numbers on the host.
    pub fn values(self, count: usize, key: &RandomKey) -> Vec<f32> {
        let mut rng = key.rng();
        match self {
            Self::Constant(value) => vec![value; count],
            Self::Normal(deviation) => normal(&mut rng, count).map(|z| z * deviation).collect(),
            Self::XavierUniform { fan_in, fan_out } => {
                let bound = (6.0 / (fan_in + fan_out) as f32).sqrt();
                (0..count).map(|_| rng.random_range(-bound..=bound)).collect()
            }
        }
    }
}

/// Standard normal numbers by the Box-Muller transform, in double precision.
fn normal(rng: &mut ChaCha8Rng, count: usize) -> impl Iterator<Item = f32> + use<'_> {
    let pairs = count.div_ceil(2);
    (0..pairs)
        .flat_map(|_| {
            // 1 - u lies in (0, 1], where the logarithm is finite.
            let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
            let angle = std::f64::consts::TAU * rng.random::<f64>();
            [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
        })
        .take(count)
}

/// A linear map with Xavier-uniform weight `[d_input, d_output]` and, optionally, a zero bias.
pub fn linear(d_input: usize, d_output: usize, bias: bool, key: &RandomKey, device: &Device) -> Linear {
    let weight = Init::XavierUniform { fan_in: d_input, fan_out: d_output };
    Linear {
        weight: weight.parameter([d_input, d_output], &key.named("weight"), device),
        bias: bias.then(|| Init::Constant(0.0).parameter([d_output], &key.named("bias"), device)),
    }
}

/// An embedding table `[entries, d_model]` with standard deviation `d_model^-0.5`, so that entries times `sqrt(d_model)` have unit variance.
pub fn embedding(entries: usize, d_model: usize, key: &RandomKey, device: &Device) -> Embedding {
    let weight = Init::Normal((d_model as f32).powf(-0.5)).parameter([entries, d_model], &key.named("weight"), device);
    Embedding { weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> (f64, f64) {
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn normal_weights_have_the_stated_mean_and_deviation() {
        let (mean, deviation) = moments(&Init::Normal(0.5).values(100_001, &RandomKey::from_seed(1)));
        assert!(mean.abs() < 0.01 && (deviation - 0.5).abs() < 0.01, "mean {mean}, deviation {deviation}");
    }

    #[test]
    fn xavier_weights_fill_their_interval_evenly() {
        let bound = (6.0f64 / 96.0).sqrt();
        let values = Init::XavierUniform { fan_in: 32, fan_out: 64 }.values(100_000, &RandomKey::from_seed(1));
        let (mean, deviation) = moments(&values);
        assert!(values.iter().all(|v| f64::from(v.abs()) <= bound + 1e-6));
        assert!(mean.abs() < 0.005 && (deviation - bound / 3f64.sqrt()).abs() < 0.005, "mean {mean}, deviation {deviation}");
    }

    #[test]
    fn weights_are_a_function_of_their_key() {
        let device = Device::flex();
        let [a, b, c] = [1, 1, 2].map(|seed| linear(4, 4, true, &RandomKey::from_seed(seed), &device).weight.val().into_data());
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}
