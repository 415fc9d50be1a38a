//! Position-wise feed-forward network (Vaswani et al. 2017, section 3.3): `f(x W_1 + b_1) W_2 + b_2`, the same at every position.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Tensor};
use heedful_attention::dropout::dropout;
use heedful_attention::init;
use heedful_attention::random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::fused::{linear, linear_relu};

/// Non-linearity of a feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, x)` (Vaswani et al. 2017).
    #[default]
    Relu,
    /// `x Φ(x)` (Hendrycks and Gimpel 2016).
    Gelu,
}

/// Position-wise feed-forward network.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `W_1`, `[C, F]`, and `b_1`.
    pub input: Linear,
    /// `W_2`, `[F, C]`, and `b_2`.
    pub output: Linear,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
}

impl FeedForward {
    /// A network with `d_ff` hidden units, Xavier-uniform weights and zero biases; `dropout` acts on the hidden units.
    pub fn new(d_model: usize, d_ff: usize, activation: Activation, dropout: f64, key: &RandomKey, device: &Device) -> Self {
        Self {
            input: init::linear(d_model, d_ff, true, &key.named("input"), device),
            output: init::linear(d_ff, d_model, true, &key.named("output"), device),
            activation,
            dropout,
        }
    }

    /// Applies the network to each position, `[B, N, C]`. Dropout is on exactly if a key is given.
    pub fn forward(&self, x: Tensor<3>, random: Option<RandomKey>) -> Tensor<3> {
        let hidden = match self.activation {
            Activation::Relu => linear_relu(x, &self.input),
            Activation::Gelu => gelu(self.input.forward(x)),
        };
        linear(dropout(hidden, self.dropout, random.as_ref()), &self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;

    fn with_weights(activation: Activation) -> FeedForward {
        let device = Device::flex();
        let mut network = FeedForward::new(2, 1, activation, 0.0, &RandomKey::from_seed(1), &device);
        network.input.weight = Param::from_tensor(Tensor::from_data([[1.0], [1.0]], &device));
        network.input.bias = Some(Param::from_tensor(Tensor::from_data([-1.0], &device)));
        network.output.weight = Param::from_tensor(Tensor::from_data([[3.0, 4.0]], &device));
        network.output.bias = Some(Param::from_tensor(Tensor::from_data([0.5, 0.0], &device)));
        network
    }

    fn applied(network: &FeedForward) -> Vec<f32> {
        let x = Tensor::from_data([[[1.0, 2.0], [0.0, -1.0]]], &Device::flex());
        network.forward(x, None).into_data().try_to_vec().unwrap()
    }

    #[test]
    fn the_network_computes_the_formula_of_the_paper() {
        assert_eq!(applied(&with_weights(Activation::Relu)), [6.5, 8.0, 0.5, 0.0]);
    }

    #[test]
    fn gelu_is_the_input_times_the_normal_distribution_function() {
        let values = applied(&with_weights(Activation::Gelu));
        let (positive, negative) = (2.0 * 0.977_249_87, -2.0 * 0.022_750_13);
        for (value, expected) in values.iter().zip([3.0 * positive + 0.5, 4.0 * positive, 3.0 * negative + 0.5, 4.0 * negative]) {
            assert!((value - expected).abs() < 1e-4, "{value} instead of {expected}");
        }
    }

    #[test]
    fn hidden_units_are_dropped_only_with_a_key() {
        let device = Device::flex();
        let network = FeedForward::new(4, 64, Activation::Relu, 0.5, &RandomKey::from_seed(1), &device);
        let x = Tensor::ones([1, 2, 4], &device);
        let plain = network.forward(x.clone(), None).into_data();
        assert_eq!(plain, network.forward(x.clone(), None).into_data());
        assert_ne!(plain, network.forward(x, Some(RandomKey::from_seed(2))).into_data());
    }
}
