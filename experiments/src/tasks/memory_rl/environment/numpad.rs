//! Numpad: pads are to be pressed in a hidden order, which has to be found out and then repeated (after the Numpad of Parisotto et al. 2020).
//!
//! An episode hides an order of some different pads among `side * side`. A pad that is pressed in its turn lights up; a wrong one puts out all lights, and
//! the order begins again, as it does when its last pad was pressed. A pad gives `1 / length` the first time that it is lit since the last completion: a
//! completed order gives 1 in all, and nothing is earned by lighting the first pads again and again. What is seen are the lights.
//!
//! Here any pad can be pressed at once, without a way to it, so that only the memory is hard; the rewards are ours too. To know what it pressed and whether
//! that was the last pad, an agent has to see its action and reward: the feedback of [`VectorEnvironment`](super::VectorEnvironment::new).

use heedful_random::RandomKey;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::{Clock, Environment, EnvironmentConfigError, Step, ensure, ensure_limit};

const LARGEST_SIDE: usize = 8;

/// Options of [`Numpad`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NumpadConfig {
    /// Pads on each side, 2 to 8.
    pub side: usize,
    /// Pads in the hidden order, 2 to all of them.
    pub length: usize,
    /// Steps of an episode, at least as many as it may take to find the order.
    pub limit: usize,
}

impl Default for NumpadConfig {
    fn default() -> Self {
        Self { side: 2, length: 4, limit: 100 }
    }
}

impl NumpadConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), EnvironmentConfigError> {
        let Self { side, length, limit } = *self;
        ensure((2..=LARGEST_SIDE).contains(&side), "side", || format!("{side} pads on a side; take 2 to {LARGEST_SIDE}"))?;
        let pads = self.pads();
        ensure((2..=pads).contains(&length), "length", || format!("an order of {length} of {pads} pads; take 2 to {pads}"))?;
        ensure_limit(limit, self.longest_search())
    }

    /// The pads, without an episode yet.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<Numpad, EnvironmentConfigError> {
        self.validate()?;
        Ok(Numpad { config: *self, clock: Clock::new(self.limit), order: (0..self.pads()).collect(), lit: 0, rewarded: 0 })
    }

    fn pads(&self) -> usize {
        self.side * self.side
    }

    /// Steps to the first completion if each pad is found last: after a wrong one those before it are pressed again.
    fn longest_search(&self) -> usize {
        (0..self.length).map(|lit| 1 + (self.pads() - lit - 1) * (1 + lit)).sum()
    }

    /// Each pad is found by trying those that may be next, in any order, which takes half of the longest search's wrong steps; from then on every step pays.
    pub(super) fn best_reward(&self) -> f64 {
        let (length, longest) = (self.length as f64, self.longest_search() as f64);
        let search = length + (longest - length) / 2.0;
        1.0 + (self.limit as f64 - search) / length
    }

    /// Any pad without a light, all with the same probability. In the long run nothing that depends on the lights alone gets more: the completions of a
    /// step are, for the pads of an order and their probabilities `p`, `p_1 ... p_S / (1 + p_1 + p_1 p_2 + ...)`, whose sum over all orders is greatest where
    /// the pads of a place have the same.
    pub(super) fn memoryless_reward(&self) -> f64 {
        let Self { length, limit, .. } = *self;
        let share = 1.0 / length as f64;
        // Probabilities of so many lights, for each number of pads that gave their reward.
        let mut states = vec![vec![0.0; length]; length];
        states[0][0] = 1.0;
        let mut total = 0.0;
        for _ in 0..limit {
            let mut next = vec![vec![0.0; length]; length];
            for (rewarded, of_lit) in states.iter().enumerate() {
                for (lit, probability) in of_lit.iter().enumerate() {
                    let right = probability / (self.pads() - lit) as f64;
                    next[rewarded][0] += probability - right;
                    let (lit, completed) = (lit + 1, lit + 1 == length);
                    total += if lit > rewarded { right * share } else { 0.0 };
                    match completed {
                        true => next[0][0] += right,
                        false => next[rewarded.max(lit)][lit] += right,
                    }
                }
            }
            states = next;
        }
        total
    }
}

/// Pads to be pressed in a hidden order.
#[derive(Clone, Debug)]
pub struct Numpad {
    config: NumpadConfig,
    clock: Clock,
    /// All pads; those of the hidden order are the first.
    order: Vec<usize>,
    /// How many of them are lit.
    lit: usize,
    /// How many gave their reward since the last completion.
    rewarded: usize,
}

impl Environment for Numpad {
    fn observation_size(&self) -> usize {
        self.config.pads()
    }

    fn actions(&self) -> usize {
        self.config.pads()
    }

    fn episode_limit(&self) -> usize {
        self.config.limit
    }

    fn reset(&mut self, key: &RandomKey) {
        self.clock.restart();
        self.order = (0..self.config.pads()).collect();
        self.order.shuffle(&mut key.rng());
        (self.lit, self.rewarded) = (0, 0);
    }

    fn observe(&self, observation: &mut [f32]) {
        assert_eq!(observation.len(), self.config.pads(), "an observation has a number for each pad");
        observation.fill(0.0);
        for &pad in &self.order[..self.lit] {
            observation[pad] = 1.0;
        }
    }

    fn step(&mut self, action: usize) -> Step {
        self.clock.assert_step(action, self.config.pads());
        let length = self.config.length;
        let mut reward = 0.0;
        if self.order[self.lit] == action {
            self.lit += 1;
            if self.lit > self.rewarded {
                self.rewarded = self.lit;
                reward = 1.0 / length as f32;
            }
            if self.lit == length {
                (self.lit, self.rewarded) = (0, 0);
            }
        } else {
            self.lit = 0;
        }
        self.clock.count(reward, false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::RngExt;

    use super::super::tests::{mean_return, play, seen};
    use super::*;

    const CONFIGS: [NumpadConfig; 4] = [
        NumpadConfig { side: 2, length: 4, limit: 100 },
        NumpadConfig { side: 2, length: 2, limit: 30 },
        NumpadConfig { side: 3, length: 4, limit: 150 },
        NumpadConfig { side: 4, length: 16, limit: 1000 },
    ];

    fn pads(order: [usize; 4], length: usize) -> Numpad {
        let mut pads = NumpadConfig { side: 2, length, limit: 20 }.build().unwrap();
        pads.reset(&RandomKey::from_seed(1));
        pads.order = order.to_vec();
        pads
    }

    #[test]
    fn an_episode_played_by_hand_lights_pads_in_their_order_and_pays_each_once_until_completion() {
        let mut pads = pads([2, 0, 3, 1], 3);
        let share = 1.0 / 3.0;
        let steps = [
            (2, share, [0.0, 0.0, 1.0, 0.0]),
            // A wrong pad puts out the lights, and lighting them again pays nothing.
            (3, 0.0, [0.0; 4]),
            (2, 0.0, [0.0, 0.0, 1.0, 0.0]),
            (0, share, [1.0, 0.0, 1.0, 0.0]),
            // A pad that is lit is a wrong one, even the first of the order.
            (2, 0.0, [0.0; 4]),
            (2, 0.0, [0.0, 0.0, 1.0, 0.0]),
            (0, 0.0, [1.0, 0.0, 1.0, 0.0]),
            (3, share, [0.0; 4]),
            (2, share, [0.0, 0.0, 1.0, 0.0]),
        ];
        for (action, reward, lights) in steps {
            assert_eq!(pads.step(action), Step { reward, terminated: false, truncated: false });
            assert_eq!(seen(&pads), lights);
        }
        for _ in steps.len()..19 {
            assert!(!pads.step(1).is_last());
        }
        assert_eq!(pads.step(1), Step { reward: 0.0, terminated: false, truncated: true });
    }

    /// Tries the pads that may be next in the order of their numbers, and remembers what was found.
    #[derive(Default)]
    struct Searcher {
        found: Vec<usize>,
        tried: Vec<usize>,
        place: usize,
    }

    impl Searcher {
        fn press(&mut self, pads: usize) -> usize {
            match self.found.get(self.place) {
                Some(&pad) => pad,
                None => (0..pads).find(|pad| !self.found.contains(pad) && !self.tried.contains(pad)).unwrap(),
            }
        }

        fn learn(&mut self, pad: usize, paid: bool, length: usize) {
            if self.place < self.found.len() {
                self.place += 1;
            } else if paid {
                self.found.push(pad);
                self.tried.clear();
                self.place += 1;
            } else {
                self.tried.push(pad);
                self.place = 0;
            }
            self.place %= length;
        }
    }

    fn search(config: NumpadConfig, key: &RandomKey) -> f64 {
        let mut pads = config.build().unwrap();
        pads.reset(key);
        let mut searcher = Searcher::default();
        let mut total = 0.0;
        loop {
            let pad = searcher.press(config.pads());
            let step = pads.step(pad);
            searcher.learn(pad, step.reward > 0.0, config.length);
            total += f64::from(step.reward);
            if step.is_last() {
                return total;
            }
        }
    }

    #[test]
    fn who_remembers_what_was_tried_and_found_gets_the_best_reward() {
        for config in CONFIGS {
            let returns: Vec<f64> = (0..1000).map(|seed| search(config, &RandomKey::from_seed(seed))).collect();
            let mean = returns.iter().sum::<f64>() / returns.len() as f64;
            let deviation = (returns.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / returns.len() as f64).sqrt();
            let error = (mean - config.best_reward()).abs();
            assert!(error < 4.0 * deviation / 1000_f64.sqrt() + 1e-4, "{config:?}: {mean} and not {}", config.best_reward());
        }
    }

    #[test]
    fn no_search_takes_longer_than_the_longest_and_one_takes_as_long() {
        let config = NumpadConfig { side: 2, length: 4, limit: 14 };
        assert_eq!(config.longest_search(), 14);
        // With that many steps every search is completed, and in the longest one with the last step.
        let least = (0..500).map(|seed| search(config, &RandomKey::from_seed(seed))).fold(f64::INFINITY, f64::min);
        assert!((least - 1.0).abs() < 1e-6, "{least}");
        assert_eq!(NumpadConfig { side: 4, length: 16, limit: 1000 }.longest_search(), 696);
    }

    #[test]
    fn pressing_dark_pads_at_random_gets_the_bound_without_memory() {
        for config in &CONFIGS[..3] {
            let mut rng = RandomKey::from_seed(3).rng();
            let mean = mean_return(&mut config.build().unwrap(), 1000, |_, seen| {
                let dark: Vec<usize> = (0..seen.len()).filter(|&pad| seen[pad] == 0.0).collect();
                dark[rng.random_range(0..dark.len())]
            });
            let bound = config.memoryless_reward();
            assert!((mean - bound).abs() < 0.05 * bound.max(1.0), "{config:?}: {mean} and not {bound}");
            assert!(bound < config.best_reward() / 3.0, "{config:?}: {bound}");
        }
    }

    /// The mean return, over all orders, of a policy that knows the lights alone.
    fn exact(policy: &HashMap<Vec<bool>, Vec<f64>>, config: NumpadConfig) -> f64 {
        let orders = orders(config.pads(), config.length);
        let of_order = |order: &Vec<usize>| {
            let mut states = HashMap::from([((0, 0), 1.0)]);
            let mut total = 0.0;
            for _ in 0..config.limit {
                let mut next = HashMap::new();
                for ((lit, rewarded), probability) in states {
                    let lights = (0..config.pads()).map(|pad| order[..lit].contains(&pad)).collect::<Vec<_>>();
                    let right = probability * policy[&lights][order[lit]];
                    *next.entry((0, rewarded)).or_insert(0.0) += probability - right;
                    total += if lit + 1 > rewarded { right / config.length as f64 } else { 0.0 };
                    let to = if lit + 1 == config.length { (0, 0) } else { (lit + 1, rewarded.max(lit + 1)) };
                    *next.entry(to).or_insert(0.0) += right;
                }
                states = next;
            }
            total
        };
        orders.iter().map(of_order).sum::<f64>() / orders.len() as f64
    }

    fn orders(pads: usize, length: usize) -> Vec<Vec<usize>> {
        (0..length).fold(vec![Vec::new()], |orders, _| {
            let longer = |order: Vec<usize>| {
                let others: Vec<usize> = (0..pads).filter(|pad| !order.contains(pad)).collect();
                others.into_iter().map(move |pad| [order.clone(), vec![pad]].concat())
            };
            orders.into_iter().flat_map(longer).collect()
        })
    }

    #[test]
    fn no_other_policy_of_the_lights_alone_exceeds_its_bound() {
        let config = NumpadConfig { side: 2, length: 3, limit: 100 };
        let mut rng = RandomKey::from_seed(4).rng();
        let mut policy = |sharpness: f64| -> HashMap<Vec<bool>, Vec<f64>> {
            let mut drawn = |code: usize| {
                let lights: Vec<bool> = (0..4).map(|pad| code >> pad & 1 == 1).collect();
                let weight = |&lit: &bool| if lit { 0.0 } else { (sharpness * rng.random_range(-1.0..1.0)).exp() };
                let weights: Vec<f64> = lights.iter().map(weight).collect();
                let sum: f64 = weights.iter().sum();
                (lights, weights.iter().map(|weight| weight / sum).collect())
            };
            // With all pads lit there is no policy.
            (0..15).map(&mut drawn).collect()
        };
        let bound = config.memoryless_reward();
        assert!((exact(&policy(0.0), config) - bound).abs() < 1e-9);
        for sharpness in [0.1, 0.5, 1.0, 3.0, 30.0] {
            for _ in 0..4 {
                let other = exact(&policy(sharpness), config);
                assert!(other < bound, "{other} of a policy with sharpness {sharpness}, and not less than {bound}");
            }
        }
    }

    #[test]
    fn every_order_is_equally_frequent() {
        let mut counts = HashMap::new();
        let mut pads = NumpadConfig { side: 2, length: 2, limit: 30 }.build().unwrap();
        for seed in 0..12_000 {
            pads.reset(&RandomKey::from_seed(seed));
            *counts.entry(pads.order[..2].to_vec()).or_insert(0_usize) += 1;
        }
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|&count| count.abs_diff(1000) < 150), "{counts:?}");
    }

    #[test]
    fn a_step_after_the_last_one_is_refused() {
        let mut pads = NumpadConfig::default().build().unwrap();
        assert_eq!(play(&mut pads, &RandomKey::from_seed(1), |_, _| 0).steps, 100);
        assert!(std::panic::catch_unwind(move || pads.step(0)).is_err());
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let refused = |side, length, limit| NumpadConfig { side, length, limit }.build().unwrap_err();
        assert_eq!(refused(1, 1, 100).field, "side");
        assert_eq!(refused(9, 4, 100).field, "side");
        assert_eq!(refused(2, 1, 100).field, "length");
        assert_eq!(refused(2, 5, 100).field, "length");
        assert_eq!(
            refused(2, 4, 13).to_string(),
            "environment, `limit`: 13 steps of an episode are too few or too many here; allow 14 to 1000000"
        );
    }
}
