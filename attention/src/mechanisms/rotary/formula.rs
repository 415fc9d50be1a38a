//! The papers' formulas for one query and one key.

use std::f64::consts::TAU;

use super::{PairLayout, RotaryConfig, RotaryScaling};
use crate::description::formula::{Formula, dot};

/// Su et al. 2021, section 3.2: `(R_m q) (R_n k)`.
pub(super) fn of(config: &RotaryConfig) -> Formula<'_> {
    Formula::default().logit(|query, key| {
        let norm = |name, x| config.qk_norm.formula(config.qk_norm_epsilon, query, name, x);
        let length = query.position_of(query.keys() - 1) + 1;
        let q = turned(config, norm("query_norm", query.projected("query", query.element())), query.position(), length);
        let k = turned(config, norm("key_norm", query.projected("key", query.attended(key))), query.position_of(key), length);
        dot(&q, &k) * config.score_scale.unwrap_or_else(|| (q.len() as f64).powf(-0.5))
    })
}

/// YaRN's factor of queries and keys (Peng et al. 2023, section 3.4), with the two weights of released code.
pub(in crate::mechanisms) fn magnitude(scaling: &RotaryScaling) -> f64 {
    let RotaryScaling::Yarn { factor, attention_factor, mscale, mscale_all_dim, .. } = *scaling else { return 1.0 };
    let grown = |weight: f64| 1.0 + weight * factor.ln() / 10.0;
    attention_factor.unwrap_or(match (mscale, mscale_all_dim) {
        (Some(own), Some(of_all)) => grown(own) / grown(of_all),
        _ => grown(1.0),
    })
}

/// `R_m x`: each pair rotated by its angle, in a sequence of `n` positions.
fn turned(config: &RotaryConfig, x: Vec<f64>, position: usize, n: usize) -> Vec<f64> {
    let pairs = (config.fraction * x.len() as f64 / 2.0).round() as usize;
    let length = magnitude(&config.scaling);
    let mut y = x.clone();
    for pair in 0..pairs {
        let angle = position as f64 * theta(config.base, &config.scaling, [pair, pairs], n);
        let (a, b) = match config.layout {
            PairLayout::Half => (pair, pair + pairs),
            PairLayout::Interleaved => (2 * pair, 2 * pair + 1),
        };
        y[a] = length * (x[a] * angle.cos() - x[b] * angle.sin());
        y[b] = length * (x[a] * angle.sin() + x[b] * angle.cos());
    }
    y
}

/// Angle between neighbouring positions in a sequence of `n`, `base^(-2 i / r)` unless scaled.
pub(in crate::mechanisms) fn theta(own_base: f64, scaling: &RotaryScaling, [pair, pairs]: [usize; 2], n: usize) -> f64 {
    let power = |base: f64| 1.0 / base.powf(2.0 * pair as f64 / (2 * pairs) as f64);
    let plain = power(own_base);
    match *scaling {
        RotaryScaling::Dynamic { factor, original_max_position_embeddings } => {
            let (channels, original) = ((2 * pairs) as f64, original_max_position_embeddings as f64);
            let longer = (n as f64).max(original) / original;
            power(own_base * (factor * longer - (factor - 1.0)).powf(channels / (channels - 2.0)))
        }
        RotaryScaling::Proportional { factor, partial_rotary_factor } => {
            if pair < (partial_rotary_factor * pairs as f64).floor() as usize {
                plain / factor
            } else {
                0.0
            }
        }
        RotaryScaling::None => plain,
        RotaryScaling::Linear { factor } => plain / factor,
        RotaryScaling::Ntk { factor } => {
            let channels = (2 * pairs) as f64;
            power(own_base * factor.powf(channels / (channels - 2.0)))
        }
        RotaryScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
            let (length, wavelength) = (original_max_position_embeddings as f64, TAU / plain);
            if wavelength < length / high_freq_factor {
                plain
            } else if wavelength > length / low_freq_factor {
                plain / factor
            } else {
                let smooth = (length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * plain / factor + smooth * plain
            }
        }
        RotaryScaling::Yarn { factor, original_max_position_embeddings, beta_fast, beta_slow, truncate, .. } => {
            let channels = (2 * pairs) as f64;
            let place = |turns: f64| channels * (original_max_position_embeddings as f64 / (TAU * turns)).ln() / (2.0 * own_base.ln());
            let (mut low, mut high) = (place(beta_fast), place(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            (low, high) = (low.max(0.0), high.min(channels - 1.0));
            if low == high {
                high += 0.001;
            }
            let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            plain / factor * ramp + plain * (1.0 - ramp)
        }
    }
}
