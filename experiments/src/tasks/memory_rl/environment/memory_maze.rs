//! The memory maze: a hidden goal is to be found again and again (after the Memory Maze of Parisotto et al. 2020).
//!
//! An episode has a maze and a goal in one of its cells. The agent begins in a random other cell and sees a small square around itself: the walls, and the
//! goal if it lies there, walls or not in between. At the goal it is paid 1 and finds itself in a random other cell, and so on until the episode is cut.
//! Whoever remembers where the goal is, and recognises where they are, walks there straight. North is always up.
//!
//! Episodes draw from a fixed number of mazes, which weights can memorise, or each have a new one, which only a memory can learn.

use std::collections::BTreeMap;

use heedful_random::RandomKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::maze::Maze;
use super::{Clock, Environment, EnvironmentConfigError, Step, ensure, ensure_limit};

const ACTIONS: usize = 4;
const MOST_ROOMS: usize = 16;
const FARTHEST_VIEW: usize = 8;
const MOST_MAZES: usize = 1000;

/// Options of [`MemoryMaze`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryMazeConfig {
    /// Rooms on each side, 2 to 16; between two rooms there is a way or a wall, so that a side has `2 * rooms - 1` cells.
    pub rooms: usize,
    /// Probability, 0 to 1, that a wall is opened between two rooms that are joined by another way; with 0 there is one way from each room to each other.
    pub openings: f64,
    /// Cells that are seen in each direction, 1 to 8.
    pub view: usize,
    /// Different mazes, at most 1000, always the same ones; 0 draws a new one for each episode.
    pub mazes: usize,
    /// Steps of an episode.
    pub limit: usize,
}

impl Default for MemoryMazeConfig {
    fn default() -> Self {
        Self { rooms: 3, openings: 0.3, view: 1, mazes: 1, limit: 200 }
    }
}

impl MemoryMazeConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), EnvironmentConfigError> {
        let Self { rooms, openings, view, mazes, limit } = *self;
        ensure((2..=MOST_ROOMS).contains(&rooms), "rooms", || format!("{rooms} rooms on a side; take 2 to {MOST_ROOMS}"))?;
        ensure((0.0..=1.0).contains(&openings), "openings", || format!("{openings} is not a probability from 0 to 1"))?;
        ensure((1..=FARTHEST_VIEW).contains(&view), "view", || format!("a view of {view} cells; take 1 to {FARTHEST_VIEW}"))?;
        ensure(mazes <= MOST_MAZES, "mazes", || format!("{mazes} mazes; take at most {MOST_MAZES}, or 0 for a new one in each episode"))?;
        ensure_limit(limit, 1)
    }

    /// The world, without an episode yet.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<MemoryMaze, EnvironmentConfigError> {
        self.validate()?;
        let maze = self.maze(0);
        let (goal, agent) = (maze.cells()[0], maze.cells()[1]);
        Ok(MemoryMaze { config: *self, clock: Clock::new(self.limit), rng: RandomKey::from_seed(0).rng(), maze, goal, agent })
    }

    /// One of the mazes that are always the same.
    fn maze(&self, number: usize) -> Maze {
        let key = RandomKey::from_seed(0).named("memory maze").numbered(number as u64);
        Maze::drawn(self.rooms, self.openings, &mut key.rng())
    }

    /// The mean return of one who knows maze and goal from the first step on and takes the shortest ways; not known for mazes drawn anew.
    ///
    /// Takes the time of `mazes * limit` times the square of a maze's cells in the worst case.
    pub(super) fn best_reward(&self) -> Option<f64> {
        let mut of_goals = Vec::new();
        for maze in (0..self.mazes).map(|number| self.maze(number)) {
            of_goals.extend(maze.cells().into_iter().map(|goal| informed_reward(&maze, goal, self.limit)));
        }
        (!of_goals.is_empty()).then(|| of_goals.iter().sum::<f64>() / of_goals.len() as f64)
    }
}

/// Goals reached in `limit` steps on shortest ways from random cells: those of `t` steps are `1 + ` those of `t - d`, if a random distance `d` is at most `t`.
fn informed_reward(maze: &Maze, goal: usize, limit: usize) -> f64 {
    let mut distances = BTreeMap::new();
    for distance in maze.distances(goal).into_iter().flatten().filter(|&distance| distance > 0) {
        *distances.entry(distance).or_insert(0.0) += 1.0;
    }
    let cells: f64 = distances.values().sum();
    let mut goals = vec![0.0; limit + 1];
    for steps in 1..=limit {
        goals[steps] = distances.range(..=steps).map(|(distance, count)| count / cells * (1.0 + goals[steps - distance])).sum();
    }
    goals[limit]
}

/// A maze with a hidden goal that is to be found again and again.
///
/// An observation says of each cell in view, row by row, whether it is a wall, then of each whether it is the goal.
#[derive(Clone, Debug)]
pub struct MemoryMaze {
    config: MemoryMazeConfig,
    clock: Clock,
    rng: ChaCha8Rng,
    maze: Maze,
    goal: usize,
    agent: usize,
}

impl MemoryMaze {
    /// Puts the agent into a random cell that is not the goal.
    fn place(&mut self) {
        let others: Vec<usize> = self.maze.cells().into_iter().filter(|&cell| cell != self.goal).collect();
        self.agent = others[self.rng.random_range(0..others.len())];
    }

    /// Cells that are seen.
    fn seen(&self) -> usize {
        (2 * self.config.view + 1).pow(2)
    }
}

impl Environment for MemoryMaze {
    fn observation_size(&self) -> usize {
        2 * self.seen()
    }

    fn actions(&self) -> usize {
        ACTIONS
    }

    fn episode_limit(&self) -> usize {
        self.config.limit
    }

    fn reset(&mut self, key: &RandomKey) {
        self.clock.restart();
        self.rng = key.rng();
        self.maze = match self.config.mazes {
            0 => Maze::drawn(self.config.rooms, self.config.openings, &mut self.rng),
            mazes => self.config.maze(self.rng.random_range(0..mazes)),
        };
        let cells = self.maze.cells();
        self.goal = cells[self.rng.random_range(0..cells.len())];
        self.place();
    }

    fn observe(&self, observation: &mut [f32]) {
        assert_eq!(observation.len(), self.observation_size(), "an observation has two numbers for each cell that is seen");
        let (walls, goals) = observation.split_at_mut(self.seen());
        for ((wall, goal), cell) in walls.iter_mut().zip(goals).zip(self.maze.around(self.agent, self.config.view)) {
            *wall = f32::from(u8::from(cell.is_none()));
            *goal = f32::from(u8::from(cell == Some(self.goal)));
        }
    }

    fn step(&mut self, action: usize) -> Step {
        self.clock.assert_step(action, ACTIONS);
        self.agent = self.maze.after(self.agent, action);
        let reached = self.agent == self.goal;
        if reached {
            self.place();
        }
        self.clock.count(f32::from(u8::from(reached)), false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::tests::{mean_return, seen};
    use super::super::{EAST, NORTH, SOUTH, WEST};
    use super::*;

    const MOVES: [usize; ACTIONS] = [NORTH, EAST, SOUTH, WEST];

    /// The action that leads towards a goal of the shortest ways.
    fn towards(maze: &Maze, agent: usize, goal: usize) -> usize {
        let distances = maze.distances(goal);
        MOVES.into_iter().min_by_key(|&action| distances[maze.after(agent, action)].unwrap()).unwrap()
    }

    #[test]
    fn an_episode_played_by_hand_pays_at_the_goal_and_goes_on_elsewhere() {
        let mut world = MemoryMazeConfig { rooms: 2, limit: 8, ..MemoryMazeConfig::default() }.build().unwrap();
        world.reset(&RandomKey::from_seed(1));
        world.maze = Maze::pictured(&["#####", "#   #", "# ###", "#   #", "#####"]);
        (world.agent, world.goal) = (6, 17);
        let walls = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
        assert_eq!(seen(&world), [walls, [0.0; 9]].concat());
        let nothing = Step { reward: 0.0, terminated: false, truncated: false };
        assert_eq!((world.step(WEST), world.agent), (nothing, 6));
        assert_eq!((world.step(SOUTH), world.agent), (nothing, 11));
        let walls = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0];
        assert_eq!(seen(&world), [walls, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]].concat());
        assert_eq!((world.step(SOUTH), world.agent), (nothing, 16));
        assert_eq!(world.step(EAST), Step { reward: 1.0, ..nothing });
        assert_ne!(world.agent, 17);
        assert_eq!(world.goal, 17);
        for _ in 0..3 {
            world.agent = 6;
            assert!(!world.step(NORTH).is_last());
        }
        world.agent = 18;
        assert_eq!(world.step(WEST), Step { reward: 1.0, terminated: false, truncated: true });
    }

    #[test]
    fn who_knows_the_goal_gets_the_best_reward() {
        for config in
            [MemoryMazeConfig::default(), MemoryMazeConfig { rooms: 4, openings: 0.0, mazes: 3, limit: 150, ..MemoryMazeConfig::default() }]
        {
            let best = config.best_reward().unwrap();
            let mean = mean_return(&mut config.build().unwrap(), 300, |world, _| towards(&world.maze, world.agent, world.goal));
            assert!((mean / best - 1.0).abs() < 0.04, "{config:?}: {mean} and not {best}");
        }
        assert_eq!(MemoryMazeConfig { mazes: 0, ..MemoryMazeConfig::default() }.best_reward(), None);
    }

    #[test]
    fn the_informed_reward_of_a_straight_way_is_known() {
        let maze = Maze::pictured(&["#####", "#   #", "#####", "#####", "#####"]);
        // From the goal in the middle all others are one step away; from an end they are one and two.
        assert!((informed_reward(&maze, 7, 9) - 9.0).abs() < 1e-12);
        let [one, two, three] = [1, 2, 3].map(|steps| informed_reward(&maze, 6, steps));
        assert_eq!((one, two, three), (0.5, 0.5 * 1.5 + 0.5, 0.5 * 2.25 + 0.5 * 1.5));
    }

    #[test]
    fn who_remembers_the_goal_gets_most_of_the_best_reward_and_who_does_not_gets_little() {
        let config = MemoryMazeConfig { rooms: 4, limit: 400, ..MemoryMazeConfig::default() };
        let best = config.best_reward().unwrap();
        // Walks to the nearest cell that it never saw until the goal is seen. It recognises every place.
        let mut known = HashSet::new();
        let mut remembered = None;
        let mut steps = 0;
        let remembering = mean_return(&mut config.build().unwrap(), 50, |world, _| {
            if steps % config.limit == 0 {
                (known, remembered) = (HashSet::new(), None);
            }
            steps += 1;
            let around: Vec<usize> = world.maze.around(world.agent, config.view).flatten().collect();
            remembered = remembered.or(around.iter().copied().find(|&cell| cell == world.goal));
            known.extend(around);
            let distances = world.maze.distances(world.agent);
            let aim =
                remembered.or(world.maze.cells().into_iter().filter(|cell| !known.contains(cell)).min_by_key(|&cell| distances[cell]));
            towards(&world.maze, world.agent, aim.unwrap())
        });
        let mut rng = RandomKey::from_seed(9).rng();
        // Walks at random, and to the goal when it is seen.
        let reacting = mean_return(&mut config.build().unwrap(), 50, |world, _| {
            let in_view = world.maze.around(world.agent, config.view).any(|cell| cell == Some(world.goal));
            if in_view { towards(&world.maze, world.agent, world.goal) } else { rng.random_range(0..ACTIONS) }
        });
        assert!(remembering > 0.8 * best && remembering < best, "{remembering} of {best}");
        assert!(reacting < 0.4 * best && reacting > 0.0, "{reacting} of {best}");
    }

    #[test]
    fn episodes_draw_from_as_many_mazes_as_asked_for() {
        let mazes_met = |mazes: usize| {
            let mut world = MemoryMazeConfig { mazes, ..MemoryMazeConfig::default() }.build().unwrap();
            let met = (0..100).map(|seed| {
                world.reset(&RandomKey::from_seed(seed));
                world.maze.cells()
            });
            met.collect::<HashSet<_>>().len()
        };
        assert_eq!((mazes_met(1), mazes_met(3)), (1, 3));
        assert!(mazes_met(0) > 50);
    }

    #[test]
    fn goals_and_starts_are_anywhere_but_never_the_same() {
        let mut world = MemoryMazeConfig { rooms: 2, ..MemoryMazeConfig::default() }.build().unwrap();
        let mut met = HashSet::new();
        for seed in 0..1000 {
            world.reset(&RandomKey::from_seed(seed));
            assert_ne!(world.agent, world.goal);
            met.insert((world.agent, world.goal));
        }
        let cells = world.maze.cells().len();
        assert_eq!(met.len(), cells * (cells - 1));
    }

    #[test]
    fn fields_out_of_range_are_named() {
        type Spoil = fn(&mut MemoryMazeConfig);
        let cases: [(&str, Spoil); 8] = [
            ("rooms", |c| c.rooms = 1),
            ("rooms", |c| c.rooms = usize::MAX),
            ("openings", |c| c.openings = f64::NAN),
            ("openings", |c| c.openings = 1.1),
            ("view", |c| c.view = 0),
            ("view", |c| c.view = 9),
            ("mazes", |c| c.mazes = 1001),
            ("limit", |c| c.limit = 0),
        ];
        for (field, spoil) in cases {
            let mut config = MemoryMazeConfig::default();
            spoil(&mut config);
            assert_eq!(config.build().unwrap_err().field, field);
        }
        let error = MemoryMazeConfig { mazes: 1001, ..MemoryMazeConfig::default() }.validate().unwrap_err().to_string();
        assert_eq!(error, "environment, `mazes`: 1001 mazes; take at most 1000, or 0 for a new one in each episode");
    }
}
