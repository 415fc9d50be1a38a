//! Residual connection with layer normalisation around a sublayer.
//!
//! `post` is that of Vaswani et al. 2017, section 5.4: `LN(x + Dropout(f(x)))`. `pre` is `x + Dropout(f(LN(x)))` (the default of tensor2tensor), with one
//! more normalisation at the end of the stack; it trains without warm-up.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use heedful_attention::dropout::dropout;
use heedful_attention::init::Init;
use heedful_attention::random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::fused::{NORM_EPSILON, normalise};

/// Where the layer normalisation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormOrder {
    /// After the sum (the paper).
    #[default]
    Post,
    /// Before the sublayer.
    Pre,
}

/// Layer normalisation with ε = [`NORM_EPSILON`].
pub fn layer_norm(d_model: usize, device: &Device) -> LayerNorm {
    let key = RandomKey::from_seed(0);
    let mut norm = LayerNormConfig::new(d_model).with_epsilon(NORM_EPSILON).init(device);
    norm.gamma = Init::Constant(1.0).parameter([d_model], &key, device);
    norm.beta = Some(Init::Constant(0.0).parameter([d_model], &key, device));
    norm
}

/// Residual connection around a sublayer.
#[derive(Module, Debug)]
pub struct Residual {
    /// Layer normalisation.
    pub norm: LayerNorm,
    #[module(skip)]
    order: NormOrder,
    dropout: f64,
}

impl Residual {
    /// A connection whose sublayer's output is dropped with probability `dropout`.
    pub fn new(d_model: usize, order: NormOrder, dropout: f64, device: &Device) -> Self {
        Self { norm: layer_norm(d_model, device), order, dropout }
    }

    /// Passes `x` `[B, N, C]` through `sublayer` and around it. Dropout is on exactly if a key is given.
    pub fn forward(&self, x: Tensor<3>, random: Option<RandomKey>, sublayer: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
        let key = random.map(|key| key.named("residual"));
        let drop = |x| dropout(x, self.dropout, key.as_ref());
        match self.order {
            NormOrder::Post => normalise(x.clone() + drop(sublayer(x)), &self.norm),
            NormOrder::Pre => x.clone() + drop(sublayer(normalise(x, &self.norm))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(x: Tensor<3>) -> Vec<f32> {
        x.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn post_norm_normalises_the_sum() {
        let device = Device::flex();
        let x = Tensor::from_data([[[1.0, 3.0]]], &device);
        let y = Residual::new(2, NormOrder::Post, 0.0, &device).forward(x, None, |x| x * 4.0);
        assert!(values(y).iter().zip([-1.0, 1.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn pre_norm_keeps_the_input_on_its_path() {
        let device = Device::flex();
        let x = Tensor::from_data([[[1.0, 3.0]]], &device);
        let y = Residual::new(2, NormOrder::Pre, 0.0, &device).forward(x, None, |x| x * 4.0);
        assert!(values(y).iter().zip([-3.0, 7.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn dropout_acts_on_the_sublayer_only() {
        let device = Device::flex();
        let x = Tensor::<3>::ones([1, 10, 100], &device);
        let residual = Residual::new(100, NormOrder::Pre, 0.25, &device);
        let y = values(residual.forward(x, Some(RandomKey::from_seed(1)), |x| x.ones_like() * 3.0));
        assert!(y.iter().all(|&v| v == 1.0 || (v - 5.0).abs() < 1e-5), "1 where dropped, else 1 + 3 / 0.75");
        let dropped = y.iter().filter(|&&v| v == 1.0).count();
        assert!((180..320).contains(&dropped), "{dropped} of 1000");
    }
}
