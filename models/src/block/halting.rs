//! Adaptive computation time (Graves 2016): the number of updates of a state depends on the state.
//!
//! After each update `n`, a unit computes the halting probability `h_n = σ(s_n W + b)`. `N` is the first `n` with `h_1 + .. + h_n >= 1 - ε`, or the step limit.
//! The result is `Σ p_n s_n` with `p_n = h_n` before `N` and the remainder `R = 1 - Σ_{n<N} h_n` at `N`, so the weights sum to 1. The ponder cost `N + R` is an
//! auxiliary loss; `N` is a constant, so each `h_n` before `N` has the gradient -1 and the others none.
//!
//! Universal Transformers (Dehghani et al. 2018, section 2.2) apply it to each position separately ([`crate::block::layer_sharing`]). Their released code
//! differs from the text in four ways, each an option here. It blends by interpolation ([`Blend::Interpolated`]), omits the remainder at the step limit
//! ([`HaltingConfig::remainder_at_limit`]), updates halted states ([`HaltingConfig::freeze`]), and its unit reads the input of the update
//! ([`HaltingConfig::before_update`]).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::sigmoid;
use burn::tensor::{Bool, Device, Tensor};
use heedful_attention::contract::init;
use heedful_attention::engine::linear::linear;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;
use serde::{Deserialize, Serialize};

/// Blend of the states of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blend {
    /// `Σ p_n s_n` (Graves 2016; `accumulated` in tensor2tensor).
    #[default]
    MeanField,
    /// `y_n = p_n s_n + (1 - p_n) y_{n-1}` from `y_0 = 0` (`basic` in tensor2tensor, its default): the weights sum to less than 1 after more than one step.
    Interpolated,
}

/// Options of adaptive computation time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaltingConfig {
    /// `ε` in `[0, 1)`: tolerance to a probability of 1, so that a single step can suffice (default 0.01).
    pub epsilon: f64,
    /// Initial bias of the halting unit (default 1: few steps).
    pub bias: f64,
    /// Weight of the mean ponder cost in the loss, at least 0 (default 0.01).
    pub ponder_weight: f64,
    /// Blend of the states of the steps (default: mean field).
    pub blend: Blend,
    /// Whether states that have not halted at the step limit receive the remainder there (default: yes, Graves).
    pub remainder_at_limit: bool,
    /// Whether halted states are frozen (default: yes).
    pub freeze: bool,
    /// Whether the halting unit reads the input of the update (default: no, its output).
    pub before_update: bool,
    /// Whether training skips halted positions, as inference does with frozen states (default: no, training computes but ignores them). Skipping takes less
    /// time and draws other dropout numbers.
    pub skip_in_training: bool,
}

impl Default for HaltingConfig {
    fn default() -> Self {
        Self {
            epsilon: 0.01,
            bias: 1.0,
            ponder_weight: 0.01,
            blend: Blend::default(),
            remainder_at_limit: true,
            freeze: true,
            before_update: false,
            skip_in_training: false,
        }
    }
}

impl HaltingConfig {
    /// Options of tensor2tensor's default.
    pub fn released() -> Self {
        Self { blend: Blend::Interpolated, remainder_at_limit: false, freeze: false, before_update: true, ..Self::default() }
    }

    pub(crate) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        check.probability("epsilon", self.epsilon)?;
        if !self.bias.is_finite() {
            return Err(check.refuse("bias", self.bias, "give a finite number"));
        }
        if !(self.ponder_weight >= 0.0 && self.ponder_weight.is_finite()) {
            return Err(check.refuse("ponder_weight", self.ponder_weight, "give a number of at least 0"));
        }
        if self.skip_in_training && !self.freeze {
            return Err(check.refuse(
                "skip_in_training",
                true,
                "leave it out, or give freeze = true: states that go on changing cannot be left out",
            ));
        }
        Ok(())
    }

    /// Initialises the halting unit for states of width `d_model`.
    pub fn init(&self, d_model: usize, key: &RandomKey, device: &Device) -> Halting {
        let mut unit = init::linear(d_model, 1, true, &key.named("unit"), device);
        unit.bias = Some(Init::Constant(self.bias as f32).parameter([1], key, device));
        Halting { unit, config: *self }
    }
}

/// The halting unit.
///
/// Should be created with [`HaltingConfig`].
#[derive(Module, Debug)]
pub struct Halting {
    /// `W`, `[C, 1]`, and `b`.
    pub unit: Linear,
    #[module(skip)]
    config: HaltingConfig,
}

impl Halting {
    /// Its options.
    pub fn config(&self) -> &HaltingConfig {
        &self.config
    }

    /// Starts pondering over states `[.., C]`, of which only those marked in `real` `[.., 1]` count; `None` marks all. At most `limit` steps, at least 1, are
    /// taken.
    pub fn start<const D: usize>(&self, states: &Tensor<D>, real: Option<Tensor<D, Bool>>, limit: usize) -> Pondering<D> {
        let mut dims = states.dims();
        let blended = states.zeros_like();
        dims[D - 1] = 1;
        let zeros = Tensor::zeros(dims, (&states.device(), states.dtype()));
        let running = real.unwrap_or_else(|| zeros.clone().equal_elem(0.0));
        Pondering {
            config: self.config,
            limit,
            taken: 0,
            halting: zeros.clone(),
            remainders: zeros.clone(),
            steps: zeros,
            running,
            blended,
        }
    }

    /// Takes one step from `states` `[.., C]` by `update`, whose argument `input` is the states, possibly transformed for this step. Returns the initial states
    /// of the next step.
    pub fn step<const D: usize>(
        &self,
        pondering: &mut Pondering<D>,
        states: Tensor<D>,
        input: Tensor<D>,
        update: impl FnOnce(Tensor<D>) -> Tensor<D>,
    ) -> Tensor<D> {
        let probability = |states: &Tensor<D>| sigmoid(linear(states.clone(), &self.unit));
        let before = self.config.before_update.then(|| probability(&input));
        let updated = update(input);
        let probability = before.unwrap_or_else(|| probability(&updated));
        let running = pondering.running.clone();
        pondering.take(probability, updated.clone());
        if self.config.freeze { states.mask_where(running.expand(updated.dims()), updated) } else { updated }
    }
}

/// Progress of pondering.
#[derive(Clone, Debug)]
pub struct Pondering<const D: usize> {
    config: HaltingConfig,
    limit: usize,
    taken: usize,
    /// Sum of the probabilities before the step at which a state halted, `[.., 1]`.
    halting: Tensor<D>,
    /// `R` of the states that have halted, `[.., 1]`.
    remainders: Tensor<D>,
    /// Steps taken, `[.., 1]`.
    steps: Tensor<D>,
    /// Flags of states that have not halted, `[.., 1]`.
    running: Tensor<D, Bool>,
    /// `[.., C]`.
    blended: Tensor<D>,
}

impl<const D: usize> Pondering<D> {
    fn take(&mut self, probability: Tensor<D>, states: Tensor<D>) {
        self.taken += 1;
        let running = self.running.clone();
        let dtype = states.dtype();
        let counts = running.clone().float().cast(dtype);
        let enough = (self.halting.clone() + probability.clone()).greater_equal_elem(1.0 - self.config.epsilon);
        let at_limit = self.taken == self.limit && self.config.remainder_at_limit;
        let halts = if at_limit { running.clone() } else { running.clone().bool_and(enough) };
        let remainder = self.halting.clone() * -1.0 + 1.0;
        let weight = probability.clone().mask_where(halts.clone(), remainder.clone()) * counts.clone();

        self.running = running.bool_and(halts.clone().bool_not());
        self.steps = self.steps.clone() + counts;
        self.remainders = self.remainders.clone() + remainder * halts.float().cast(dtype);
        self.halting = self.halting.clone() + probability * self.running.clone().float().cast(dtype);
        let kept = match self.config.blend {
            Blend::MeanField => self.blended.clone(),
            Blend::Interpolated => (weight.clone() * -1.0 + 1.0) * self.blended.clone(),
        };
        self.blended = weight * states + kept;
    }

    /// Whether another step is allowed and has an effect. Reads from the device.
    pub fn goes_on(&self) -> bool {
        self.taken < self.limit && (self.taken == 0 || self.running.clone().any().into_scalar::<bool>())
    }

    /// Flags of states that have not halted, in order. Reads from the device.
    pub(crate) fn running(&self) -> Vec<bool> {
        read(self.running.clone()).iter::<bool>().collect()
    }

    /// Blend of the steps so far, `[.., C]`.
    pub fn blended(&self) -> Tensor<D> {
        self.blended.clone()
    }

    /// Steps until each state halted, `N`, `[.., 1]`; 0 for states that do not count.
    pub fn steps(&self) -> Tensor<D> {
        self.steps.clone()
    }

    /// Ponder cost `N + R`, `[.., 1]`; 0 for states that do not count.
    pub fn cost(&self) -> Tensor<D> {
        self.steps.clone() + self.remainders.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::TensorData;

    /// A unit that reads the first of two channels.
    fn halting(config: HaltingConfig, device: &Device) -> Halting {
        let mut halting = config.init(2, &RandomKey::from_seed(1), device);
        halting.unit.weight = Param::from_tensor(Tensor::from_data([[1.0], [0.0]], device));
        halting.unit.bias = Some(Param::from_tensor(Tensor::zeros([1], device)));
        halting
    }

    fn logit(probability: f64) -> f64 {
        (probability / (1.0 - probability)).ln()
    }

    /// Ponders over one state whose halting probabilities after the steps are given; the second channel of step `n` is `n`.
    fn ponder(config: HaltingConfig, probabilities: &[f64], limit: usize) -> (Pondering<2>, Vec<Tensor<2>>) {
        let device = Device::flex().autodiff();
        let halting = halting(config, &device);
        let mut states = Tensor::<2>::zeros([1, 2], &device);
        let mut pondering = halting.start(&states, None, limit);
        let mut logits = Vec::new();
        while pondering.goes_on() {
            let step = logits.len();
            let data = TensorData::new(vec![logit(probabilities[step]) as f32, (step + 1) as f32], [1, 2]);
            let updated = Tensor::<2>::from_data(data, &device).require_grad();
            logits.push(updated.clone());
            states = halting.step(&mut pondering, states.clone(), states, |_| updated);
        }
        (pondering, logits)
    }

    fn number<const D: usize>(x: Tensor<D>) -> f64 {
        x.into_data().iter::<f64>().next().unwrap()
    }

    fn second(x: Tensor<2>) -> f64 {
        number(x.narrow(1, 1, 1))
    }

    #[test]
    fn the_result_is_the_mean_field_with_the_remainder_at_the_last_step() {
        let (pondering, _) = ponder(HaltingConfig::default(), &[0.2, 0.3, 0.6, 0.9], 9);
        assert_eq!(number(pondering.steps()), 3.0);
        assert!((number(pondering.cost()) - 3.5).abs() < 1e-6);
        assert!((second(pondering.blended()) - (0.2 + 0.3 * 2.0 + 0.5 * 3.0)).abs() < 1e-5);
    }

    #[test]
    fn equal_probabilities_have_equal_weights() {
        for steps in [2, 4, 5] {
            let (pondering, _) = ponder(HaltingConfig::default(), &[1.0 / steps as f64; 9], 9);
            assert_eq!(number(pondering.steps()), steps as f64);
            assert!((second(pondering.blended()) - (steps + 1) as f64 / 2.0).abs() < 1e-5);
        }
    }

    #[test]
    fn what_never_halts_stops_at_the_limit_with_the_remainder() {
        let (pondering, _) = ponder(HaltingConfig::default(), &[0.1; 9], 3);
        assert_eq!(number(pondering.steps()), 3.0);
        assert!((number(pondering.cost()) - 3.8).abs() < 1e-6);
        assert!((second(pondering.blended()) - (0.1 + 0.2 + 0.8 * 3.0)).abs() < 1e-5);
        let without = HaltingConfig { remainder_at_limit: false, ..HaltingConfig::default() };
        let (pondering, _) = ponder(without, &[0.1; 9], 3);
        assert!((second(pondering.blended()) - 0.6).abs() < 1e-5);
        assert_eq!(number(pondering.cost()), 3.0);
    }

    #[test]
    fn one_step_has_the_weight_one_however_it_is_blended() {
        for blend in [Blend::MeanField, Blend::Interpolated] {
            let (pondering, _) = ponder(HaltingConfig { blend, ..HaltingConfig::default() }, &[0.995], 5);
            assert_eq!([number(pondering.steps()), number(pondering.cost()), second(pondering.blended())], [1.0, 2.0, 1.0]);
        }
    }

    #[test]
    fn interpolation_is_not_the_mean_field() {
        let (pondering, _) = ponder(HaltingConfig { blend: Blend::Interpolated, ..HaltingConfig::default() }, &[0.5, 0.5], 5);
        assert!((second(pondering.blended()) - (0.25 + 0.5 * 2.0)).abs() < 1e-6);
    }

    #[test]
    fn each_probability_before_the_last_lowers_the_cost_by_as_much() {
        let probabilities = [0.2, 0.3, 0.6];
        let (pondering, logits) = ponder(HaltingConfig::default(), &probabilities, 9);
        let gradients = pondering.cost().sum().backward();
        for (step, (logit, p)) in logits.iter().zip(probabilities).enumerate() {
            let found = logit.grad(&gradients).map_or(0.0, |gradient| number(gradient.narrow(1, 0, 1)));
            let wanted = if step < 2 { -p * (1.0 - p) } else { 0.0 };
            assert!((found - wanted).abs() < 1e-6, "step {step}: {found} is not {wanted}");
        }
    }

    #[test]
    fn states_halt_on_their_own_and_stay_as_they_are() {
        let device = Device::flex();
        for freeze in [true, false] {
            let halting = halting(HaltingConfig { freeze, ..HaltingConfig::default() }, &device);
            let mut states = Tensor::<3>::from_data([[[9.0, 0.0], [logit(0.5), 0.0], [9.0, 0.0]]], &device);
            let real = Tensor::<3, Bool>::from_data([[[true], [true], [false]]], &device);
            let mut pondering = halting.start(&states, Some(real), 9);
            while pondering.goes_on() {
                let one = Tensor::from_data([[[0.0, 1.0]]], &device);
                states = halting.step(&mut pondering, states.clone(), states, |states| states + one);
            }
            let numbers = |x: Tensor<3>| x.into_data().iter::<f64>().collect::<Vec<_>>();
            assert_eq!(numbers(pondering.steps()), [1.0, 2.0, 0.0]);
            assert_eq!(numbers(states.narrow(2, 1, 1)), if freeze { [1.0, 2.0, 0.0] } else { [2.0; 3] });
            assert_eq!(numbers(pondering.blended().narrow(2, 1, 1)), [1.0, 1.5, 0.0]);
        }
    }

    #[test]
    fn the_released_unit_reads_the_state_before_the_update() {
        let device = Device::flex();
        let halting = halting(HaltingConfig::released(), &device);
        let states = Tensor::<2>::from_data([[9.0, 0.0]], &device);
        let mut pondering = halting.start(&states, None, 9);
        halting.step(&mut pondering, states.clone(), states, |states| states.ones_like() * -9.0);
        assert!(!pondering.goes_on());
    }
}
