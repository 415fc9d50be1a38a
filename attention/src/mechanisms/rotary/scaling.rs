//! Angles for sequences that are longer than those of training.

use std::f64::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

use crate::contract::Check;
use crate::error::ConfigError;
use crate::unit_variant::without_options;

/// How angles change for sequences that are longer than those of training. Options have their names in `rope_parameters` of Hugging Face, where `kind` is
/// `rope_type`. A factor of 1 changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// They do not (`default` there).
    #[default]
    #[serde(deserialize_with = "without_options")]
    None,
    /// All angles are divided by the factor: position interpolation (Chen et al. 2023).
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// The base is multiplied by `factor^(r / (r - 2))`, of `r` rotated channels: the slowest pair is divided by the factor, and the fastest is not changed
    /// (bloc97 2023, "NTK-aware"). At least 4 channels are rotated.
    Ntk {
        /// At least 1.
        factor: f64,
    },
    /// Pairs that turn fewer than `low_freq_factor` times within the original length are divided by the factor, those that turn more than `high_freq_factor`
    /// times are not, and others in part (Llama 3.1).
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Turns below which a pair is slowed down fully, greater than 0 (default 1).
        #[serde(default = "one")]
        low_freq_factor: f64,
        /// Turns above which a pair is not slowed down, greater than `low_freq_factor` (default 4).
        #[serde(default = "four")]
        high_freq_factor: f64,
        /// Length of the sequences of training, at least 1.
        original_max_position_embeddings: usize,
    },
    /// The same with a ramp from pair to pair, and larger scores (YaRN, Peng et al. 2023).
    Yarn {
        /// At least 1.
        factor: f64,
        /// Length of the sequences of training, at least 1.
        original_max_position_embeddings: usize,
        /// Turns above which a pair is not slowed down, greater than `beta_slow` (default 32).
        #[serde(default = "thirty_two")]
        beta_fast: f64,
        /// Turns below which a pair is slowed down fully, greater than 0 (default 1).
        #[serde(default = "one")]
        beta_slow: f64,
        /// By what rotated queries and rotated keys are multiplied, greater than 0 (default `0.1 ln(factor) + 1`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Whether the ramp begins and ends at whole pairs (default; GPT-OSS has `false`).
        #[serde(default = "yes")]
        truncate: bool,
    },
}

fn one() -> f64 {
    1.0
}

fn four() -> f64 {
    4.0
}

fn thirty_two() -> f64 {
    32.0
}

fn yes() -> bool {
    true
}

impl RotaryScaling {
    /// # Errors
    /// A number that is out of its range.
    pub(super) fn validate(&self, check: &Check, rotated: usize) -> Result<(), ConfigError> {
        let positive = |option, value: f64| {
            let is_possible = value.is_finite() && value > 0.0;
            if is_possible { Ok(()) } else { Err(check.wrong(option, value, "give a number greater than 0")) }
        };
        if let Some(factor) = self.factor().filter(|factor| !(factor.is_finite() && *factor >= 1.0)) {
            return Err(check.wrong("scaling.factor", factor, "give a number of at least 1"));
        }
        match *self {
            Self::None | Self::Linear { .. } => Ok(()),
            Self::Ntk { .. } if rotated < 4 => {
                Err(check.wrong("scaling.kind", "ntk", format!("rotate at least 4 channels of a head, not {rotated}, or use linear")))
            }
            Self::Ntk { .. } => Ok(()),
            Self::Llama3 { low_freq_factor, high_freq_factor, original_max_position_embeddings, .. } => {
                check.at_least_one("scaling.original_max_position_embeddings", original_max_position_embeddings)?;
                positive("scaling.low_freq_factor", low_freq_factor)?;
                if high_freq_factor.is_finite() && high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                let remedy = format!("give a number greater than low_freq_factor = {low_freq_factor}");
                Err(check.wrong("scaling.high_freq_factor", high_freq_factor, remedy))
            }
            Self::Yarn { original_max_position_embeddings, beta_fast, beta_slow, attention_factor, .. } => {
                check.at_least_one("scaling.original_max_position_embeddings", original_max_position_embeddings)?;
                positive("scaling.beta_slow", beta_slow)?;
                if !(beta_fast.is_finite() && beta_fast > beta_slow) {
                    let remedy = format!("give a number greater than beta_slow = {beta_slow}");
                    return Err(check.wrong("scaling.beta_fast", beta_fast, remedy));
                }
                attention_factor.map_or(Ok(()), |factor| positive("scaling.attention_factor", factor))
            }
        }
    }

    fn factor(&self) -> Option<f64> {
        match *self {
            Self::None => None,
            Self::Linear { factor } | Self::Ntk { factor } | Self::Llama3 { factor, .. } | Self::Yarn { factor, .. } => Some(factor),
        }
    }

    /// By what angle each of `pairs` pairs turns from one position to the next.
    pub(super) fn frequencies(&self, base: f64, pairs: usize) -> Vec<f64> {
        let plain = |base: f64| (0..pairs).map(move |pair| base.powf(-(pair as f64) / pairs as f64));
        match *self {
            Self::None => plain(base).collect(),
            Self::Linear { factor } => plain(base).map(|frequency| frequency / factor).collect(),
            Self::Ntk { factor } => plain(base * factor.powf(pairs as f64 / (pairs as f64 - 1.0))).collect(),
            Self::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: length } => {
                let kept = |frequency: f64| ((length as f64 * frequency / TAU - low) / (high - low)).clamp(0.0, 1.0);
                plain(base).map(|frequency| slowed(frequency, factor, kept(frequency))).collect()
            }
            Self::Yarn { factor, .. } => {
                let [first, last] = self.ramp(base, pairs).expect("this is YaRN");
                let kept = |pair: usize| 1.0 - ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                plain(base).enumerate().map(|(pair, frequency)| slowed(frequency, factor, kept(pair))).collect()
            }
        }
    }

    /// The pairs from which to which YaRN slows down more and more.
    fn ramp(&self, base: f64, pairs: usize) -> Option<[f64; 2]> {
        let Self::Yarn { original_max_position_embeddings, beta_fast, beta_slow, truncate, .. } = *self else { return None };
        // The pair that turns so often within the original length.
        let pair = |turns: f64| pairs as f64 * (original_max_position_embeddings as f64 / (2.0 * PI * turns)).ln() / base.ln();
        let (first, last) = (pair(beta_fast), pair(beta_slow));
        let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
        // The released code limits the end by channels and not by pairs.
        let (first, last) = (first.max(0.0), last.min(2.0 * pairs as f64 - 1.0));
        Some([first, if first == last { last + 0.001 } else { last }])
    }

    /// By what rotated queries and rotated keys are multiplied.
    pub(super) fn magnitude(&self) -> f64 {
        match *self {
            Self::Yarn { factor, attention_factor, .. } => attention_factor.unwrap_or(0.1 * factor.ln() + 1.0),
            _ => 1.0,
        }
    }
}

/// A frequency of which a share is kept, and the rest divided by the factor.
fn slowed(frequency: f64, factor: f64, kept: f64) -> f64 {
    (1.0 - kept) * frequency / factor + kept * frequency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yarn(factor: f64, truncate: bool) -> RotaryScaling {
        RotaryScaling::Yarn {
            factor,
            original_max_position_embeddings: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            truncate,
        }
    }

    fn llama3(factor: f64) -> RotaryScaling {
        RotaryScaling::Llama3 { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192 }
    }

    fn near(a: f64, b: f64, tolerance: f64) -> bool {
        (a - b).abs() <= tolerance * b.abs()
    }

    #[test]
    fn a_factor_of_one_changes_nothing() {
        for base in [1e4, 5e5] {
            let plain = RotaryScaling::None.frequencies(base, 64);
            for scaling in [RotaryScaling::Linear { factor: 1.0 }, RotaryScaling::Ntk { factor: 1.0 }, llama3(1.0), yarn(1.0, true)] {
                assert_eq!(scaling.magnitude(), 1.0);
                let found = scaling.frequencies(base, 64);
                assert!(found.iter().zip(&plain).all(|(&a, &b)| near(a, b, 1e-15)), "{scaling:?}: {found:?}");
            }
        }
    }

    #[test]
    fn ntk_keeps_the_fastest_pair_and_divides_the_slowest() {
        let (plain, found) = (RotaryScaling::None.frequencies(1e4, 64), RotaryScaling::Ntk { factor: 8.0 }.frequencies(1e4, 64));
        assert_eq!(found[0], 1.0);
        assert!(near(found[63], plain[63] / 8.0, 1e-12));
        assert!((1..63).all(|pair| found[pair] < plain[pair] && found[pair] > plain[pair] / 8.0));
    }

    /// Llama 3.1: heads 128 wide, base 500,000. Pairs of up to 2,048 positions a turn are kept, those of more than 8,192 divided by 8.
    #[test]
    fn pairs_of_llama_3_are_kept_or_divided_by_their_wavelength() {
        let (plain, found) = (RotaryScaling::None.frequencies(5e5, 64), llama3(8.0).frequencies(5e5, 64));
        for pair in 0..64 {
            let wavelength = TAU * 5e5f64.powf(pair as f64 / 64.0);
            let share = found[pair] / plain[pair];
            match pair {
                0..=28 => assert!(wavelength < 2048.0 && share == 1.0, "pair {pair}: {wavelength}, {share}"),
                29..=34 => assert!((2048.0..=8192.0).contains(&wavelength) && share < 1.0 && share > 0.125, "pair {pair}: {share}"),
                _ => assert!(wavelength > 8192.0 && near(share, 0.125, 1e-15), "pair {pair}: {wavelength}, {share}"),
            }
        }
        // Of two pairs the second turns once in 4,096 positions, and so twice within 8,192: a third of the way from 1 to 4.
        let found = llama3(8.0).frequencies((4096.0f64 / TAU).powi(2), 2)[1];
        assert!(near(found, TAU / 4096.0 * (1.0 / 3.0 + 2.0 / 3.0 / 8.0), 1e-12), "{found}");
    }

    #[test]
    fn the_ramp_of_yarn_is_that_of_the_released_code() {
        let ends = |truncate, base, pairs| yarn(40.0, truncate).ramp(base, pairs).unwrap();
        let [first, last] = ends(false, 1e4, 64);
        assert!((first - 20.94).abs() < 0.01 && (last - 45.03).abs() < 0.01, "heads of Llama 2: {first} to {last}");
        assert_eq!(ends(true, 1e4, 64), [20.0, 46.0]);
        let [first, last] = ends(false, 1.5e5, 32);
        assert!((first - 8.09).abs() < 0.01 && (last - 17.40).abs() < 0.01, "heads of GPT-OSS: {first} to {last}");
        let (plain, found) = (RotaryScaling::None.frequencies(1e4, 64), yarn(40.0, true).frequencies(1e4, 64));
        let share = |pair: usize| found[pair] / plain[pair];
        assert!((0..=20).all(|pair| share(pair) == 1.0) && (46..64).all(|pair| near(share(pair), 1.0 / 40.0, 1e-12)));
        assert!(near(share(33), 0.5 + 0.5 / 40.0, 1e-12), "half of the way: {}", share(33));
        assert!(near(yarn(40.0, true).magnitude(), 1.368_888, 1e-6));
    }
}
