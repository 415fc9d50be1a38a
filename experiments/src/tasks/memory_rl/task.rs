//! Learning from what was played.
//!
//! An epoch of the trainer is an iteration: an unroll of all copies with the policy as it is, then some passes over it, each in parts. What outlives a step,
//! the worlds, what the policy remembers of them and the unroll, is carried state, so that a run that was stopped goes on with the same worlds.

use burn::module::Module;
use burn::tensor::TensorData;
use heedful_models::architectures::policy::{Policy, PolicyState};
use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::environment::{VectorEnvironment, VectorState};
use super::rollout::{Rollout, play_episodes};
use super::{MemoryConfig, MemoryDataset, MemoryRl};
use crate::session::comparison::scoring_bar;
use crate::tasks::prelude::*;

/// Episodes that evaluations play are other ones than those of training, and the same for all models.
pub(super) const EVALUATION_SEED: u64 = 0;
/// How the score `diverged` is computed.
pub(super) const DIVERGED: &str = "share of the seeds whose loss or weights ceased to be numbers";
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
}

/// Copies of an environment in progress.
#[derive(Debug, Default)]
pub struct Playing {
    /// What the worlds are drawn with, and the copies in them.
    worlds: Option<(u64, VectorEnvironment)>,
    /// What the policy remembers of the copies before and after the unroll.
    states: Option<[PolicyState; 2]>,
    rollout: Option<Rollout>,
    /// What a checkpoint holds of the states, until the policy is there.
    saved: Vec<(String, TensorData)>,
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

impl Task for MemoryTask<'_> {
    type Model = Policy;
    type Batch = MemoryBatch;
    type Carried = Playing;

    /// Items are copies.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let MemoryRl { data, ppo, .. } = &self.config.own;
        let pass = |pass: usize| {
            let mut order: Vec<usize> = (0..data.copies).collect();
            order.shuffle(&mut key.named("pass").numbered(pass as u64).rng());
            order.chunks(data.copies / ppo.parts).map(<[usize]>::to_vec).collect::<Vec<_>>()
        };
        (0..ppo.passes).flat_map(pass).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> MemoryBatch {
        MemoryBatch { copies: items.to_vec() }
    }

    fn units(&self, batch: &MemoryBatch) -> usize {
        batch.copies.len() * self.config.own.data.unroll
    }

    fn loss(&self, model: &Policy, batch: &MemoryBatch, pass: Pass<'_, Playing>, probe: &mut Probe) -> TrainingLoss {
        let MemoryRl { data, ppo, .. } = &self.config.own;
        let key = pass.epoch_key;
        let Playing { worlds, states, rollout, saved } = pass.carried;
        let player = model.valid();
        let (_, environments) = worlds.get_or_insert_with(|| {
            let seed: u64 = key.named("worlds").rng().random();
            (seed, data.play(data.copies, &RandomKey::from_seed(seed)))
        });
        // As they were left, as they were saved, or empty.
        let [begin, now] = states.get_or_insert_with(|| {
            let (saved, device) = (std::mem::take(saved), player.observation.weight.device());
            [(BEGIN, data.memory), (NOW, data.memory + data.unroll)].map(|(prefix, length)| {
                let named = saved.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone())));
                player.start(data.copies, length).restored(named.collect(), &device)
            })
        });
        let rollout = rollout.get_or_insert_with(|| {
            let rows: Vec<usize> = (0..data.copies).collect();
            *begin = now.select(&rows, data.memory);
            *now = begin.select(&rows, data.memory + data.unroll);
            Rollout::play(&player, environments, now, data.unroll, ppo, &key.named("actions"))
        });
        let (decision, experience) = rollout.of_copies(model, &batch.copies, begin, data.memory, probe);
        (model.heads.clipped_loss(&decision, experience, ppo.clip) * self.units(batch) as f64).into()
    }

    fn carries(&self) -> Option<&'static str> {
        Some("the copies of the environment play on")
    }

    /// The mean return and the mean length of episodes, and on the test set what follows from them.
    fn evaluate(&self, model: &Policy, split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let MemoryRl { data, ppo, search, .. } = &self.config.own;
        let is_test = split == Split::Test;
        let (name, episodes) = if is_test { ("test", data.test_episodes) } else { ("evaluation", data.evaluation_episodes) };
        let key = RandomKey::from_seed(EVALUATION_SEED).named(name);
        let copies = data.copies.min(episodes);
        let mut environments = data.play(copies, &key);
        let bar = scoring_bar("playing", episodes);
        // As much is remembered as at the end of an unroll.
        let state = model.start(copies, data.memory + data.unroll);
        let played = play_episodes(model, &mut environments, state, episodes, &key.named("actions"), || !interrupt.is_raised())?;
        bar.finish_and_clear();
        let mean = |value: &dyn Fn(&(f64, usize)) -> f64| played.iter().map(value).sum::<f64>() / played.len() as f64;
        let total = mean(&|episode| episode.0);
        let signature = format!("mean of {episodes} episodes, actions drawn from the policy");
        let mut scores = Scores::of("return", total, signature.clone());
        if is_test && let (Some(best), Some(without_memory)) = (self.dataset.best, self.dataset.without_memory) {
            let share = (total - without_memory) / (best - without_memory);
            scores.push(
                "memory gain",
                share,
                "return, 0 where that of the best policy without memory lies and 1 where the best of all does",
            );
        }
        scores.push("episode length", mean(&|episode| episode.1 as f64), signature);
        if is_test && search.is_some() {
            scores.push("diverged", 0.0, DIVERGED);
            scores.notes.push(format!(
                "learning rate {:.2e}, entropy weight {:.2e}, clip {:.2}",
                self.config.training.learning_rate, ppo.entropy_weight, ppo.clip
            ));
        }
        Some(scores)
    }

    fn selection(&self) -> Selection {
        Selection::highest("return")
    }

    fn can_locate(&self) -> bool {
        false
    }

    fn start_epoch(&self, playing: &mut Playing) {
        playing.rollout = None;
    }

    fn save(&self, playing: &Playing) -> Vec<(String, TensorData)> {
        let Playing { worlds, states, rollout, saved } = playing;
        let Some((worlds, environments)) = worlds else { return Vec::new() };
        let host = Host { worlds: *worlds, environments: environments.save(), rollout: rollout.clone() };
        let host = serde_json::to_vec(&host).expect("numbers and lists can be written");
        let length = host.len();
        let named = |prefix: &'static str, state: &PolicyState| {
            state.tensors().into_iter().map(move |(name, data)| (format!("{prefix}{name}"), data))
        };
        let mut tensors: Vec<(String, TensorData)> = match states {
            Some([begin, now]) => named(BEGIN, begin).chain(named(NOW, now)).collect(),
            // A resumed run may be saved again before its next step.
            None => saved.clone(),
        };
        tensors.push((HOST.to_owned(), TensorData::new(host, [length])));
        tensors
    }

    fn restore(&self, mut saved: Vec<(String, TensorData)>) -> Playing {
        let data = &self.config.own.data;
        let host = saved.iter().position(|(name, _)| name == HOST).expect("it is always saved");
        let bytes: Vec<u8> = saved.remove(host).1.iter::<u8>().collect();
        let Host { worlds, environments: left, rollout } = serde_json::from_slice(&bytes).expect("the checkpoint's digest was right");
        let mut environments = data.play(data.copies, &RandomKey::from_seed(worlds));
        environments.restore(&left).expect("the checkpoint is of this configuration");
        Playing { worlds: Some((worlds, environments)), states: None, rollout, saved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heedful_attention::description::AnyMechanism;

    use crate::tasks::memory_rl::MemoryData;
    use crate::tasks::memory_rl::environment::{EnvironmentConfig, RepeatPreviousConfig};
    use heedful_models::architectures::policy::Core;

    fn config(core: Core) -> MemoryConfig {
        let positions = heedful_models::parts::position::PositionConfig::None;
        let data = MemoryData {
            environment: EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default()),
            copies: 4,
            unroll: 12,
            memory: 8,
            ..MemoryData::default()
        };
        MemoryConfig {
            model: ModelSettings { d_model: 8, heads: 2, d_ff: 16, dropout: 0.0, positions, ..ModelSettings::default() },
            training: TrainingConfig::default(),
            own: MemoryRl { data, core, ..MemoryRl::default() },
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
            heedful_attention::contract::init::Init::Normal(0.5).parameter([width, actions], &RandomKey::from_seed(2), device);
        policy
    }

    #[test]
    fn an_unroll_is_read_as_it_was_played() {
        let device = Device::flex();
        for core in [Core::Transformer, Core::Lstm] {
            let config = config(core);
            let policy = policy(&config, &device);
            let MemoryRl { data, ppo, .. } = &config.own;
            let key = RandomKey::from_seed(3);
            let mut environments = data.play(data.copies, &key);
            let mut now = policy.start(data.copies, data.memory + data.unroll);
            let copies: Vec<usize> = (0..data.copies).collect();
            // The third goes on with episodes, and others begin in it.
            for unroll in 0..8 {
                let begin = now.select(&copies, data.memory);
                now = begin.select(&copies, data.memory + data.unroll);
                let rollout = Rollout::play(&policy, &mut environments, &mut now, data.unroll, ppo, &key.numbered(unroll));
                let (decision, experience) = rollout.of_copies(&policy, &copies, &begin, data.memory, &mut Probe::off());
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
            let dataset = MemoryRl::open(&config).unwrap().remove(0);
            let task = MemoryTask { config: &config, dataset: &dataset };
            let keys = [5, 6].map(RandomKey::from_seed);
            let orders = keys.map(|key| task.epoch(1, &key));
            let loss = |carried: &mut Playing, epoch: usize, step: usize| {
                let key = RandomKey::from_seed(9);
                let batch = task.batch(&orders[epoch][step], 1, &key);
                let pass = Pass { key, epoch_key: keys[epoch], step: 1, steps: 1, carried };
                task.loss(&policy, &batch, pass, &mut Probe::off()).total().into_scalar::<f32>()
            };
            let mut playing = Playing::default();
            loss(&mut playing, 0, 0);
            // Of a run that was resumed twice without a step between.
            let mut resumed = task.restore(task.save(&task.restore(task.save(&playing))));
            assert_eq!(loss(&mut playing, 0, 1), loss(&mut resumed, 0, 1), "{core:?}: the same unroll");
            for playing in [&mut playing, &mut resumed] {
                task.start_epoch(playing);
            }
            let next = loss(&mut playing, 1, 0);
            assert_eq!(next, loss(&mut resumed, 1, 0), "{core:?}: the next unroll");
            assert_ne!(next, loss(&mut Playing::default(), 1, 0), "{core:?}");
        }
    }

    #[test]
    fn seeds_draw_hyper_parameters_of_their_own() {
        let search = super::super::SearchConfig { learning_rate: Some([1e-4, 1e-2]), ..Default::default() };
        let mut config = config(Core::Lstm);
        config.own.search = Some(search);
        let rates: Vec<f64> = (0..200).map(|seed| config.drawn(seed).training.learning_rate).collect();
        assert!(rates.iter().all(|rate| (1e-4..1e-2).contains(rate)));
        let below = rates.iter().filter(|&&rate| rate < 1e-3).count();
        assert!((80..120).contains(&below), "{below} of 200 below the middle");
        assert_eq!(config.drawn(3), config.drawn(3));
        assert_eq!(config.drawn(3).own.ppo, config.own.ppo);
    }
}
