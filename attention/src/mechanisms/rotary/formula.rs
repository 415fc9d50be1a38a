//! What the papers say, for one query and one key.

use std::f64::consts::TAU;

use super::{PairLayout, RotaryConfig, RotaryScaling};
use crate::conformance::formula::{Formula, dot};

/// Su et al. 2021, section 3.2: `(R_m q) (R_n k)`.
pub(super) fn of(config: &RotaryConfig) -> Formula<'_> {
    Formula::default().logit(|query, key| {
        let norm = |name, x| config.qk_norm.formula(config.qk_norm_epsilon, query, name, x);
        let q = turned(config, norm("query_norm", query.projected("query", query.element())), query.position());
        let k = turned(config, norm("key_norm", query.projected("key", query.attended(key))), query.position_of(key));
        dot(&q, &k) * config.score_scale.unwrap_or_else(|| (q.len() as f64).powf(-0.5))
    })
}

/// `R_m x`: each pair times the rotation by its angle.
fn turned(config: &RotaryConfig, x: Vec<f64>, position: usize) -> Vec<f64> {
    let pairs = (config.fraction * x.len() as f64 / 2.0).round() as usize;
    let length = match config.scaling {
        RotaryScaling::Yarn { factor, attention_factor, .. } => attention_factor.unwrap_or(1.0 + factor.ln() / 10.0),
        _ => 1.0,
    };
    let mut y = x.clone();
    for pair in 0..pairs {
        let angle = position as f64 * theta(config, pair, pairs);
        let (a, b) = match config.layout {
            PairLayout::Half => (pair, pair + pairs),
            PairLayout::Interleaved => (2 * pair, 2 * pair + 1),
        };
        y[a] = length * (x[a] * angle.cos() - x[b] * angle.sin());
        y[b] = length * (x[a] * angle.sin() + x[b] * angle.cos());
    }
    y
}

/// The angle between neighbouring positions, `base^(-2 i / r)` unless it is scaled.
fn theta(config: &RotaryConfig, pair: usize, pairs: usize) -> f64 {
    let power = |base: f64| 1.0 / base.powf(2.0 * pair as f64 / (2 * pairs) as f64);
    let plain = power(config.base);
    match config.scaling {
        RotaryScaling::None => plain,
        RotaryScaling::Linear { factor } => plain / factor,
        RotaryScaling::Ntk { factor } => {
            let channels = (2 * pairs) as f64;
            power(config.base * factor.powf(channels / (channels - 2.0)))
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
            let place = |turns: f64| channels * (original_max_position_embeddings as f64 / (TAU * turns)).ln() / (2.0 * config.base.ln());
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
