//! Policy and value heads for acting with a stack (Parisotto et al. 2020, section 3).
//!
//! The heads map the states of a stack, one per step of an episode, to action logits `π(a | s)` and an estimate of the return `V(s)`. A stack acts step by step
//! with [`Stack::segment`](crate::block::stack::Stack::segment) and a [`SegmentMemory`](crate::block::segment::SegmentMemory) of bounded size, whose rows are
//! cleared when their episodes end. Training on whole unrolls works the same way.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

/// Sizes and loss weights of [`ActorCriticHeads`]. The number of actions must be given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorCriticHeadsConfig {
    /// Width of the states.
    pub d_model: usize,
    /// Number of actions.
    pub actions: usize,
    /// Weight of the squared error of values, at least 0 (default 0.5).
    pub value_weight: f64,
    /// Weight of the policy entropy bonus, at least 0 (default 0.01).
    pub entropy_weight: f64,
}

impl Default for ActorCriticHeadsConfig {
    fn default() -> Self {
        Self { d_model: 512, actions: 0, value_weight: 0.5, entropy_weight: 0.01 }
    }
}

impl ActorCriticHeadsConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// If the number of actions or the width is 0, or a weight is negative or not finite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = Check::of("actor-critic heads");
        check.at_least_one("d_model", self.d_model)?;
        check.at_least_one("actions", self.actions)?;
        for (option, weight) in [("value_weight", self.value_weight), ("entropy_weight", self.entropy_weight)] {
            if !(weight >= 0.0 && weight.is_finite()) {
                return Err(check.refuse(option, weight, "give a number of at least 0"));
            }
        }
        Ok(())
    }

    /// Initialises the heads. At first all actions are equally likely, and all values are 0.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init(&self, key: &RandomKey, device: &Device) -> ActorCriticHeads {
        self.validate().expect("the configuration is valid");
        let head = |name, outputs| {
            let mut head = init::linear(self.d_model, outputs, true, &key.named(name), device);
            head.weight = Init::Constant(0.0).parameter([self.d_model, outputs], key, device);
            head
        };
        ActorCriticHeads { policy: head("policy", self.actions), value: head("value", 1), config: *self }
    }
}

/// A policy head and a value head.
///
/// Should be created with [`ActorCriticHeadsConfig`].
#[derive(Module, Debug)]
pub struct ActorCriticHeads {
    /// Map to action logits, `[C, actions]`, with bias.
    pub policy: Linear,
    /// Map to the value, `[C, 1]`, with bias.
    pub value: Linear,
    #[module(skip)]
    config: ActorCriticHeadsConfig,
}

/// Outputs of the heads for each step.
#[derive(Clone, Debug)]
pub struct Decision {
    /// `ln π(a | s)`, `[B, N, actions]`.
    pub log_policy: Tensor<3>,
    /// `V(s)`, `[B, N]`.
    pub value: Tensor<2>,
}

/// Recorded steps `[B, T]` with their advantages and returns.
#[derive(Clone, Debug)]
pub struct Experience {
    /// The actions.
    pub actions: Tensor<2, Int>,
    /// `ln π` of each action at the time it was taken.
    pub log_probabilities: Tensor<2>,
    /// Advantages of the actions.
    pub advantages: Tensor<2>,
    /// Target returns of the value head.
    pub returns: Tensor<2>,
    /// 1 for steps, 0 for padding.
    pub real: Tensor<2>,
}

impl ActorCriticHeads {
    /// Policies and values of states `[B, N, C]`.
    pub fn forward(&self, states: Tensor<3>) -> Decision {
        Decision { log_policy: log_softmax(self.policy.forward(states.clone()), 2), value: self.value.forward(states).squeeze_dim(2) }
    }

    /// Loss of an advantage actor-critic (Mnih et al. 2016), a mean over steps: `-ln π(a) (R - V) + w_v (R - V)^2 - w_e H(π)`, for the taken actions `[B, N]`
    /// and the subsequent returns `R` `[B, N]`. No policy gradient flows through the advantage `R - V`.
    ///
    /// # Panics
    /// If shapes do not fit.
    pub fn loss(&self, decision: &Decision, actions: Tensor<2, Int>, returns: Tensor<2>) -> Tensor<1> {
        let Decision { log_policy, value } = decision;
        assert_eq!([actions.dims(), returns.dims()], [value.dims(); 2], "actions and returns for values");
        let advantage = returns - value.clone();
        let taken = log_policy.clone().gather(2, actions.unsqueeze_dim(2)).squeeze_dim::<2>(2);
        let entropy = -(log_policy.clone().exp() * log_policy.clone()).sum_dim(2).squeeze_dim::<2>(2);
        let ActorCriticHeadsConfig { value_weight, entropy_weight, .. } = self.config;
        (-(taken * advantage.clone().detach()) + advantage.powi_scalar(2) * value_weight - entropy * entropy_weight).mean()
    }

    /// Loss of proximal policy optimisation: the mean over real steps of `-min(r A, clip(r, 1 - ε, 1 + ε) A) + w_v (R - V)^2 - w_h H(π)`, where `r` is the
    /// ratio of the action's current probability to its recorded one (Schulman et al. 2017, equations 7 and 9). `clip` is ε.
    ///
    /// # Panics
    /// If the tensors differ in shape.
    pub fn clipped_loss(&self, decision: &Decision, experience: Experience, clip: f64) -> Tensor<1> {
        let Decision { log_policy, value } = decision;
        let Experience { actions, log_probabilities, advantages, returns, real } = experience;
        let shapes = [actions.dims(), log_probabilities.dims(), advantages.dims(), returns.dims(), real.dims()];
        assert_eq!(shapes, [value.dims(); 5], "actions, their probabilities, advantages, returns and real steps for values");
        let taken = log_policy.clone().gather(2, actions.unsqueeze_dim(2)).squeeze_dim::<2>(2);
        let ratio = (taken - log_probabilities).exp();
        let clipped = ratio.clone().clamp(1.0 - clip, 1.0 + clip) * advantages.clone();
        let unclipped = ratio * advantages;
        let worse = clipped.clone().lower(unclipped.clone());
        let surrogate = unclipped.mask_where(worse, clipped);
        let entropy = -(log_policy.clone().exp() * log_policy.clone()).sum_dim(2).squeeze_dim::<2>(2);
        let ActorCriticHeadsConfig { value_weight, entropy_weight, .. } = self.config;
        let loss = -surrogate + (returns - value.clone()).powi_scalar(2) * value_weight - entropy * entropy_weight;
        (loss * real.clone()).sum() / real.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::optim::{AdamConfig, GradientsParams};
    use burn::tensor::TensorData;
    use rand::RngExt;

    use crate::block::BlockConfig;
    use crate::block::layer_sharing::DepthConfig;
    use crate::block::segment::SegmentMemory;
    use crate::block::stack::{Stack, StackConfig};
    use crate::parts::position::PositionConfig;
    use crate::parts::residual::NormOrder;
    use crate::parts::residual_gate::{GateConfig, GateKind};

    const WIDTH: usize = 8;
    const ACTIONS: usize = 3;

    /// A small GTrXL.
    fn stack(device: &Device) -> Stack {
        let block = BlockConfig {
            d_model: WIDTH,
            heads: 2,
            d_ff: 16,
            max_length: 16,
            dropout: 0.0,
            norm_order: NormOrder::Pre,
            gate: Some(GateConfig::new(GateKind::Gru)),
            relu_before_residual: true,
            ..BlockConfig::default()
        };
        let config = StackConfig::new(Role::Decoder, block, 2, DepthConfig::Stacked, PositionConfig::None);
        let relative: AnyMechanism = "relative".parse().unwrap();
        config.init_with(&RandomKey::from_seed(1), device, &|place, key, device| -> AnyAttention { relative.init(place, key, device) })
    }

    fn heads(device: &Device) -> ActorCriticHeads {
        ActorCriticHeadsConfig { d_model: WIDTH, actions: ACTIONS, ..Default::default() }.init(&RandomKey::from_seed(2), device)
    }

    #[test]
    fn a_stack_acts_for_ten_thousand_steps_with_a_memory_that_does_not_grow() {
        let device = Device::flex();
        let (stack, heads) = (stack(&device), heads(&device));
        let mut memory = SegmentMemory::new(1, 6);
        let mut rng = RandomKey::from_seed(3).rng();
        for step in 0..10_000 {
            let seen: Vec<f32> = (0..WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect();
            let seen = Tensor::from_data(TensorData::new(seen, [1, 1, WIDTH]), &device);
            let states = stack.segment(seen, &mut memory, None, &mut Probe::off()).states;
            if step % 1000 == 999 {
                let decision = heads.forward(states);
                assert!(decision.log_policy.is_finite().all().into_scalar::<bool>() && decision.value.dims() == [1, 1]);
                memory.forget(&[step % 2000 == 1999]);
            }
            assert!(memory.held() <= 6 && memory.layers().iter().all(|layer| layer.dims() == [1, memory.held(), WIDTH]));
        }
        assert_eq!(memory.held(), 0, "the last episode has ended");
    }

    #[test]
    fn step_by_step_is_reading_the_unroll() {
        let device = Device::flex();
        let stack = stack(&device);
        let seen: Vec<f32> = (0..2 * 7 * WIDTH).map(|index| (index as f32 * 0.37).sin()).collect();
        let seen = Tensor::<3>::from_data(TensorData::new(seen, [2, 7, WIDTH]), &device);
        let whole = stack.segment(seen.clone(), &mut SegmentMemory::new(2, 16), None, &mut Probe::off()).states;
        let mut memory = SegmentMemory::new(2, 16);
        let steps = (0..7).map(|step| stack.segment(seen.clone().narrow(1, step, 1), &mut memory, None, &mut Probe::off()).states);
        let difference: f32 = (Tensor::cat(steps.collect(), 1) - whole).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
    }

    #[test]
    fn the_loss_is_that_of_an_advantage_actor_critic() {
        let device = Device::flex();
        let mut heads = heads(&device);
        heads.policy.weight = heads.policy.weight.map(|weight| weight + 0.2);
        heads.policy.bias = heads.policy.bias.map(|bias| bias.map(|_| Tensor::from_data([0.5, -1.0, 0.1], &device)));
        heads.value.bias = heads.value.bias.map(|bias| bias.map(|_| Tensor::from_data([0.3], &device)));
        let decision = heads.forward(Tensor::ones([1, 2, WIDTH], &device));
        let loss: f32 =
            heads.loss(&decision, Tensor::from_data([[1, 2]], &device), Tensor::from_data([[2.0, -1.0]], &device)).into_scalar();
        let logits = [0.5f64, -1.0, 0.1];
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        let policy = logits.map(|logit| logit.exp() / sum);
        let entropy: f64 = -policy.iter().map(|p| p * p.ln()).sum::<f64>();
        let of = |action: usize, value: f64| -policy[action].ln() * (value - 0.3) + 0.5 * (value - 0.3).powi(2) - 0.01 * entropy;
        let expected = (of(1, 2.0) + of(2, -1.0)) / 2.0;
        assert!((f64::from(loss) - expected).abs() < 1e-5, "{loss} and {expected}");
    }

    #[test]
    fn the_clipped_loss_does_not_go_beyond_the_clip() {
        let device = Device::flex();
        let heads = ActorCriticHeadsConfig { d_model: WIDTH, actions: 2, ..Default::default() }.init(&RandomKey::from_seed(2), &device);
        let decision = Decision {
            log_policy: Tensor::<3>::from_data([[[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.5, 0.5]]], &device).log(),
            value: Tensor::from_data([[1.0, 1.0, 1.0, 1.0, 9.0]], &device),
        };
        let experience = Experience {
            actions: Tensor::from_data([[0, 0, 1, 1, 0]], &device),
            log_probabilities: Tensor::<2>::from_data([[0.5, 0.5, 0.5, 0.5, 0.1]], &device).log(),
            advantages: Tensor::from_data([[2.0, -1.0, 2.0, -1.0, 50.0]], &device),
            returns: Tensor::from_data([[1.0, 2.0, 1.0, 1.0, 0.0]], &device),
            real: Tensor::from_data([[1.0, 1.0, 1.0, 1.0, 0.0]], &device),
        };
        let loss: f32 = heads.clipped_loss(&decision, experience, 0.2).into_scalar();
        // Ratios 1.6 and 0.4: gains are clipped, losses are not.
        let surrogates = [1.2 * 2.0, -1.6, 0.4 * 2.0, -0.8];
        let entropy = -(0.8f64 * 0.8f64.ln() + 0.2 * 0.2f64.ln());
        let expected = (-surrogates.iter().sum::<f64>() + 0.5) / 4.0 - 0.01 * entropy;
        assert!((f64::from(loss) - expected).abs() < 1e-5, "{loss} and {expected}");
    }

    #[test]
    fn a_policy_learns_which_action_is_rewarded() {
        let device = Device::flex().autodiff();
        let (mut heads, mut optimiser) = (heads(&device), AdamConfig::new().init());
        let states = Tensor::<3>::ones([1, ACTIONS, WIDTH], &device);
        for _ in 0..100 {
            let decision = heads.forward(states.clone());
            let loss = heads.loss(&decision, Tensor::from_data([[0, 1, 2]], &device), Tensor::from_data([[0.0, 1.0, 0.0]], &device));
            heads = optimiser.step(3e-2, heads.clone(), GradientsParams::from_grads(loss.backward(), &heads));
        }
        let policy: Vec<f32> = heads.forward(states).log_policy.exp().into_data().iter::<f32>().take(ACTIONS).collect();
        assert!(policy[1] > 0.8, "{policy:?}");
    }

    #[test]
    fn impossible_options_are_refused() {
        let refused = |config: ActorCriticHeadsConfig, option: &str| assert!(config.validate().unwrap_err().to_string().contains(option));
        refused(ActorCriticHeadsConfig::default(), "actions");
        refused(ActorCriticHeadsConfig { actions: 2, value_weight: -1.0, ..Default::default() }, "value_weight");
        refused(ActorCriticHeadsConfig { actions: 2, entropy_weight: f64::NAN, ..Default::default() }, "entropy_weight");
    }
}
