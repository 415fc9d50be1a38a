//! Tasks that need memory: small worlds that an agent sees a part of.
//!
//! An agent sees some numbers, chooses one of a few actions, and gets a reward. The present observation does not determine the right action: its clue appeared
//! earlier in the episode ([`t_maze`], [`repeat_previous`]), or the agent has to find it out and remember it ([`numpad`], [`memory_maze`]). For each task the
//! best return of a policy with memory is known, and, except for the memory maze, that of a policy that sees only the present. Returns are sums of rewards
//! without discount.
//!
//! A world draws from the key of its episode, so that the key and the actions determine the whole episode. [`VectorEnvironment`] plays copies side by side and
//! can be saved.

use heedful_random::RandomKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod maze;
pub mod memory_maze;
pub mod numpad;
pub mod repeat_previous;
pub mod t_maze;
pub mod vector;

pub use memory_maze::{MemoryMaze, MemoryMazeConfig};
pub use numpad::{Numpad, NumpadConfig};
pub use repeat_previous::{RepeatPrevious, RepeatPreviousConfig};
pub use t_maze::{TMaze, TMazeConfig};
pub use vector::{VectorEnvironment, VectorState};

/// The action up, in worlds to walk in.
pub const NORTH: usize = 0;
/// The action right, in worlds to walk in.
pub const EAST: usize = 1;
/// The action down, in worlds to walk in.
pub const SOUTH: usize = 2;
/// The action left, in worlds to walk in.
pub const WEST: usize = 3;

/// The most steps that an episode may be allowed.
pub const LONGEST_EPISODE: usize = 1_000_000;

/// A world of which an agent sees a part.
pub trait Environment {
    /// Numbers in an observation.
    fn observation_size(&self) -> usize;
    /// Number of actions; they are numbered from 0.
    fn actions(&self) -> usize;
    /// Steps after which every episode has ended.
    fn episode_limit(&self) -> usize;
    /// Begins the episode of `key`; the same key and actions always make the same episode.
    fn reset(&mut self, key: &RandomKey);
    /// Writes what the agent sees now, after a step or a reset, into all of `observation`.
    ///
    /// # Panics
    /// If `observation` has not [`observation_size`](Self::observation_size) numbers.
    fn observe(&self, observation: &mut [f32]);
    /// Acts.
    ///
    /// # Panics
    /// If there is no such action, or no episode: before the first reset and after a last step.
    fn step(&mut self, action: usize) -> Step;
}

/// What an action led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The reward.
    pub reward: f32,
    /// Whether the world has ended, after which there are no further rewards.
    pub terminated: bool,
    /// Whether the episode was cut at its limit. The world would have gone on, so the value of what was reached still counts.
    pub truncated: bool,
}

impl Step {
    /// Whether this is the last step of its episode.
    pub fn is_last(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// An invalid field of a task's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("environment, `{field}`: {reason}")]
pub struct EnvironmentConfigError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with its value, and which values are allowed.
    pub reason: String,
}

/// Fails with the error of `field` unless `holds`.
fn ensure(holds: bool, field: &'static str, reason: impl FnOnce() -> String) -> Result<(), EnvironmentConfigError> {
    if holds { Ok(()) } else { Err(EnvironmentConfigError { field, reason: reason() }) }
}

/// Fails unless an episode may have `limit` steps, of which the task needs `least`.
fn ensure_limit(limit: usize, least: usize) -> Result<(), EnvironmentConfigError> {
    ensure((least..=LONGEST_EPISODE).contains(&limit), "limit", || {
        format!("{limit} steps of an episode are too few or too many here; allow {least} to {LONGEST_EPISODE}")
    })
}

/// A task and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EnvironmentConfig {
    /// A corridor whose first cell shows which way to turn at its end.
    TMaze(TMazeConfig),
    /// A maze with a hidden goal that is to be found again and again.
    MemoryMaze(MemoryMazeConfig),
    /// Pads to be pressed in a hidden order.
    Numpad(NumpadConfig),
    /// Cards: name the suit of the card some steps ago.
    RepeatPrevious(RepeatPreviousConfig),
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        Self::TMaze(TMazeConfig::default())
    }
}

impl EnvironmentConfig {
    /// The names of all tasks.
    pub const NAMES: [&str; 4] = ["t-maze", "memory-maze", "numpad", "repeat-previous"];

    /// The name of the task, which is its `kind`.
    pub fn name(&self) -> &'static str {
        let [t_maze, memory_maze, numpad, repeat_previous] = Self::NAMES;
        match self {
            Self::TMaze(_) => t_maze,
            Self::MemoryMaze(_) => memory_maze,
            Self::Numpad(_) => numpad,
            Self::RepeatPrevious(_) => repeat_previous,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), EnvironmentConfigError> {
        match self {
            Self::TMaze(config) => config.validate(),
            Self::MemoryMaze(config) => config.validate(),
            Self::Numpad(config) => config.validate(),
            Self::RepeatPrevious(config) => config.validate(),
        }
    }

    /// The world, without an episode yet.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<AnyEnvironment, EnvironmentConfigError> {
        Ok(match self {
            Self::TMaze(config) => AnyEnvironment::TMaze(config.build()?),
            Self::MemoryMaze(config) => AnyEnvironment::MemoryMaze(config.build()?),
            Self::Numpad(config) => AnyEnvironment::Numpad(config.build()?),
            Self::RepeatPrevious(config) => AnyEnvironment::RepeatPrevious(config.build()?),
        })
    }

    /// The mean return that no policy exceeds, if it is known. The best policy with memory gets it; in the memory maze only one that was told the goal.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn best_reward(&self) -> Option<f64> {
        self.validate().expect("the configuration is valid");
        match self {
            Self::TMaze(config) => Some(config.best_reward()),
            Self::MemoryMaze(config) => config.best_reward(),
            Self::Numpad(config) => Some(config.best_reward()),
            Self::RepeatPrevious(config) => Some(config.best_reward()),
        }
    }

    /// The mean return of the best policy that sees the present observation of the world and nothing else, if it is known.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn memoryless_reward(&self) -> Option<f64> {
        self.validate().expect("the configuration is valid");
        match self {
            Self::TMaze(config) => Some(config.memoryless_reward()),
            Self::MemoryMaze(_) => None,
            Self::Numpad(config) => Some(config.memoryless_reward()),
            Self::RepeatPrevious(config) => Some(config.memoryless_reward()),
        }
    }
}

/// The world of any task.
#[derive(Clone, Debug)]
pub enum AnyEnvironment {
    /// A corridor whose first cell shows which way to turn at its end.
    TMaze(TMaze),
    /// A maze with a hidden goal that is to be found again and again.
    MemoryMaze(MemoryMaze),
    /// Pads to be pressed in a hidden order.
    Numpad(Numpad),
    /// Cards: name the suit of the card some steps ago.
    RepeatPrevious(RepeatPrevious),
}

impl AnyEnvironment {
    fn inner(&self) -> &dyn Environment {
        match self {
            Self::TMaze(environment) => environment,
            Self::MemoryMaze(environment) => environment,
            Self::Numpad(environment) => environment,
            Self::RepeatPrevious(environment) => environment,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Environment {
        match self {
            Self::TMaze(environment) => environment,
            Self::MemoryMaze(environment) => environment,
            Self::Numpad(environment) => environment,
            Self::RepeatPrevious(environment) => environment,
        }
    }
}

impl Environment for AnyEnvironment {
    fn observation_size(&self) -> usize {
        self.inner().observation_size()
    }

    fn actions(&self) -> usize {
        self.inner().actions()
    }

    fn episode_limit(&self) -> usize {
        self.inner().episode_limit()
    }

    fn reset(&mut self, key: &RandomKey) {
        self.inner_mut().reset(key);
    }

    fn observe(&self, observation: &mut [f32]) {
        self.inner().observe(observation);
    }

    fn step(&mut self, action: usize) -> Step {
        self.inner_mut().step(action)
    }
}

/// Counts the steps of an episode and cuts it at its limit.
#[derive(Clone, Debug)]
struct Clock {
    steps: usize,
    limit: usize,
    running: bool,
}

impl Clock {
    fn new(limit: usize) -> Self {
        Self { steps: 0, limit, running: false }
    }

    fn restart(&mut self) {
        (self.steps, self.running) = (0, true);
    }

    /// Refuses what is no step: to be asked before the world changes.
    fn assert_step(&self, action: usize, actions: usize) {
        assert!(self.running, "there is no episode; reset the environment first");
        assert!(action < actions, "action {action} of {actions}");
    }

    /// A step is over.
    fn count(&mut self, reward: f32, terminated: bool) -> Step {
        self.steps += 1;
        let step = Step { reward, terminated, truncated: !terminated && self.steps >= self.limit };
        self.running = !step.is_last();
        step
    }
}

#[cfg(test)]
mod tests;
