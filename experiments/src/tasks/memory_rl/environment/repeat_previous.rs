//! Repeat previous: the suit of the card dealt `k` steps ago is to be named (Morad et al. 2023, POPGym).
//!
//! Packs of 52 cards are shuffled together and dealt one by one. The agent sees the suit of each card and names one of the four. From the card on that has
//! another `k` steps before it, the right suit gives and a wrong one costs `1 / n`, where `n` is the number of such steps, so that an episode's return is
//! from -1 to 1.
//!
//! POPGym counts the present card as the first: its `k` is one more than this one. Easy, Medium and Hard are `k = 3`, 31 and 63 with 1, 2 and 3 packs. There
//! the last step is a truncation; here it is the end, since no card is left.

use heedful_random::RandomKey;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::{Clock, Environment, EnvironmentConfigError, Step, ensure};

const SUITS: usize = 4;
/// Cards of one suit in a pack.
const RANKS: usize = 13;
const MOST_DECKS: usize = 1000;

/// Options of [`RepeatPrevious`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepeatPreviousConfig {
    /// Steps since the queried card was dealt; 0 queries the visible card.
    pub k: usize,
    /// Packs of 52 cards, 1 to 1000. An episode has one step less than there are cards.
    pub decks: usize,
}

impl Default for RepeatPreviousConfig {
    fn default() -> Self {
        Self { k: 3, decks: 1 }
    }
}

impl RepeatPreviousConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), EnvironmentConfigError> {
        let decks = self.decks;
        ensure((1..=MOST_DECKS).contains(&decks), "decks", || format!("{decks} packs of cards; take 1 to {MOST_DECKS}"))?;
        let (k, steps) = (self.k, self.steps());
        ensure(k < steps, "k", || {
            format!("no card was dealt {k} steps ago in an episode of {steps}; take at most {}, or more decks", steps - 1)
        })
    }

    /// The game, without an episode yet.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<RepeatPrevious, EnvironmentConfigError> {
        self.validate()?;
        Ok(RepeatPrevious { config: *self, clock: Clock::new(self.steps()), cards: vec![0; self.cards()], dealt: 1 })
    }

    fn cards(&self) -> usize {
        SUITS * RANKS * self.decks
    }

    fn steps(&self) -> usize {
        self.cards() - 1
    }

    /// Every answer is right.
    pub(super) fn best_reward(&self) -> f64 {
        1.0
    }

    /// Any suit but the one that is seen: of that one a card less is left to be the other.
    pub(super) fn memoryless_reward(&self) -> f64 {
        match self.k {
            0 => 1.0,
            _ => 2.0 * (RANKS * self.decks) as f64 / (self.cards() - 1) as f64 - 1.0,
        }
    }
}

/// Cards: name the suit of the card some steps ago.
#[derive(Clone, Debug)]
pub struct RepeatPrevious {
    config: RepeatPreviousConfig,
    clock: Clock,
    /// The suits of all cards.
    cards: Vec<u8>,
    /// How many of them were dealt.
    dealt: usize,
}

impl Environment for RepeatPrevious {
    fn observation_size(&self) -> usize {
        SUITS
    }

    fn actions(&self) -> usize {
        SUITS
    }

    fn episode_limit(&self) -> usize {
        self.config.steps()
    }

    fn reset(&mut self, key: &RandomKey) {
        self.clock.restart();
        for (card, suit) in self.cards.iter_mut().enumerate() {
            *suit = (card % SUITS) as u8;
        }
        self.cards.shuffle(&mut key.rng());
        self.dealt = 1;
    }

    fn observe(&self, observation: &mut [f32]) {
        let card = usize::from(self.cards[self.dealt - 1]);
        observation.copy_from_slice(&std::array::from_fn::<f32, SUITS, _>(|suit| f32::from(u8::from(suit == card))));
    }

    fn step(&mut self, action: usize) -> Step {
        self.clock.assert_step(action, SUITS);
        let share = 1.0 / (self.config.steps() - self.config.k) as f32;
        let asked = self.dealt.checked_sub(1 + self.config.k).map(|card| usize::from(self.cards[card]));
        let reward = asked.map_or(0.0, |suit| if suit == action { share } else { -share });
        self.dealt += 1;
        self.clock.count(reward, self.dealt == self.cards.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::tests::{mean_return, play, seen};
    use super::*;

    const CONFIGS: [RepeatPreviousConfig; 4] = [
        RepeatPreviousConfig { k: 0, decks: 1 },
        RepeatPreviousConfig { k: 1, decks: 1 },
        RepeatPreviousConfig { k: 3, decks: 1 },
        RepeatPreviousConfig { k: 63, decks: 3 },
    ];

    fn suit(seen: &[f32]) -> usize {
        seen.iter().position(|&shown| shown == 1.0).unwrap()
    }

    #[test]
    fn an_episode_played_by_hand_asks_for_the_card_of_k_steps_ago() {
        let mut game = RepeatPreviousConfig { k: 2, decks: 1 }.build().unwrap();
        game.reset(&RandomKey::from_seed(1));
        game.cards[..5].copy_from_slice(&[3, 1, 0, 2, 2]);
        let share = 1.0 / 49.0;
        for (action, card, reward) in [(2, 3, 0.0), (3, 1, 0.0), (3, 0, share), (0, 2, -share), (0, 2, share)] {
            assert_eq!(suit(&seen(&game)), card);
            assert_eq!(game.step(action), Step { reward, terminated: false, truncated: false });
        }
    }

    #[test]
    fn all_cards_of_the_packs_are_dealt_and_the_last_ends_the_episode() {
        let mut game = RepeatPreviousConfig { k: 31, decks: 2 }.build().unwrap();
        game.reset(&RandomKey::from_seed(5));
        let mut counts = [0; SUITS];
        counts[suit(&seen(&game))] += 1;
        for step in 1..104 {
            let last = game.step(0);
            assert_eq!((last.terminated, last.truncated), (step == 103, false));
            counts[suit(&seen(&game))] += 1;
        }
        assert_eq!(counts, [26; SUITS]);
    }

    #[test]
    fn who_remembers_the_cards_gets_the_best_reward_in_every_episode() {
        for config in CONFIGS {
            let mut game = config.build().unwrap();
            for seed in 0..50 {
                let mut memory = VecDeque::new();
                let episode = play(&mut game, &RandomKey::from_seed(seed), |_, seen| {
                    memory.push_back(suit(seen));
                    if memory.len() > config.k { memory.pop_front().unwrap() } else { 0 }
                });
                assert!((episode.total - config.best_reward()).abs() < 1e-5, "{config:?}: {}", episode.total);
            }
        }
    }

    #[test]
    fn the_best_answers_without_memory_get_their_bound_and_no_others_exceed_it() {
        for config in &CONFIGS[1..] {
            let mut game = config.build().unwrap();
            let bound = config.memoryless_reward();
            let next = mean_return(&mut game, 1000, |_, seen| (suit(seen) + 1) % SUITS);
            assert!((next - bound).abs() < 0.02, "{config:?}: {next} and not {bound}");
            let same = mean_return(&mut game, 1000, |_, seen| suit(seen));
            assert!(same < next, "{config:?}: {same}");
        }
        let mut game = RepeatPreviousConfig::default().build().unwrap();
        // An answer for each suit that can be seen.
        for policy in 0..SUITS.pow(4) {
            let mean = mean_return(&mut game, 20, |_, seen| policy / SUITS.pow(suit(seen) as u32) % SUITS);
            assert!(mean < RepeatPreviousConfig::default().memoryless_reward() + 0.15, "{policy}: {mean}");
        }
        assert!((RepeatPreviousConfig::default().memoryless_reward() + 25.0 / 51.0).abs() < 1e-12);
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let refused = |k, decks| RepeatPreviousConfig { k, decks }.build().unwrap_err();
        assert_eq!(refused(1, 0).field, "decks");
        assert_eq!(refused(1, MOST_DECKS + 1).field, "decks");
        assert!(RepeatPreviousConfig { k: 50, decks: 1 }.build().is_ok());
        assert_eq!(
            refused(51, 1).to_string(),
            "environment, `k`: no card was dealt 51 steps ago in an episode of 51; take at most 50, or more decks"
        );
    }
}
