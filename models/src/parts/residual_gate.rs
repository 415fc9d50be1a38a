//! Gates in place of the residual sum (Parisotto et al. 2019, section 3.2).
//!
//! `g(x, y)` joins the stream `x` and a sublayer's output `y` at each position; `⊙` is the elementwise product, σ the logistic function:
//!
//! * `input`: `σ(W_g x) ⊙ x + y`
//! * `output`: `x + σ(W_g x - b_g) ⊙ y`
//! * `highway`: `σ(W_g x + b_g) ⊙ x + (1 - σ(W_g x + b_g)) ⊙ y`
//! * `sig-tanh`: `x + σ(W_g y - b_g) ⊙ tanh(U_g y)`
//! * `gru`: `r = σ(W_r y + U_r x)`, `z = σ(W_z y + U_z x - b_g)`, `h = tanh(W_g y + U_g (r ⊙ x))`, `(1 - z) ⊙ x + z ⊙ h`
//!
//! `b_g` is the only bias; `input` has none. The larger it is, the closer the initial network is to the identity of `x`. There is no recurrence over time: the
//! gated recurrent unit runs over the layers.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};
use heedful_attention::contract::init;
use heedful_attention::engine::linear::linear;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

/// Gate that joins the stream and a sublayer's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// `σ(W_g x) ⊙ x + y`.
    Input,
    /// `x + σ(W_g x - b_g) ⊙ y`.
    Output,
    /// `σ(W_g x + b_g) ⊙ x + (1 - σ(W_g x + b_g)) ⊙ y`.
    Highway,
    /// `x + σ(W_g y - b_g) ⊙ tanh(U_g y)`.
    SigTanh,
    /// The gated recurrent unit over depth.
    Gru,
}

/// Configuration of [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateConfig {
    /// Kind of gate.
    pub kind: GateKind,
    /// Initial value of `b_g` (default: 2 for `gru`, 1 for the others, as in the paper; `input` has no bias).
    #[serde(default)]
    pub bias: Option<f64>,
}

impl GateConfig {
    /// The gate of this kind with the paper's bias.
    pub fn new(kind: GateKind) -> Self {
        Self { kind, bias: None }
    }

    pub(crate) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        match self.bias {
            Some(bias) if self.kind == GateKind::Input => Err(check.refuse("gate.bias", bias, "leave it out: the input gate has no bias")),
            Some(bias) if !bias.is_finite() => Err(check.refuse("gate.bias", bias, "give a finite number")),
            _ => Ok(()),
        }
    }

    /// Initialises the gate for width `d_model`: Xavier-uniform maps.
    pub fn init(&self, d_model: usize, key: &RandomKey, device: &Device) -> Gate {
        let bias = self.bias.unwrap_or(if self.kind == GateKind::Gru { 2.0 } else { 1.0 });
        let map = |name| init::linear(d_model, d_model, false, &key.named(name), device);
        let bias = || Init::Constant(bias as f32).parameter([d_model], key, device);
        match self.kind {
            GateKind::Input => Gate::Input(InputGate { gate: map("gate") }),
            GateKind::Output => Gate::Output(OutputGate { gate: map("gate"), bias: bias() }),
            GateKind::Highway => Gate::Highway(HighwayGate { gate: map("gate"), bias: bias() }),
            GateKind::SigTanh => Gate::SigTanh(SigTanhGate { gate: map("gate"), update: map("update"), bias: bias() }),
            GateKind::Gru => Gate::Gru(GruGate {
                reset: [map("reset"), map("reset_stream")],
                update: [map("update"), map("update_stream")],
                candidate: [map("candidate"), map("candidate_stream")],
                bias: bias(),
            }),
        }
    }
}

/// A gate.
///
/// Should be created with [`GateConfig`].
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are two in a block, made once")]
pub enum Gate {
    /// [`GateKind::Input`].
    Input(InputGate),
    /// [`GateKind::Output`].
    Output(OutputGate),
    /// [`GateKind::Highway`].
    Highway(HighwayGate),
    /// [`GateKind::SigTanh`].
    SigTanh(SigTanhGate),
    /// [`GateKind::Gru`].
    Gru(GruGate),
}

/// Gates the stream.
#[derive(Module, Debug)]
pub struct InputGate {
    /// `W_g`, `[C, C]`.
    pub gate: Linear,
}

/// Gates the sublayer's output.
#[derive(Module, Debug)]
pub struct OutputGate {
    /// `W_g`, `[C, C]`.
    pub gate: Linear,
    /// `b_g`, `[C]`.
    pub bias: Param<Tensor<1>>,
}

/// Interpolates between both.
#[derive(Module, Debug)]
pub struct HighwayGate {
    /// `W_g`, `[C, C]`.
    pub gate: Linear,
    /// `b_g`, `[C]`.
    pub bias: Param<Tensor<1>>,
}

/// Adds the self-gated sublayer output.
#[derive(Module, Debug)]
pub struct SigTanhGate {
    /// `W_g`, `[C, C]`.
    pub gate: Linear,
    /// `U_g`, `[C, C]`.
    pub update: Linear,
    /// `b_g`, `[C]`.
    pub bias: Param<Tensor<1>>,
}

/// The gated recurrent unit.
#[derive(Module, Debug)]
pub struct GruGate {
    /// `W_r` and `U_r`, `[C, C]`.
    pub reset: [Linear; 2],
    /// `W_z` and `U_z`, `[C, C]`.
    pub update: [Linear; 2],
    /// `W_g` and `U_g`, `[C, C]`.
    pub candidate: [Linear; 2],
    /// `b_g`, `[C]`.
    pub bias: Param<Tensor<1>>,
}

impl Gate {
    /// Joins the stream `x` and a sublayer's output `y`, both `[B, N, C]`. Returns the result, and the gate's opening to `y` (of `input`: to `x`), `[B, N, C]`
    /// in `(0, 1)`.
    pub fn forward(&self, x: Tensor<3>, y: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        let row = |bias: &Param<Tensor<1>>| bias.val().unsqueeze::<3>();
        match self {
            Self::Input(InputGate { gate }) => {
                let open = sigmoid(linear(x.clone(), gate));
                (open.clone() * x + y, open)
            }
            Self::Output(OutputGate { gate, bias }) => {
                let open = sigmoid(linear(x.clone(), gate) - row(bias));
                (x + open.clone() * y, open)
            }
            Self::Highway(HighwayGate { gate, bias }) => {
                // 1 - σ(a) = σ(-a)
                let open = sigmoid(-(linear(x.clone(), gate) + row(bias)));
                (x.clone() + open.clone() * (y - x), open)
            }
            Self::SigTanh(SigTanhGate { gate, update, bias }) => {
                let open = sigmoid(linear(y.clone(), gate) - row(bias));
                (x + open.clone() * linear(y, update).tanh(), open)
            }
            Self::Gru(GruGate { reset, update, candidate, bias }) => {
                let both = |[of_output, of_stream]: &[Linear; 2], x| linear(y.clone(), of_output) + linear(x, of_stream);
                let reset = sigmoid(both(reset, x.clone()));
                let open = sigmoid(both(update, x.clone()) - row(bias));
                let candidate = both(candidate, reset * x.clone()).tanh();
                (x.clone() + open.clone() * (candidate - x), open)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [GateKind; 5] = [GateKind::Input, GateKind::Output, GateKind::Highway, GateKind::SigTanh, GateKind::Gru];

    fn gate(kind: GateKind, bias: Option<f64>) -> Gate {
        GateConfig { kind, bias }.init(3, &RandomKey::from_seed(1), &Device::flex())
    }

    fn streams() -> [Tensor<3>; 2] {
        [1, 2].map(|seed| Init::Normal(1.0).tensor([2, 4, 3], &RandomKey::from_seed(seed), &Device::flex()))
    }

    fn numbers(x: Tensor<3>) -> Vec<f64> {
        x.into_data().iter::<f64>().collect()
    }

    fn matrix(map: &Linear) -> Vec<f64> {
        map.weight.val().into_data().iter::<f64>().collect()
    }

    fn logistic(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// `x W` of a row.
    fn times(x: &[f64], map: &Linear) -> Vec<f64> {
        let weights = matrix(map);
        (0..x.len()).map(|column| x.iter().enumerate().map(|(row, x)| x * weights[row * 3 + column]).sum()).collect()
    }

    /// The formulas of the paper for one position.
    fn formula(gate: &Gate, bias: f64, x: &[f64], y: &[f64]) -> Vec<f64> {
        let each = |of: &dyn Fn(usize) -> f64| (0..3).map(of).collect::<Vec<_>>();
        match gate {
            Gate::Input(InputGate { gate }) => {
                let g = times(x, gate);
                each(&|at| logistic(g[at]) * x[at] + y[at])
            }
            Gate::Output(OutputGate { gate, .. }) => {
                let g = times(x, gate);
                each(&|at| x[at] + logistic(g[at] - bias) * y[at])
            }
            Gate::Highway(HighwayGate { gate, .. }) => {
                let g = times(x, gate);
                each(&|at| logistic(g[at] + bias) * x[at] + (1.0 - logistic(g[at] + bias)) * y[at])
            }
            Gate::SigTanh(SigTanhGate { gate, update, .. }) => {
                let (g, u) = (times(y, gate), times(y, update));
                each(&|at| x[at] + logistic(g[at] - bias) * u[at].tanh())
            }
            Gate::Gru(GruGate { reset, update, candidate, .. }) => {
                let [r, z] = [reset, update].map(|maps| [times(y, &maps[0]), times(x, &maps[1])]);
                let r = each(&|at| logistic(r[0][at] + r[1][at]) * x[at]);
                let h = [times(y, &candidate[0]), times(&r, &candidate[1])];
                let z = each(&|at| logistic(z[0][at] + z[1][at] - bias));
                each(&|at| (1.0 - z[at]) * x[at] + z[at] * (h[0][at] + h[1][at]).tanh())
            }
        }
    }

    #[test]
    fn gates_compute_the_formulas_of_the_paper() {
        let [x, y] = streams();
        for kind in KINDS {
            let bias = if kind == GateKind::Input { None } else { Some(0.7) };
            let gate = gate(kind, bias);
            let found = numbers(gate.forward(x.clone(), y.clone()).0);
            let (x, y) = (numbers(x.clone()), numbers(y.clone()));
            let wanted = x.chunks(3).zip(y.chunks(3)).flat_map(|(x, y)| formula(&gate, 0.7, x, y));
            for (found, wanted) in found.iter().zip(wanted) {
                assert!((found - wanted).abs() < 1e-5, "{kind:?}: {found} is not {wanted}");
            }
        }
    }

    #[test]
    fn a_great_bias_leaves_the_stream_as_it_is() {
        let [x, y] = streams();
        for kind in KINDS {
            let bias = if kind == GateKind::Input { None } else { Some(40.0) };
            let joined = numbers(gate(kind, bias).forward(x.clone(), y.clone()).0);
            let same = joined.iter().zip(numbers(x.clone())).all(|(joined, x)| (joined - x).abs() < 1e-6);
            assert_eq!(same, kind != GateKind::Input, "{kind:?}");
        }
    }

    #[test]
    fn gates_without_maps_open_as_far_as_the_bias_says() {
        let [x, y] = streams();
        for (kind, open) in [(GateKind::Output, 0.269), (GateKind::Highway, 0.269), (GateKind::SigTanh, 0.269), (GateKind::Gru, 0.119)] {
            let gate = gate(kind, None).map(&mut Zero);
            let found = numbers(gate.forward(x.clone(), y.clone()).1);
            assert!(found.iter().all(|found| (found - open).abs() < 1e-3), "{kind:?}: {found:?}");
        }
    }

    /// Sets matrices to 0.
    struct Zero;

    impl burn::module::ModuleMapper for Zero {
        fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
            parameter.map(|tensor| if D == 2 { tensor.zeros_like() } else { tensor })
        }
    }

    #[test]
    fn gates_have_the_parameters_of_the_paper() {
        for (kind, matrices, biases) in
            [(GateKind::Input, 1, 0), (GateKind::Output, 1, 1), (GateKind::Highway, 1, 1), (GateKind::SigTanh, 2, 1), (GateKind::Gru, 6, 1)]
        {
            assert_eq!(gate(kind, None).num_params(), matrices * 9 + biases * 3, "{kind:?}");
        }
    }

    #[test]
    fn all_parameters_are_trained() {
        let device = Device::flex().autodiff();
        for kind in KINDS {
            let gate = GateConfig::new(kind).init(3, &RandomKey::from_seed(1), &device);
            let [x, y] = streams().map(|x| Tensor::from_data(x.into_data(), &device));
            let gradients = gate.forward(x, y).0.sum().backward();
            let gradients = burn::optim::GradientsParams::from_grads(gradients, &gate);
            let count = match kind {
                GateKind::Input => 1,
                GateKind::Output | GateKind::Highway => 2,
                GateKind::SigTanh => 3,
                GateKind::Gru => 7,
            };
            assert_eq!(gradients.len(), count, "{kind:?}");
        }
    }

    #[test]
    fn a_bias_that_is_not_there_is_refused() {
        let refused = |config: GateConfig| config.validate(&Check::of("model")).unwrap_err().to_string();
        assert!(refused(GateConfig { kind: GateKind::Input, bias: Some(1.0) }).contains("`gate.bias`"));
        assert!(refused(GateConfig { kind: GateKind::Gru, bias: Some(f64::NAN) }).contains("`gate.bias`"));
        assert!(GateConfig::new(GateKind::Gru).validate(&Check::of("model")).is_ok());
    }
}
