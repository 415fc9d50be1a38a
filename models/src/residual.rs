//! Residual connection with layer normalisation around a sublayer.
//!
//! `post` is that of Vaswani et al. 2017, section 5.4: `LN(x + Dropout(f(x)))`. `pre` is `x + Dropout(f(LN(x)))` (the default of tensor2tensor), with one
//! more normalisation at the end of the stack; it trains without warm-up. With [`relu`](ResidualConfig::relu), `x + ReLU(f(LN(x)))`, it is the reordering
//! TrXL-I of Parisotto et al. 2019 (section 3.1), in which a [gate](crate::gate) may stand in place of the sum.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use heedful_attention::dropout::dropout;
use heedful_attention::init::Init;
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use serde::{Deserialize, Serialize};

use crate::fused::{NORM_EPSILON, normalise};
use crate::gate::{Gate, GateConfig};

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

/// Configuration of [`Residual`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResidualConfig {
    /// Width of the model, `C`.
    pub d_model: usize,
    /// Where layer normalisation stands.
    pub norm_order: NormOrder,
    /// What joins the stream and the sublayer's output in place of their sum.
    pub gate: Option<GateConfig>,
    /// Whether the sublayer's output passes a ReLU before they are joined, lest two linear maps follow each other.
    pub relu: bool,
    /// Probability that a number of the sublayer's output is dropped.
    pub dropout: f64,
}

impl ResidualConfig {
    /// Initialises the connection.
    pub fn init(&self, key: &RandomKey, device: &Device) -> Residual {
        let Self { d_model, norm_order, gate, relu, dropout } = *self;
        let gate = gate.map(|gate| gate.init(d_model, &key.named("gate"), device));
        Residual { norm: layer_norm(d_model, device), gate, norm_order, relu, dropout }
    }
}

/// Residual connection around a sublayer.
///
/// Should be created with [`ResidualConfig`].
#[derive(Module, Debug)]
pub struct Residual {
    /// Layer normalisation.
    pub norm: LayerNorm,
    /// What joins, if not a sum.
    pub gate: Option<Gate>,
    #[module(skip)]
    norm_order: NormOrder,
    relu: bool,
    dropout: f64,
}

impl Residual {
    /// Passes `x` `[B, N, C]` through `sublayer` and around it. Dropout is on exactly if a key is given. What the gate shows is `gate` in the path of the
    /// probe and `name`.
    pub fn forward(
        &self,
        name: &str,
        x: Tensor<3>,
        random: Option<RandomKey>,
        probe: &mut Probe,
        sublayer: impl FnOnce(Tensor<3>, &mut Probe) -> Tensor<3>,
    ) -> Tensor<3> {
        let output = self.branch(x.clone(), random, probe, sublayer);
        let joined = match &self.gate {
            Some(gate) => {
                let (joined, open) = gate.forward(x, output);
                probe.within(name, None, |probe| probe.within("gate", None, |probe| probe.observe(|| Observation::Gate(open))));
                joined
            }
            None => x + output,
        };
        match self.norm_order {
            NormOrder::Post => normalise(joined, &self.norm),
            NormOrder::Pre => joined,
        }
    }

    /// What [`forward`](Self::forward) joins with `x` `[B, N, C]`: the sublayer's output with what stands before and after it on its own branch.
    pub fn branch(
        &self,
        x: Tensor<3>,
        random: Option<RandomKey>,
        probe: &mut Probe,
        sublayer: impl FnOnce(Tensor<3>, &mut Probe) -> Tensor<3>,
    ) -> Tensor<3> {
        let key = random.map(|key| key.named("residual"));
        let output = dropout(sublayer(self.input(x), probe), self.dropout, key.as_ref());
        if self.relu { relu(output) } else { output }
    }

    /// What the sublayer is given of `x` `[B, N, C]`.
    pub(crate) fn input(&self, x: Tensor<3>) -> Tensor<3> {
        match self.norm_order {
            NormOrder::Post => x,
            NormOrder::Pre => normalise(x, &self.norm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::GateKind;

    fn values(x: Tensor<3>) -> Vec<f32> {
        x.into_data().try_to_vec().unwrap()
    }

    fn residual(d_model: usize, norm_order: NormOrder, of: impl FnOnce(ResidualConfig) -> ResidualConfig) -> Residual {
        let config = ResidualConfig { d_model, norm_order, ..ResidualConfig::default() };
        of(config).init(&RandomKey::from_seed(1), &Device::flex())
    }

    #[test]
    fn post_norm_normalises_the_sum() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let y = residual(2, NormOrder::Post, |config| config).forward("residual", x, None, &mut Probe::off(), |x, _| x * 4.0);
        assert!(values(y).iter().zip([-1.0, 1.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn pre_norm_keeps_the_input_on_its_path() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let y = residual(2, NormOrder::Pre, |config| config).forward("residual", x, None, &mut Probe::off(), |x, _| x * 4.0);
        assert!(values(y).iter().zip([-3.0, 7.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn a_relu_lets_only_what_is_positive_join() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let residual = residual(2, NormOrder::Pre, |config| ResidualConfig { relu: true, ..config });
        let y = residual.forward("residual", x, None, &mut Probe::off(), |x, _| x * 4.0);
        assert!(values(y).iter().zip([1.0, 7.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn a_gate_joins_and_can_be_watched() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let gate = GateConfig { kind: GateKind::Gru, bias: Some(40.0) };
        let residual = residual(2, NormOrder::Pre, |config| ResidualConfig { gate: Some(gate), relu: true, ..config });
        let mut open = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Gate(gate) = observation {
                open.extend(values(gate));
            }
        };
        let y = residual.forward("residual", x, None, &mut Probe::listening(&mut listener), |x, _| x * 4.0);
        assert_eq!(values(y), [1.0, 3.0]);
        assert!(open.len() == 2 && open.iter().all(|&open: &f32| open < 1e-6), "{open:?}");
    }

    #[test]
    fn dropout_acts_on_the_sublayer_only() {
        let x = Tensor::<3>::ones([1, 10, 100], &Device::flex());
        let residual = residual(100, NormOrder::Pre, |config| ResidualConfig { dropout: 0.25, ..config });
        let y = values(residual.forward("residual", x, Some(RandomKey::from_seed(1)), &mut Probe::off(), |x, _| x.ones_like() * 3.0));
        assert!(y.iter().all(|&v| v == 1.0 || (v - 5.0).abs() < 1e-5), "1 where dropped, else 1 + 3 / 0.75");
        let dropped = y.iter().filter(|&&v| v == 1.0).count();
        assert!((180..320).contains(&dropped), "{dropped} of 1000");
    }
}
