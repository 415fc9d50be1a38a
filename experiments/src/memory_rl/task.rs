//! Learning from what was played.
//!
//! An epoch of the trainer is an iteration: an unroll of all copies with the policy as it is, then some passes over it, each in parts. What outlives a step,
//! the worlds, what the policy remembers of them and the unroll, is carried state, so that a run that was stopped goes on with the same worlds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use heedful_attention::random::RandomKey;
use heedful_models::policy::{Policy, PolicyState};
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::environment::{VectorEnvironment, VectorState};
use super::rollout::{Rollout, play_episodes};
use super::{MemoryConfig, MemoryData, MemoryDataset};
use crate::comparison::scoring_bar;
use crate::train::{Interrupt, Objective, Selection};

/// Episodes that evaluations play are other ones than those of training, and the same for all models.
const EVALUATION_SEED: u64 = 0;
/// Name of the carried state of the host.
const HOST: &str = "host";
/// Beginning of the names of what the policy remembered before the unroll.
const BEGIN: &str = "begin.";
/// Beginning of the names of what it remembers now.
const NOW: &str = "now.";

/// Learning to act.
#[derive(Debug)]
pub struct MemoryTask<'a> {
    pub(super) config: &'a MemoryConfig,
    pub(super) dataset: &'a MemoryDataset,
    playing: Mutex<Playing>,
}

/// Copies of an environment in progress.
#[derive(Debug, Default)]
struct Playing {
    /// Of the epoch: what actions are drawn with.
    key: Option<RandomKey>,
    /// What the worlds are drawn with.
    worlds: Option<u64>,
    environments: Option<VectorEnvironment>,
    /// What the policy remembers of the copies before and after the unroll.
    states: Option<[PolicyState; 2]>,
    rollout: Option<Rollout>,
    saved: Option<Saved>,
}

/// What a checkpoint holds until the policy is there.
#[derive(Debug)]
struct Saved {
    environments: VectorState,
    tensors: [Vec<(String, TensorData)>; 2],
}

/// The carried state of the host.
#[derive(Serialize, Deserialize)]
struct Host {
    worlds: u64,
    environments: VectorState,
    rollout: Option<Rollout>,
}

/// The copies whose experience an update learns from.
#[derive(Debug)]
pub struct MemoryBatch {
    copies: Vec<usize>,
}

impl Playing {
    /// The copies and what the policy remembers of them: as they were left, as they were saved, or at their beginning.
    fn open(&mut self, policy: &Policy, data: &MemoryData, key: &RandomKey) {
        if self.environments.is_some() {
            return;
        }
        let worlds = *self.worlds.get_or_insert_with(|| key.named("worlds").rng().random());
        let mut environments = data.play(data.copies, &RandomKey::from_seed(worlds));
        let states = [data.memory, data.memory + data.unroll].map(|length| policy.start(data.copies, length));
        self.states = Some(match self.saved.take() {
            None => states,
            Some(Saved { environments: saved, tensors }) => {
                environments.restore(&saved).expect("the checkpoint is of this configuration");
                let device = policy.observation.weight.device();
                let [begin, now] = states
                    .into_iter()
                    .zip(tensors)
                    .map(|(state, tensors)| state.restored(tensors, &device))
                    .collect::<Vec<_>>()
                    .try_into()
                    .expect("there are two");
                [begin, now]
            }
        });
        self.environments = Some(environments);
    }
}

impl<'a> MemoryTask<'a> {
    pub(super) fn new(config: &'a MemoryConfig, dataset: &'a MemoryDataset) -> Self {
        Self { config, dataset, playing: Mutex::default() }
    }

    fn playing(&self) -> MutexGuard<'_, Playing> {
        self.playing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mean return and mean length of episodes; `None` if the interrupt was raised meanwhile.
    pub(super) fn evaluate(&self, policy: &Policy, name: &str, episodes: usize, interrupt: Option<&Interrupt>) -> Option<[f64; 2]> {
        let data = &self.config.data;
        let key = RandomKey::from_seed(EVALUATION_SEED).named(name);
        let copies = data.copies.min(episodes);
        let mut environments = data.play(copies, &key);
        let bar = scoring_bar("playing", episodes);
        // As much is remembered as at the end of an unroll.
        let state = policy.start(copies, data.memory + data.unroll);
        let go_on = || !interrupt.is_some_and(Interrupt::is_raised);
        let played = play_episodes(policy, &mut environments, state, episodes, &key.named("actions"), go_on)?;
        bar.finish_and_clear();
        let mean = |value: &dyn Fn(&(f64, usize)) -> f64| played.iter().map(value).sum::<f64>() / played.len() as f64;
        Some([mean(&|episode| episode.0), mean(&|episode| episode.1 as f64)])
    }
}

impl Objective for MemoryTask<'_> {
    type Model = Policy;
    type Batch = MemoryBatch;

    /// Items are copies.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        self.playing().key = Some(*key);
        let copies = self.config.data.copies;
        let pass = |pass: usize| {
            let mut order: Vec<usize> = (0..copies).collect();
            order.shuffle(&mut key.named("pass").numbered(pass as u64).rng());
            order.chunks(copies / self.config.ppo.parts).map(<[usize]>::to_vec).collect::<Vec<_>>()
        };
        (0..self.config.ppo.passes).flat_map(pass).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> MemoryBatch {
        MemoryBatch { copies: items.to_vec() }
    }

    fn units(&self, batch: &MemoryBatch) -> usize {
        batch.copies.len() * self.config.data.unroll
    }

    fn loss(&self, model: &Policy, batch: &MemoryBatch, _key: RandomKey) -> Tensor<1> {
        let MemoryConfig { data, ppo, .. } = self.config;
        let mut playing = self.playing();
        let playing = &mut *playing;
        let key = playing.key.expect("an epoch has begun");
        let acting = model.valid();
        playing.open(&acting, data, &key);
        let [begin, now] = playing.states.as_mut().expect("the copies are open");
        let environments = playing.environments.as_mut().expect("the copies are open");
        let rollout = playing.rollout.get_or_insert_with(|| {
            let rows: Vec<usize> = (0..data.copies).collect();
            *begin = now.select(&rows, data.memory);
            *now = begin.select(&rows, data.memory + data.unroll);
            Rollout::play(&acting, environments, now, data.unroll, ppo, &key.named("actions"))
        });
        let (decision, experience) = rollout.of_copies(model, &batch.copies, begin, data.memory);
        model.heads.clipped_loss(&decision, experience, ppo.clip) * self.units(batch) as f64
    }

    fn evaluate(&self, model: &Policy) -> Vec<(String, f64)> {
        let found = MemoryTask::evaluate(self, model, "evaluation", self.config.data.evaluation_episodes, None);
        let [total, length] = found.expect("it is not interrupted");
        vec![("return".to_owned(), total), ("episode length".to_owned(), length)]
    }

    fn selection(&self) -> Selection {
        Selection::highest("return")
    }

    fn start_epoch(&self, _epoch: u64) {
        self.playing().rollout = None;
    }

    fn carried_state(&self) -> Vec<(String, TensorData)> {
        let playing = self.playing();
        let (Some(environments), Some(worlds), Some(states)) = (&playing.environments, playing.worlds, &playing.states) else {
            return Vec::new();
        };
        let host = Host { worlds, environments: environments.save(), rollout: playing.rollout.clone() };
        let host = serde_json::to_vec(&host).expect("numbers and lists can be written");
        let length = host.len();
        let named = |prefix: &'static str, state: &PolicyState| {
            state.tensors().into_iter().map(move |(name, data)| (format!("{prefix}{name}"), data))
        };
        let [begin, now] = states;
        let tensors = named(BEGIN, begin).chain(named(NOW, now));
        tensors.chain([(HOST.to_owned(), TensorData::new(host, [length]))]).collect()
    }

    fn restore_carried_state(&self, state: Vec<(String, TensorData)>) {
        let mut playing = self.playing();
        let mut tensors = [Vec::new(), Vec::new()];
        for (name, data) in state {
            if name == HOST {
                let bytes: Vec<u8> = data.iter::<u8>().collect();
                let host: Host = serde_json::from_slice(&bytes).expect("the checkpoint's digest was right");
                (playing.worlds, playing.rollout) = (Some(host.worlds), host.rollout);
                playing.saved = Some(Saved { environments: host.environments, tensors: [Vec::new(), Vec::new()] });
            } else if let Some(name) = name.strip_prefix(BEGIN) {
                tensors[0].push((name.to_owned(), data));
            } else if let Some(name) = name.strip_prefix(NOW) {
                tensors[1].push((name.to_owned(), data));
            }
        }
        if let Some(saved) = &mut playing.saved {
            saved.tensors = tensors;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use heedful_attention::registry::AnyMechanism;

    use crate::comparison::{Attention, Comparison};
    use crate::memory_rl::MemoryRl;
    use crate::memory_rl::environment::{EnvironmentConfig, RepeatPreviousConfig};
    use crate::model::ModelSettings;
    use crate::train::TrainingConfig;
    use heedful_models::policy::Core;

    fn config(core: Core) -> MemoryConfig {
        let positions = heedful_models::position::PositionConfig::None;
        MemoryConfig {
            data: MemoryData {
                environment: EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default()),
                copies: 4,
                unroll: 12,
                memory: 8,
                ..MemoryData::default()
            },
            core,
            model: ModelSettings { d_model: 8, heads: 2, d_ff: 16, dropout: 0.0, positions, ..ModelSettings::default() },
            training: TrainingConfig::default(),
            ..MemoryConfig::default()
        }
    }

    fn policy(config: &MemoryConfig, device: &Device) -> Policy {
        let attention: AnyMechanism = "relative".parse().unwrap();
        let model = config.model(&Attention::new(attention));
        model.validate().unwrap();
        let mut policy = model.init(&RandomKey::from_seed(1), device);
        let [width, actions] = policy.heads.policy.weight.dims();
        policy.heads.policy.weight =
            heedful_attention::init::Init::Normal(0.5).parameter([width, actions], &RandomKey::from_seed(2), device);
        policy
    }

    #[test]
    fn an_unroll_is_read_as_it_was_played() {
        let device = Device::flex();
        for core in [Core::Transformer, Core::Lstm] {
            let config = config(core);
            let policy = policy(&config, &device);
            let data = &config.data;
            let key = RandomKey::from_seed(3);
            let mut environments = data.play(data.copies, &key);
            let mut now = policy.start(data.copies, data.memory + data.unroll);
            let copies: Vec<usize> = (0..data.copies).collect();
            // The third goes on with episodes, and others begin in it.
            for unroll in 0..8 {
                let begin = now.select(&copies, data.memory);
                now = begin.select(&copies, data.memory + data.unroll);
                let rollout = Rollout::play(&policy, &mut environments, &mut now, data.unroll, &config.ppo, &key.numbered(unroll));
                let (decision, experience) = rollout.of_copies(&policy, &copies, &begin, data.memory);
                let taken = decision.log_policy.gather(2, experience.actions.unsqueeze_dim(2)).squeeze_dim::<2>(2);
                let difference: f32 = ((taken - experience.log_probabilities) * experience.real.clone()).abs().max().into_scalar();
                assert!(difference < 1e-5, "{core:?}, unroll {unroll}: {difference}");
                assert_eq!(experience.real.sum().into_scalar::<f32>(), (data.copies * data.unroll) as f32);
            }
        }
    }

    #[test]
    fn what_was_played_comes_back_from_a_checkpoint() {
        let device = Device::flex().autodiff();
        for core in [Core::Transformer, Core::Lstm] {
            let config = config(core);
            let policy = policy(&config, &device);
            let dataset = MemoryRl::datasets(&config).unwrap().remove(0);
            let loss = |task: &MemoryTask, order: &[Vec<usize>], step: usize| {
                let batch = task.batch(&order[step], 1, &RandomKey::from_seed(9));
                task.loss(&policy, &batch, RandomKey::from_seed(9)).into_scalar::<f32>()
            };
            let task = MemoryTask::new(&config, &dataset);
            let keys = [5, 6].map(RandomKey::from_seed);
            let orders = keys.map(|key| task.epoch(1, &key));
            task.epoch(1, &keys[0]);
            task.start_epoch(1);
            loss(&task, &orders[0], 0);
            let resumed = MemoryTask::new(&config, &dataset);
            resumed.epoch(1, &keys[0]);
            resumed.restore_carried_state(task.carried_state());
            assert_eq!(loss(&task, &orders[0], 1), loss(&resumed, &orders[0], 1), "{core:?}: the same unroll");
            for task in [&task, &resumed] {
                task.epoch(2, &keys[1]);
                task.start_epoch(2);
            }
            let afresh = MemoryTask::new(&config, &dataset);
            afresh.epoch(2, &keys[1]);
            let next = loss(&task, &orders[1], 0);
            assert_eq!(next, loss(&resumed, &orders[1], 0), "{core:?}: the next unroll");
            assert_ne!(next, loss(&afresh, &orders[1], 0), "{core:?}");
        }
    }

    #[test]
    fn seeds_draw_hyper_parameters_of_their_own() {
        let search = super::super::SearchConfig { learning_rate: Some([1e-4, 1e-2]), ..Default::default() };
        let config = MemoryConfig { search: Some(search), ..config(Core::Lstm) };
        let rates: Vec<f64> = (0..200).map(|seed| config.drawn(seed).training.learning_rate).collect();
        assert!(rates.iter().all(|rate| (1e-4..1e-2).contains(rate)));
        let below = rates.iter().filter(|&&rate| rate < 1e-3).count();
        assert!((80..120).contains(&below), "{below} of 200 below the middle");
        assert_eq!(config.drawn(3), config.drawn(3));
        assert_eq!(config.drawn(3).ppo, config.ppo);
    }
}
