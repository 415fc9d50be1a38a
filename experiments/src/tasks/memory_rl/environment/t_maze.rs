//! The T-maze: a sign at the start of a corridor says which way to turn at its end (Bakker 2001).
//!
//! The agent starts at the west end of a corridor, walks to the junction `length` steps east, and turns north or south. Only the first cell has a sign. What
//! is seen is the paper's code: `011` at the start if the goal is north, `110` if it is south, `101` in the corridor, `010` at the junction. With noise, the
//! two ones of the corridor are random numbers, drawn anew at every step. The right turn gives 4, the wrong one costs the penalty, and both end the episode.
//!
//! In the paper only standing still costs the penalty; here each step that does not lead to the junction does, going back too, so that waiting never pays.
//! Episodes are cut at a limit, of which the paper says nothing.

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Clock, EAST, Environment, EnvironmentConfigError, NORTH, SOUTH, Step, WEST, ensure, ensure_limit};

const ACTIONS: usize = 4;
/// Reward at the goal.
const GOAL: f32 = 4.0;

/// Options of [`TMaze`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TMazeConfig {
    /// Steps from the start to the junction, at least 1.
    pub length: usize,
    /// Most steps of an episode, more than `length`.
    pub limit: usize,
    /// Noise of the ones in the corridor, 0 to 1: they are drawn from 1 - `noise` to 1. With 1 they are anything from 0 to 1, as in the paper's noisy variant.
    pub noise: f32,
    /// Cost of a step that does not lead to the junction, and of the wrong turn, at least 0.
    pub penalty: f32,
}

impl Default for TMazeConfig {
    fn default() -> Self {
        Self { length: 10, limit: 100, noise: 0.0, penalty: 0.1 }
    }
}

impl TMazeConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), EnvironmentConfigError> {
        ensure(self.length >= 1, "length", || "the junction is at least 1 step from the start".into())?;
        ensure((0.0..=1.0).contains(&self.noise), "noise", || format!("{} is not a number from 0 to 1", self.noise))?;
        let penalty = self.penalty;
        ensure(penalty.is_finite() && penalty >= 0.0, "penalty", || format!("{penalty} is not a number of at least 0"))?;
        ensure_limit(self.limit, self.length.saturating_add(1))
    }

    /// The maze, without an episode yet.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<TMaze, EnvironmentConfigError> {
        self.validate()?;
        let rng = RandomKey::from_seed(0).rng();
        Ok(TMaze { config: *self, clock: Clock::new(self.limit), rng, position: 0, goal: NORTH, corridor: [1.0; 2] })
    }

    /// Straight to the junction and the right turn.
    pub(super) fn best_reward(&self) -> f64 {
        f64::from(GOAL)
    }

    /// Straight to the junction, where one turn of two is right. To stay at the start for one of the two signs is no better: it costs more than the turn.
    pub(super) fn memoryless_reward(&self) -> f64 {
        (f64::from(GOAL) - f64::from(self.penalty)) / 2.0
    }
}

/// A corridor whose first cell shows which way to turn at its end.
#[derive(Clone, Debug)]
pub struct TMaze {
    config: TMazeConfig,
    clock: Clock,
    rng: ChaCha8Rng,
    /// Cells from the start.
    position: usize,
    /// The action that is right at the junction.
    goal: usize,
    /// What is seen of the corridor's two ones.
    corridor: [f32; 2],
}

impl Environment for TMaze {
    fn observation_size(&self) -> usize {
        3
    }

    fn actions(&self) -> usize {
        ACTIONS
    }

    fn episode_limit(&self) -> usize {
        self.config.limit
    }

    fn reset(&mut self, key: &RandomKey) {
        self.rng = key.rng();
        self.clock.restart();
        self.position = 0;
        self.goal = if self.rng.random_bool(0.5) { NORTH } else { SOUTH };
    }

    fn observe(&self, observation: &mut [f32]) {
        let [left, right] = self.corridor;
        let seen = match self.position {
            0 if self.goal == NORTH => [0.0, 1.0, 1.0],
            0 => [1.0, 1.0, 0.0],
            position if position == self.config.length => [0.0, 1.0, 0.0],
            _ => [left, 0.0, right],
        };
        observation.copy_from_slice(&seen);
    }

    fn step(&mut self, action: usize) -> Step {
        self.clock.assert_step(action, ACTIONS);
        let at_junction = self.position == self.config.length;
        let noise = self.config.noise;
        self.corridor = std::array::from_fn(|_| 1.0 - noise * self.rng.random::<f32>());
        match action {
            NORTH | SOUTH if at_junction => self.clock.count(if action == self.goal { GOAL } else { -self.config.penalty }, true),
            EAST if !at_junction => {
                self.position += 1;
                self.clock.count(0.0, false)
            }
            _ => {
                if action == WEST {
                    self.position = self.position.saturating_sub(1);
                }
                self.clock.count(-self.config.penalty, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{mean_return, play, seen};
    use super::*;

    fn maze(config: TMazeConfig) -> TMaze {
        let mut maze = config.build().unwrap();
        maze.reset(&RandomKey::from_seed(1));
        maze
    }

    fn step(reward: f32, terminated: bool, truncated: bool) -> Step {
        Step { reward, terminated, truncated }
    }

    #[test]
    fn an_episode_played_by_hand_goes_as_in_the_paper() {
        for (goal, wrong, sign) in [(NORTH, SOUTH, [0.0, 1.0, 1.0]), (SOUTH, NORTH, [1.0, 1.0, 0.0])] {
            let mut maze = maze(TMazeConfig { length: 3, ..TMazeConfig::default() });
            maze.goal = goal;
            assert_eq!(seen(&maze), sign);
            for cell in [[1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]] {
                assert_eq!(maze.step(EAST), step(0.0, false, false));
                assert_eq!(seen(&maze), cell);
            }
            assert_eq!(maze.clone().step(goal), step(4.0, true, false));
            assert_eq!(maze.step(wrong), step(-0.1, true, false));
        }
    }

    #[test]
    fn walls_and_the_way_back_cost_the_penalty() {
        let mut maze = maze(TMazeConfig { length: 2, penalty: 0.5, ..TMazeConfig::default() });
        let sign = seen(&maze);
        for action in [NORTH, SOUTH, WEST] {
            assert_eq!(maze.step(action), step(-0.5, false, false));
            assert_eq!(seen(&maze), sign);
        }
        maze.step(EAST);
        assert_eq!(maze.step(WEST), step(-0.5, false, false));
        assert_eq!(seen(&maze), sign);
        maze.step(EAST);
        maze.step(EAST);
        assert_eq!(maze.step(EAST), step(-0.5, false, false));
        assert_eq!(seen(&maze), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn an_episode_is_cut_at_its_limit_unless_it_ends_there() {
        let config = TMazeConfig { length: 1, limit: 2, ..TMazeConfig::default() };
        let mut waiting = maze(config);
        assert!(!waiting.step(NORTH).is_last());
        assert_eq!(waiting.step(NORTH), step(-0.1, false, true));
        let mut walking = maze(config);
        walking.step(EAST);
        let goal = walking.goal;
        assert_eq!(walking.step(goal), step(4.0, true, false));
    }

    #[test]
    fn noise_changes_what_is_seen_of_the_corridor_at_every_step_and_nothing_else() {
        let mut maze = maze(TMazeConfig { length: 50, noise: 0.5, ..TMazeConfig::default() });
        let mut lowest = 1.0_f32;
        let mut before = seen(&maze);
        for _ in 1..50 {
            maze.step(EAST);
            let now = seen(&maze);
            assert_eq!(now[1], 0.0);
            assert_ne!(now, before);
            assert!(now[0] != now[2] && (0.5..=1.0).contains(&now[0]) && (0.5..=1.0).contains(&now[2]), "{now:?}");
            lowest = lowest.min(now[0]).min(now[2]);
            before = now;
        }
        assert!(lowest < 0.55, "{lowest}");
        maze.step(EAST);
        assert_eq!(seen(&maze), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn who_remembers_the_sign_gets_the_best_reward_in_every_episode() {
        for config in [TMazeConfig::default(), TMazeConfig { length: 60, noise: 1.0, penalty: 0.0, ..TMazeConfig::default() }] {
            let mut maze = config.build().unwrap();
            for seed in 0..200 {
                let mut turn = None;
                let episode = play(&mut maze, &RandomKey::from_seed(seed), |_, seen| {
                    let turn = *turn.get_or_insert(if seen[0] == 0.0 { NORTH } else { SOUTH });
                    if *seen == [0.0, 1.0, 0.0] { turn } else { EAST }
                });
                assert_eq!((episode.total, episode.steps), (config.best_reward(), config.length + 1));
            }
        }
    }

    #[test]
    fn no_policy_without_memory_exceeds_its_bound_and_the_best_one_gets_it() {
        let config = TMazeConfig { length: 3, limit: 12, ..TMazeConfig::default() };
        let mut maze = config.build().unwrap();
        let mut best = f64::NEG_INFINITY;
        // An action for each of the four things that can be seen.
        for policy in 0..ACTIONS.pow(4) {
            let mut returns = [Vec::new(), Vec::new()];
            for seed in 0..20 {
                let episode = play(&mut maze, &RandomKey::from_seed(seed), |_, seen| {
                    let kind = [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]].iter().position(|kind| kind == seen);
                    policy / ACTIONS.pow(kind.unwrap() as u32) % ACTIONS
                });
                returns[usize::from(maze.goal == NORTH)].push(episode.total);
            }
            best = best.max(returns.iter().map(|of_goal| of_goal.iter().sum::<f64>() / of_goal.len() as f64 / 2.0).sum());
        }
        assert!((best - config.memoryless_reward()).abs() < 1e-6, "{best}");
    }

    #[test]
    fn both_goals_are_equally_frequent() {
        let mean = mean_return(&mut maze(TMazeConfig { penalty: 0.0, ..TMazeConfig::default() }), 4000, |_, seen| {
            if *seen == [0.0, 1.0, 0.0] { NORTH } else { EAST }
        });
        assert!((mean - 2.0).abs() < 0.15, "{mean}");
    }

    #[test]
    fn fields_out_of_range_are_named() {
        type Spoil = fn(&mut TMazeConfig);
        let cases: [(&str, Spoil); 7] = [
            ("length", |c| c.length = 0),
            ("noise", |c| c.noise = 1.5),
            ("noise", |c| c.noise = f32::NAN),
            ("penalty", |c| c.penalty = -1.0),
            ("penalty", |c| c.penalty = f32::INFINITY),
            ("limit", |c| c.limit = 10),
            ("limit", |c| c.length = usize::MAX),
        ];
        for (field, spoil) in cases {
            let mut config = TMazeConfig::default();
            spoil(&mut config);
            assert_eq!(config.build().unwrap_err().field, field);
        }
        let error = TMazeConfig { length: 200, ..TMazeConfig::default() }.build().unwrap_err().to_string();
        assert_eq!(error, "environment, `limit`: 100 steps of an episode are too few or too many here; allow 201 to 1000000");
    }
}
