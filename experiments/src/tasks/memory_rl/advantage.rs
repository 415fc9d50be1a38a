//! Generalised advantages of actions (Schulman et al. 2016), and the statistics that go with them.
//!
//! With the errors `δ_t = r_t + γ V(s_{t+1}) - V(s_t)` the generalised advantage is `A_t = δ_t + γλ δ_{t+1} + (γλ)² δ_{t+2} + ...` up to the end of the episode
//! or of the unroll (equation 16). A world that came to its end is worth nothing from then on; an episode that was only cut is worth what its last
//! observation promises (Pardo et al. 2018). Everything is computed on the host, in 64 bits, from rows of all copies at one time after the other:
//! `[time, batch]`.

/// What keeps a deviation of zero from dividing.
const SMALLEST_DEVIATION: f64 = 1e-8;

/// What is known of `T` steps of `B` copies of an environment.
#[derive(Clone, Copy, Debug)]
pub struct Unroll<'a> {
    /// Number of copies, `B`.
    pub copies: usize,
    /// Reward of each step, `[T, B]`.
    pub rewards: &'a [f32],
    /// Value of what was seen before each step, and after the last one, `[T + 1, B]`.
    pub values: &'a [f32],
    /// Whose world came to its end with the step, `[T, B]`.
    pub terminated: &'a [bool],
    /// Whose episode was cut after the step, `[T, B]`.
    pub truncated: &'a [bool],
    /// Value of what the step led to, before a new episode began, `[T, B]`; looked at only where an episode was cut.
    pub reached_values: &'a [f32],
}

/// The result of [`generalised_advantages`].
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// The advantage of each step, `[T, B]`.
    pub advantages: Vec<f32>,
    /// What values should have been, the advantage and the value, `[T, B]`.
    pub returns: Vec<f32>,
}

/// Generalised advantages with `discount` `γ` and `decay` `λ`, both 0 to 1.
///
/// With `λ = 0` an advantage is the error of the next value, with `λ = 1` the discounted sum of the rewards less the value.
///
/// # Panics
/// If sizes do not fit, or discount or decay are not from 0 to 1.
pub fn generalised_advantages(unroll: &Unroll, discount: f64, decay: f64) -> Advantages {
    let Unroll { copies, rewards, values, terminated, truncated, reached_values } = *unroll;
    let steps = rewards.len();
    assert!((0.0..=1.0).contains(&discount) && (0.0..=1.0).contains(&decay), "discount {discount} and decay {decay} are from 0 to 1");
    assert!(copies > 0 && steps.is_multiple_of(copies), "{steps} rewards are not those of {copies} copies");
    assert_eq!(values.len(), steps + copies, "there is a value before each step and after the last one");
    assert_eq!([terminated.len(), truncated.len(), reached_values.len()], [steps; 3], "there are ends and values for each step");
    let mut advantages = vec![0.0; steps];
    let mut returns = vec![0.0; steps];
    let mut later = vec![0.0; copies];
    for index in (0..steps).rev() {
        let later = &mut later[index % copies];
        let next = match (terminated[index], truncated[index]) {
            (true, _) => 0.0,
            (false, true) => f64::from(reached_values[index]),
            (false, false) => f64::from(values[index + copies]),
        };
        let kept = if terminated[index] || truncated[index] { 0.0 } else { discount * decay * *later };
        let value = f64::from(values[index]);
        *later = f64::from(rewards[index]) + discount * next - value + kept;
        advantages[index] = *later as f32;
        returns[index] = (*later + value) as f32;
    }
    Advantages { advantages, returns }
}

/// Shifts and scales values to mean 0 and deviation 1 (Welford 1962); values that are all the same become 0.
pub fn normalise(values: &mut [f32]) {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (index, &value) in values.iter().enumerate() {
        let value = f64::from(value);
        let difference = value - mean;
        mean += difference / (index + 1) as f64;
        squares += difference * (value - mean);
    }
    let variance: f64 = squares / values.len().max(1) as f64;
    for value in values {
        *value = ((f64::from(*value) - mean) / (variance.sqrt() + SMALLEST_DEVIATION)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;
    use rand::RngExt;

    use super::*;

    /// Owns what an [`Unroll`] borrows.
    struct Drawn {
        copies: usize,
        rewards: Vec<f32>,
        values: Vec<f32>,
        terminated: Vec<bool>,
        truncated: Vec<bool>,
        reached_values: Vec<f32>,
    }

    impl Drawn {
        fn new(seed: u64, steps: usize, copies: usize, ends: f64) -> Self {
            let mut rng = RandomKey::from_seed(seed).rng();
            let count = steps * copies;
            let mut numbers = |count: usize| (0..count).map(|_| rng.random_range(-2.0_f32..2.0)).collect::<Vec<_>>();
            let (rewards, values, mut reached_values) = (numbers(count), numbers(count + copies), numbers(count));
            let terminated: Vec<bool> = (0..count).map(|_| rng.random_bool(ends)).collect();
            let truncated: Vec<bool> = terminated.iter().map(|ended| !ended && rng.random_bool(ends)).collect();
            for (value, cut) in reached_values.iter_mut().zip(&truncated) {
                // What nobody may look at.
                *value = if *cut { *value } else { f32::NAN };
            }
            Self { copies, rewards, values, terminated, truncated, reached_values }
        }

        fn unroll(&self) -> Unroll<'_> {
            let Self { copies, rewards, values, terminated, truncated, reached_values } = self;
            Unroll { copies: *copies, rewards, values, terminated, truncated, reached_values }
        }
    }

    /// The mean of the advantages of 1, 2, ... steps with weights `(1 - λ) λ^(k - 1)`, the last one with all that is left (Schulman et al. 2016, equations 11
    /// to 16). Each looks at its `k` rewards and the value after them.
    fn weighted(unroll: &Unroll, discount: f64, decay: f64) -> Vec<f64> {
        let steps = unroll.rewards.len() / unroll.copies;
        let one = |index: usize| {
            let (time, copy) = (index / unroll.copies, index % unroll.copies);
            let mut total = 0.0;
            for ahead in 1.. {
                let last = (time + ahead - 1) * unroll.copies + copy;
                let rewards = (0..ahead).map(|step| discount.powi(step as i32) * f64::from(unroll.rewards[index + step * unroll.copies]));
                let next = match () {
                    () if unroll.terminated[last] => 0.0,
                    () if unroll.truncated[last] => unroll.reached_values[last],
                    () => unroll.values[last + unroll.copies],
                };
                let advantage = rewards.sum::<f64>() + discount.powi(ahead as i32) * f64::from(next) - f64::from(unroll.values[index]);
                if unroll.terminated[last] || unroll.truncated[last] || time + ahead == steps {
                    return total + decay.powi(ahead as i32 - 1) * advantage;
                }
                total += (1.0 - decay) * decay.powi(ahead as i32 - 1) * advantage;
            }
            unreachable!("every unroll ends")
        };
        (0..unroll.rewards.len()).map(one).collect()
    }

    #[test]
    fn advantages_are_the_weighted_mean_of_those_of_all_numbers_of_steps() {
        let mut seed = 0;
        for (steps, copies) in [(1, 1), (1, 4), (2, 3), (17, 1), (40, 5)] {
            for ends in [0.0, 0.05, 0.4, 1.0] {
                for (discount, decay) in [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5), (0.7, 1.0)] {
                    seed += 1;
                    let drawn = Drawn::new(seed, steps, copies, ends);
                    let found = generalised_advantages(&drawn.unroll(), discount, decay);
                    let expected = weighted(&drawn.unroll(), discount, decay);
                    assert_eq!(found.advantages.len(), steps * copies);
                    for (index, expected) in expected.into_iter().enumerate() {
                        let what = format!("{index} of {steps} x {copies}, ends {ends}, {discount}, {decay}");
                        assert!(
                            (f64::from(found.advantages[index]) - expected).abs() < 1e-4,
                            "{what}: {} and not {expected}",
                            found.advantages[index]
                        );
                        let wanted = expected + f64::from(drawn.values[index]);
                        assert!((f64::from(found.returns[index]) - wanted).abs() < 1e-4, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn advantages_computed_by_hand_end_where_the_world_does_and_go_on_where_it_was_cut() {
        let unroll = Unroll {
            copies: 2,
            rewards: &[1.0, 1.0, 2.0, 2.0],
            values: &[0.5, 0.5, 1.0, 1.0, 4.0, 4.0],
            terminated: &[true, false, false, false],
            truncated: &[false, true, false, false],
            reached_values: &[f32::NAN, 3.0, f32::NAN, f32::NAN],
        };
        let found = generalised_advantages(&unroll, 0.5, 0.5);
        // 1 - 0.5, then 1 + 0.5 * 3 - 0.5, and twice 2 + 0.5 * 4 - 1.
        assert_eq!(found.advantages, [0.5, 2.0, 3.0, 3.0]);
        assert_eq!(found.returns, [1.0, 2.5, 4.0, 4.0]);
        let running = Unroll { terminated: &[false; 4], truncated: &[false; 4], ..unroll };
        // 1 + 0.5 * 1 - 0.5 + 0.25 * 3.
        assert_eq!(generalised_advantages(&running, 0.5, 0.5).advantages, [1.75, 1.75, 3.0, 3.0]);
    }

    #[test]
    fn without_discount_and_decay_returns_are_sums_of_rewards_up_to_the_end() {
        let rewards = [1.0, 2.0, 3.0, 4.0, 5.0];
        let unroll = Unroll {
            copies: 1,
            rewards: &rewards,
            values: &[9.0, -3.0, 7.0, 0.25, 1.0, 8.0],
            terminated: &[false, false, true, false, false],
            truncated: &[false; 5],
            reached_values: &[0.0; 5],
        };
        assert_eq!(generalised_advantages(&unroll, 1.0, 1.0).returns, [6.0, 5.0, 3.0, 17.0, 13.0]);
    }

    #[test]
    fn a_world_that_ended_at_its_limit_has_ended() {
        let unroll =
            Unroll { copies: 1, rewards: &[1.0], values: &[0.0, 5.0], terminated: &[true], truncated: &[true], reached_values: &[7.0] };
        assert_eq!(generalised_advantages(&unroll, 1.0, 1.0).advantages, [1.0]);
    }

    #[test]
    #[should_panic(expected = "a value before each step and after the last one")]
    fn values_without_that_of_the_last_observation_are_refused() {
        let unroll =
            Unroll { copies: 1, rewards: &[1.0], values: &[0.0], terminated: &[false], truncated: &[false], reached_values: &[0.0] };
        generalised_advantages(&unroll, 0.9, 0.9);
    }

    #[test]
    fn normalised_values_have_mean_0_and_deviation_1() {
        let mut values = [1.0, 2.0, 3.0, 4.0];
        normalise(&mut values);
        let unit = 1.25_f32.sqrt();
        for (found, expected) in values.into_iter().zip([-1.5 / unit, -0.5 / unit, 0.5 / unit, 1.5 / unit]) {
            assert!((found - expected).abs() < 1e-6, "{found} and not {expected}");
        }
        let mut same = [0.1; 7];
        normalise(&mut same);
        assert_eq!(same, [0.0; 7]);
        normalise(&mut []);
    }

    #[test]
    fn values_far_from_0_have_mean_0_and_deviation_1_as_well() {
        for offset in [0.0, 1000.0, 2000.0] {
            let mut rng = RandomKey::from_seed(4).rng();
            let mut values: Vec<f32> = (0..400).map(|_| offset + rng.random_range(-1.0..1.0)).collect();
            normalise(&mut values);
            let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / 400.0;
            let variance = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / 400.0;
            assert!(mean.abs() < 1e-4 && (variance - 1.0).abs() < 1e-3, "{offset}: {mean}, {variance}");
        }
    }
}
