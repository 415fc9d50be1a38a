//! Environments as those of `burn-rl`.
//!
//! Burn's training loops reset an environment without a key and know no limit that is configured, so an adapter numbers the episodes of a key, and leaves
//! [`MAX_STEPS`](::burn_rl::Environment::MAX_STEPS) open. What states and actions are to a policy is told by the policy, through `ToObservation` and
//! `ToAction` of `burn-rl`.

use ::burn_rl::StepResult;
use heedful_random::RandomKey;

use super::{AnyEnvironment, Environment};

/// What an agent sees, [`observation_size`](Environment::observation_size) numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation(pub Vec<f32>);

/// The number of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(pub usize);

/// An environment and the key of its episodes.
#[derive(Clone, Debug)]
pub struct BurnEnvironment<E = AnyEnvironment> {
    environment: E,
    key: RandomKey,
    episode: u64,
}

impl<E: Environment> BurnEnvironment<E> {
    /// Begins the first episode of `key`.
    pub fn new(mut environment: E, key: &RandomKey) -> Self {
        environment.reset(&key.numbered(0));
        Self { environment, key: *key, episode: 0 }
    }
}

impl<E: Environment> ::burn_rl::Environment for BurnEnvironment<E> {
    type State = Observation;
    type Action = Action;

    const MAX_STEPS: usize = usize::MAX;

    fn state(&self) -> Observation {
        let mut observation = vec![0.0; self.environment.observation_size()];
        self.environment.observe(&mut observation);
        Observation(observation)
    }

    fn step(&mut self, Action(action): Action) -> StepResult<Observation> {
        let step = self.environment.step(action);
        // Burn's loops count and evaluate episodes until they are done, and would go on after one that was cut only.
        StepResult { next_state: self.state(), reward: f64::from(step.reward), done: step.is_last(), truncated: step.truncated }
    }

    fn reset(&mut self) {
        self.episode += 1;
        self.environment.reset(&self.key.numbered(self.episode));
    }
}

#[cfg(test)]
mod tests {
    use ::burn_rl::{Environment as _, EnvironmentInit};

    use super::super::{TMaze, TMazeConfig};
    use super::*;

    fn adapter() -> BurnEnvironment<TMaze> {
        BurnEnvironment::new(TMazeConfig { length: 1, limit: 3, ..TMazeConfig::default() }.build().unwrap(), &RandomKey::from_seed(1))
    }

    #[test]
    fn an_episode_goes_as_without_the_adapter() {
        let mut world = TMazeConfig { length: 1, limit: 3, ..TMazeConfig::default() }.build().unwrap();
        let mut adapter = adapter.init();
        for episode in 0..20 {
            Environment::reset(&mut world, &RandomKey::from_seed(1).numbered(episode));
            for action in [3, 1, 0] {
                let mut seen = [0.0; 3];
                world.observe(&mut seen);
                assert_eq!(adapter.state(), Observation(seen.to_vec()));
                let expected = Environment::step(&mut world, action);
                let result = adapter.step(Action(action));
                assert_eq!((result.reward, result.done), (f64::from(expected.reward), expected.is_last()));
                assert_eq!(result.next_state, adapter.state());
            }
            adapter.reset();
        }
    }

    #[test]
    fn an_episode_that_is_cut_is_done_and_said_to_be_cut() {
        let mut adapter = adapter();
        let ends: Vec<_> = (0..3).map(|_| adapter.step(Action(3))).map(|result| (result.done, result.truncated)).collect();
        assert_eq!(ends, [(false, false), (false, false), (true, true)]);
        adapter.reset();
        adapter.step(Action(1));
        let end = adapter.step(Action(0));
        assert!(end.done && !end.truncated);
    }
}
