//! Copies of an environment side by side.
//!
//! Copy `i` plays the episodes of the keys `key/environment/i/0`, `.../1` and so on, whatever the others do, so that it meets the same worlds among any number
//! of copies. An episode that ends is followed by the next one at once: what the agent sees then is the new world, and what the last step led to is kept
//! beside it, for the value of an episode that was cut.
//!
//! What is saved are the numbers of the episodes and the actions so far. Restored copies play them again, which gives the same bits.

use heedful_random::RandomKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{AnyEnvironment, Environment, Step};

/// `B` copies of an environment, each in an episode of its own.
#[derive(Clone, Debug)]
pub struct VectorEnvironment<E = AnyEnvironment> {
    copies: Vec<Copied<E>>,
    feedback: bool,
    observations: Vec<f32>,
    starts: Vec<bool>,
    outcome: Outcome,
}

/// What a step of all copies led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The rewards, `[B]`.
    pub rewards: Vec<f32>,
    /// Whose world came to its end, `[B]`.
    pub terminated: Vec<bool>,
    /// Whose episode was cut, `[B]`.
    pub truncated: Vec<bool>,
    /// What each agent saw after the step, before a new episode began, `[B, size]`.
    pub reached: Vec<f32>,
    /// The episodes that ended, in the order of their copies.
    pub episodes: Vec<Episode>,
}

/// An episode that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The copy that played it.
    pub copy: usize,
    /// Its number among the episodes of that copy, from 0.
    pub number: u64,
    /// The sum of its rewards.
    pub total: f64,
    /// Its steps.
    pub steps: usize,
}

/// Where copies of an environment are. It belongs to the environment, the key and the number of copies that it was saved with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorState {
    /// Where each copy is.
    pub copies: Vec<CopyState>,
}

/// Where a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyState {
    /// The number of its episode, from 0.
    pub episode: u64,
    /// What was done in it so far.
    pub actions: Vec<usize>,
}

/// Why copies cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// Another number of copies was saved.
    #[error("saved environments, `copies`: {found} were saved and {expected} are played; resume with the configuration of the saved run")]
    Copies {
        /// Copies that were saved.
        found: usize,
        /// Copies that are played.
        expected: usize,
    },
    /// There is no such action.
    #[error(
        "saved environments, copy {copy}, `actions`: action {action} of step {step}, where there are {actions}; resume with the configuration of the saved run"
    )]
    Action {
        /// The copy.
        copy: usize,
        /// The step, from 1.
        step: usize,
        /// The action.
        action: usize,
        /// How many there are.
        actions: usize,
    },
    /// The episode is over before its last action.
    #[error(
        "saved environments, copy {copy}, `actions`: the episode ends at step {step} of {steps}; resume with the configuration and seed of the saved run"
    )]
    Ended {
        /// The copy.
        copy: usize,
        /// The last step, from 1.
        step: usize,
        /// The actions that were saved.
        steps: usize,
    },
}

impl<E: Environment + Clone> VectorEnvironment<E> {
    /// Begins the first episode of each copy. An observation is what the environment shows; with `feedback` a 1 among zeros for the last action follows, and the
    /// last reward, all 0 in the first step of an episode.
    ///
    /// # Panics
    /// If there are no copies.
    pub fn new(environment: &E, copies: usize, key: &RandomKey, feedback: bool) -> Self {
        assert!(copies > 0, "there is at least one copy of an environment");
        let key = key.named("environment");
        let copied = |copy| {
            let mut copied = Copied {
                environment: environment.clone(),
                key: key.numbered(copy),
                episode: 0,
                actions: Vec::new(),
                total: 0.0,
                last: None,
            };
            copied.begin(0);
            copied
        };
        let copied: Vec<Copied<E>> = (0..copies as u64).map(copied).collect();
        let mut started =
            Self { copies: copied, feedback, observations: Vec::new(), starts: vec![true; copies], outcome: Outcome::default() };
        started.observations = vec![0.0; copies * started.observation_size()];
        started.outcome = Outcome {
            rewards: vec![0.0; copies],
            terminated: vec![false; copies],
            truncated: vec![false; copies],
            reached: started.observations.clone(),
            episodes: Vec::new(),
        };
        started.look();
        started
    }

    /// Number of copies, `B`.
    pub fn copies(&self) -> usize {
        self.copies.len()
    }

    /// Numbers in an observation of a copy.
    pub fn observation_size(&self) -> usize {
        let environment = &self.copies[0].environment;
        environment.observation_size() + if self.feedback { environment.actions() + 1 } else { 0 }
    }

    /// Number of actions.
    pub fn actions(&self) -> usize {
        self.copies[0].environment.actions()
    }

    /// What each agent sees now, `[B, size]`.
    pub fn observations(&self) -> &[f32] {
        &self.observations
    }

    /// Whether what each agent sees now is the first of an episode, `[B]`: a memory must be empty then.
    pub fn starts(&self) -> &[bool] {
        &self.starts
    }

    /// Acts in every copy.
    ///
    /// # Panics
    /// If there is not one action for each copy, or no such action.
    pub fn step(&mut self, actions: &[usize]) -> &Outcome {
        assert_eq!(actions.len(), self.copies.len(), "there is one action for each copy");
        let size = self.observation_size();
        self.outcome.episodes.clear();
        for (copy, (copied, &action)) in self.copies.iter_mut().zip(actions).enumerate() {
            let step = copied.step(action);
            self.outcome.rewards[copy] = step.reward;
            self.outcome.terminated[copy] = step.terminated;
            self.outcome.truncated[copy] = step.truncated;
            self.starts[copy] = step.is_last();
            let row = copy * size..(copy + 1) * size;
            copied.observe(self.feedback, &mut self.outcome.reached[row.clone()]);
            if step.is_last() {
                let Copied { episode, total, .. } = *copied;
                self.outcome.episodes.push(Episode { copy, number: episode, total, steps: copied.actions.len() });
                copied.begin(episode + 1);
            }
            copied.observe(self.feedback, &mut self.observations[row]);
        }
        &self.outcome
    }

    /// Where the copies are.
    pub fn save(&self) -> VectorState {
        let state = |copied: &Copied<E>| CopyState { episode: copied.episode, actions: copied.actions.clone() };
        VectorState { copies: self.copies.iter().map(state).collect() }
    }

    /// Brings copies of the same environment and key to where they were saved.
    ///
    /// # Errors
    /// [`StateError`] if the state can be seen to be of another environment or number of copies; then nothing changes.
    pub fn restore(&mut self, state: &VectorState) -> Result<(), StateError> {
        let (found, expected) = (state.copies.len(), self.copies.len());
        if found != expected {
            return Err(StateError::Copies { found, expected });
        }
        let mut copies = self.copies.clone();
        for (copy, (copied, state)) in copies.iter_mut().zip(&state.copies).enumerate() {
            copied.replay(copy, state)?;
        }
        self.copies = copies;
        self.look();
        Ok(())
    }

    fn look(&mut self) {
        let size = self.observation_size();
        for ((copied, observation), start) in self.copies.iter().zip(self.observations.chunks_mut(size)).zip(&mut self.starts) {
            copied.observe(self.feedback, observation);
            *start = copied.actions.is_empty();
        }
    }
}

#[derive(Clone, Debug)]
struct Copied<E> {
    environment: E,
    key: RandomKey,
    episode: u64,
    actions: Vec<usize>,
    /// The sum of the episode's rewards.
    total: f64,
    /// The last action and its reward.
    last: Option<(usize, f32)>,
}

impl<E: Environment> Copied<E> {
    fn begin(&mut self, episode: u64) {
        self.environment.reset(&self.key.numbered(episode));
        self.episode = episode;
        self.actions.clear();
        (self.total, self.last) = (0.0, None);
    }

    fn step(&mut self, action: usize) -> Step {
        let step = self.environment.step(action);
        self.actions.push(action);
        self.total += f64::from(step.reward);
        self.last = Some((action, step.reward));
        step
    }

    fn observe(&self, feedback: bool, observation: &mut [f32]) {
        let (world, fed_back) = observation.split_at_mut(self.environment.observation_size());
        self.environment.observe(world);
        if feedback {
            fed_back.fill(0.0);
            if let Some((action, reward)) = self.last {
                fed_back[action] = 1.0;
                fed_back[self.environment.actions()] = reward;
            }
        }
    }

    fn replay(&mut self, copy: usize, state: &CopyState) -> Result<(), StateError> {
        self.begin(state.episode);
        let (actions, steps) = (self.environment.actions(), state.actions.len());
        for (step, &action) in (1..).zip(&state.actions) {
            if action >= actions {
                return Err(StateError::Action { copy, step, action, actions });
            }
            if self.step(action).is_last() {
                return Err(StateError::Ended { copy, step, steps });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_chacha::ChaCha8Rng;

    use super::super::tests::configs;
    use super::super::{EnvironmentConfig, RepeatPreviousConfig, TMazeConfig};
    use super::*;

    fn key() -> RandomKey {
        RandomKey::from_seed(7)
    }

    fn t_maze() -> AnyEnvironment {
        EnvironmentConfig::TMaze(TMazeConfig { length: 2, limit: 6, noise: 1.0, penalty: 0.1 }).build().unwrap()
    }

    /// Observations, starts and outcomes of random actions.
    fn played(vector: &mut VectorEnvironment, steps: usize, rng: &mut ChaCha8Rng) -> Vec<(Vec<f32>, Vec<bool>, Outcome)> {
        let step = |_| {
            let actions: Vec<usize> = (0..vector.copies()).map(|_| rng.random_range(0..vector.actions())).collect();
            let outcome = vector.step(&actions).clone();
            (vector.observations().to_vec(), vector.starts().to_vec(), outcome)
        };
        (0..steps).map(step).collect()
    }

    #[test]
    fn the_same_key_and_actions_give_the_same_bits_and_another_key_does_not() {
        for config in configs() {
            let environment = config.build().unwrap();
            let run =
                |key: &RandomKey| played(&mut VectorEnvironment::new(&environment, 3, key, false), 110, &mut key.named("actions").rng());
            assert_eq!(run(&key()), run(&key()), "{config:?}");
            assert_ne!(run(&key()), run(&RandomKey::from_seed(8)), "{config:?}");
        }
    }

    #[test]
    fn a_copy_plays_the_same_episodes_among_any_number_of_copies_and_none_plays_those_of_another() {
        let environment = EnvironmentConfig::RepeatPrevious(RepeatPreviousConfig::default()).build().unwrap();
        let mut few = VectorEnvironment::new(&environment, 2, &key(), false);
        let mut many = VectorEnvironment::new(&environment, 6, &key(), false);
        let mut seen = vec![Vec::new(); 6];
        for _ in 0..120 {
            assert_eq!(few.observations(), &many.observations()[..2 * 4]);
            for (copy, row) in many.observations().chunks(4).enumerate() {
                seen[copy].extend_from_slice(row);
            }
            few.step(&[0; 2]);
            many.step(&[0; 6]);
        }
        // Episodes have 51 steps; no two of 6 copies and two episodes of a copy are alike.
        let episodes: Vec<&[f32]> = seen.iter().flat_map(|row| row.chunks(51 * 4).take(2)).collect();
        assert!((0..12).all(|one| (0..one).all(|other| episodes[one] != episodes[other])));
    }

    #[test]
    fn an_episode_that_ends_is_handed_out_and_followed_by_the_next_one() {
        let mut vector = VectorEnvironment::new(&t_maze(), 2, &key(), false);
        assert_eq!((vector.copies(), vector.observation_size(), vector.actions(), vector.starts()), (2, 3, 4, &[true; 2][..]));
        let mut alone = t_maze();
        alone.reset(&key().named("environment").numbered(1).numbered(0));
        for _ in 0..2 {
            // The first copy bumps into the wall, the second one walks.
            let outcome = vector.step(&[3, 1]).clone();
            assert_eq!((outcome.rewards, outcome.episodes), (vec![-0.1, 0.0], vec![]));
            assert_eq!(vector.starts(), [false; 2]);
            assert_eq!(vector.observations(), outcome.reached);
            alone.step(1);
        }
        let outcome = vector.step(&[3, 0]).clone();
        let reward = alone.step(0).reward;
        assert_eq!((outcome.terminated, outcome.truncated), (vec![false, true], vec![false; 2]));
        assert_eq!(outcome.episodes, [Episode { copy: 1, number: 0, total: f64::from(reward), steps: 3 }]);
        assert_eq!(vector.starts(), [false, true]);
        // The junction is what was reached, the sign of the next maze what is seen.
        assert_eq!(outcome.reached[3..], [0.0, 1.0, 0.0]);
        let sign = &vector.observations()[3..];
        assert!(sign == [0.0, 1.0, 1.0] || sign == [1.0, 1.0, 0.0]);
        vector.step(&[3; 2]);
        vector.step(&[3; 2]);
        let outcome = vector.step(&[3; 2]);
        assert_eq!((&outcome.truncated[..], &outcome.terminated[..]), (&[true, false][..], &[false; 2][..]));
        assert_eq!((outcome.episodes.len(), outcome.episodes[0].copy, outcome.episodes[0].steps), (1, 0, 6));
        assert!((outcome.episodes[0].total + 0.6).abs() < 1e-6);
    }

    #[test]
    fn feedback_shows_the_last_action_and_reward_until_the_episode_ends() {
        let mut vector = VectorEnvironment::new(&t_maze(), 1, &key(), true);
        assert_eq!(vector.observation_size(), 3 + 4 + 1);
        assert_eq!(vector.observations()[3..], [0.0; 5]);
        vector.step(&[2]);
        assert_eq!(vector.observations()[3..], [0.0, 0.0, 1.0, 0.0, -0.1]);
        vector.step(&[1]);
        assert_eq!(vector.observations()[3..], [0.0, 1.0, 0.0, 0.0, 0.0]);
        vector.step(&[1]);
        let outcome = vector.step(&[0]).clone();
        assert_eq!(outcome.reached, [&[0.0, 1.0, 0.0][..], &[1.0, 0.0, 0.0, 0.0], &outcome.rewards].concat());
        assert_eq!(vector.observations()[3..], [0.0; 5]);
    }

    #[test]
    fn copies_that_were_saved_and_restored_go_on_with_the_same_bits() {
        for config in configs() {
            let environment = config.build().unwrap();
            for steps in [0, 1, 37, 110] {
                let mut rng = key().named("actions").rng();
                let mut vector = VectorEnvironment::new(&environment, 2, &key(), true);
                played(&mut vector, steps, &mut rng);
                let saved = serde_json::to_string(&vector.save()).unwrap();
                let mut restored = VectorEnvironment::new(&environment, 2, &key(), true);
                restored.restore(&serde_json::from_str(&saved).unwrap()).unwrap();
                assert_eq!((restored.observations(), restored.starts()), (vector.observations(), vector.starts()), "{config:?}");
                let after = played(&mut vector, 60, &mut rng.clone());
                assert_eq!(played(&mut restored, 60, &mut rng), after, "{config:?}");
            }
        }
    }

    #[test]
    fn a_state_of_something_else_is_refused_and_changes_nothing() {
        let mut vector = VectorEnvironment::new(&t_maze(), 2, &key(), false);
        vector.step(&[1, 1]);
        let before = vector.save();
        let state = |actions: &[usize]| VectorState {
            copies: vec![CopyState { episode: 3, actions: vec![] }, CopyState { episode: 0, actions: actions.to_vec() }],
        };
        assert_eq!(vector.restore(&VectorState { copies: vec![] }), Err(StateError::Copies { found: 0, expected: 2 }));
        assert_eq!(vector.restore(&state(&[1, 4])), Err(StateError::Action { copy: 1, step: 2, action: 4, actions: 4 }));
        assert_eq!(vector.restore(&state(&[1, 1, 0, 0])), Err(StateError::Ended { copy: 1, step: 3, steps: 4 }));
        assert_eq!(vector.restore(&state(&[1, 1, 0])), Err(StateError::Ended { copy: 1, step: 3, steps: 3 }));
        assert_eq!(vector.save(), before);
        assert_eq!(vector.restore(&state(&[1, 1])), Ok(()));
        assert_eq!(vector.save(), state(&[1, 1]));
        assert!(serde_json::from_str::<VectorState>(r#"{"copies": [], "more": 1}"#).is_err());
    }
}
