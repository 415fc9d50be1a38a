//! Rotary angles for sequences longer than the training length.

use std::f64::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

use crate::contract::Check;
use crate::contract::error::ConfigError;
use crate::contract::unit_variant::without_options;

/// Angle scaling for sequences longer than the training length. Options use the names of `rope_parameters` of Hugging Face, where `kind` is `rope_type`. A
/// factor of 1 changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// No scaling (`default` there).
    #[default]
    #[serde(deserialize_with = "without_options")]
    None,
    /// All angles are divided by the factor: position interpolation (Chen et al. 2023).
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// Multiplies the base by `factor^(r / (r - 2))` for `r` rotated channels: the slowest pair is divided by the factor, and the fastest is unchanged (bloc97
    /// 2023, "NTK-aware"). Requires at least 4 rotated channels.
    Ntk {
        /// At least 1.
        factor: f64,
    },
    /// The same for sequences longer than the training length, with `factor n / original - (factor - 1)` as the factor, where `n` is the current sequence
    /// length (emozilla 2023, "dynamic NTK"). Up to the original length nothing changes. Requires at least 4 rotated channels.
    Dynamic {
        /// At least 1.
        factor: f64,
        /// Training length, at least 1: `max_position_embeddings` of Hugging Face.
        original_max_position_embeddings: usize,
    },
    /// Rotates only the fastest pairs, with their angles among all pairs of a head, divided by the factor (`proportional` there, Gemma). Unlike with
    /// `fraction`, the two channels of a pair are half a head apart.
    Proportional {
        /// At least 1 (default 1).
        #[serde(default = "one")]
        factor: f64,
        /// Fraction of rotated channels, greater than 0 and at most 1 (default 1). The number of pairs is rounded down.
        #[serde(default = "one")]
        partial_rotary_factor: f64,
    },
    /// Divides pairs with fewer than `low_freq_factor` turns within the original length by the factor, keeps pairs with more than `high_freq_factor` turns, and
    /// interpolates between (Llama 3.1).
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Turns below which a pair is slowed down fully, greater than 0 (default 1).
        #[serde(default = "one")]
        low_freq_factor: f64,
        /// Turns above which a pair is not slowed down, greater than `low_freq_factor` (default 4).
        #[serde(default = "four")]
        high_freq_factor: f64,
        /// Training length, at least 1.
        original_max_position_embeddings: usize,
    },
    /// The same with a ramp over the pair index, and larger scores (YaRN, Peng et al. 2023).
    Yarn {
        /// At least 1.
        factor: f64,
        /// Training length, at least 1.
        original_max_position_embeddings: usize,
        /// Turns above which a pair is not slowed down, greater than `beta_slow` (default 32).
        #[serde(default = "thirty_two")]
        beta_fast: f64,
        /// Turns below which a pair is slowed down fully, greater than 0 (default 1).
        #[serde(default = "one")]
        beta_slow: f64,
        /// Factor of rotated queries and rotated keys, greater than 0 (default `0.1 ln(factor) + 1`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Weight `m` of the logarithm in `(0.1 m ln(factor) + 1) / (0.1 m_all ln(factor) + 1)`, which replaces that default, greater than 0 (default: none).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale: Option<f64>,
        /// Weight `m_all` there, greater than 0 (default: none). In the mechanism `mla`, all scores are multiplied by `(0.1 m_all ln(factor) + 1)^2`, as in
        /// DeepSeek's models.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale_all_dim: Option<f64>,
        /// Whether the ramp starts and ends at whole pairs (default: yes; GPT-OSS: `false`).
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
    /// Whether angles are unscaled.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Whether angles depend on the length of a call.
    pub(in crate::mechanisms) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dynamic { .. })
    }

    /// # Errors
    /// If a number is out of range or has no effect; `scales_scores` states whether `mscale_all_dim` has its own effect.
    pub(in crate::mechanisms) fn validate(&self, check: &Check, rotated: usize, scales_scores: bool) -> Result<(), ConfigError> {
        let positive = |option, value: f64| {
            let is_possible = value.is_finite() && value > 0.0;
            if is_possible { Ok(()) } else { Err(check.refuse(option, value, "give a number greater than 0")) }
        };
        if let Some(factor) = self.factor().filter(|factor| !(factor.is_finite() && *factor >= 1.0)) {
            return Err(check.refuse("scaling.factor", factor, "give a number of at least 1"));
        }
        match *self {
            Self::None | Self::Linear { .. } => Ok(()),
            Self::Ntk { .. } | Self::Dynamic { .. } if rotated < 4 => {
                let kind = if self.is_dynamic() { "dynamic" } else { "ntk" };
                Err(check.refuse("scaling.kind", kind, format!("rotate at least 4 channels of a head, not {rotated}, or use linear")))
            }
            Self::Ntk { .. } => Ok(()),
            Self::Dynamic { original_max_position_embeddings, .. } => {
                check.at_least_one("scaling.original_max_position_embeddings", original_max_position_embeddings)
            }
            Self::Proportional { partial_rotary_factor, .. } => {
                let is_share = partial_rotary_factor > 0.0 && partial_rotary_factor <= 1.0;
                if is_share && turning(partial_rotary_factor, rotated / 2) > 0 {
                    return Ok(());
                }
                let remedy = format!("give a number of at most 1 that leaves at least 2 of {rotated} channels");
                Err(check.refuse("scaling.partial_rotary_factor", partial_rotary_factor, remedy))
            }
            Self::Llama3 { low_freq_factor, high_freq_factor, original_max_position_embeddings, .. } => {
                check.at_least_one("scaling.original_max_position_embeddings", original_max_position_embeddings)?;
                positive("scaling.low_freq_factor", low_freq_factor)?;
                if high_freq_factor.is_finite() && high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                let remedy = format!("give a number greater than low_freq_factor = {low_freq_factor}");
                Err(check.refuse("scaling.high_freq_factor", high_freq_factor, remedy))
            }
            Self::Yarn { original_max_position_embeddings, beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, .. } => {
                check.at_least_one("scaling.original_max_position_embeddings", original_max_position_embeddings)?;
                positive("scaling.beta_slow", beta_slow)?;
                if !(beta_fast.is_finite() && beta_fast > beta_slow) {
                    let remedy = format!("give a number greater than beta_slow = {beta_slow}");
                    return Err(check.refuse("scaling.beta_fast", beta_fast, remedy));
                }
                for (option, value) in
                    [("scaling.attention_factor", attention_factor), ("scaling.mscale", mscale), ("scaling.mscale_all_dim", mscale_all_dim)]
                {
                    value.map_or(Ok(()), |value| positive(option, value))?;
                }
                if let Some(mscale) = mscale.filter(|_| attention_factor.is_some() || mscale_all_dim.is_none()) {
                    let remedy = "leave it out where attention_factor is given, and give mscale_all_dim with it where not";
                    return Err(check.refuse("scaling.mscale", mscale, remedy));
                }
                match mscale_all_dim.filter(|_| mscale.is_none() && !scales_scores) {
                    Some(of_all) => Err(check.refuse("scaling.mscale_all_dim", of_all, "leave it out, or give mscale with it")),
                    None => Ok(()),
                }
            }
        }
    }

    fn factor(&self) -> Option<f64> {
        match *self {
            Self::None => None,
            Self::Linear { factor }
            | Self::Ntk { factor }
            | Self::Dynamic { factor, .. }
            | Self::Proportional { factor, .. }
            | Self::Llama3 { factor, .. }
            | Self::Yarn { factor, .. } => Some(factor),
        }
    }

    /// Angle per position of each of `pairs` pairs, in a sequence of this length.
    pub(super) fn frequencies_at(&self, base: f64, pairs: usize, length: usize) -> Vec<f64> {
        match *self {
            Self::Dynamic { factor, original_max_position_embeddings: original } if length > original => {
                let factor = factor * length as f64 / original as f64 - (factor - 1.0);
                Self::Ntk { factor }.frequencies(base, pairs)
            }
            _ => self.frequencies(base, pairs),
        }
    }

    /// Angle per position of each of `pairs` pairs, up to the training length.
    pub(in crate::mechanisms) fn frequencies(&self, base: f64, pairs: usize) -> Vec<f64> {
        let plain = |base: f64| (0..pairs).map(move |pair| base.powf(-(pair as f64) / pairs as f64));
        match *self {
            Self::None | Self::Dynamic { .. } => plain(base).collect(),
            Self::Proportional { factor, partial_rotary_factor } => {
                let turning = turning(partial_rotary_factor, pairs);
                plain(base).enumerate().map(|(pair, frequency)| if pair < turning { frequency / factor } else { 0.0 }).collect()
            }
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

    /// First and last pair of YaRN's ramp.
    fn ramp(&self, base: f64, pairs: usize) -> Option<[f64; 2]> {
        let Self::Yarn { original_max_position_embeddings, beta_fast, beta_slow, truncate, .. } = *self else { return None };
        // Pair with this number of turns within the original length.
        let pair = |turns: f64| pairs as f64 * (original_max_position_embeddings as f64 / (2.0 * PI * turns)).ln() / base.ln();
        let (first, last) = (pair(beta_fast), pair(beta_slow));
        let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
        // The released code limits the end by channels, not by pairs.
        let (first, last) = (first.max(0.0), last.min(2.0 * pairs as f64 - 1.0));
        Some([first, if first == last { last + 0.001 } else { last }])
    }

    /// Factor of rotated queries and rotated keys.
    pub(in crate::mechanisms) fn magnitude(&self) -> f64 {
        let Self::Yarn { factor, attention_factor, mscale, mscale_all_dim, .. } = *self else { return 1.0 };
        attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
            (Some(mscale), Some(of_all)) => growth(factor, mscale) / growth(factor, of_all),
            _ => growth(factor, 1.0),
        })
    }

    /// Factor of all scores, not only those of rotated channels.
    pub(in crate::mechanisms) fn score_factor(&self) -> f64 {
        match *self {
            Self::Yarn { factor, mscale_all_dim: Some(of_all), .. } => growth(factor, of_all).powi(2),
            _ => 1.0,
        }
    }
}

/// YaRN's factor of queries and keys, with the logarithm times `weight`.
fn growth(factor: f64, weight: f64) -> f64 {
    0.1 * weight * factor.ln() + 1.0
}

/// Number of rotated pairs out of `pairs` for a fraction of the channels.
fn turning(share: f64, pairs: usize) -> usize {
    (share * (2 * pairs) as f64 / 2.0) as usize
}

/// Frequency of which the fraction `kept` is unchanged and the rest divided by the factor.
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
            mscale: None,
            mscale_all_dim: None,
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
    fn dynamic_angles_are_those_of_ntk_beyond_the_original_length() {
        let dynamic = RotaryScaling::Dynamic { factor: 2.0, original_max_position_embeddings: 1024 };
        for length in [1, 1024] {
            assert_eq!(dynamic.frequencies_at(1e4, 64, length), RotaryScaling::None.frequencies(1e4, 64));
        }
        // 2 * 4 - 1.
        assert_eq!(dynamic.frequencies_at(1e4, 64, 4096), RotaryScaling::Ntk { factor: 7.0 }.frequencies(1e4, 64));
    }

    #[test]
    fn a_share_of_the_pairs_is_turned_as_among_all() {
        let found = RotaryScaling::Proportional { factor: 4.0, partial_rotary_factor: 0.3 }.frequencies(1e4, 16);
        let plain = RotaryScaling::None.frequencies(1e4, 16);
        // 0.3 of 32 channels are 4 pairs.
        assert!((0..4).all(|pair| found[pair] == plain[pair] / 4.0) && found[4..].iter().all(|&frequency| frequency == 0.0));
    }

    #[test]
    fn ntk_keeps_the_fastest_pair_and_divides_the_slowest() {
        let (plain, found) = (RotaryScaling::None.frequencies(1e4, 64), RotaryScaling::Ntk { factor: 8.0 }.frequencies(1e4, 64));
        assert_eq!(found[0], 1.0);
        assert!(near(found[63], plain[63] / 8.0, 1e-12));
        assert!((1..63).all(|pair| found[pair] < plain[pair] && found[pair] > plain[pair] / 8.0));
    }

    /// Llama 3.1: heads 128 wide, base 500,000. Pairs with up to 2,048 positions per turn are unchanged; those with more than 8,192 are divided by 8.
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
        // The second of two pairs turns once in 4,096 positions, so twice within 8,192: a third of the way from 1 to 4.
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
