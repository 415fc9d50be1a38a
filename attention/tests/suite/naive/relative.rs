//! Relative positions, of Transformer-XL and learned.

use heedful_attention::mechanisms::adaptive_span::AdaptiveSpanConfig;
use heedful_attention::mechanisms::alibi::AlibiConfig;
use heedful_attention::mechanisms::learned_relative::LearnedRelativeConfig;
use heedful_attention::mechanisms::mixture::MixtureConfig;
use heedful_attention::mechanisms::relative::RelativeConfig;
use heedful_attention::registry::AnyMechanism;

use super::Naive;
use crate::subject::Case;

impl Naive {
    /// Whether a mechanism itself lets query `i` see key `j`.
    pub(super) fn shows(&self, config: &AnyMechanism, i: usize, j: usize) -> bool {
        by_type!(config;
            config in RelativeConfig => config.same_length.is_none_or(|keys| j + keys > i),
            config in LearnedRelativeConfig => i.abs_diff(j) <= config.max_distance.unwrap_or(self.placement.max_length),
            config in AdaptiveSpanConfig => self.shows(&self.under_span(config), i, j),
            mixture in MixtureConfig => mixture.members.iter().all(|member| self.shows(member, i, j));
            else => true
        )
    }

    /// Press et al. 2022, section 3: slopes `2^(-8 h / H)`, and for other than powers of two every second one of twice as many heads after them.
    pub(super) fn alibi(&self, config: &AlibiConfig, path: &str, case: &Case, [b, h, i, j]: [usize; 4]) -> f64 {
        let memory = case.memory.as_ref().unwrap_or(&case.query);
        let query = self.projected(&format!("{path}.Alibi.query"), case.query.row(&[b, i]), h);
        let key = self.projected(&format!("{path}.Alibi.key"), memory.row(&[b, j]), h);
        let product: f64 = query.iter().zip(&key).map(|(q, k)| q * k).sum();
        let (heads, mut power) = (self.placement.heads, 1);
        while power * 2 <= heads {
            power *= 2;
        }
        let own = if h < power { (h + 1) as f64 / power as f64 } else { (2 * (h - power) + 1) as f64 / (2 * power) as f64 };
        let slope = config.slopes.as_ref().map_or(2f64.powf(-8.0 * own), |slopes| slopes[h]);
        product / (query.len() as f64).sqrt() - slope * i.abs_diff(j) as f64
    }

    /// Dai et al. 2019, section 3.3: `q k + q W_R r + u k + v W_R r`, each term by itself.
    pub(super) fn relative(&self, config: &RelativeConfig, path: &str, case: &Case, [b, h, i, j]: [usize; 4]) -> f64 {
        let path = format!("{path}.Relative");
        let memory = case.memory.as_ref().unwrap_or(&case.query);
        let query = self.projected(&format!("{path}.query"), case.query.row(&[b, i]), h);
        let key = self.projected(&format!("{path}.key"), memory.row(&[b, j]), h);
        let mut distance = i as f64 - j as f64;
        if let Some(length) = config.clamp_length {
            distance = distance.signum() * distance.abs().min(length as f64);
        }
        let d_model = self.placement.d_model;
        let sines = d_model.div_ceil(2);
        let sinusoid: Vec<f64> = (0..d_model)
            .map(|c| {
                let pair = if c < sines { c } else { c - sines };
                let angle = distance * 10_000f64.powf(-2.0 * pair as f64 / d_model as f64);
                if c < sines { angle.sin() } else { angle.cos() }
            })
            .collect();
        let position = self.projected(&format!("{path}.position"), &sinusoid, h);
        let (u, v) = (self.parameter(&format!("{path}.content_bias")), self.parameter(&format!("{path}.position_bias")));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let sum = dot(&query, &key) + dot(&query, &position) + dot(u.row(&[h]), &key) + dot(v.row(&[h]), &position);
        sum / (query.len() as f64).sqrt()
    }

    /// Sukhbaatar et al. 2019, section 2.1: `q (k + p)`.
    pub(super) fn learned_relative(&self, path: &str, case: &Case, [b, h, i, j]: [usize; 4]) -> f64 {
        let path = format!("{path}.LearnedRelative");
        let memory = case.memory.as_ref().unwrap_or(&case.query);
        let query = self.projected(&format!("{path}.query"), case.query.row(&[b, i]), h);
        let key = self.projected(&format!("{path}.key"), memory.row(&[b, j]), h);
        let vector = self.parameter(&format!("{path}.distances")).row(&[i.abs_diff(j)]);
        let sum: f64 = query.iter().zip(key.iter().zip(vector)).map(|(q, (k, p))| q * (k + p)).sum();
        sum / (query.len() as f64).sqrt()
    }
}
