//! Recurrent networks with adaptive computation time, its original setting (Graves 2016, section 2).
//!
//! For each input `x_t` of a sequence the cell is applied repeatedly, `s_n = S(s_{n-1}, [x_t, δ_{n,1}])`, with a flag for the first step. The blend of the
//! steps ([`crate::block::halting`]) is the initial state for the next input and determines the output `y_t = s_t W + b`. This equals the blend of the outputs
//! of all steps, since their weights sum to 1. With a limit of one step this is an ordinary recurrent network.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::sigmoid;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use crate::block::halting::{Halting, HaltingConfig};

/// Type of cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellKind {
    /// `tanh(x W + s U + b)` (Graves: for parity).
    #[default]
    Tanh,
    /// Long short-term memory (Hochreiter and Schmidhuber 1997; Graves: for logic, addition and sorting), its cells and outputs side by side as the state.
    Lstm,
}

/// Configuration of [`RecurrentNetwork`]. Widths must be given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecurrentConfig {
    /// Width of an input.
    pub inputs: usize,
    /// Units of the cell (default 128).
    pub units: usize,
    /// Width of an output.
    pub outputs: usize,
    /// Type of cell (default: tanh).
    pub cell: CellKind,
    /// Maximum number of steps per input, at least 1 (default 100).
    pub limit: usize,
    /// Halting options.
    pub halting: HaltingConfig,
}

impl Default for RecurrentConfig {
    fn default() -> Self {
        Self { inputs: 0, units: 128, outputs: 0, cell: CellKind::default(), limit: 100, halting: HaltingConfig::default() }
    }
}

impl RecurrentConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// An invalid option, by name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("recurrent network");
        for (option, value) in [("inputs", self.inputs), ("units", self.units), ("outputs", self.outputs), ("limit", self.limit)] {
            check.at_least_one(option, value)?;
        }
        self.halting.validate(&check)?;
        if self.halting.skip_in_training {
            return Err(check.refuse("skip_in_training", true, "leave it out: it is for positions of a Transformer"));
        }
        Ok(())
    }

    /// Initialises the network.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, key: &RandomKey, device: &Device) -> RecurrentNetwork {
        let Self { inputs, units, outputs, cell, limit, halting } = *self;
        let (gates, state) = match cell {
            CellKind::Tanh => (1, units),
            CellKind::Lstm => (4, 2 * units),
        };
        RecurrentNetwork {
            input: init::linear(inputs + 1, gates * units, true, &key.named("input"), device),
            recurrent: init::linear(units, gates * units, false, &key.named("recurrent"), device),
            halting: halting.init(state, &key.named("halting"), device),
            output: init::linear(units, outputs, true, &key.named("output"), device),
            cell,
            limit,
            units,
        }
    }
}

/// A recurrent network with several steps per input.
///
/// Should be created with [`RecurrentConfig`].
#[derive(Module, Debug)]
pub struct RecurrentNetwork {
    /// Map from inputs and the flag to the gates.
    pub input: Linear,
    /// Map from the cell's output to the gates.
    pub recurrent: Linear,
    /// Halting unit.
    pub halting: Halting,
    /// Map from the cell's output to the network's output.
    pub output: Linear,
    #[module(skip)]
    cell: CellKind,
    limit: usize,
    units: usize,
}

impl RecurrentNetwork {
    /// Outputs `[B, N, O]` for sequences `[B, N, I]`, and the ponder cost, a mean over all inputs.
    pub fn forward(&self, sequence: Tensor<3>, probe: &mut Probe) -> (Tensor<3>, Losses) {
        let [batch, length, _] = sequence.dims();
        self.forward_padded(sequence, &vec![length; batch], probe)
    }

    /// The same for sequences with `lengths[b]` real inputs in row `b`. Padding takes no steps and costs nothing; its outputs are arbitrary.
    ///
    /// # Panics
    /// If the number of lengths differs from the number of rows.
    pub fn forward_padded(&self, sequence: Tensor<3>, lengths: &[usize], probe: &mut Probe) -> (Tensor<3>, Losses) {
        let [batch, length, inputs] = sequence.dims();
        assert_eq!(lengths.len(), batch, "lengths of the rows of a batch");
        let is_padded = lengths.iter().any(|&real| real < length);
        let width = self.halting.unit.weight.dims()[0];
        let mut state = Tensor::<2>::zeros([batch, width], (&sequence.device(), sequence.dtype()));
        let (mut outputs, mut costs, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..length {
            let x = sequence.clone().narrow(1, at, 1).reshape([batch, inputs]);
            let real = is_padded.then(|| {
                let real: Vec<bool> = lengths.iter().map(|&real| at < real).collect();
                Tensor::<2, Bool>::from_data(TensorData::new(real, [batch, 1]), &state.device())
            });
            let mut pondering = self.halting.start(&state, real, self.limit);
            let mut is_first = true;
            while pondering.goes_on() {
                let flag = Tensor::full([batch, 1], if is_first { 1.0 } else { 0.0 }, (&x.device(), x.dtype()));
                let flagged = Tensor::cat(vec![x.clone(), flag], 1);
                state = self.halting.step(&mut pondering, state.clone(), state, |state| self.update(flagged, state));
                is_first = false;
            }
            state = pondering.blended();
            outputs.push(self.output.forward(self.units_of(state.clone())));
            costs.push(pondering.cost());
            steps.push(pondering.steps());
        }
        probe.observe(|| Observation::HaltingSteps(Tensor::cat(steps, 1)));
        let mut losses = Losses::default();
        let costs = Tensor::cat(costs, 1);
        let elements = lengths.iter().map(|&real| real.min(length)).sum::<usize>().max(1);
        let cost = if is_padded { costs.sum() / elements as f64 } else { costs.mean() };
        losses.push("ponder", cost * self.halting.config().ponder_weight);
        (Tensor::stack(outputs, 1), losses)
    }

    /// Part of a state that determines the network's output.
    fn units_of(&self, state: Tensor<2>) -> Tensor<2> {
        state.narrow(1, 0, self.units)
    }

    fn update(&self, x: Tensor<2>, state: Tensor<2>) -> Tensor<2> {
        let gates = self.input.forward(x) + self.recurrent.forward(self.units_of(state.clone()));
        match self.cell {
            CellKind::Tanh => gates.tanh(),
            CellKind::Lstm => {
                let gate = |at: usize| gates.clone().narrow(1, at * self.units, self.units);
                let cells = sigmoid(gate(0)) * state.narrow(1, self.units, self.units) + sigmoid(gate(1)) * gate(2).tanh();
                Tensor::cat(vec![sigmoid(gate(3)) * cells.clone().tanh(), cells], 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cell: CellKind, limit: usize, bias: f64) -> RecurrentConfig {
        let halting = HaltingConfig { bias, ..HaltingConfig::default() };
        RecurrentConfig { inputs: 3, units: 5, outputs: 2, cell, limit, halting }
    }

    fn sequence() -> Tensor<3> {
        Init::Normal(1.0).tensor([2, 4, 3], &RandomKey::from_seed(7), &Device::flex())
    }

    fn run(config: RecurrentConfig) -> (Tensor<3>, Vec<f32>, f32) {
        config.validate().unwrap();
        let network = config.init(&RandomKey::from_seed(1), &Device::flex());
        let mut steps = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::HaltingSteps(taken) = observation {
                steps = taken.into_data().try_to_vec::<f32>().unwrap();
            }
        };
        let (outputs, losses) = network.forward(sequence(), &mut Probe::listening(&mut listener));
        (outputs, steps, losses.total().unwrap().into_scalar())
    }

    #[test]
    fn one_step_is_an_ordinary_network() {
        for cell in [CellKind::Tanh, CellKind::Lstm] {
            let config = config(cell, 1, 0.0);
            let network = config.init(&RandomKey::from_seed(1), &Device::flex());
            let (outputs, steps, cost) = run(config);
            assert!(steps.iter().all(|&steps| steps == 1.0));
            assert!((cost - 0.02).abs() < 1e-6);
            let width = network.halting.unit.weight.dims()[0];
            let mut state = Tensor::<2>::zeros([2, width], &Device::flex());
            for at in 0..4 {
                let flagged = Tensor::cat(vec![sequence().narrow(1, at, 1).reshape([2, 3]), Tensor::ones([2, 1], &Device::flex())], 1);
                state = network.update(flagged, state);
                let wanted = network.output.forward(state.clone().narrow(1, 0, 5));
                let difference: f32 = (wanted - outputs.clone().narrow(1, at, 1).reshape([2, 2])).abs().max().into_scalar();
                assert!(difference < 1e-6, "{cell:?}, element {at}: {difference}");
            }
        }
    }

    #[test]
    fn elements_take_their_own_number_of_steps() {
        let (_, steps, _) = run(config(CellKind::Tanh, 20, -1.0));
        assert!(steps.iter().any(|&n| n != steps[0]) && steps.iter().all(|&n| (1.0..=20.0).contains(&n)), "{steps:?}");
    }

    #[test]
    fn rows_do_not_depend_on_each_other() {
        let network = config(CellKind::Lstm, 9, -1.0).init(&RandomKey::from_seed(1), &Device::flex());
        let together = network.forward(sequence(), &mut Probe::off()).0;
        for row in 0..2 {
            let alone = network.forward(sequence().narrow(0, row, 1), &mut Probe::off()).0;
            let difference: f32 = (alone - together.clone().narrow(0, row, 1)).abs().max().into_scalar();
            assert!(difference < 1e-5, "{difference}");
        }
    }

    #[test]
    fn the_flag_tells_the_first_step_from_the_others() {
        let config = config(CellKind::Tanh, 2, -50.0);
        let network = config.init(&RandomKey::from_seed(1), &Device::flex());
        let x = sequence().narrow(1, 0, 1);
        let flagged = |flag: f32| Tensor::cat(vec![x.clone().reshape([2, 3]), Tensor::full([2, 1], flag, &Device::flex())], 1);
        let state = network.update(flagged(0.0), network.update(flagged(1.0), Tensor::zeros([2, 5], &Device::flex())));
        let wanted = network.output.forward(state);
        let found = network.forward(x, &mut Probe::off()).0.reshape([2, 2]);
        let difference: f32 = (wanted - found).abs().max().into_scalar();
        assert!(difference < 1e-6, "{difference}");
    }

    #[test]
    fn padding_is_neither_pondered_over_nor_paid_for() {
        for cell in [CellKind::Tanh, CellKind::Lstm] {
            let network = config(cell, 9, -1.0).init(&RandomKey::from_seed(1), &Device::flex());
            let mut steps = Vec::new();
            let mut listener = |_: &str, observation: Observation| {
                if let Observation::HaltingSteps(taken) = observation {
                    steps = taken.into_data().try_to_vec::<f32>().unwrap();
                }
            };
            let (together, losses) = network.forward_padded(sequence(), &[4, 2], &mut Probe::listening(&mut listener));
            assert!(steps[..6].iter().all(|&steps| steps >= 1.0) && steps[6..] == [0.0; 2], "{steps:?}");
            let mut cost = 0.0;
            for (row, length) in [4, 2].into_iter().enumerate() {
                let (alone, losses) = network.forward(sequence().narrow(0, row, 1).narrow(1, 0, length), &mut Probe::off());
                let found = together.clone().narrow(0, row, 1).narrow(1, 0, length);
                let difference: f32 = (alone - found).abs().max().into_scalar();
                assert!(difference < 1e-5, "{cell:?}: {difference}");
                cost += losses.total().unwrap().into_scalar::<f32>() * length as f32 / 6.0;
            }
            assert!((losses.total().unwrap().into_scalar::<f32>() - cost).abs() < 1e-5);
        }
    }

    #[test]
    fn missing_widths_and_options_without_effect_are_refused() {
        let error = RecurrentConfig::default().validate().unwrap_err().to_string();
        assert!(error.contains("`inputs`"), "{error}");
        let halting = HaltingConfig { skip_in_training: true, ..HaltingConfig::default() };
        let error = RecurrentConfig { halting, ..config(CellKind::Tanh, 2, 1.0) }.validate().unwrap_err().to_string();
        assert!(error.contains("`skip_in_training`"), "{error}");
    }
}
