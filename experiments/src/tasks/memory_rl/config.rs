//! Configuration of the experiment.

use heedful_models::architectures::actor_critic::ActorCriticHeadsConfig;
use heedful_models::architectures::policy::{Core, PolicyConfig};
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::environment::{EnvironmentConfig, VectorEnvironment};
use crate::tasks::prelude::*;

/// Complete configuration of `memory-rl`.
pub type MemoryConfig = Config<MemoryRl>;

/// The comparison of memories.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryRl {
    /// Which environment, and how it is played.
    pub data: MemoryData,
    /// Proximal policy optimisation.
    pub ppo: PpoConfig,
    /// The model that reads the observations: `transformer`, or `lstm`, which has no attention.
    pub core: Core,
    /// Hyper-parameters that each seed draws for itself, by default none; the table counts the seeds that diverge.
    pub search: Option<SearchConfig>,
}

/// The environment of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryData {
    /// A `kind`, `t-maze`, `memory-maze`, `numpad` or `repeat-previous`, and its options.
    pub environment: EnvironmentConfig,
    /// Whether the last action and its reward are observed too.
    pub feedback: bool,
    /// Copies of the environment that are played side by side.
    pub copies: usize,
    /// Steps of each copy between updates.
    pub unroll: usize,
    /// Steps before the unroll whose states a Transformer's layers remember.
    pub memory: usize,
    /// Episodes of an evaluation while training.
    pub evaluation_episodes: usize,
    /// Episodes that score the trained model.
    pub test_episodes: usize,
}

/// Options of proximal policy optimisation (Schulman et al. 2017).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PpoConfig {
    /// Passes over each unroll.
    pub passes: usize,
    /// Updates of a pass, each on an equal share of the copies; a divisor of `data.copies`.
    pub parts: usize,
    /// Discount `γ` of later rewards, 0 to 1.
    pub discount: f64,
    /// Decay `λ` of generalised advantages, 0 to 1.
    pub decay: f64,
    /// Clip range `ε` of the ratio of action probabilities, greater than 0.
    pub clip: f64,
    /// Weight of the squared error of the values.
    pub value_weight: f64,
    /// Weight of the policy's entropy.
    pub entropy_weight: f64,
}

/// Intervals, each from a least to a greatest value, from which hyper-parameters are drawn log-uniformly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchConfig {
    /// Of `training.learning_rate`.
    pub learning_rate: Option<[f64; 2]>,
    /// Of `ppo.entropy_weight`.
    pub entropy_weight: Option<[f64; 2]>,
    /// Of `ppo.clip`.
    pub clip: Option<[f64; 2]>,
}

impl Default for MemoryData {
    fn default() -> Self {
        Self {
            environment: EnvironmentConfig::default(),
            feedback: false,
            copies: 16,
            unroll: 64,
            memory: 64,
            evaluation_episodes: 50,
            test_episodes: 200,
        }
    }
}

impl Default for PpoConfig {
    fn default() -> Self {
        Self { passes: 4, parts: 4, discount: 0.99, decay: 0.95, clip: 0.2, value_weight: 0.5, entropy_weight: 0.01 }
    }
}

impl MemoryData {
    /// Copies of the environment, whose worlds are drawn from `key`.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub(super) fn play(&self, copies: usize, key: &RandomKey) -> VectorEnvironment {
        let environment = self.environment.build().expect("the configuration is valid");
        VectorEnvironment::new(&environment, copies, key, self.feedback)
    }
}

impl MemoryConfig {
    /// The memory lengthens what attention looks over, and the step after an unroll is looked at for its value.
    pub(super) fn max_length(&self) -> usize {
        self.model.max_length.max(self.own.data.memory + self.own.data.unroll + 1)
    }

    pub(super) fn model(&self, attention: &Attention) -> PolicyConfig {
        let ModelSettings { layers, positions, initialisation, .. } = self.model;
        let MemoryRl { data, ppo, core, .. } = &self.own;
        let environments = data.play(1, &RandomKey::from_seed(0));
        let PpoConfig { value_weight, entropy_weight, .. } = *ppo;
        let mut block = self.model.block();
        block.max_length = self.max_length();
        PolicyConfig {
            observation: environments.observation_size(),
            core: *core,
            attention: attention.layout.decoder.clone(),
            layers,
            block,
            positions,
            initialisation,
            heads: ActorCriticHeadsConfig { d_model: block.d_model, actions: environments.actions(), value_weight, entropy_weight },
        }
    }

    /// With the hyper-parameters that this seed draws.
    pub(super) fn drawn(&self, seed: u64) -> Self {
        let mut drawn = self.clone();
        let Some(SearchConfig { learning_rate, entropy_weight, clip }) = self.own.search else { return drawn };
        let key = RandomKey::from_seed(seed).named("hyper-parameters");
        let draw = |name: &str, interval: Option<[f64; 2]>, value: &mut f64| {
            if let Some([least, greatest]) = interval {
                *value = (least.ln() + key.named(name).rng().random::<f64>() * (greatest / least).ln()).exp();
            }
        };
        draw("learning_rate", learning_rate, &mut drawn.training.learning_rate);
        draw("entropy_weight", entropy_weight, &mut drawn.own.ppo.entropy_weight);
        draw("clip", clip, &mut drawn.own.ppo.clip);
        drawn
    }
}
