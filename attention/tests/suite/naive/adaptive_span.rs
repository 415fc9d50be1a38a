//! Adaptive attention span.

use heedful_attention::mechanisms::adaptive_span::{AdaptiveSpanConfig, SpanKind, SpanOrigin};
use heedful_attention::mechanisms::learned_relative::LearnedRelativeConfig;
use heedful_attention::registry::AnyMechanism;

use super::Naive;
use crate::subject::Case;

impl Naive {
    /// The attention that a span is laid over.
    pub(super) fn under_span(&self, config: &AdaptiveSpanConfig) -> AnyMechanism {
        match &config.logits {
            Some(logits) => logits.clone(),
            None => AnyMechanism::from(LearnedRelativeConfig::default().with_max_distance(self.longest_span(config))),
        }
    }

    fn longest_span(&self, config: &AdaptiveSpanConfig) -> usize {
        config.max_span.unwrap_or(self.placement.max_length)
    }

    /// Sukhbaatar et al. 2019, section 2.2: `min(max((R + z - x) / R, 0), 1)`, and 1 for mechanisms without a span.
    pub(super) fn soft_span(&self, case: &Case, b: usize, h: usize, i: usize, j: usize) -> f64 {
        let Some(config) = self.config.get::<AdaptiveSpanConfig>() else { return 1.0 };
        let longest = self.longest_span(config);
        let distance = i.abs_diff(j);
        if distance > longest || (distance == 0 && !config.own_position) {
            return 0.0;
        }
        let fraction = match config.kind {
            SpanKind::Learned => self.parameter("logits.AdaptiveSpan.span").at(&[h]),
            SpanKind::Dynamic => {
                let (v, bias) = (self.parameter("logits.AdaptiveSpan.gate.weight"), self.parameter("logits.AdaptiveSpan.gate.bias"));
                let x = case.query.row(&[b, i]);
                let score: f64 = x.iter().enumerate().map(|(c, x)| x * v.at(&[c, h])).sum();
                1.0 / (1.0 + (-score - bias.at(&[h])).exp())
            }
            SpanKind::Fixed => config.initial.unwrap_or(0.0),
        };
        let x = match config.origin {
            SpanOrigin::Code => distance as f64 - 1.0,
            SpanOrigin::Paper => distance as f64,
        };
        ((config.ramp + longest as f64 * fraction - x) / config.ramp).clamp(0.0, 1.0)
    }
}
