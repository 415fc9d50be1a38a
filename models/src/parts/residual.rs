//! Residual connection with normalisation around a sublayer.
//!
//! `post` is that of Vaswani et al. 2017, section 5.4: `norm(x + Dropout(f(x)))`. `pre` is `x + Dropout(f(norm(x)))` (the default of tensor2tensor), with a
//! final normalisation of the stack; it trains without warm-up. `sandwich` is `x + Dropout(norm'(f(norm(x))))` (Ding et al. 2021; Gemma Team 2024),
//! `branch-output` is `x + Dropout(norm(f(x)))` (OLMo Team 2025). With [`relu`](ResidualConfig::relu), `x + ReLU(f(norm(x)))`, `pre` is the reordering TrXL-I
//! of Parisotto et al. 2019 (section 3.1), in which a [gate](crate::parts::residual_gate) can replace the sum.

use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use heedful_attention::engine::dropout::dropout;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::parts::norm::{Norm, NormConfig};
use crate::parts::residual_gate::{Gate, GateConfig};

/// Place of the normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormOrder {
    /// After the sum (the paper).
    #[default]
    Post,
    /// Before the sublayer.
    Pre,
    /// Before the sublayer, and again after it, before the sum (Gemma Team 2024, Gemma 2).
    Sandwich,
    /// After the sublayer, before the sum (OLMo Team 2025, OLMo 2).
    BranchOutput,
}

impl NormOrder {
    /// Whether the sublayer's input is normalised.
    pub(crate) fn is_before(self) -> bool {
        matches!(self, Self::Pre | Self::Sandwich)
    }

    /// Whether the sublayer's output is normalised.
    pub(crate) fn is_on_output(self) -> bool {
        matches!(self, Self::Sandwich | Self::BranchOutput)
    }
}

/// Configuration of [`Residual`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResidualConfig {
    /// Width of the model, `C`.
    pub d_model: usize,
    /// Kind of normalisation.
    pub norm: NormConfig,
    /// Place of the normalisation.
    pub norm_order: NormOrder,
    /// Whether its input is already normalised, for normalisation before the sublayer.
    pub is_normalised: bool,
    /// Gate that joins the stream and the sublayer's output instead of a sum.
    pub gate: Option<GateConfig>,
    /// Whether the sublayer's output passes a ReLU before the sum, to avoid two successive linear maps.
    pub relu: bool,
    /// Dropout probability of the sublayer's output.
    pub dropout: f64,
}

impl ResidualConfig {
    /// Initialises the connection.
    pub fn init(&self, key: &RandomKey, device: &Device) -> Residual {
        let Self { d_model, norm, norm_order, gate, relu, dropout, .. } = *self;
        Residual {
            norm: self.has_norm().then(|| norm.init(d_model, device)),
            output_norm: norm_order.is_on_output().then(|| norm.init(d_model, device)),
            gate: gate.map(|gate| gate.init(d_model, &key.named("gate"), device)),
            norm_order,
            relu,
            dropout,
        }
    }

    /// Whether the sublayer's input or the sum is normalised.
    pub(crate) fn has_norm(&self) -> bool {
        self.norm_order == NormOrder::Post || self.norm_order.is_before() && !self.is_normalised
    }
}

/// Residual connection around a sublayer.
///
/// Should be created with [`ResidualConfig`].
#[derive(Module, Debug)]
pub struct Residual {
    /// Normalisation of the sublayer's input, or of the sum.
    pub norm: Option<Norm>,
    /// Normalisation of the sublayer's output.
    pub output_norm: Option<Norm>,
    /// Gate, if not a sum.
    pub gate: Option<Gate>,
    #[module(skip)]
    norm_order: NormOrder,
    relu: bool,
    dropout: f64,
}

impl Residual {
    /// Passes `x` `[B, N, C]` through `sublayer` and its residual connection. Dropout is active if and only if a key is given. The gate's observation is
    /// named `gate`, below the probe's path and `name`.
    pub fn forward(
        &self,
        name: &str,
        x: Tensor<3>,
        random: Option<RandomKey>,
        probe: &mut Probe,
        sublayer: impl FnOnce(Tensor<3>, &mut Probe) -> Tensor<3>,
    ) -> Tensor<3> {
        let output = self.branch(x.clone(), random, probe, sublayer);
        self.joined(name, x, output, probe)
    }

    /// Joins the stream `x` `[B, N, C]` and the output of its [`branch`](Self::branch), as in [`forward`](Self::forward).
    pub(crate) fn joined(&self, name: &str, x: Tensor<3>, output: Tensor<3>, probe: &mut Probe) -> Tensor<3> {
        let joined = match &self.gate {
            Some(gate) => {
                let (joined, open) = gate.forward(x, output);
                probe.within(name, None, |probe| probe.within("gate", None, |probe| probe.observe(|| Observation::Gate(open))));
                joined
            }
            None => x + output,
        };
        match (self.norm_order, &self.norm) {
            (NormOrder::Post, Some(norm)) => norm.forward(joined),
            _ => joined,
        }
    }

    /// Branch output that [`forward`](Self::forward) joins with `x` `[B, N, C]`: the sublayer's output, including normalisations on the branch.
    pub fn branch(
        &self,
        x: Tensor<3>,
        random: Option<RandomKey>,
        probe: &mut Probe,
        sublayer: impl FnOnce(Tensor<3>, &mut Probe) -> Tensor<3>,
    ) -> Tensor<3> {
        self.output(sublayer(self.input(x), probe), random)
    }

    /// Input of the sublayer for `x` `[B, N, C]`.
    pub(crate) fn input(&self, x: Tensor<3>) -> Tensor<3> {
        match &self.norm {
            Some(norm) if self.norm_order.is_before() => norm.forward(x),
            _ => x,
        }
    }

    /// Branch output from the sublayer's output `[B, N, C]`.
    pub(crate) fn output(&self, output: Tensor<3>, random: Option<RandomKey>) -> Tensor<3> {
        let output = match &self.output_norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        let key = random.map(|key| key.named("residual"));
        let output = dropout(output, self.dropout, key.as_ref());
        if self.relu { relu(output) } else { output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::residual_gate::GateKind;

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
    fn a_sandwich_normalises_the_output_as_well_as_the_input() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let y = residual(2, NormOrder::Sandwich, |config| config).forward("residual", x, None, &mut Probe::off(), |x, _| x * 4.0 + 9.0);
        assert!(values(y).iter().zip([0.0, 4.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn a_normalised_output_is_added_to_a_stream_that_is_not() {
        let x = Tensor::from_data([[[1.0, 3.0]]], &Device::flex());
        let mut given = Vec::new();
        let residual = residual(2, NormOrder::BranchOutput, |config| config);
        let y = residual.forward("residual", x, None, &mut Probe::off(), |x, _| {
            given = values(x.clone());
            x * -4.0
        });
        assert_eq!(given, [1.0, 3.0]);
        assert!(values(y).iter().zip([2.0, 2.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn each_order_has_the_normalisations_that_it_needs() {
        let cases = [(NormOrder::Post, [1, 1]), (NormOrder::Pre, [1, 0]), (NormOrder::Sandwich, [2, 1]), (NormOrder::BranchOutput, [1, 1])];
        for (norm_order, [usual, normalised]) in cases {
            for (is_normalised, norms) in [(false, usual), (true, normalised)] {
                let residual = residual(5, norm_order, |config| ResidualConfig { is_normalised, ..config });
                assert_eq!(residual.num_params(), norms * 10, "{norm_order:?}, {is_normalised}");
            }
        }
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
