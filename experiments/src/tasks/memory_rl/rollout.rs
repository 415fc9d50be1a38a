//! Playing: the steps of a policy in copies of an environment, to learn from.
//!
//! Ends of episodes cut an unroll into stretches. A stretch that continues an episode begins with the policy's memory before the unroll, any other with an
//! empty memory. A whole stretch is thus read at once just as it was played: no state of one episode is seen in another.

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::contract::probe::Probe;
use heedful_attention::tensors::read::read;
use heedful_models::architectures::actor_critic::{Decision, Experience};
use heedful_models::architectures::policy::{Policy, PolicyState};
use heedful_random::RandomKey;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::PpoConfig;
use super::advantage::{Unroll, generalised_advantages, normalise};
use super::environment::VectorEnvironment;

/// Steps of one episode without a break.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    /// The copy that played it.
    copy: usize,
    /// Whether the episode began before the unroll.
    continued: bool,
    /// What was seen, `[T, O]`.
    observations: Vec<f32>,
    actions: Vec<usize>,
    log_probabilities: Vec<f32>,
    advantages: Vec<f32>,
    returns: Vec<f32>,
}

impl Stretch {
    fn len(&self) -> usize {
        self.actions.len()
    }
}

/// What was played of all copies in an unroll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rollout {
    stretches: Vec<Stretch>,
}

/// The numbers of a decision on the host.
pub(super) struct HostDecision {
    log_policy: Vec<f32>,
    values: Vec<f32>,
    actions: usize,
}

impl HostDecision {
    fn of(decision: Decision) -> Self {
        let actions = decision.log_policy.dims()[2];
        let numbers = |data: TensorData| data.iter::<f32>().collect();
        Self { log_policy: numbers(read(decision.log_policy)), values: numbers(read(decision.value)), actions }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.log_policy[row * self.actions..(row + 1) * self.actions]
    }

    /// An action of each row, drawn from the policy.
    pub(super) fn draw(&self, rng: &mut impl Rng) -> Vec<usize> {
        let mut draw = |row: &[f32]| {
            let mut left: f64 = rng.random();
            for (action, &log_probability) in row.iter().enumerate() {
                left -= f64::from(log_probability).exp();
                if left < 0.0 {
                    return action;
                }
            }
            row.len() - 1
        };
        self.log_policy.chunks(self.actions).map(&mut draw).collect()
    }
}

/// What a policy says of the observations `[B, O]` of the next step.
pub(super) fn look(policy: &Policy, observations: &[f32], state: &mut PolicyState) -> HostDecision {
    let (rows, device) = (state.rows(), policy.observation.weight.device());
    let seen = TensorData::new(observations.to_vec(), [rows, 1, observations.len() / rows]);
    HostDecision::of(policy.read(Tensor::from_data(seen, &device), state, &mut Probe::off()))
}

impl Rollout {
    /// Plays `steps` steps of all copies. `state` is what the policy remembers of them; its rows go on with their episodes.
    pub(super) fn play(
        policy: &Policy,
        environments: &mut VectorEnvironment,
        state: &mut PolicyState,
        steps: usize,
        ppo: &PpoConfig,
        key: &RandomKey,
    ) -> Self {
        let copies = environments.copies();
        let begin = |copy: usize, continued: bool| Stretch { copy, continued, ..Stretch::default() };
        let mut open: Vec<Stretch> = environments.starts().iter().enumerate().map(|(copy, starts)| begin(copy, !starts)).collect();
        let mut stretches = Vec::new();
        // For each step and copy, which stretch it is in and where: the advantages are known at the end only.
        let mut places: Vec<(usize, usize)> = Vec::new();
        let (mut rewards, mut values, mut reached_values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut terminated, mut truncated) = (Vec::new(), Vec::new());
        let mut number_of = (0..copies).collect::<Vec<_>>();
        let mut count = copies;
        for step in 0..steps {
            let observations = environments.observations().to_vec();
            let size = observations.len() / copies;
            let decision = look(policy, &observations, state);
            let actions = decision.draw(&mut key.numbered(step as u64).rng());
            for (copy, stretch) in open.iter_mut().enumerate() {
                places.push((number_of[copy], stretch.len()));
                stretch.observations.extend(&observations[copy * size..(copy + 1) * size]);
                stretch.actions.push(actions[copy]);
                stretch.log_probabilities.push(decision.row(copy)[actions[copy]]);
            }
            let outcome = environments.step(&actions).clone();
            reached_values.extend(if outcome.truncated.contains(&true) {
                look(policy, &outcome.reached, &mut state.clone()).values
            } else {
                vec![0.0; copies]
            });
            values.extend(decision.values);
            let ended: Vec<bool> = outcome.terminated.iter().zip(&outcome.truncated).map(|(&end, &cut)| end || cut).collect();
            state.forget(&ended);
            for copy in (0..copies).filter(|&copy| ended[copy]) {
                let finished = std::mem::replace(&mut open[copy], begin(copy, false));
                stretches.push((number_of[copy], finished));
                number_of[copy] = count;
                count += 1;
            }
            rewards.extend(outcome.rewards);
            terminated.extend(outcome.terminated);
            truncated.extend(outcome.truncated);
        }
        values.extend(look(policy, environments.observations(), &mut state.clone()).values);
        let unroll = Unroll {
            copies,
            rewards: &rewards,
            values: &values,
            terminated: &terminated,
            truncated: &truncated,
            reached_values: &reached_values,
        };
        let mut found = generalised_advantages(&unroll, ppo.discount, ppo.decay);
        normalise(&mut found.advantages);
        stretches.extend(number_of.into_iter().zip(open));
        stretches.sort_by_key(|(number, _)| *number);
        let mut stretches: Vec<Stretch> = stretches.into_iter().map(|(_, stretch)| stretch).collect();
        for ((number, _), (advantage, value)) in places.into_iter().zip(found.advantages.into_iter().zip(found.returns)) {
            stretches[number].advantages.push(advantage);
            stretches[number].returns.push(value);
        }
        stretches.retain(|stretch| stretch.len() > 0);
        Self { stretches }
    }

    /// The experience of some copies, and what the policy says of it now. `begin` is what was remembered of all copies before the unroll, of at most `memory`
    /// steps.
    pub(super) fn of_copies(
        &self,
        policy: &Policy,
        copies: &[usize],
        begin: &PolicyState,
        memory: usize,
        probe: &mut Probe,
    ) -> (Decision, Experience) {
        let stretches: Vec<&Stretch> = self.stretches.iter().filter(|stretch| copies.contains(&stretch.copy)).collect();
        let rows: Vec<usize> = stretches.iter().map(|stretch| stretch.copy).collect();
        let fresh: Vec<bool> = stretches.iter().map(|stretch| !stretch.continued).collect();
        let device = policy.observation.weight.device();
        let mut state = begin.select(&rows, memory).to_device(&device);
        state.forget(&fresh);
        let width = stretches.iter().map(|stretch| stretch.len()).max().unwrap_or(0);
        let shape = [rows.len(), width];
        let size = stretches.first().map_or(0, |stretch| stretch.observations.len() / stretch.len());
        let padded = |values: &dyn Fn(&Stretch) -> Vec<f32>, each: usize| -> Vec<f32> {
            let row = |stretch: &&Stretch| {
                let mut values = values(stretch);
                values.resize(width * each, 0.0);
                values
            };
            stretches.iter().flat_map(row).collect()
        };
        let tensor = |values: &dyn Fn(&Stretch) -> Vec<f32>| Tensor::<2>::from_data(TensorData::new(padded(values, 1), shape), &device);
        let seen = TensorData::new(padded(&|stretch| stretch.observations.clone(), size), [rows.len(), width, size]);
        let actions = stretches
            .iter()
            .flat_map(|stretch| stretch.actions.iter().map(|&action| action as i32).chain(std::iter::repeat(0)).take(width));
        let actions = Tensor::<2, Int>::from_data(TensorData::new(actions.collect::<Vec<i32>>(), shape), &device);
        let decision = policy.read(Tensor::from_data(seen, &device), &mut state, probe);
        let experience = Experience {
            actions,
            log_probabilities: tensor(&|stretch| stretch.log_probabilities.clone()),
            advantages: tensor(&|stretch| stretch.advantages.clone()),
            returns: tensor(&|stretch| stretch.returns.clone()),
            real: tensor(&|stretch| vec![1.0; stretch.len()]),
        };
        (decision, experience)
    }
}

/// Returns and lengths of `episodes` episodes, as many of each copy as of any other, played by a policy that draws its actions.
pub(super) fn play_episodes(
    policy: &Policy,
    environments: &mut VectorEnvironment,
    mut state: PolicyState,
    episodes: usize,
    key: &RandomKey,
    mut go_on: impl FnMut() -> bool,
) -> Option<Vec<(f64, usize)>> {
    let copies = environments.copies();
    // The first episodes to end would be the short ones.
    let wanted = |copy: usize| (episodes / copies + usize::from(copy < episodes % copies)) as u64;
    let mut found = Vec::with_capacity(episodes);
    for step in 0.. {
        if found.len() >= episodes {
            break;
        }
        if !go_on() {
            return None;
        }
        let decision = look(policy, environments.observations(), &mut state);
        let outcome = environments.step(&decision.draw(&mut key.numbered(step).rng()));
        found.extend(outcome.episodes.iter().filter(|episode| episode.number < wanted(episode.copy)).map(|e| (e.total, e.steps)));
        let ended: Vec<bool> = outcome.terminated.iter().zip(&outcome.truncated).map(|(&end, &cut)| end || cut).collect();
        state.forget(&ended);
    }
    Some(found)
}
